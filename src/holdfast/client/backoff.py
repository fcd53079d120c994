"""How long to wait before the next attempt, since when nothing was gained, and how often that is said.

Rules of this file: no clock, no sleep; randomness and times are passed in.
"""

from random import Random
from typing import Final

FIRST_S: Final = 0.05
MOST_S: Final = 5.0
STOOD_S: Final = 5.0
"""What stood for so long before it failed was of use: the next failure is the first of others."""
TOLD_S: Final = 60.0
"""How often the same cause is told."""
TOLD_MAX: Final = 8
"""Different causes that are told within TOLD_S."""


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


class Outage:
    """Failures of a connection or link, without a gain between them, from the first one on.

    That it comes about again is no gain: a node may open everything and end it at once, for ever. `gained`, set by
    whoever sees a message come or an outcome, is one, and so is standing for STOOD_S.
    """

    def __init__(self, rng: Random, *, since: float | None = None) -> None:
        self.gained = False
        self._backoff = Backoff(rng)
        self._since = since
        self._up_since: float | None = None
        self._was_up = False
        self.flapped = False
        """It came about since the first failure, if only for a moment."""

    def up(self, now: float) -> None:
        """It is there. Only the first time ends the outage, that of the beginning."""
        self._up_since = now
        if not self._was_up:
            self._was_up = True
            self._begin()
        self.flapped = self._since is not None

    def failed(self, now: float) -> None:
        """It is gone, or did not come about."""
        self.interrupted(now)
        if self._since is None:
            self._since = now

    def interrupted(self, now: float) -> None:
        """What it depends on is gone, and it with that: no failure, but what it was of use for until now counts."""
        stood = self._up_since is not None and now - self._up_since >= STOOD_S
        if self.gained or stood:
            self._begin()
        self.gained = False
        self._up_since = None

    def down_s(self, now: float) -> float:
        """Seconds since the first failure."""
        return 0.0 if self._since is None else now - self._since

    def next_wait_s(self) -> float:
        """As of Backoff."""
        return self._backoff.next_s()

    def _begin(self) -> None:
        self._since = None
        self.flapped = False
        self._backoff.reset()


class Telling:
    """Which causes of failures were told lately."""

    def __init__(self) -> None:
        self._told: dict[str, float] = {}

    def is_due(self, cause: str, now: float) -> bool:
        """Whether it is to be told now; takes it for told then."""
        self._told = {text: at for text, at in self._told.items() if now - at < TOLD_S}
        if cause in self._told or len(self._told) >= TOLD_MAX:
            return False
        self._told[cause] = now
        return True
