"""The bounds of one durable subscription of a topic: how many unfinished messages it may have, and how many bytes
(docs/adr/0096).

Rules of this file: the cursor is the only count. Unfinished are the entries between its floor and the end on disk,
without its finished ranges; so for a bounded subscription each sequence that does not match, was undone or has left
counts as finished at once, wherever it is. The ranges keep the sizes (`weighed.py`). Messages that a link holds stay,
and count. Entries that are still to be matched, `unknown`, do not count.
"""

from collections.abc import Collection
from typing import Final, NamedTuple

from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.entries import packed
from holdfast.broker.published import pass_by
from holdfast.broker.stored.bounds import DEAD_LETTER, END, Bounds
from holdfast.broker.stored.ranges import RangeSet
from holdfast.broker.weighed import Weighed

DROPS_MAX: Final = 2_000
"""Messages that a subscription drops in one turn."""

Unknown = tuple[int, int] | None
"""The entries that are still to be matched: [first, end)."""


class Excess(NamedTuple):
    """Messages and bytes of a subscription beyond its bounds. A single message may be larger than the bound of
    bytes."""

    messages: int
    bytes: int

    @property
    def why(self) -> str:
        """The bound that is exceeded; empty if none is."""
        return "messages" if self.messages > 0 else "bytes" if self.bytes > 0 else ""


def bound(cursor: Cursor, bounds: Bounds) -> None:
    """Makes the cursor count what these bounds need."""
    cursor.is_bounded = bool(bounds.messages_max)
    if isinstance(cursor.finished, Weighed) != bool(bounds.bytes_max):
        cursor.finished = (Weighed if bounds.bytes_max else RangeSet)(cursor.finished)


def comes(cursor: Cursor, sequence: int, size: int) -> None:
    """A matching message is in the turn."""
    if isinstance(cursor.finished, Weighed):
        cursor.finished.comes(sequence, size)


def never_came(cursor: Cursor, sequence: int) -> None:
    """The turn was undone: the number stays unused."""
    if isinstance(cursor.finished, Weighed):
        cursor.finished.forget(sequence)
    if sequence >= cursor.floor:
        pass_by(cursor, sequence, sequence)


def note(cursor: Cursor, sequence: int, value: bytes) -> None:
    """Records a message on disk, which may be finished."""
    finished = cursor.finished
    if isinstance(finished, Weighed) and sequence >= cursor.floor and sequence not in finished:
        finished.note(sequence, packed.size_of(value))


def resized(cursor: Cursor, sequence: int, size: int) -> None:
    """The size of that message has changed."""
    if isinstance(cursor.finished, Weighed) and sequence in cursor.finished.sizes:
        cursor.finished.note(sequence, size)


def unfinished(cursor: Cursor) -> int:
    """How many messages on disk the subscription has not finished; exact once `Topic.unmarked` is None."""
    visible = cursor.queue.visible
    return max(0, visible - cursor.floor - cursor.finished.count_below(visible))


def unfinished_bytes(cursor: Cursor) -> int:
    """Bytes of these messages, if there is a bound of bytes."""
    finished = cursor.finished
    if not isinstance(finished, Weighed):
        return 0
    finished.show_up_to(cursor.queue.visible)
    return finished.total


def excess(cursor: Cursor, bounds: Bounds, unknown: Unknown = None, leaving: Collection[int] = ()) -> Excess:
    """The excess over its bounds, without messages that are leaving."""
    messages, size = unfinished(cursor), unfinished_bytes(cursor)
    if unknown is not None:
        first, end = max(unknown[0], cursor.floor), min(unknown[1], cursor.queue.visible)
        finished = cursor.finished
        messages -= max(0, end - first - finished.count_below(end) + finished.count_below(first))
    messages -= len(leaving)
    size -= sum(_size_of(cursor, number) for number in leaving)
    return Excess(messages - bounds.messages_max, size - bounds.bytes_max if bounds.bytes_max and messages > 1 else 0)


def oldest(cursor: Cursor, bounds: Bounds, beyond: Excess, unknown: Unknown = None) -> list[int]:
    """The oldest messages that no link holds: enough to get within the bounds, or as many as one turn may drop."""
    gone: list[int] = []
    too_many, too_large = beyond
    end = cursor.queue.visible if unknown is None else min(unknown[0], cursor.queue.visible)
    for first, last in cursor.finished.each_gap(cursor.floor, end - 1):
        for number in range(first, last + 1):
            if len(gone) >= DROPS_MAX or (too_many <= 0 and (too_large <= 0 or too_many + bounds.messages_max <= 1)):
                return gone
            if number not in cursor.acquired:
                gone.append(number)
                too_many -= 1
                too_large -= _size_of(cursor, number)
    return gone


def _size_of(cursor: Cursor, number: int) -> int:
    return cursor.finished.sizes.get(number, 0) if isinstance(cursor.finished, Weighed) else 0


def keep(cursor: Cursor, bounds: Bounds, unknown: Unknown) -> int:
    """Enforces the bounds of the subscription; returns how many messages were dropped. Bounds that do not drop act
    later in this turn."""
    queue = cursor.queue
    if queue.visible - cursor.floor <= bounds.messages_max and unfinished_bytes(cursor) <= (bounds.bytes_max or 0):
        return 0
    beyond = excess(cursor, bounds, unknown)
    if not beyond.why:
        return 0
    if bounds.when_full in (END, DEAD_LETTER):
        queue.work.overfull[cursor] = beyond.why
        return 0
    gone = oldest(cursor, bounds, beyond, unknown)
    if gone:
        cursor.pass_over(gone)
        cursor.owner.reclaim()
    return len(gone)
