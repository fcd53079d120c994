"""How long to wait before the next attempt.

Rules of this file: pure; no clock. Randomness is passed in.
"""

from random import Random
from typing import Final

DOUBLINGS_MAX: Final = 10


def back_off_s(span: tuple[float, float], attempts: int) -> float:
    """`span`: the first wait and the longest. Each further attempt doubles the wait."""
    first, longest = span
    return min(longest, first * 2.0 ** min(attempts, DOUBLINGS_MAX))


def jittered_s(span: tuple[float, float], attempts: int, rng: Random) -> float:
    """The same, between half and all of it, so that peers that were lost together do not come back together."""
    return back_off_s(span, attempts) * rng.uniform(0.5, 1.0)
