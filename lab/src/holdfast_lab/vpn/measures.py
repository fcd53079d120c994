"""What is measured of a run: overflow, peaks, fairness, changes of rates, and the size of a burst.

Rules of this file: figures from a run that is over; nothing is judged (pyspark_holdfast/traffic does, of many runs).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import fsum
from statistics import mean
from typing import Any, Final

from holdfast_lab.vpn.model import SAMPLE_S, Network, Sample
from holdfast_lab.vpn.parameters import Experiment

AFTER_S: Final = 5.0
"""A queue that the burst left full has room again after this."""

Tell = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run. Lists are by client, in messages, or messages a second. `outside`: overflows before the burst, or later
    than AFTER_S after it. `in_burst`: generated since the burst began, by the clients that burst. `delivered`: to the
    root. `fairness`: Jain's index of the queues' means in the burst. `changes_per_min`: a client's rate changes in it.
    `counted`: what the network counted besides, by name; direct links count nothing."""

    name: str
    seed: int
    generated: list[int]
    overflowed: list[int]
    outside: int
    in_burst: int
    delivered: int
    peaks: list[int]
    root_peak: int
    root_mean: float
    fairness: float
    changes_per_min: float
    rates_within: list[float]
    rates_outside: list[float]
    loads_per_s: float
    paces_per_s: float
    counted: dict[str, Any]

    @property
    def total(self) -> int:
        return sum(self.overflowed)


@dataclass(frozen=True, slots=True)
class Series:
    """One run by the second: each client's queue, the root's, the rates of clients in messages a second, and what each
    generated so far; when each client's overflowing messages came; what failed when; when the run ended."""

    name: str
    queues: list[tuple[int, ...]]
    root: list[float]
    rates: list[tuple[float, ...]]
    generated: list[tuple[int, ...]]
    overflows: list[tuple[float, int]]
    faults: list[tuple[float, str]]
    ended_s: float


def fairness(queues: Sequence[float]) -> float:
    """Jain's index: 1 where all are alike, 1 / n where one has all. Empty queues are alike."""
    squares = fsum(queue * queue for queue in queues)
    total: float = fsum(queues)
    return total * total / (len(queues) * squares) if squares else 1.0


def run(experiment: Experiment, tell: Tell | None = None) -> tuple[Outcome, Series]:
    """`tell` is called with the seconds that have passed, now and then."""
    network = _network(experiment)
    network.tell = tell
    network.run()
    begins, ends = experiment.burst_s
    within: list[Sample] = []
    outside: list[Sample] = []
    for second, sample in enumerate(network.samples):
        (within if begins <= second * SAMPLE_S < ends else outside).append(sample)
    changes = network.changes_in_burst / experiment.clients
    ended_s = network.clock.now
    outcome = Outcome(
        experiment.name, experiment.seed,
        [client.generated for client in network.clients], [client.overflowed for client in network.clients],
        sum(not begins <= at < ends + AFTER_S for at, _ in network.overflow_times),
        sum(client.in_burst for client in network.clients if experiment.bursts(client.number)), network.delivered,
        [client.peak for client in network.clients], network.root_peak,
        mean(one.root for one in within) if within else 0.0,
        fairness([mean(path) for path in zip(*(one.queues for one in within), strict=True)]) if within else 1.0,
        changes / (len(within) * SAMPLE_S / 60) if within else 0.0,
        _means([one.rates for one in within]), _means([one.rates for one in outside]),
        network.loads / ended_s, network.paces / ended_s, network.counted(),
    )  # fmt: skip
    series = Series(
        experiment.name,
        [one.queues for one in network.samples], [one.root for one in network.samples],
        [one.rates for one in network.samples], [one.generated for one in network.samples],
        network.overflow_times, network.faults, ended_s,
    )  # fmt: skip
    return outcome, series


def _network(experiment: Experiment) -> Network:
    if experiment.priorities:
        from holdfast_lab.vpn.priorities import BandedNetwork

        return BandedNetwork(experiment)
    if not experiment.network:
        return Network(experiment)
    from holdfast_lab.vpn.over_mpls import network_of

    return network_of(experiment)


def _means(paths: Sequence[tuple[float, ...]]) -> list[float]:
    return [mean(values) for values in zip(*paths, strict=True)]
