"""An entry that is given another value at its old place: what counts it and what caches it follow.

Rules of this file: nothing is changed before the last call that could fail. Until the new value is on disk
`Work.rewritten` has it, so that nobody meets the old one, and what leaves has the size that it is counted with.
"""

from holdfast.broker import entry
from holdfast.broker.queue import Queue


def replace(queue: Queue, sequence: int, before: bytes, value: bytes) -> None:
    """The entry, which was `before`, has another value from now on. The caller stores it."""
    size = entry.size_of(value)
    grown = size - entry.size_of(before)
    cursors = (queue.shared, *queue.named.values())
    queue.uncache(sequence)
    queue.touch_counters()
    for cursor in cursors:
        ahead = cursor.prefetched
        if ahead and ahead[-1][0] <= sequence <= ahead[0][0]:
            cursor.forget_read_ahead()
    queue.bytes_held += grown  # from here on nothing is called that could fail
    for cursor in cursors:
        held = cursor.shown.get(sequence)
        if held is not None:
            cursor.shown[sequence] = held._replace(size=size)
