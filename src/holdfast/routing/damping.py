"""Damping: routing does not use a flapping link until it has been up for a while (RFC 2439).

Rules of this file: pure; no clock, times are seconds on `now`'s scale. The first failure never damps, because routing
must learn of it, and of the repair, at once. The method is that of RFC 2439; the thresholds follow RFC 7196, by which
only persistent flapping should be damped. Half of the penalty is gone in seconds instead of a quarter of an hour,
because a record only has about 120 bytes here.
"""

from math import log2
from typing import Final

PENALTY: Final = 1_000.0
"""Points that one failure costs."""

HALF_LIFE_S: Final = 10.0
"""Half of the penalty is gone after this."""

SUPPRESS_ABOVE: Final = 3_000.0
"""The fourth failure within some seconds crosses it."""

REUSE_BELOW: Final = 1_000.0

PENALTY_MAX: Final = 8_000.0
"""Three half-lives above REUSE_BELOW: no link is held down longer than 30 s after its last failure."""


class Damping:
    """The penalty of one link."""

    def __init__(self) -> None:
        self.held = False
        """Whether the link is held down; brought up to date by `fell` and `release`."""
        self._penalty = 0.0
        self._at = 0.0

    def penalty(self, now: float) -> float:
        """The current penalty."""
        age_s = max(0.0, now - self._at)
        left: float = self._penalty * 0.5 ** (age_s / HALF_LIFE_S)
        return left

    def fell(self, now: float) -> None:
        """The link went down."""
        self._penalty = min(self.penalty(now) + PENALTY, PENALTY_MAX)
        self._at = now
        self.held = self.held or self._penalty > SUPPRESS_ABOVE

    def reuse_at(self) -> float | None:
        """When it may be used again, if it stays up; None if it may be used now."""
        if not self.held:
            return None
        return self._at + HALF_LIFE_S * max(0.0, log2(self._penalty / REUSE_BELOW))

    def release(self, now: float) -> bool:
        """Ends the damping if its time is over; returns whether it did."""
        at = self.reuse_at()
        if at is None or now < at:
            return False
        self.held = False
        return True
