"""When queues are to be looked at for entries whose time to live is over: a wheel of seconds that holds blocks of
sequences.

Rules of this file: an entry costs nothing here that its block does not have already, and a block is known by the
soonest of its entries. It says where to look and when, never what is there: what a block holds is read when its time
comes. Reads no clock; times are the node's steady clock.
"""

from heapq import heapify, heappop, heappush
from typing import Final, Generic, Protocol, TypeVar

BLOCK_BITS: Final = 8
BLOCK_COUNT: Final = 1 << BLOCK_BITS
"""Sequences of a block, which is looked at as a whole."""

LATE_PARTS: Final = 64
"""An entry is looked for within a 64th of its time to live after its end, within a second at the soonest: blocks whose
entries end one after the other are not read for each of them."""

STEP_S_MAX: Final = 64
"""And within so many seconds at the latest."""

PRUNE_COUNT: Final = 64
"""Blocks of one queue that are kept without asking whether anything is left of them."""


def due_s(expires_ms: int, ttl_ms: int) -> int:
    """The second in which an entry is looked for, never before its end. A power of two apart: few are in use."""
    step = min(STEP_S_MAX, 1 << max(0, (max(0, ttl_ms) // (1000 * LATE_PARTS)).bit_length() - 1))
    return -(-expires_ms // (1000 * step)) * step


class Timed(Protocol):
    """A queue, of whose blocks this keeps when to look at them."""

    expiring: dict[int, int]
    """By block: the second in which it is looked at."""
    expiring_max: int

    def unfinished(self) -> tuple[int, list[int]]:
        """Entries that may still be there: all from the first on, and those of the second below it."""


TimedT = TypeVar("TimedT", bound=Timed)


class Wheel(Generic[TimedT]):
    """When to look at which block of a node's queues."""

    __slots__ = ("_seconds", "_slots", "walled")

    def __init__(self) -> None:
        self._slots: dict[int, dict[tuple[TimedT, int], None]] = {}
        self._seconds: list[int] = []
        """A heap of the seconds of `_slots`."""
        self.walled: dict[TimedT, None] = {}
        """Queues with an entry that expires at a wall time: when somebody sets that clock, it is looked for anew."""

    def note(self, queue: TimedT, sequence: int, second: int) -> None:
        """The block of `sequence` is to be looked at in `second`, or sooner where it is known to be."""
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
        """The soonest second in which there is something to look at."""
        seconds = self._seconds
        while seconds and not self._slots[seconds[0]]:
            del self._slots[heappop(seconds)]
        return seconds[0] if seconds else None

    def take(self, until_s: int) -> tuple[TimedT, int] | None:
        """A block whose second has come, as (queue, block); it is forgotten here. None where there is none."""
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
        """Forgets blocks of which consumers left nothing, so that what is kept follows what is stored."""
        first, above = queue.unfinished()
        alive = {sequence >> BLOCK_BITS for sequence in above}
        for block in [block for block in queue.expiring if block < first >> BLOCK_BITS and block not in alive]:
            del self._slots[queue.expiring.pop(block)][queue, block]
        queue.expiring_max = max(PRUNE_COUNT, 2 * len(queue.expiring))
        self._tidy()

    def _tidy(self) -> None:
        """Drops seconds that nothing is left of."""
        self._slots = {second: slot for second, slot in self._slots.items() if slot}
        self._seconds = list(self._slots)
        heapify(self._seconds)
