"""How often a peer may ask for something: a token bucket.

Rules of this file: no clock, `now` is an argument. A refused request takes no token, so that a peer that asks too often
still gets its rate.
"""

from typing import Final

ROUNDING: Final = 1e-6
"""Of a request: who waited until `free_at` is not refused for what rounding left. It is taken from the next ones."""


class Allowance:
    """`per_s` requests a second, and at most `burst` at once. It is full at first."""

    __slots__ = ("_burst", "_left", "_per_s", "_since")

    def __init__(self, now: float, *, per_s: float, burst: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._left = burst
        self._since = now

    def count(self, now: float) -> bool:
        """Counts one request; False if it exceeds the rate."""
        self._left = min(self._burst, self._left + (now - self._since) * self._per_s)
        self._since = now
        if self._left < 1 - ROUNDING:
            return False
        self._left -= 1
        return True

    def give_back(self) -> None:
        """Returns the token of the last request."""
        self._left = min(self._burst, self._left + 1)

    def free_at(self, now: float) -> float:
        """After a refusal: when the next request will be allowed, if none comes until then."""
        return now + max(0.0, 1 - self._left) / self._per_s
