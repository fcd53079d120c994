"""When queues must be checked for expired entries: a timing wheel of seconds that holds blocks of sequences.

Rules of this file: an entry costs no memory beyond that of its block, and a block has the earliest time of its entries.
The wheel only says where to look and when; the entries of a block are read when its time comes. It reads no clock;
times are those of the node's steady clock.
"""

from heapq import heapify, heappop, heappush
from typing import Final, Generic, Protocol, TypeVar

BLOCK_BITS: Final = 8
BLOCK_COUNT: Final = 1 << BLOCK_BITS
"""Sequences of a block, which is looked at as a whole."""

LATE_PARTS: Final = 64
"""An expired entry is found within a 64th of its time to live, at least within a second: so a block whose entries
expire one after the other is not read for each of them."""

STEP_S_MAX: Final = 64
"""And within so many seconds at the latest."""

PRUNE_COUNT: Final = 64
"""Blocks of one queue that are kept without checking whether they have entries."""


def due_s(expires_ms: int, ttl_ms: int) -> int:
    """The second in which an entry is checked, never before it expires. Seconds are a power of two apart, so that few
    are in use."""
    step = min(STEP_S_MAX, 1 << max(0, (max(0, ttl_ms) // (1000 * LATE_PARTS)).bit_length() - 1))
    return -(-expires_ms // (1000 * step)) * step


class Timed(Protocol):
    """A queue with blocks in the wheel."""

    expiring: dict[int, int]
    """By block: the second in which it is looked at."""
    expiring_max: int

    def unfinished(self) -> tuple[int, list[int]]:
        """Entries that may still exist: all from the first item on, and those of the second item below it."""


TimedT = TypeVar("TimedT", bound=Timed)


class Wheel(Generic[TimedT]):
    """When to check which block of a node's queues."""

    __slots__ = ("_seconds", "_slots", "walled")

    def __init__(self) -> None:
        self._slots: dict[int, dict[tuple[TimedT, int], None]] = {}
        self._seconds: list[int] = []
        """A heap of the seconds of `_slots`."""
        self.walled: dict[TimedT, None] = {}
        """Queues with an entry that expires at a wall time: if that clock is set, they are examined again."""

    def note(self, queue: TimedT, sequence: int, second: int) -> None:
        """The block of `sequence` is to be checked in `second`, or earlier if it is in the wheel already."""
        block = sequence >> BLOCK_BITS
        known = queue.expiring.get(block)
        if known is not None:
            if known <= second:
                return
            del self._slots[known][queue, block]
        elif len(queue.expiring) >= queue.expiring_max:
            self._prune(queue)
        queue.expiring[block] = second
        slot = self._slots.get(second)
        if slot is None:
            slot = self._slots[second] = {}
            heappush(self._seconds, second)
        slot[queue, block] = None

    def first_s(self) -> int | None:
        """The earliest second with a block."""
        seconds = self._seconds
        while seconds and not self._slots[seconds[0]]:
            del self._slots[heappop(seconds)]
        return seconds[0] if seconds else None

    def take(self, until_s: int) -> tuple[TimedT, int] | None:
        """Removes and returns a block whose second has come, as (queue, block); None if there is none."""
        first = self.first_s()
        if first is None or first > until_s:
            return None
        slot = self._slots[first]
        queue, block = next(iter(slot))
        del slot[queue, block], queue.expiring[block]
        return queue, block

    def forget(self, queue: TimedT) -> None:
        """The queue is deleted."""
        for block, second in queue.expiring.items():
            del self._slots[second][queue, block]
        queue.expiring.clear()
        self.walled.pop(queue, None)
        self._tidy()

    def _prune(self, queue: TimedT) -> None:
        """Removes blocks without entries, so that the size of the wheel follows that of the store."""
        first, above = queue.unfinished()
        alive = {sequence >> BLOCK_BITS for sequence in above}
        for block in [block for block in queue.expiring if block < first >> BLOCK_BITS and block not in alive]:
            del self._slots[queue.expiring.pop(block)][queue, block]
        queue.expiring_max = max(PRUNE_COUNT, 2 * len(queue.expiring))
        self._tidy()

    def _tidy(self) -> None:
        """Drops seconds without blocks."""
        self._slots = {second: slot for second, slot in self._slots.items() if slot}
        self._seconds = list(self._slots)
        heapify(self._seconds)
