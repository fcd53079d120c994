"""`level`, the recommended policy: the highest predicted utilisation in the whole network, root included, is as low as
it can be.

Rules of this file: as policy.py says. The plan is made anew at each computation, from what is known then; a plan that
was feasible stays so while arrivals are as estimated. Source: docs/adr/0074-pacing.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from typing import Final

from holdfast.pacing.policies import latest_overflow_s
from holdfast.pacing.policy import HORIZON_S, PAPER, Load, Root, Thresholds, floors, with_unused
from holdfast.pacing.sharing import fitted, max_min, smallest_fit

PLAN_S: Final = 5.0
"""Queues reach the common level in this time, or in three loops: faster, they would swing (q' = -q(t - D) / h does not
while D / h <= 1 / e)."""

LOOPS: Final = 3.0

FULL: Final = 0.95
"""Where space is used up, this part of a queue is to be reached within one loop."""

HEADROOM_S: Final = 0.5
"""Of the root's rate: space of the root that is not planned with, since messages leave it in blocks."""

ROOT_LEVEL: Final = 0.5
"""Up to this utilisation the root's space is lent to who does not need it."""


@dataclass(frozen=True, slots=True)
class Level:
    """`lend` 0: the rates sum to at most R, and the root's queue stays short. `lend` 1: its space is used as the
    clients' is, at the cost of delay there."""

    lend: float = 0.0
    thresholds: Thresholds = PAPER

    def __post_init__(self) -> None:
        if not 0 <= self.lend <= 1:
            raise ValueError(f"invalid value {self.lend} for lend; expected 0 to 1")

    @property
    def name(self) -> str:
        return "level"

    @property
    def triggered(self) -> bool:
        return True

    def weight(self, used: float, capacity: float) -> int:
        return self.thresholds.weight(used, capacity)

    def budget(self, root: Root, loop_s: float) -> float:
        return root.rate + self.lend * root.free / loop_s

    def overflow_s(self, root: Root, clients: Sequence[Load], loop_s: float) -> float:
        return self._time_s(root, clients, floors(root.rate, clients)) if clients else HORIZON_S

    def _time_s(self, root: Root, clients: Sequence[Load], least: Sequence[float]) -> float:
        arrivals = [client.arrivals + client.spread for client in clients]
        return latest_overflow_s(root.rate, self._spare(root), clients, arrivals, least)

    def _spare(self, root: Root) -> float:
        return self.lend * max(0.0, root.free - HEADROOM_S * root.rate)

    def rates(self, root: Root, clients: Sequence[Load], loop_s: float) -> list[float]:
        if not clients:
            return []
        least = floors(root.rate, clients)
        time_s = self._time_s(root, clients, least)
        if time_s < loop_s:
            return self._space_used_up(root, clients, least, loop_s)
        rates = self._levelled(root, clients, least, min(time_s, max(PLAN_S, LOOPS * loop_s)))
        if time_s < HORIZON_S:
            return rates
        # Nothing overflows for long: what nobody needs is lent to all alike.
        most = root.rate + self.lend * max(0.0, ROOT_LEVEL * root.capacity - root.used) / loop_s
        return with_unused(rates, most, clients)

    def _levelled(self, root: Root, clients: Sequence[Load], least: Sequence[float], plan_s: float) -> list[float]:
        """The smallest utilisation that every queue can have reached after `plan_s`, and the rates that do it."""
        filled = [client.used + (client.arrivals + client.spread) * plan_s for client in clients]
        capacities = [client.capacity for client in clients]
        lowest = [floor * plan_s for floor in least]
        lent = 0.0
        from_root = 0.0

        def excess(level: float) -> tuple[float, float]:
            """What must leave the clients beyond what the root takes until then, and how the level changes it."""
            amounts = [-root.rate * plan_s, -lent * max(0.0, level * root.capacity - root.used)]
            slopes = [-lent * root.capacity]
            for amount, capacity, low in zip(filled, capacities, lowest, strict=True):
                must = amount - level * capacity
                if must > low:
                    amounts.append(must)
                    slopes.append(-capacity)
                else:
                    amounts.append(low)
            return fsum(amounts), fsum(slopes)

        start = root.used / root.capacity
        if excess(start)[0] > 0:  # above the root's own level its space counts: two convex pieces, each searched alone
            lent, from_root = self.lend, start
        level = smallest_fit(excess, from_root, len(clients))
        assert level is not None  # at a high enough level nothing need leave but the floors, a hundredth of the rate
        rates = [(amount - level * capacity) / plan_s for amount, capacity in zip(filled, capacities, strict=True)]
        most = root.rate + lent * max(0.0, level * root.capacity - root.used) / plan_s
        return fitted(rates, least, most)

    def _space_used_up(self, root: Root, clients: Sequence[Load], least: Sequence[float], loop_s: float) -> list[float]:
        """Something overflows before a rate can change: max-min fair, so that a modest client loses nothing."""
        needs = [
            max(floor, client.arrivals + client.spread + (client.used - FULL * client.capacity) / loop_s)
            for client, floor in zip(clients, least, strict=True)
        ]
        most = root.rate + self._spare(root) / max(loop_s, PLAN_S)
        rates = max_min(needs, [client.share for client in clients], most)
        return with_unused(rates, most, clients)
