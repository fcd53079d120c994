"""What consumers without a selector get while their cursor offers nothing new: entries ahead of its position that were
given back by consumers with selectors (broker/cursors/halting.py, docs/adr/0063).

Rules of this file: as in broker/cursors/came_back.py. An entry that waits stays where it is: it is not requeued, for
the position has not passed it.
"""

from collections.abc import Iterator

from holdfast.broker.cursors import halting
from holdfast.broker.cursors.came_back import PASSED_PER_ENTRY
from holdfast.broker.cursors.entry_consumer import EntryConsumer, refuses
from holdfast.broker.cursors.exclusions import LOOKS_PER_ENTRY
from holdfast.broker.cursors.holdings import Holdings
from holdfast.broker.cursors.matches import Matches
from holdfast.broker.cursors.selection import FreeEntries
from holdfast.broker.cursors.shown import WATERMARK_AHEAD
from holdfast.broker.cursors.to_show import MARKS_MAX, with_their_credit
from holdfast.broker.entries import packed


def has_some(cursor: Holdings, consumer: EntryConsumer, selections: object, *, watermarks: bool) -> bool:
    """Whether the consumer, which has no selector, may get some of them, now or, with `watermarks`, once one is
    stored."""
    if not _offers(cursor) or not isinstance(selections, Matches):
        return False
    first = max(cursor.position, selections.for_unfiltered.next_for((consumer,)))
    known, at = selections.came_back.from_on(cursor.counts, first)
    return at < len(known) and (watermarks or cursor.may_be_shown(known[at]))


def _offers(cursor: Holdings) -> bool:
    return (
        not cursor.requeued and cursor.selector is None
        and halting.is_halted(cursor) and halting.has_room_for_more(cursor)
    )  # fmt: skip


def offer(cursor: Holdings, selections: object, limit: int, bytes_max: int) -> tuple[int, int]:
    """Hands them out to consumers without a selector, in turn: how many, and for how many more the time that this took
    counts. `limit`: of both, which is reached where more than about `bytes_max` are looked at."""
    given = passed = 0
    if not isinstance(selections, Matches) or limit <= 0 or not _offers(cursor):
        return 0, 0
    free, again = FreeEntries(cursor), selections.for_unfiltered
    wanting = [consumer for consumer in cursor.unfiltered if consumer.wants() > 0]
    while wanting and given + passed < limit and _offers(cursor):
        known, at = selections.came_back.from_on(cursor.counts, max(cursor.position, again.begin(wanting)))
        first = at
        found: EntryConsumer | None = None
        while found is None and at < len(known) and given + passed < limit:
            sequence = known[at]
            at += 1
            value = free.value(sequence) if sequence in cursor.counts and free.is_free(sequence) else None
            if value is None:
                passed += not (at - first) % PASSED_PER_ENTRY
            else:
                found, _, _, looks, _ = cursor.choose(wanting, sequence, value, packed.size_of(value))
                passed += looks // LOOKS_PER_ENTRY
                bytes_max -= len(value)
                if found is None:
                    passed += 1
                    again.leave_to_others(sequence, wanting)
                elif not (cursor.may_be_shown(sequence) or refuses(found, sequence, value)):
                    _ask_to_show(cursor, wanting, free, known[at - 1 : at - 1 + MARKS_MAX])
                    return given, passed
                else:
                    again.was_asked(sequence)
                    if free.hand(found, sequence, value):
                        cursor.next_turn(found)
                    given += 1
            if found is None:
                again.was_asked(sequence)
            if bytes_max <= 0:
                return given, limit - given
        if found is None:
            break
        wanting.remove(found)
        wanting = [one for one in (*wanting, found) if one in cursor.unfiltered and one.wants() > 0]
    return given, passed


def _ask_to_show(cursor: Holdings, wanting: list[EntryConsumer], free: FreeEntries, sequences: list[int]) -> None:
    """The first of these entries is handed out once it is on disk that it is shown; so are those behind it that the
    consumers get with the credit that they have."""

    def those_free() -> Iterator[tuple[int, bytes]]:
        for sequence in sequences:
            value = free.value(sequence) if sequence in cursor.counts else None
            if value is not None:
                yield sequence, value

    def choose(consumers: list[EntryConsumer], sequence: int, value: bytes) -> EntryConsumer | None:
        return cursor.choose(consumers, sequence, value, packed.size_of(value)).found

    marked = with_their_credit(wanting, those_free(), choose)
    cursor.queue.work.offered_count += len(sequences)
    cursor.mark_shown(marked)
    if marked and not cursor.is_counted:
        cursor.ask_watermark(marked[-1] + WATERMARK_AHEAD)
