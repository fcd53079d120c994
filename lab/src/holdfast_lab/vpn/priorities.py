"""All at once, with priorities: what is refused, of whom and of which priority, where more is generated than the root
takes (docs/adr/0077-room-by-priority.md).

Rules of this file: the network of model.py; a queue takes messages by the nodes' own bands (holdfast.broker.bands), and
a report tells the lowest of them as its capacity. Priorities are drawn beside the times of messages, so that all
policies meet the same. Source: traffic-control §5, which leaves this open.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from random import Random
from statistics import mean
from typing import Any, Final

from holdfast.broker.bands import QUIET_S, Bands, limit
from holdfast.pacing.settings import ROOM_LOW, ROOM_NORMAL
from holdfast_lab.vpn.acceptance import Check
from holdfast_lab.vpn.arriving import times
from holdfast_lab.vpn.model import ARRIVAL, Client, Network
from holdfast_lab.vpn.parameters import BURST_MEAN_S, CLIENT_MESSAGES, SIZE, Experiment

CLASSES: Final = ("low", "normal", "high")
PRIORITIES: Final = (1, 4, 8)
SHARES: Final = (0.6, 0.3, 0.1)
"""Of the messages, by class."""

BEGINS_S: Final = 100.0
ENDS_S: Final = 1_100.0
"""Queues are full within half a minute; from then on shares change little."""

EQUAL: Final = (1 / BURST_MEAN_S,) * 3
UNEQUAL: Final = (0.0, 30.0, 15.0)
"""Messages a second in the burst by pattern; 0: as before it, 4.2."""

OFFERED: Final = {"13.3 / 13.3 / 13.3": EQUAL, "4.2 / 30 / 15": UNEQUAL}

Refused = tuple[float, float, float]

CHECKED: Final = ("weights", "level 0")

EACH: Final = 2.0
"""How much further a run may be than the mean, in percent of what is offered."""


@dataclass(frozen=True, slots=True)
class Burst:
    """One run. `offered`, `refused`: messages in the burst, by client and in it by class."""

    name: str
    seed: int
    offered: tuple[tuple[int, int, int], ...]
    refused: tuple[tuple[int, int, int], ...]
    root_peak: int

    def by_class(self) -> Refused:
        """Refused share of each class."""
        return _shares([*zip(*self.refused, strict=True)], [*zip(*self.offered, strict=True)])

    def by_client(self) -> Refused:
        """Refused share of each client."""
        return _shares(self.refused, self.offered)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def _shares(refused: Sequence[Sequence[int]], offered: Sequence[Sequence[int]]) -> Refused:
    low, normal, high = (sum(some) / max(1, sum(all_)) for some, all_ in zip(refused, offered, strict=True))
    return low, normal, high


EXPECTED: Final[dict[str, list[tuple[str, str, tuple[float, float], Callable[[Burst], Refused], int]]]] = {
    "13.3 / 13.3 / 13.3": [
        ("low", "61 %", (59.0, 63.0), Burst.by_class, 0),
        ("normal", "less than 0.1 %", (0.0, 0.1), Burst.by_class, 1),
        ("high", "0", (0.0, 0.0), Burst.by_class, 2),
        *((f"client {at + 1}", "37 %", (35.0, 39.0), Burst.by_client, at) for at in range(3)),
    ],
    "4.2 / 30 / 15": [
        ("high", "0", (0.0, 0.0), Burst.by_class, 2),
        ("client 1", "0", (0.0, 0.5), Burst.by_client, 0),
        ("client 2", "64 %", (62.0, 67.0), Burst.by_client, 1),
        ("client 3", "30 %", (27.0, 33.0), Burst.by_client, 2),
    ],
}
"""Worked out beforehand (docs/adr/0077-room-by-priority.md): what is checked, as it is told, the bounds of its mean,
and where it is in a run."""


class BandedNetwork(Network):
    """Three clients whose queues take messages by priority. `whole_capacity`: reports tell the whole queue as capacity,
    and not its lowest band."""

    def __init__(self, experiment: Experiment, rates: Sequence[float], *, whole_capacity: bool = False) -> None:
        super().__init__(experiment)
        self.bands: list[Bands] = []
        self._draws: list[Random] = []
        self.offered: list[list[int]] = []
        self.refused: list[list[int]] = []
        lowest = limit(CLIENT_MESSAGES, ROOM_LOW)
        assert lowest is not None
        for client in self.clients:
            rate = rates[experiment.pattern(client.number) - 1]
            bursting = (experiment.pattern(client.number),) if rate else tuple({1, 2, 3} - {client.number % 3 + 1})
            client.arrivals = times(replace(experiment, burst=rate or 1.0, bursting=bursting), client.number)
            self.bands.append(Bands(ROOM_LOW, ROOM_NORMAL, QUIET_S, 0.0))
            self._draws.append(Random(f"vpn {experiment.seed} {client.number} priorities"))
            self.offered.append([0, 0, 0])
            self.refused.append([0, 0, 0])
            if not whole_capacity:
                client.origin.capacity = lowest * SIZE

    def _arrive(self, now: float, client: Client) -> None:
        number = client.number
        which = _class_of(self._draws[number].random())
        priority, bands = PRIORITIES[which], self.bands[number]
        in_burst = self.experiment.burst_s[0] <= now < self.experiment.burst_s[1]
        client.generated += 1
        client.in_burst += in_burst
        self.offered[number][which] += in_burst
        client.origin.arrived(now, SIZE)
        bands.came(priority, now)
        most = limit(CLIENT_MESSAGES, bands.part(priority, now))
        assert most is not None
        if client.queue >= most:
            self.refused[number][which] += in_burst
            client.overflowed += 1
            self.overflow_times.append((now, number))
        else:
            client.queue += 1
            client.peak = max(client.peak, client.queue)
        self._at(next(client.arrivals), ARRIVAL, client)
        if client.queue == 1 and not client.waiting:
            self._send(now, client)
        else:
            self._report(now, client)


def _class_of(drawn: float) -> int:
    return 0 if drawn < SHARES[0] else 1 if drawn < SHARES[0] + SHARES[1] else 2


def run_banded(given: tuple[Experiment, tuple[float, float, float], bool]) -> Burst:
    """One run; what is given are the experiment, the rates by pattern, and whether reports tell the whole queue."""
    experiment, rates, whole = given
    network = BandedNetwork(experiment, rates, whole_capacity=whole)
    network.run()
    offered = tuple((low, normal, high) for low, normal, high in network.offered)
    refused = tuple((low, normal, high) for low, normal, high in network.refused)
    return Burst(experiment.name, experiment.seed, offered, refused, network.root_peak)


# ------------------------------------------------------------------------------------------------------- many runs


def all_at_once(policy: str, lend: float = 0.0, seed: int = 1) -> Experiment:
    return Experiment(
        policy=policy, lend=lend, seed=seed, bursting=(1, 2, 3), burst_s=(BEGINS_S, ENDS_S), span_s=ENDS_S
    )  # fmt: skip


def rows(
    policies: Iterable[tuple[str, float]],
    seeds: Sequence[int],
    shared_out: Callable[[Sequence[tuple[Experiment, tuple[float, float, float], bool]]], list[Burst]],
    progress: Callable[[str], None],
) -> tuple[list[dict[str, Any]], list[Check]]:
    """A row for each rate that is offered and each policy, and for `level` with the whole queue as capacity; shares are
    means over the seeds. And lines of the acceptance table."""
    cases = [(policy, lend, False) for policy, lend in policies] + [("level", 0.0, True)]
    found: list[dict[str, Any]] = []
    checks: list[Check] = []
    for offered, rates in OFFERED.items():
        for policy, lend, whole in cases:
            base = all_at_once(policy, lend)
            name = f"{base.name}, capacity told whole" if whole else base.name
            progress(f"all at once with priorities, {offered}, {name}")
            bursts = shared_out([(replace(base, seed=seed), rates, whole) for seed in seeds])
            if name in CHECKED:
                checks += _checks_of(offered, name, bursts)
            found.append(
                {
                    "offered": offered, "policy": name, "n": len(bursts),
                    "classes": [mean(each) for each in zip(*[one.by_class() for one in bursts], strict=True)],
                    "clients": [mean(each) for each in zip(*[one.by_client() for one in bursts], strict=True)],
                    "root": max(one.root_peak for one in bursts),
                }
            )  # fmt: skip
    return found, checks


def _checks_of(offered: str, name: str, bursts: Sequence[Burst]) -> list[Check]:
    """In percent."""
    checks = []
    for what, told, (low, high), value, at in EXPECTED[offered]:
        each = (max(0.0, low - EACH), high + EACH if high else 0.0)
        values = tuple(100 * value(one)[at] for one in bursts)
        checks.append(Check(f"{offered}/s, {name}, {what} refused", told, (low, high), each, values))
    return checks


def table_rows(found: Sequence[dict[str, Any]]) -> list[list[str]]:
    """For people: shares in percent."""
    return [
        [
            row["offered"], row["policy"], *(_percent(share) for share in row["classes"]),
            " / ".join(_percent(share) for share in row["clients"]), f"{row['root']}",
        ]
        for row in found
    ]  # fmt: skip


HEADS: Final = (
    "messages a second 1 / 2 / 3", "policy", "low refused", "normal", "high", "clients 1 / 2 / 3 refused",
    "root's peak of 800",
)  # fmt: skip


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 or not share else f"{100 * share:.2g} %"
