"""Places in a queue that a reader by sequence asks for: where a bounded range ends, and what was stored since a time.

Rules of this file: it changes nothing, and reads a bounded number of entries however deep the queue is.
"""

from typing import Final, NamedTuple

from holdfast.broker.entries import packed
from holdfast.broker.entries.entry_log import EntryLog

LOOK_COUNT: Final = 4_096
LOOK_BYTES: Final = 4 * 1024 * 1024
"""What one answer looks at; `more` says that there is more to look at."""


class Measured(NamedTuple):
    """A range that ends before the sequence `end`, with so many messages and bytes. `more`: the bounds of a look ended
    it, not those that were asked for."""

    end: int
    messages: int
    bytes: int
    more: bool


def measured(queue: EntryLog, start: int, messages_max: int, bytes_max: int) -> Measured:
    """The range from `start` within both bounds; its first message is in it whatever its size."""
    if messages_max < 1:
        return Measured(start, 0, 0, False)
    count_max = min(messages_max, LOOK_COUNT)
    found = queue.read(start, count_max=count_max, bytes_max=LOOK_BYTES)
    end, messages, size = start, 0, 0
    for sequence, value in found:
        own = packed.size_of(value)
        if messages and size + own > bytes_max:
            return Measured(end, messages, size, False)
        end, messages, size = sequence + 1, messages + 1, size + own
    if size >= bytes_max or messages >= messages_max:
        return Measured(end, messages, size, False)
    if queue.read(end, count_max=1, bytes_max=1):
        return Measured(end, messages, size, True)
    return Measured(max(start, queue.visible), messages, size, False)


def first_since(queue: EntryLog, head: int, wall_ms: int) -> int:
    """The sequence of the first message that was stored at `wall_ms` or later, found by halves: times ascend, but where
    the node's clock was put back; the end of what is visible if there is none."""
    low, high = head, queue.visible
    while low < high:
        middle = (low + high) // 2
        found = queue.read(middle, count_max=1, bytes_max=1)
        if found and found[0][0] < high and packed.enqueued_ms_of(found[0][1]) < wall_ms:
            low = found[0][0] + 1
        else:
            high = middle
    return low
