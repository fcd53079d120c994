"""What is measured of a run: overflow, peaks, fairness, changes of rates, and the size of a burst.

Rules of this file: figures from a run that is over; nothing is judged (acceptance.py does).
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import fsum
from statistics import mean
from typing import Any

from holdfast_lab.vpn.bound import limit
from holdfast_lab.vpn.model import SAMPLE_S, Network
from holdfast_lab.vpn.parameters import Experiment, sizing

AFTER_S = 5.0
"""A queue that the burst left full has room again after this."""

SETTLED_MESSAGES = 10
"""How near its mean a queue must stay to count as settled."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run. Lists are by client, in messages. `outside`: overflows before the burst, or later than AFTER_S after it.
    `fairness`: Jain's index of the queues' means in the burst. `changes_per_min`: a client's rate changes in it."""

    name: str
    seed: int
    generated: list[int]
    overflowed: list[int]
    outside: int
    peaks: list[int]
    root_peak: int
    fairness: float
    changes_per_min: float
    loads_per_s: float
    paces_per_s: float

    @property
    def total(self) -> int:
        return sum(self.overflowed)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "overflowed_total": self.total}


@dataclass(frozen=True, slots=True)
class Series:
    """One run by the second: each client's queue, the root's, the rates of clients in messages a second, and when each
    client's overflowing messages came."""

    name: str
    queues: list[tuple[int, ...]]
    root: list[float]
    rates: list[tuple[float, ...]]
    overflows: list[tuple[float, int]]


@dataclass(frozen=True, slots=True)
class Burst:
    """The size of a burst at the first overflow, of what is possible: with the sum of rates at most R, or, where the
    policy lends the root's space, with that."""

    name: str
    seed: int
    burst: float
    size: int
    limit: int

    @property
    def share(self) -> float:
        return self.size / self.limit


def fairness(queues: Sequence[float]) -> float:
    """Jain's index: 1 where all are alike, 1 / n where one has all. Empty queues are alike."""
    squares = fsum(queue * queue for queue in queues)
    total: float = fsum(queues)
    return total * total / (len(queues) * squares) if squares else 1.0


def run(experiment: Experiment) -> tuple[Outcome, Series]:
    network = Network(experiment)
    network.run()
    begins, ends = experiment.burst_s
    within = [
        queues for second, (queues, _, _) in enumerate(network.samples) if begins <= second * SAMPLE_S < ends
    ]  # fmt: skip
    rates = [rates for second, (_, _, rates) in enumerate(network.samples) if begins <= second * SAMPLE_S < ends]
    changes = network.changes_in_burst / experiment.clients
    span_s = experiment.span_s
    outcome = Outcome(
        experiment.name, experiment.seed,
        [client.generated for client in network.clients], [client.overflowed for client in network.clients],
        sum(not begins <= at < ends + AFTER_S for at, _ in network.overflow_times),
        [client.peak for client in network.clients], network.root_peak,
        fairness([mean(path) for path in zip(*within, strict=True)]) if within else 1.0,
        changes / (len(rates) * SAMPLE_S / 60) if rates else 0.0,
        network.loads / span_s, network.paces / span_s,
    )  # fmt: skip
    series = Series(
        experiment.name, [queues for queues, _, _ in network.samples], [root for _, root, _ in network.samples],
        [rates for _, _, rates in network.samples], network.overflow_times,
    )  # fmt: skip
    return outcome, series


def burst_size(experiment: Experiment, burst: float) -> Burst:
    """What the clients that burst generate, at `burst` a second each, until anything overflows anywhere."""
    sought = sizing(experiment, burst)
    network = Network(sought)
    network.run()
    size = sum(client.in_burst for client in network.clients if sought.bursts(client.number))
    return Burst(experiment.name, experiment.seed, burst, size, limit(sought, whole=experiment.lend > 0))


def settling_s(paths: list[list[int]]) -> float:
    """When the mean of several runs' queues stays within SETTLED_MESSAGES of the mean of its second half, in seconds
    from the paths' beginning."""
    middle = [mean(values) for values in zip(*paths, strict=True)]
    level = mean(middle[len(middle) // 2 :])
    far = [second for second, value in enumerate(middle) if abs(value - level) > SETTLED_MESSAGES]
    return (far[-1] + 1) * SAMPLE_S if far else 0.0
