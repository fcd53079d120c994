"""Runs: entries ahead of a cursor that were never shown and do not expire, handed to a consumer many at once. The hot
path of `Cursor.pump`.

Rules of this file: a run begins at the cursor's position and leaves no entry out; it ends before an entry that is not
plain, or when its consumer accepts no more.
"""

from collections.abc import Sequence
from typing import Final

from holdfast.broker.cursors import halting
from holdfast.broker.cursors.entry_consumer import EntryConsumer
from holdfast.broker.cursors.holdings import Holdings
from holdfast.broker.entries import packed

RUN_COUNT: Final = 256
"""Entries that one consumer is handed at once, before it is asked whether it accepts more."""

RUN_LEAST: Final = 8
"""Entries that are tried for the next run after one that ended early, beside twice as many as that had."""

RUN_PER_ENTRY: Final = 8
"""Entries of a run that take about as long as one that is handed out singly, and count as one."""

SHARE_MAX: Final = 64
"""Entries that one of several consumers is handed at once, before the next."""

SHARE_MIN: Final = 2
"""With less for each, consumers get one at a time."""


def share_of(cursor: Holdings, consumers: int) -> int:
    """How many entries each of so many consumers gets at once now."""
    if consumers == 1:
        return RUN_COUNT
    ahead = min(cursor.queue.visible, cursor.watermark_stored) - cursor.position
    return min(SHARE_MAX, ahead // consumers)


def is_plain(cursor: Holdings, consumer: EntryConsumer) -> bool:
    """Whether all entries ahead were never shown, and `consumer` can have all of them; not for a subscription with a
    selector."""
    if (
        cursor.requeued
        or cursor.prefetched
        or cursor.counts
        or (consumer.excluded and cursor.exclusions.live)
        or cursor.position < cursor.shown_below
        or cursor.position < cursor.ahead_end
        or not cursor.queue.config.durable
    ):
        return False
    return not cursor.finished or cursor.finished.last < cursor.position


def hand_run(cursor: Holdings, consumer: EntryConsumer, limit: int, bytes_max: int) -> tuple[int, int]:
    """Hands out at most `limit` entries, or RUN_COUNT; returns how many, and their bytes. `wants` is called once: a
    link whose session's window closes within the run queues the rest itself."""
    queue, first = cursor.queue, cursor.position
    end = min(first + min(limit, RUN_COUNT, consumer.wants()), queue.visible, cursor.watermark_stored)
    if cursor.tracked:
        end = min(end, first + halting.outstanding_room(cursor))
    if first >= end:
        return 0, 0
    sequences: Sequence[int]
    found: list[tuple[int, bytes]] = []
    value = queue.cache.get(first)
    cached = value is not None
    if value is not None:
        if len(value) > consumer.run_bytes_max:
            return 0, 0
        values = queue.in_memory(first, end, bytes_max)
        sequences = range(first, first + len(values))
    else:
        found = queue.read(first, count_max=end - first, bytes_max=bytes_max)
        while found and found[-1][0] >= end:
            found.pop()
        sequences = [sequence for sequence, _ in found]
        values = [value for _, value in found]
    sizes = packed.lasting_sizes(values)
    if cursor.tracked:
        del sizes[_without_gaps(sequences, first) :]  # missing sequences in between count as finished
    if len(sizes) < len(values):
        sequences, values = sequences[: len(sizes)], values[: len(sizes)]
    taken = consumer.take_all(sequences, values) if values else 0
    if not taken:
        if cursor.read_ahead_bytes:
            queue.read_ahead.forget(cursor)
        cursor.prefetched = found[::-1]
        cursor.read_bytes = sum([len(value) for _, value in found])
        return 0, 0
    if taken < len(values):
        sequences, values, sizes = sequences[:taken], values[:taken], sizes[:taken]
    cursor.hold_run(consumer, sequences, sizes)
    cursor.position = sequences[-1] + 1
    if cached:
        queue.uncache_run(sequences, values)
    return taken, sum(sizes)


def _without_gaps(sequences: Sequence[int], first: int) -> int:
    """How many follow one another from `first` on."""
    if not sequences or sequences[-1] == first + len(sequences) - 1:
        return len(sequences)
    return next(place for place, sequence in enumerate(sequences) if sequence != first + place)
