"""Damping: a link that flaps is not offered to routing until it has held for a while (RFC 2439).

Rules of this file: pure; no clock, times are seconds on `now`'s scale. The first failure never damps: routing must
learn of it, and of the repair, at once.

The shape is RFC 2439's, the thresholds follow RFC 7196's lesson that only persistent flapping may be damped; half of
the penalty is gone in seconds rather than in a quarter of an hour, since a record here costs 120 bytes.
"""

from dataclasses import dataclass
from math import log2

from holdfast.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class DampingConfig:
    """Penalties in points: one failure is 1,000."""

    half_life_s: float = 10.0
    """Half of the penalty is gone after this."""
    suppress_above: float = 3_000.0
    """The fourth failure within some seconds crosses it."""
    reuse_below: float = 1_000.0
    penalty_max: float = 8_000.0
    """Three half-lives above `reuse_below`: no link is held down longer than 30 s after its last failure."""

    def validate(self) -> None:
        """Raises ConfigError that names the field."""
        if not self.half_life_s > 0:
            raise ConfigError(f"damping half_life_s: found {self.half_life_s!r}, accepted is a number above 0")
        if not PENALTY < self.suppress_above <= self.penalty_max:
            raise ConfigError(
                f"damping suppress_above: found {self.suppress_above!r}, accepted is above {PENALTY:g}, what one "
                f"failure costs, up to penalty_max ({self.penalty_max:g})"
            )
        if not 0 < self.reuse_below < self.suppress_above:
            raise ConfigError(
                f"damping reuse_below: found {self.reuse_below!r}, accepted is above 0 and below suppress_above "
                f"({self.suppress_above:g})"
            )


PENALTY = 1_000.0
"""What one failure costs."""


class Damping:
    """The penalty of one link."""

    __slots__ = ("_at", "_penalty", "config", "held")

    def __init__(self, config: DampingConfig) -> None:
        self.config = config
        self.held = False
        """Whether the link is held down; brought up to date by `fell` and `release`."""
        self._penalty = 0.0
        self._at = 0.0

    def penalty(self, now: float) -> float:
        """What is left of it."""
        age_s = max(0.0, now - self._at)
        left: float = self._penalty * 0.5 ** (age_s / self.config.half_life_s)
        return left

    def fell(self, now: float) -> None:
        """The link went down."""
        self._penalty = min(self.penalty(now) + PENALTY, self.config.penalty_max)
        self._at = now
        self.held = self.held or self._penalty > self.config.suppress_above

    def reuse_at(self) -> float | None:
        """When it may be used again, if it does not fall meanwhile; None where it may be used."""
        if not self.held:
            return None
        return self._at + self.config.half_life_s * max(0.0, log2(self._penalty / self.config.reuse_below))

    def release(self, now: float) -> bool:
        """Ends the holding down where its time is over; whether it did now."""
        at = self.reuse_at()
        if at is None or now < at:
            return False
        self.held = False
        return True
