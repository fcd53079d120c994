"""How often each of several peers may ask for something: so many a second, and so many at once after a quiet while.

Rules of this file: who asks too often is counted for what was refused, too.
"""

from holdfast.engine.clock import Clock


class Allowances:
    """By name. `per_s`: what an allowance grows by; `burst`: up to which it grows, and what one begins with."""

    def __init__(self, clock: Clock, *, per_s: float, burst: float) -> None:
        self._clock = clock
        self._per_s = per_s
        self._burst = burst
        self._left: dict[str, tuple[float, float]] = {}
        """What each may still ask, and when that was reckoned."""

    def count(self, name: str) -> bool:
        """Counts one; whether it is within the allowance."""
        left, since = self._left.get(name, (self._burst, self._clock.now))
        left = min(self._burst, left + (self._clock.now - since) * self._per_s)
        self._left[name] = (max(left - 1, 0.0), self._clock.now)
        return left >= 1
