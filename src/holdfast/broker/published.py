"""What the subscriptions of a topic want of the messages that are not on disk yet (docs/adr/0108).

Rules of this file: publishing notes a message for the subscriptions that want it, and for no other. Once the messages
are on disk, each subscription with a selector has finished what is between those that it wants; others are not here.
"""

from collections.abc import Iterable
from heapq import merge

from holdfast.broker.cursors.cursor import Cursor


class Published:
    """Of one topic; numbers ascend."""

    __slots__ = ("_large", "_since", "_wanted")

    def __init__(self) -> None:
        self._since: dict[Cursor, int] = {}
        """The subscriptions with a selector, and the first message that each of these selectors was asked about."""
        self._wanted: dict[Cursor, list[int]] = {}
        self._large: list[int] = []
        """Large messages, which are matched when they are offered."""

    def select(self, cursor: Cursor, since: int) -> None:
        """The subscription has another selector from message `since` on."""
        self._since[cursor] = cursor.matched_from = since
        self._wanted.pop(cursor, None)

    def forget(self, cursor: Cursor) -> None:
        """The subscription has no selector, or was deleted."""
        self._since.pop(cursor, None)
        self._wanted.pop(cursor, None)

    def came(self, sequence: int, wanting: Iterable[Cursor]) -> None:
        """These want that message."""
        for cursor in wanting:
            if cursor in self._since:
                self._wanted.setdefault(cursor, []).append(sequence)

    def came_large(self, sequence: int) -> None:
        """Who wants that message is not known yet."""
        self._large.append(sequence)

    def may_show(self, cursors: Iterable[Cursor], visible: int) -> list[Cursor]:
        """Those with consumers for which some of the messages may be, or some that are on disk."""
        since, wanted, large = self._since, self._wanted, bool(self._large)
        return [
            cursor
            for cursor in cursors
            if cursor.consumers and (cursor.position < visible or large or cursor in wanted or cursor not in since)
        ]

    def wanted_end(self, cursor: Cursor, count: int) -> int:
        """One past the `count`th message that the subscription wants, or past the last; 0 where that is not known."""
        wanted = self._wanted.get(cursor)
        if wanted is None or self._large or count <= 0:
            return 0
        return wanted[min(count, len(wanted)) - 1] + 1

    def show(self, first: int, end: int, ranges_max: int) -> None:
        """The messages of [first, end) are on disk."""
        large, self._large = _split(self._large, end)
        for cursor, since in self._since.items():
            wanted: Iterable[int] = large
            if cursor in self._wanted:
                shown, later = _split(self._wanted.pop(cursor), end)
                if later:
                    self._wanted[cursor] = later
                wanted = merge(shown, large)
            elif not large and cursor.floor >= first >= since and not cursor.finished:  # it wants nothing, and has all
                pass_by(cursor, first, end - 1)
                continue
            finish_others(cursor, max(first, since), end, wanted, ranges_max)


def finish_others(cursor: Cursor, first: int, end: int, wanted: Iterable[int], ranges_max: int) -> None:
    """The subscription finishes all of [first, end) but those that it wants, which ascend. If it has `ranges_max`
    finished ranges, it gets no more, and asks its selector when it comes there."""
    for number in (*wanted, end):
        if first < number:
            if cursor.is_bounded or len(cursor.finished) < ranges_max:
                pass_by(cursor, first, number - 1)
            else:
                cursor.matched_from = max(number, cursor.matched_from)
        first = max(first, number + 1)
    cursor.count_ranges()


def pass_by(cursor: Cursor, first: int, last: int) -> None:
    """The subscription finishes messages that were never offered. That is not stored: after a restart they are matched
    again."""
    first = max(first, cursor.floor)
    if first > last:
        return
    if first == cursor.floor and not cursor.finished:  # as `raise_floor`, for the most frequent case
        cursor.floor = last + 1
        if cursor.position <= last:
            cursor.move_to(last + 1)
        return
    cursor.finished.add(first, last)
    if first == cursor.floor:
        cursor.raise_floor()
    elif first <= cursor.position <= last:
        cursor.move_to(last + 1)


def _split(numbers: list[int], end: int) -> tuple[list[int], list[int]]:
    """Those below `end`, and the others."""
    if not numbers or numbers[-1] < end:
        return numbers, []
    return [number for number in numbers if number < end], [number for number in numbers if number >= end]
