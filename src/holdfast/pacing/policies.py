"""The simple policies: `fixed`, `weights` (the paper's), `backlog`, `overflow`.

Rules of this file: as policy.py says: pure, and the order of clients decides nothing. None lends the root's space, so
their sums stay within the root's rate. Source: traffic-control §3.3; docs/adr/0074-pacing.md.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from typing import Final

from holdfast.pacing.policy import (
    HORIZON_S,
    PAPER,
    Load,
    Root,
    Thresholds,
    equal_shares,
    floors,
    until_overflow_s,
    with_unused,
)
from holdfast.pacing.sharing import fitted, proportional, smallest_fit

BACKLOG_LEAST: Final = 0.005
"""Utilisation that `backlog` adds to each: an empty queue has a rate too."""


@dataclass(frozen=True, slots=True)
class _Simple(ABC):
    """What the simple policies share: they lend nothing, and go by the timer alone."""

    thresholds: Thresholds = PAPER

    @property
    def triggered(self) -> bool:
        return False

    @property
    def lend(self) -> float:
        return 0.0

    def weight(self, used: float, capacity: float) -> int:
        return self.thresholds.weight(used, capacity)

    def budget(self, root: Root, loop_s: float) -> float:
        return root.rate

    @abstractmethod
    def rates(self, root: Root, clients: Sequence[Load], loop_s: float) -> list[float]:
        """As `Policy` says."""

    def overflow_s(self, root: Root, clients: Sequence[Load], loop_s: float) -> float:
        return until_overflow_s(root, clients, self.rates(root, clients, loop_s))


@dataclass(frozen=True, slots=True)
class Fixed(_Simple):
    """R / n for each: the paper's network without control (§4.4)."""

    @property
    def name(self) -> str:
        return "fixed"

    def rates(self, root: Root, clients: Sequence[Load], loop_s: float) -> list[float]:
        return equal_shares(root.rate, clients) if clients else []


@dataclass(frozen=True, slots=True)
class Weights(_Simple):
    """The paper's: R * w_i / (sum of w) (§3.3, figure 6). Where all weights are zero, R / n."""

    @property
    def name(self) -> str:
        return "weights"

    def rates(self, root: Root, clients: Sequence[Load], loop_s: float) -> list[float]:
        if not any(client.weight > 0 for client in clients):
            return equal_shares(root.rate, clients) if clients else []
        weights = [client.weight * client.share for client in clients]
        return proportional(weights, floors(root.rate, clients), root.rate)


@dataclass(frozen=True, slots=True)
class Backlog(_Simple):
    """As `weights`, with the utilisation itself for a weight: nothing is rounded to tenths."""

    @property
    def name(self) -> str:
        return "backlog"

    def rates(self, root: Root, clients: Sequence[Load], loop_s: float) -> list[float]:
        if not clients:
            return []
        weights = [(client.used / client.capacity + BACKLOG_LEAST) * client.share for client in clients]
        return proportional(weights, floors(root.rate, clients), root.rate)


@dataclass(frozen=True, slots=True)
class Overflow(_Simple):
    """The first overflow as late as possible: each queue that would fill fills at the same time."""

    @property
    def name(self) -> str:
        return "overflow"

    def rates(self, root: Root, clients: Sequence[Load], loop_s: float) -> list[float]:
        if not clients:
            return []
        least = floors(root.rate, clients)
        time_s = latest_overflow_s(root.rate, 0.0, clients, [client.arrivals for client in clients], least)
        if time_s <= 0:
            return fitted([client.arrivals for client in clients], least, root.rate)
        rates = fitted([client.arrivals - client.free / time_s for client in clients], least, root.rate)
        return with_unused(rates, root.rate, clients)

    def overflow_s(self, root: Root, clients: Sequence[Load], loop_s: float) -> float:
        if not clients:
            return HORIZON_S
        arrivals = [client.arrivals for client in clients]
        return latest_overflow_s(root.rate, 0.0, clients, arrivals, floors(root.rate, clients))


def latest_overflow_s(
    rate: float, spare: float, clients: Sequence[Load], arrivals: Sequence[float], least: Sequence[float]
) -> float:
    """The largest t with: sum of max(floor, arrivals - free / t) <= rate + spare / t; HORIZON_S at most, 0 where none.

    `spare`: of the root's free space, what may be filled by then.
    """
    frees = [client.free for client in clients]

    def excess(per_s: float) -> tuple[float, float]:
        """For x = 1 / t: what the clients need beyond what there is, and how that changes with x."""
        needs, slopes = [-rate, -spare * per_s], [-spare]
        for arriving, free, floor in zip(arrivals, frees, least, strict=True):
            need = arriving - free * per_s
            if need > floor:
                needs.append(need)
                slopes.append(-free)
            else:
                needs.append(floor)
        return fsum(needs), fsum(slopes)

    found = smallest_fit(excess, 1 / HORIZON_S, len(clients))
    return 0.0 if found is None else min(HORIZON_S, 1 / found)
