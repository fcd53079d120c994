"""Room by priority: the part of a queue's bounds that clients' messages of a priority may fill
(docs/adr/0077-room-by-priority.md).

Rules of this file: no clock; times are seconds on `now`'s scale. A band applies to messages of clients; messages that
this node or another has already accepted may fill the whole queue.
"""

from typing import Final

from holdfast.broker.entries.entry import PRIORITY_DEFAULT
from holdfast.errors import ConfigError
from holdfast.units import written

PRIORITY_MOST: Final = 9
"""Higher priorities count as this one."""

QUIET_S: Final = 600.0
"""Seconds without a message of a higher priority after which a lower one may fill the whole queue."""

QUIET_S_MAX: Final = 86_400 * 365


class Bands:
    """The bands of one queue. `low`, `normal`: of its bounds, from above 0 to 1. When higher priorities came last is
    not stored: after a start they count as having come just then."""

    __slots__ = ("_high_at", "_normal_at", "low", "normal", "quiet_s")

    def __init__(self, low: float, normal: float, quiet_s: float, now: float) -> None:
        self.low, self.normal, self.quiet_s = low, normal, quiet_s
        self._normal_at = now
        self._high_at = now

    def came(self, priority: int, now: float) -> None:
        """Records that a message of that priority was offered, whether it was accepted or not."""
        if priority > PRIORITY_DEFAULT:
            self._high_at = max(self._high_at, now)
        elif priority == PRIORITY_DEFAULT:
            self._normal_at = max(self._normal_at, now)

    def opens_at(self, priority: int) -> float:
        """When the whole queue is open to that priority, if no higher one comes until then."""
        if priority > PRIORITY_DEFAULT:
            return 0.0
        last = self._high_at if priority == PRIORITY_DEFAULT else max(self._high_at, self._normal_at)
        return last + self.quiet_s

    def part(self, priority: int, now: float) -> float:
        """The part of the bounds that messages of that priority may fill now."""
        if priority > PRIORITY_DEFAULT or now >= self.opens_at(priority):
            return 1.0
        return self.normal if priority == PRIORITY_DEFAULT else self.low


def check_bands(where: str, low: float, normal: float, quiet_s: float) -> None:
    """Raises ConfigError for invalid bands; `where`: names the queue in the error."""
    for key, part in (("room_low", low), ("room_normal", normal)):
        if not 0 < part <= 1:
            raise ConfigError(f"invalid value {written(part)} for {where} {key}; expected a number above 0 and up to 1")
    if low > normal:
        text = f"invalid values {written(low)} and {written(normal)} for {where} room_low and room_normal"
        raise ConfigError(f"{text}; expected the second not below the first")
    if not 0 < quiet_s <= QUIET_S_MAX:
        expected = f"expected a number of seconds above 0 and up to {QUIET_S_MAX} (a year)"
        raise ConfigError(f"invalid value {written(quiet_s)} for {where} room_quiet_s; {expected}")


def limit(bound: int | None, part: float) -> int | None:
    """That part of a bound, at least 1, so that no band is empty."""
    return bound if bound is None or part >= 1 else max(1, int(bound * part))
