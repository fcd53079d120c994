"""What a policy of pacing is: four pure functions of the root's state and its clients' loads.

Rules of this file: values and a Protocol. Amounts are bytes, rates bytes a second, or any one unit for both: policies
scale. Source: traffic-control §3.3 and figure 6.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from typing import Final, NamedTuple, Protocol

FLOOR_SHARE: Final = 0.01
"""Of its equal share of the rate, what each client has at least: none starves."""

HORIZON_S: Final = 300.0
"""Overflows that are further away than this count as this far."""


class Root(NamedTuple):
    """The root's queue. `rate`: what it hands to its application. `lend`: which part of its free space clients may use,
    0 to 1; 0 keeps the sum of the rates within `rate`."""

    rate: float
    capacity: float
    used: float
    lend: float = 0.0

    @property
    def free(self) -> float:
        return max(0.0, self.capacity - self.used)


class Load(NamedTuple):
    """One client. `arrivals`: what it is offered a second, refused messages included; `spread`: the standard deviation
    of that estimate. `weight`: as the client reported it. `share`: of what is shared equally."""

    capacity: float
    used: float
    arrivals: float
    spread: float = 0.0
    weight: int = 0
    share: float = 1.0

    @property
    def free(self) -> float:
        return max(0.0, self.capacity - self.used)


class Policy(Protocol):
    """Each function is pure. `loop_s`: how long it takes until a client's rate follows its load.

    `triggered`: whether rates are also computed when a client reports at once, and not by the timer alone.
    """

    @property
    def name(self) -> str: ...
    @property
    def triggered(self) -> bool: ...
    @property
    def lend(self) -> float: ...
    def weight(self, used: float, capacity: float) -> int:
        """The client's weight, as it reports it (§3.3, figure 6)."""

    def budget(self, root: Root, loop_s: float) -> float:
        """What the rates add up to at most."""

    def rates(self, root: Root, clients: Sequence[Load], loop_s: float) -> list[float]:
        """The rate of each client, in their order."""

    def overflow_s(self, root: Root, clients: Sequence[Load], loop_s: float) -> float:
        """How long until a queue overflows, if arrivals and rates stay as reported; HORIZON_S at most."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Weights by utilisation: `steps` are (utilisation from which it holds, weight), ascending; below the first, 0.

    The default is the paper's (§4.2): X from X * 10 % on, for X from 0 to 9.
    """

    steps: tuple[tuple[float, int], ...] = tuple((tenth / 10, tenth) for tenth in range(1, 10))

    STEPS_MAX = 100
    WEIGHT_MAX = 1_000

    def __post_init__(self) -> None:
        if len(self.steps) > self.STEPS_MAX:
            raise ValueError(f"{len(self.steps)} thresholds; expected at most {self.STEPS_MAX}")
        before = -1.0
        for start, weight in self.steps:
            if not 0 <= start <= 1:
                raise ValueError(f"invalid threshold {start:g}; expected 0 to 1")
            if start <= before:
                raise ValueError(f"invalid threshold {start:g} after {before:g}; expected them ascending")
            if not 0 <= weight <= self.WEIGHT_MAX:
                raise ValueError(f"invalid weight {weight}; expected 0 to {self.WEIGHT_MAX}")
            before = start

    def weight(self, used: float, capacity: float) -> int:
        found = 0
        for start, weight in self.steps:
            if used < start * capacity * (1 - 1e-12):  # 0.3 * 200 is more than 60 to a float
                break
            found = weight
        return found


PAPER: Final = Thresholds()


def equal_shares(rate: float, clients: Sequence[Load]) -> list[float]:
    """`rate` by the clients' shares: R / n where they are equal."""
    total = fsum(client.share for client in clients)
    return [rate * client.share / total for client in clients]


def with_unused(rates: Sequence[float], most: float, clients: Sequence[Load]) -> list[float]:
    """`rates`, and what is left below `most` shared equally."""
    unused = max(0.0, most - fsum(rates))
    return [rate + more for rate, more in zip(rates, equal_shares(unused, clients), strict=True)]


def floors(rate: float, clients: Sequence[Load]) -> list[float]:
    return [FLOOR_SHARE * share for share in equal_shares(rate, clients)]


def full_s(capacity: float, used: float, arrivals: float | None, rate: float | None) -> float | None:
    """When a queue is full if these stay as they are, in seconds; HORIZON_S at most, and where there is no `rate`. None
    where its arrivals are not known."""
    if arrivals is None:
        return None
    excess = 0.0 if rate is None else arrivals - rate
    return min(HORIZON_S, max(0.0, capacity - used) / excess) if excess > 0 else HORIZON_S


def until_overflow_s(root: Root, clients: Sequence[Load], rates: Sequence[float]) -> float:
    """When the first queue overflows, the root's included, with these rates."""
    times = [HORIZON_S]
    for client, rate in zip(clients, rates, strict=True):
        excess = client.arrivals - rate
        if excess > 0:
            times.append(client.free / excess)
    excess = fsum(rates) - root.rate
    if excess > 0:
        times.append(root.free / excess)
    return min(times)
