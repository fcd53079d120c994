"""Purges: the entries of a queue leave it, a bounded share each turn; also those that a deleted queue left on disk.

Rules of this file: entries that a consumer holds stay; tombstones and entries that are leaving already are skipped.
"""

from typing import Final

from holdfast.broker.entries import entry, packed
from holdfast.broker.entries.read_ahead import READ_BYTES
from holdfast.broker.entries.work import RETIRES_MAX, Work
from holdfast.broker.queue import RECLAIM_COUNT, Queue
from holdfast.engine.port import EntryReader

LEAVING_BYTES: Final = 4 * 1024 * 1024
"""Bytes that one turn reads of a deleted queue to find its entries."""


def begin_purge(queue: Queue) -> None:
    """Stops offering the visible entries. A transmission queue offers nothing until the end of the purge; its
    tombstones stay and are sent then.
    """
    shared = queue.shared
    shared.forget_read_ahead()
    if queue.in_transit:
        queue.stopped = True
    else:
        shared.move_to(max(shared.position, queue.visible))


def purge_some(queue: Queue, first: int, end: int) -> tuple[list[tuple[int, bytes]], int]:
    """One turn's share of a purge of [first, end): the entries that left, as (sequence, value), and where to continue.
    Entries that a consumer holds and tombstones stay, and everything stays if there is a named cursor. Values are only
    returned for a transmission queue.
    """
    work = queue.work
    if queue.named:
        return [], end
    if work.is_full(RETIRES_MAX):
        work.request_commit()
        return [], first
    found, place = at_rest(queue, first, end, count_max=RECLAIM_COUNT, bytes_max=4 * READ_BYTES)
    gone: list[tuple[int, bytes]] = []
    size = 0
    for sequence, value in found:
        size += packed.size_of(value)
        gone.append((sequence, value if queue.in_transit else b""))
    if gone:  # all at once, and last: a destination would wait for an entry that left without its tombstone
        sequences = [sequence for sequence, _ in gone]
        queue.shared.forget_all(sequences)
        queue.retire_all(sequences, size)
    return gone, place


def at_rest(
    queue: Queue, first: int, end: int, *, count_max: int, bytes_max: int
) -> tuple[list[tuple[int, bytes]], int]:
    """Some messages of [first, end) that no consumer holds and that are not leaving, and where to continue."""
    found = queue.read(first, count_max=count_max, bytes_max=bytes_max)
    leaving = queue.leaving() if found else set()
    messages: list[tuple[int, bytes]] = []
    for sequence, value in found:
        if sequence >= end:
            return messages, end
        if not (value[1] & entry.TOMBSTONE or sequence in queue.shared.acquired or sequence in leaving):
            messages.append((sequence, value))
    return messages, found[-1][0] + 1 if found else end


def leave_some(store: EntryReader, work: Work[Queue], queue_id: int, first: int) -> int | None:
    """Deletes one turn's share of a deleted queue's entries, from `first` on; returns where to continue, None at the
    end."""
    if work.is_full(RETIRES_MAX):
        work.request_commit()
        return first
    found = store.read(queue_id, first, count_max=RECLAIM_COUNT, bytes_max=LEAVING_BYTES)
    if not found:
        return None
    work.batch.retires += [(queue_id, sequence) for sequence, _ in found]
    return found[-1][0] + 1
