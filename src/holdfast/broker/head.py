"""The head of a queue: its first message that is neither finished nor leaving.

Rules of this file: it changes nothing, and reads a bounded number of entries however deep the queue is. Leaving entries
stay in the store until their batch is stored; during a purge these are thousands. After the first few, it uses what is
in memory about entries that were looked at, and reads on from the cursor's position.
"""

from heapq import heapify, heappop
from typing import Final

from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.entries.entry_log import EntryLog

FRONT_COUNT: Final = 64
FRONT_BYTES: Final = 64 * 1024
"""Bytes that are read at once, about."""


def first_free(shared: Cursor) -> int:
    """Below this sequence every entry is acquired or finished; found without reading these."""
    return min([shared.position, *shared.requeued[:1], *shared.exclusions.aside])


def head_of(queue: EntryLog, shared: Cursor) -> int:
    """The lowest visible sequence that is neither finished nor leaving, `visible` where there is none; `shared`: the
    queue's cursor of ordinary consumers."""
    position, acquired, requeued, aside = shared.position, shared.acquired, shared.requeued, shared.exclusions.aside
    front = queue.read(shared.floor, count_max=FRONT_COUNT, bytes_max=FRONT_BYTES)
    if not front:
        return queue.visible
    if shared.tracked:
        return front[0][0]
    if front[0][0] < position:
        for sequence, _ in front:
            if sequence >= position or (requeued and sequence > requeued[0]):
                break
            if sequence in acquired or sequence in aside or (requeued and sequence == requeued[0]):
                return sequence
        waiting = [sequence for sequence in shared.below_position() if sequence >= front[0][0]]
        heapify(waiting)
        while waiting:
            sequence = heappop(waiting)
            if queue.value(sequence) is not None:
                return sequence
        front = queue.read(position, count_max=FRONT_COUNT, bytes_max=FRONT_BYTES)
    finished = shared.finished
    leaving = queue.leaving() if position < shared.ahead_end else set()
    while front:
        for sequence, _ in front:
            if sequence not in finished and sequence not in leaving:
                return sequence
        last = front[-1][0]
        front = queue.read(max(last, finished.end_of_run(last)) + 1, count_max=FRONT_COUNT, bytes_max=FRONT_BYTES)
    return queue.visible
