"""Bounds of groups that wait here to become visible together, and counts of groups that did not (docs/adr/0073). Rules
of this file: beyond a bound the messages become visible singly; this is counted and logged.
"""

from collections import Counter
from typing import Final
from uuid import UUID

from holdfast.broker.entries import entry
from holdfast.broker.stored.groups import Group
from holdfast.broker.stored.origins import Origin
from holdfast.engine.log import Log
from holdfast.settings.limits import Limits
from holdfast.units import MIB, written

GROUP_BYTES_MAX: Final = 8 * MIB
"""Bytes on disk of one group, which one batch moves at once."""

GROUPS_MAX: Final = 1_000
GROUPS_BYTES_MAX: Final = 64 * MIB
"""Groups of one origin with waiting messages, and their bytes on disk."""

TOO_LARGE: Final = "too_large"
TOO_MANY: Final = "too_many"
INCOMPLETE: Final = "incomplete"
NO_ROOM: Final = "no_room"
REASONS: Final = (TOO_LARGE, TOO_MANY, INCOMPLETE, NO_ROOM)


class GroupBounds:
    """`apart`: groups whose messages were shown by themselves, since the node's start, by reason."""

    def __init__(self, limits: Limits, log: Log) -> None:
        self._limits = limits
        self._log = log
        self.apart: Counter[str] = Counter()
        self._refused: tuple[UUID, int] | None = None
        """The last group that was never begun: each of its messages is refused, and it is logged once."""

    def range_of(self, identity: entry.Identity, told: entry.Group | None) -> tuple[int, int] | None:
        """The first and the last number of a group; None if it has too many members."""
        if told is None or told.members > self._limits.group_messages_max:
            return None
        first = identity.number - told.place
        return first, first + told.members - 1

    def admit(self, origin: Origin, number: int, told: entry.Group | None, size: int) -> tuple[int, int] | None:
        """The first and the last number of the group that an arrived message waits for; None if it becomes visible by
        itself."""
        found = self.range_of(entry.Identity(origin.origin, number), told)
        if told is None or not origin.is_new(number):
            return None
        first = number - told.place
        if found is None:
            most = self._limits.group_messages_max
            self._refuse(origin, first, TOO_LARGE, f"it has {told.members} messages; group_messages_max is {most}")
            return None
        groups = origin.groups
        group = groups.by_first.get(first)
        if group is None:
            if len(groups.by_first) >= GROUPS_MAX or groups.stored_bytes + size > GROUPS_BYTES_MAX:
                held = f"{len(groups.by_first)} groups with {groups.stored_bytes} bytes wait already"
                self._refuse(origin, first, TOO_MANY, held)
                return None
        elif group.last != found[1]:
            return None  # its sender contradicts itself
        elif group.stored_bytes + size > GROUP_BYTES_MAX:
            self.give_up(origin, group, TOO_LARGE, f"it has more than {GROUP_BYTES_MAX} bytes")
            return None
        return found

    def give_up(self, origin: Origin, group: Group, reason: str, why: str) -> None:
        """The messages of that group become visible singly from now on."""
        self._tell(origin, group.first, reason, why)
        origin.give_up(group)

    def end_overdue(self, origin: Origin, now: float) -> None:
        """Ends groups that have waited too long: they become visible without the missing messages."""
        most = self._limits.group_wait_s
        for group in list(origin.groups.by_first.values()):
            if now - group.since >= most and not origin.is_whole(group):
                self.give_up(
                    origin, group, INCOMPLETE, f"the rest of it did not come within {written(most)} s (group_wait_s)"
                )

    def _refuse(self, origin: Origin, first: int, reason: str, why: str) -> None:
        if self._refused != (origin.origin, first):
            self._refused = origin.origin, first
            self._tell(origin, first, reason, why)

    def _tell(self, origin: Origin, first: int, reason: str, why: str) -> None:
        self.apart[reason] += 1
        text = f"messages of one transaction, from number {first} of origin {origin.origin} on, are not shown together"
        self._log.write("WARNING", f"{text}: {why}")
