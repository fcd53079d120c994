"""How long to wait before the next attempt, since when there was no progress, and how often that is logged.

Rules of this file: no clock, no sleep; randomness and times are passed in.
"""

from random import Random
from typing import Final

FIRST_S: Final = 0.05
MOST_S: Final = 5.0
STOOD_S: Final = 5.0
"""A connection or link that lasted so long was progress."""
LOG_INTERVAL_S: Final = 60.0
"""The same cause is logged once in this time."""
LOG_CAUSES_MAX: Final = 8
"""Different causes that are logged within LOG_INTERVAL_S."""


class Backoff:
    """Doubling waits with full jitter above a floor, so that clients of one node do not return at once."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._attempt = 0

    @property
    def attempts(self) -> int:
        """Waits since the last success."""
        return self._attempt

    def next_s(self) -> float:
        """Seconds to wait: half to all of FIRST_S doubled for each attempt, MOST_S at most."""
        whole = min(MOST_S, FIRST_S * 2.0 ** min(self._attempt, 30))
        self._attempt += 1
        return whole * (0.5 + 0.5 * self._rng.random())

    def reset(self) -> None:
        """After a success: the next wait is a short one again."""
        self._attempt = 0


class Outage:
    """Failures of a connection or link without progress between them, counted from the first one on.

    That it opens or attaches again is no progress: a node may accept everything and end it at once, for ever. `gained`
    is set when a message or an outcome arrives, which is progress; so is lasting for STOOD_S.
    """

    def __init__(self, rng: Random, *, since: float | None = None) -> None:
        self.gained = False
        self._backoff = Backoff(rng)
        self._since = since
        self._up_since: float | None = None
        self._was_up = False
        self.flapped = False
        """It was up since the first failure, however briefly."""

    def up(self, now: float) -> None:
        """It is up. Only the first time this ends the outage, the one at the start."""
        self._up_since = now
        if not self._was_up:
            self._was_up = True
            self._begin()
        self.flapped = self._since is not None

    def failed(self, now: float) -> None:
        """It is down, or an attempt failed."""
        self.interrupted(now)
        if self._since is None:
            self._since = now

    def interrupted(self, now: float) -> None:
        """It is down because what it depends on is: no failure, but progress until now counts."""
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


class LogThrottle:
    """Which causes of failures were logged lately."""

    def __init__(self) -> None:
        self._logged: dict[str, float] = {}

    def is_due(self, cause: str, now: float) -> bool:
        """Whether to log the cause now; if so, it counts as logged."""
        self._logged = {text: at for text, at in self._logged.items() if now - at < LOG_INTERVAL_S}
        if cause in self._logged or len(self._logged) >= LOG_CAUSES_MAX:
            return False
        self._logged[cause] = now
        return True
