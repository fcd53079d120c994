"""Replaces the value of an entry at its place, with all counters and caches.

Rules of this file: nothing is changed before the last call that could fail. Until the new value is on disk,
`Work.rewritten` has it, so that no reader gets the old one, and an entry leaves with the size that was counted.
"""

from holdfast.broker import backlogs
from holdfast.broker.entries import entry, packed
from holdfast.broker.queue import Queue


def replace(
    queue: Queue, sequence: int, before: bytes, value: bytes, rewritten: dict[tuple[Queue, int], bytes] | None = None
) -> None:
    """Gives the entry, which was `before`, another value. With `rewritten`, the turn's record of such entries, it is
    stored with the turn's batch; otherwise the caller stores it."""
    size = packed.size_of(value)
    grown = size - packed.size_of(before)
    cursors = queue.cursors
    queue.uncache(sequence)
    queue.touch_counters()
    for cursor in cursors:
        ahead = cursor.prefetched
        if ahead and ahead[-1][0] <= sequence <= ahead[0][0]:
            cursor.forget_read_ahead()
    acquired = [cursor.acquired for cursor in cursors if sequence in cursor.acquired]
    held = [item[sequence]._replace(size=size) for item in acquired]
    for cursor in cursors:
        backlogs.resized(cursor, sequence, size)
        if cursor.selections is not None:
            cursor.selections.rewritten(sequence)
    stones = bool(value[1] & entry.TOMBSTONE) - bool(before[1] & entry.TOMBSTONE)
    queue.bytes_held += grown  # from here on nothing is called that could fail
    queue.tombstones = max(0, queue.tombstones + stones)
    for item, anew in zip(acquired, held, strict=True):
        item[sequence] = anew
    if rewritten is not None:
        work = queue.work
        work.batch.appends.append((queue.queue_id, sequence, value))
        work.batch.bytes_appended += len(value)
        work.rewritten[queue.queue_id, sequence] = value
        rewritten[queue, sequence] = value
