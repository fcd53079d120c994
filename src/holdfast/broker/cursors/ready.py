"""Which entries of a queue are ready, by priority, and within each in the order of arrival (docs/adr/0072).

Rules of this file: it only keeps sequences, two bytes for each, and reads nothing. It may contain entries that have
left, so the caller checks whether an entry exists. If entries of a level are forgotten for lack of memory, the place is
kept from which the level must be scanned again.
"""

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterable
from typing import Final

from holdfast.broker.cursors.entry_consumer import EntryConsumer
from holdfast.broker.cursors.sequence_heap import SequenceHeap
from holdfast.broker.cursors.waiting_for_others import FOR_OTHERS_BYTES, WaitingForOthers

LEVELS: Final = 10
"""Priorities 0 to 9, as in JMS; one above that is 9 (AMQP 1.0 §3.2.1)."""

LEVEL_OF: Final = bytes([min(priority, LEVELS - 1) for priority in range(256)])
"""By priority of an entry, which is one byte: the level."""

BLOCK_BITS: Final = 16
_OFFSET: Final = (1 << BLOCK_BITS) - 1

READY_BYTES: Final = 3
"""What an entry takes here, about: two bytes, and what an array has spare."""

BACK_BYTES: Final = 96
"""The same of one that came back."""


def level_of(value: bytes) -> int:
    """The level of an entry."""
    return LEVEL_OF[value[2]]


class Level:
    """Sequences of one priority. Those in the order of arrival are offsets in blocks; requeued ones are a heap. Entries
    that wait `for_others` are not ready."""

    __slots__ = ("_at", "_back", "_blocks", "_in_order", "behind", "for_others")

    def __init__(self) -> None:
        self._blocks: deque[tuple[int, array[int]]] = deque()
        """(number of the block, offsets), both ascending; no block is empty."""
        self._at = 0
        """How many of the first block were removed."""
        self._in_order = 0
        self._back = SequenceHeap()
        self.for_others = WaitingForOthers()
        """Entries that no consumer with credit can have."""
        self.behind: int | None = None
        """From here on this level must be scanned again. None: all is known."""

    def __len__(self) -> int:
        return self._in_order + len(self._back)

    @property
    def size(self) -> int:
        """Bytes of memory, about."""
        return READY_BYTES * self._in_order + BACK_BYTES * len(self._back)

    @property
    def came_back(self) -> int | None:
        """The lowest of those that came back."""
        return self._back.first

    @property
    def in_order(self) -> int:
        """How many there are that did not come back."""
        return self._in_order

    @property
    def first(self) -> int | None:
        """The lowest."""
        first = None
        if self._blocks:
            number, offsets = self._blocks[0]
            first = (number << BLOCK_BITS) + offsets[self._at]
        back = self._back.first
        return back if first is None or (back is not None and back < first) else first

    def first_for(self, consumers: Iterable[EntryConsumer]) -> int | None:
        """The lowest that is ready, or that waits for others and that one of the consumers may have, if that is lower.
        None if there is none, or if the level must be scanned before that is known."""
        first = self.first
        other = self.for_others.first_for(consumers) if self.for_others.is_awaited else None
        if other is not None and (other < first if first is not None else self.behind is None or other < self.behind):
            return other
        return first

    def next_for(self, consumers: Collection[EntryConsumer]) -> tuple[int | None, bool]:
        """As `first_for`, and whether it is known; it is not if the level must be scanned first, or what waited for
        others and was forgotten."""
        first, forgotten = self.first_for(consumers), self.for_others.rescan_from(consumers)
        if forgotten is not None and (first is None or forgotten < first):
            return None, False
        return first, first is not None or self.behind is None

    @property
    def first_of_all(self) -> int | None:
        """The lowest that is ready or waits for others."""
        return min([first for first in (self.first, self.for_others.first) if first is not None], default=None)

    @property
    def lowest(self) -> int | None:
        """As `first_of_all`, also of those that were forgotten. None if there is none, or if the level or these must be
        scanned before that is known."""
        first, forgotten = self.first_of_all, self.for_others.forgotten_from
        if first is None or (forgotten is not None and forgotten < first):
            return None
        return None if self.behind is not None and first >= self.behind else first

    def is_ready(self, sequence: int) -> bool:
        """Whether it is one of these, and does not wait for others."""
        if sequence in self._back:
            return True
        for place, (number, offsets) in enumerate(self._blocks):
            if number == sequence >> BLOCK_BITS:
                at = bisect_left(offsets, sequence & _OFFSET, lo=0 if place else self._at)
                return at < len(offsets) and offsets[at] == sequence & _OFFSET
        return False

    def not_yet_asked(self, consumers: list[EntryConsumer], sequence: int) -> list[EntryConsumer]:
        """Those of the consumers that may have this one, which is ready or waits for others."""
        return self.for_others.not_yet_asked(consumers, sequence) if sequence in self.for_others else consumers

    def leave_to_others(self, sequence: int, consumers: list[EntryConsumer], most: int) -> None:
        """The entry, `first` or `came_back`, waits for these consumers. As `WaitingForOthers.add`."""
        self.remove(sequence)
        self.for_others.add(sequence, consumers, most)

    def extend(self, sequences: list[int]) -> None:
        """These, ascending and behind all that came in order."""
        self._in_order += len(sequences)
        at = 0
        while at < len(sequences):
            number = sequences[at] >> BLOCK_BITS
            if sequences[-1] >> BLOCK_BITS == number:
                some = sequences[at:] if at else sequences
            else:
                some = [sequence for sequence in sequences[at:] if sequence >> BLOCK_BITS == number]
            at += len(some)
            if not self._blocks or self._blocks[-1][0] != number:
                self._blocks.append((number, array("H")))
            self._blocks[-1][1].extend([sequence & _OFFSET for sequence in some])

    def give_back(self, sequence: int) -> None:
        """It is ready again; from `behind` on it is found by the next scan."""
        if (self.behind is None or sequence < self.behind) and sequence not in self.for_others:
            self._back.add(sequence)

    def peek(self, count: int) -> list[int]:
        """The first `count` of those that came in order."""
        found: list[int] = []
        at = self._at
        for number, offsets in self._blocks:
            base = number << BLOCK_BITS
            found += [base + offset for offset in offsets[at : at + count - len(found)]]
            at = 0
            if len(found) >= count:
                break
        return found

    def skip(self, count: int) -> None:
        """Removes the first `count` of those in order."""
        self._in_order -= count
        self._at += count
        while self._blocks and self._at >= len(self._blocks[0][1]):
            self._at -= len(self._blocks.popleft()[1])

    def remove(self, sequence: int) -> None:
        """Removes `first`, `came_back`, or one that waits for others, also if it is here twice."""
        self._back.discard(sequence)
        self.for_others.discard(sequence)
        if self._blocks:
            number, offsets = self._blocks[0]
            if (number << BLOCK_BITS) + offsets[self._at] == sequence:
                self.skip(1)

    def discard(self, sequence: int) -> None:
        """Removes it wherever it is."""
        self._back.discard(sequence)
        self.for_others.discard(sequence)
        for place, (number, offsets) in enumerate(self._blocks):
            if number == sequence >> BLOCK_BITS:
                first = 0 if place else self._at
                at = bisect_left(offsets, sequence & _OFFSET, lo=first)
                if at < len(offsets) and offsets[at] == sequence & _OFFSET:
                    self._in_order -= 1
                    del offsets[at]
                    if first == len(offsets):
                        del self._blocks[place]
                        self._at = self._at if place else 0
                return

    def cut(self, kept: int) -> None:
        """Forgets all but the first `kept` of those in order, and requeued ones behind these."""
        if kept >= self._in_order:
            return
        left, at = kept, self._at
        blocks: deque[tuple[int, array[int]]] = deque()
        behind: int | None = None
        for number, offsets in self._blocks:
            here = len(offsets) - at
            if left < here:
                behind = (number << BLOCK_BITS) + offsets[at + left]
                if left:
                    blocks.append((number, offsets[: at + left]))
                break
            blocks.append((number, offsets))
            left, at = left - here, 0
        assert behind is not None, "more came in order than are kept"
        self._blocks = blocks
        self._at = self._at if blocks else 0
        self._in_order = kept
        self.behind = behind
        self._back.keep_below(behind)

    def drop_below(self, position: int) -> None:
        """Removes everything below `position`."""
        self.skip(self._count_below(position))
        self._back.keep_from(position)
        if self.behind is not None:
            self.behind = max(self.behind, position)

    def _count_below(self, position: int) -> int:
        count, at = 0, self._at
        for number, offsets in self._blocks:
            below = bisect_left(offsets, position - (number << BLOCK_BITS), lo=at)
            count += below - at
            if below < len(offsets):
                break
            at = 0
        return count

    def all(self) -> set[int]:
        """Every one of them, however many."""
        return {*self.peek(self._in_order), *self._back}


class Ready:
    """The levels of one queue, the highest last."""

    __slots__ = ("levels",)

    def __init__(self) -> None:
        self.levels = [Level() for _ in range(LEVELS)]

    def __len__(self) -> int:
        return sum(map(len, self.levels))

    def all(self) -> set[int]:
        """Every one of them, however many."""
        return set[int]().union(*[level.all() for level in self.levels])

    @property
    def size(self) -> int:
        """Bytes of memory, about."""
        return sum([level.size for level in self.levels])

    @property
    def for_others_size(self) -> int:
        """The same of entries that wait for others."""
        return FOR_OTHERS_BYTES * sum([len(level.for_others) for level in self.levels])

    def extend(self, found: list[tuple[int, bytes]]) -> None:
        """Entries, ascending and behind all that are here."""
        by_level: list[list[int]] = [[] for _ in range(LEVELS)]
        level_of_priority = LEVEL_OF
        for sequence, value in found:
            by_level[level_of_priority[value[2]]].append(sequence)
        for level, sequences in zip(self.levels, by_level, strict=True):
            if sequences and level.behind is None:
                level.extend(sequences)

    def peek(self, count: int) -> list[int]:
        """The next `count` of those in order, the highest level first, as far as known; without requeued ones."""
        found: list[int] = []
        for level in reversed(self.levels):
            if level.came_back is not None:
                first = level.first
                return found or ([] if first is None else [first])
            if level.in_order:
                found += level.peek(count - len(found))
            if len(found) >= count or level.behind is not None:
                break
        return found

    def skip(self, count: int) -> None:
        """Removes the next `count`, of which none was requeued."""
        for level in reversed(self.levels):
            here = min(count, level.in_order)
            if here:
                level.skip(here)
                count -= here
            if not count:
                return

    def shrink(self) -> bool:
        """Forgets the younger half of the lowest level with entries; False if nothing can be forgotten."""
        for level in self.levels:
            if level.in_order:
                level.cut(level.in_order // 2)
                return True
        return False

    def drop_below(self, position: int) -> None:
        """Removes everything below `position`."""
        for level in self.levels:
            level.drop_below(position)
