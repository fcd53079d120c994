"""Entries that came back and that a selection has not matched again, which it gets while its cursor offers nothing new
(broker/cursors/halting.py, docs/adr/0063).

Rules of this file: entries are known by their sequences. Some may have left or be acquired, so the caller checks
whether an entry is free. What this takes of memory is counted for each requeued entry (GIVEN_BACK_BYTES).
"""

from bisect import bisect_left, insort
from collections.abc import Collection
from typing import Final

from holdfast.broker.cursors.entry_consumer import EntryConsumer

PASSED_PER_ENTRY: Final = 64
"""So many of them that are passed over count as one entry that was looked at."""

SPARE: Final = 64
"""Entries that are added one by one, and entries that are kept although they have left, beside as many as there are;
beyond that all are sorted anew."""


class CameBack:
    """Entries of one cursor that have a count of failed deliveries, ascending."""

    __slots__ = ("_sorted",)

    def __init__(self) -> None:
        self._sorted: list[int] | None = None
        """None: to be made of the counts."""

    def from_on(self, counts: Collection[int], first: int) -> tuple[list[int], int]:
        """All of them, which are `counts` and perhaps some that have left, and the place of the lowest that is not
        below `first`."""
        if self._sorted is None or len(self._sorted) > 2 * len(counts) + SPARE:
            self._sorted = sorted(counts)
        return self._sorted, bisect_left(self._sorted, first)

    def add(self, sequences: Collection[int]) -> None:
        """These became free."""
        known = self._sorted
        if known is None or len(sequences) > SPARE:
            self._sorted = None
            return
        for sequence in sequences:
            at = bisect_left(known, sequence)
            if at == len(known) or known[at] != sequence:
                insort(known, sequence)

    def forget(self) -> None:
        """They are not needed now."""
        self._sorted = None


class AskedAgain:
    """How far the consumers of one selection were asked about what came back."""

    __slots__ = ("_asked", "_left_from", "_next", "awaited")

    def __init__(self) -> None:
        self._next = 0
        """All below were handed out, do not match, or are left to other consumers."""
        self._left_from: int | None = None
        """The lowest that is left to other consumers."""
        self._asked: set[EntryConsumer] = set()
        """Those that were asked about all that are left to others."""
        self.awaited: int | None = None
        """The one that was found to be next, and waits until it is on disk that it is shown."""

    def next_for(self, consumers: Collection[EntryConsumer]) -> int:
        """The lowest that one of these consumers may have."""
        if self._left_from is not None and not self._asked.issuperset(consumers):
            return min(self._next, self._left_from)
        return self._next

    def begin(self, consumers: Collection[EntryConsumer]) -> int:
        """As `next_for`, and these consumers are asked about all from there on."""
        first = self.next_for(consumers)
        if self._left_from is not None and first <= self._left_from:
            self._left_from = None
        self._next = first
        return first

    def was_asked(self, sequence: int) -> None:
        """All up to this one are done with."""
        self._next = sequence + 1

    def leave_to_others(self, sequence: int, consumers: Collection[EntryConsumer]) -> None:
        """None of these consumers can have that one."""
        if self._left_from is None:
            self._left_from, self._asked = sequence, set(consumers)
        self._asked.intersection_update(consumers)

    def rewind(self, position: int) -> None:
        """From there on all are asked about again."""
        self._next = min(self._next, position)
        if self._left_from is not None and self._left_from >= position:
            self._left_from = None

    def leave(self, consumer: EntryConsumer) -> None:
        """The consumer has left."""
        self._asked.discard(consumer)
