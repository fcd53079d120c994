"""The shaper: when the next message may leave, at a rate that may change at any time.

Rules of this file: no clock; times are seconds on `now`'s scale. It keeps a debt, never a due time: a new rate applies
to what is left of the debt at once. Nothing is saved up, so that no burst follows when a rate rises: only the time in
which a message could have left, and its sender was busy or woken late, counts for the next one. Hence while messages
wait no more is sent than the rate allows in that time and one message. Source: docs/adr/0074-pacing.md,
docs/adr/0092-pacing-on-real-clocks.md.
"""

from typing import Final

LATE_S: Final = 0.1
"""So much of such a time counts."""


class Shaper:
    """The messages of one client to one root. `rate` None: not paced."""

    def __init__(self, now: float, rate: float | None = None) -> None:
        self.rate = rate
        self._debt = 0.0
        """Bytes that were sent and not paid for by the time that has passed since; never below 0."""
        self._at = now

    def _settle(self, now: float) -> None:
        if now > self._at:
            self._debt = max(0.0, self._debt - self.rate * (now - self._at)) if self.rate is not None else 0.0
            self._at = now

    def set_rate(self, now: float, rate: float | None) -> None:
        """None: not paced. A rate is above 0."""
        if rate is not None and not rate > 0:
            raise ValueError(f"invalid rate {rate}; expected more than 0")
        self._settle(now)
        self.rate = rate
        if rate is None:
            self._debt = 0.0

    def ready(self, now: float) -> bool:
        """Whether a message may leave now, whatever its size."""
        return self.ready_at() <= now

    def ready_at(self) -> float:
        """When the next message may leave, if the rate stays as it is."""
        return self._at + self._debt / self.rate if self._debt and self.rate is not None else self._at

    def sent(self, now: float, size: int, *, waited: bool = False) -> None:
        """A message of `size` bytes left: it is charged whole. Its caller asked `ready`. `waited`: for its rate; so
        it counts from when it could have left."""
        self._settle(min(now, max(self.ready_at(), now - LATE_S)) if waited else now)
        if self.rate is not None:
            self._debt += size
