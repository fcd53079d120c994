"""Arithmetic of sharing: the smallest point at which demands fit, proportional shares, max-min fair shares.

Rules of this file: pure, exact sums (`fsum`), so that the order of clients decides nothing. Each loop is bounded by the
number of clients.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from math import fsum

TINY = 1e-12


def smallest_fit(excess: Callable[[float], tuple[float, float]], start: float, pieces: int) -> float | None:
    """The smallest x from `start` on at which `excess` is not above 0; None where there is none.

    `excess` gives value and slope of a convex, non-increasing function made of `pieces` straight pieces. Newton's steps
    from the left never pass the point sought, and each ends on a further piece.
    """
    at = start
    for _ in range(pieces + 2):
        value, slope = excess(at)
        if value <= 0:
            return at
        if slope >= 0:
            return None
        following = at - value / slope
        if following <= at * (1 + TINY):
            return following
        at = following
    return at


def fitted(rates: Sequence[float], floors: Sequence[float], budget: float) -> list[float]:
    """`rates`, none below its floor; where they sum to more than `budget`, what is above the floors shrinks alike."""
    raised = [max(rate, floor) for rate, floor in zip(rates, floors, strict=True)]
    total, least = fsum(raised), fsum(floors)
    if total <= budget:
        return raised
    part = max(0.0, budget - least) / (total - least) if total > least else 0.0
    return [floor + (rate - floor) * part for rate, floor in zip(raised, floors, strict=True)]


def proportional(weights: Sequence[float], floors: Sequence[float], budget: float) -> list[float]:
    """`budget` by weights, with no client below the floor: who would be, has the floor, and the others share the rest.

    Some weight must be above 0, and the floors sum to less than `budget`.
    """
    order = sorted(range(len(weights)), key=lambda at: weights[at] / floors[at] if floors[at] else 0.0)
    totals = list(accumulate(weights[at] for at in reversed(order)))[::-1]
    rest = budget
    result = [0.0] * len(weights)
    for place, (at, total) in enumerate(zip(order, totals, strict=True)):
        if total > 0 and rest * weights[at] / total >= floors[at]:
            for other in order[place:]:
                result[other] = rest * weights[other] / total
            break
        result[at] = floors[at]
        rest -= floors[at]
    return result


def max_min(needs: Sequence[float], shares: Sequence[float], budget: float) -> list[float]:
    """Max-min fair: who needs less than its share of what is left gets its need, the others share the rest.

    The result sums to `budget`, or to the needs where they are less.
    """
    order = sorted(range(len(needs)), key=lambda at: needs[at] / shares[at])
    rest, left = budget, fsum(shares)
    result = [0.0] * len(needs)
    for at in order:
        given = min(needs[at], max(0.0, rest) * shares[at] / left if left > 0 else 0.0)
        result[at] = given
        rest -= given
        left -= shares[at]
    return result
