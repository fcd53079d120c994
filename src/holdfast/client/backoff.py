"""How long to wait before the next attempt.

Rules of this file: no clock, no sleep; randomness is passed in.
"""

from random import Random
from typing import Final

FIRST_S: Final = 0.05
MOST_S: Final = 5.0


class Backoff:
    """Doubling waits with full jitter above a floor, so that clients of one node do not return at once."""

    def __init__(self, rng: Random, *, first_s: float = FIRST_S, most_s: float = MOST_S) -> None:
        self._rng = rng
        self._first_s = first_s
        self._most_s = most_s
        self._attempt = 0

    @property
    def attempts(self) -> int:
        """Waits since the last success."""
        return self._attempt

    def next_s(self) -> float:
        """Seconds to wait: half to all of `first_s` doubled for each attempt, `most_s` at most."""
        whole = min(self._most_s, self._first_s * 2.0 ** min(self._attempt, 30))
        self._attempt += 1
        return whole * (0.5 + 0.5 * self._rng.random())

    def reset(self) -> None:
        """After a success: the next wait is a short one again."""
        self._attempt = 0
