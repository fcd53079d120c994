"""Consumers with equal selectors, and the entries that match a selector (docs/adr/0063).

Rules of this file: entries are known by their sequences; an entry is only read to find out whether it is free.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from heapq import heapify
from typing import Final

from holdfast.broker.cursors.came_back import AskedAgain
from holdfast.broker.cursors.entry_consumer import Acquired, EntryConsumer, EntrySelector
from holdfast.broker.cursors.holdings import Holdings
from holdfast.broker.cursors.sequence_heap import SequenceHeap
from holdfast.broker.cursors.waiting_for_others import FOR_OTHERS_BYTES, WaitingForOthers
from holdfast.broker.entries import packed

HIT_BYTES: Final = 160
"""What an entry that matches and waits takes of memory, about."""


class Group(ABC):
    """Consumers with equal selectors. All visible entries below `position` were matched for them."""

    __slots__ = ("consumers", "position", "selector", "shows")

    def __init__(self, selector: EntrySelector, position: int, *, shows: bool) -> None:
        """`shows`: whether entries that its consumers get count as shown."""
        self.selector = selector
        self.position = position
        self.shows = shows
        self.consumers: dict[EntryConsumer, None] = {}

    @abstractmethod
    def forget(self, sequence: int) -> None:
        """The entry, which was matched, is to be matched again once it is free."""

    @property
    @abstractmethod
    def all_for_others(self) -> list[WaitingForOthers]:
        """What its consumers could not have, for the invariants."""

    @abstractmethod
    def left(self, consumer: EntryConsumer) -> None:
        """The consumer is no longer one of `consumers`."""

    def wanting(self) -> list[EntryConsumer]:
        """The consumers that accept entries now."""
        return [consumer for consumer in self.consumers if consumer.wants() > 0]

    def wanted(self) -> int:
        """How many entries the consumers take, as `EntryConsumer.will_want`."""
        return sum(consumer.will_want() for consumer in self.consumers)


class Selection(Group):
    """Free entries below `position` that match are `hits` or wait `for_others`, except those from `passed_over` on that
    none of the consumers can have, and those that `for_others` has forgotten."""

    __slots__ = ("again", "for_others", "hits", "passed_over")

    def __init__(self, selector: EntrySelector, position: int, *, shows: bool) -> None:
        super().__init__(selector, position, shows=shows)
        self.hits = SequenceHeap()
        """Entries that wait for credit, or until it is on disk that they are shown."""
        self.for_others = WaitingForOthers()
        self.again = AskedAgain()
        """About entries from `known_below` on that are not here, while the cursor is halted."""
        self.passed_over: int | None = None

    def __contains__(self, sequence: int) -> bool:
        """Whether the entry is a hit or waits for others."""
        return sequence in self.hits or sequence in self.for_others

    @property
    def known_below(self) -> int:
        """Below this, all that matches and is free is here, or none of the consumers can have it."""
        forgotten = self.for_others.forgotten_from
        return self.position if forgotten is None else min(self.position, forgotten)

    @property
    def size(self) -> int:
        """Bytes of memory, about."""
        return HIT_BYTES * len(self.hits) + FOR_OTHERS_BYTES * len(self.for_others)

    def add(self, sequence: int) -> None:
        """The entry, which lies below the position, matches and is free."""
        if sequence not in self.for_others:
            self.hits.add(sequence)

    def forget(self, sequence: int) -> None:
        self.hits.discard(sequence)
        self.for_others.discard(sequence)

    @property
    def all_for_others(self) -> list[WaitingForOthers]:
        return [self.for_others]

    def left(self, consumer: EntryConsumer) -> None:
        self.for_others.leave(consumer)
        self.again.leave(consumer)

    def first_for(self, consumers: Iterable[EntryConsumer]) -> int | None:
        """The lowest hit, or entry that waits for others and that one of the consumers may have, if that is lower."""
        first, other = self.hits.first, self.for_others.first_for(consumers)
        return other if first is None or (other is not None and other < first) else first

    def not_yet_asked(self, consumers: list[EntryConsumer], sequence: int) -> list[EntryConsumer]:
        """Those of the consumers that may have the entry, which is a hit or waits for others."""
        return consumers if sequence in self.hits else self.for_others.not_yet_asked(consumers, sequence)

    def leave_to_others(self, sequence: int, consumers: list[EntryConsumer], most: int) -> None:
        """The entry waits for these consumers. As `WaitingForOthers.add`."""
        self.hits.discard(sequence)
        before = self.for_others.forgotten_from
        self.for_others.add(sequence, consumers, most)
        forgotten = self.for_others.forgotten_from
        if forgotten != before:
            self.again.rewind(self.known_below)
        elif forgotten is not None and sequence >= forgotten:
            self.again.rewind(sequence)

    def rewind(self, position: int) -> None:
        """Entries from `position` on must be matched again."""
        if position < self.position:
            self.position = position
            self.hits.keep_below(position)
            self.for_others.rewind(position)
            self.again.rewind(position)
        if self.passed_over is not None and self.passed_over >= position:
            self.passed_over = None

    def pass_over(self, sequence: int) -> None:
        """The entry matches, and none of the consumers can have it."""
        self.hits.discard(sequence)
        self.passed_over = sequence if self.passed_over is None else min(self.passed_over, sequence)


class FreeEntries:
    """Which entries are free while one pump runs: `waiting`, of those below the cursor's position."""

    __slots__ = ("_cursor", "_given_back", "_leaving", "_waiting", "taken")

    def __init__(self, cursor: Holdings) -> None:
        self._cursor = cursor
        self._leaving: set[int] | None = None
        self._waiting: set[int] | None = None
        self.taken: set[int] = set()
        """Entries below the position that were handed out, and are still in the heap of requeued ones."""
        self._given_back = False
        """Whether any of them was requeued, and is in that heap twice."""

    @property
    def waiting(self) -> set[int]:
        if self._waiting is None:
            self._waiting = {*self._cursor.requeued, *self._cursor.exclusions.aside}
        return self._waiting

    def has(self, sequence: int, value: bytes) -> bool:
        return self.is_free(sequence) and not self._cursor.queue.expired(value)

    def is_free(self, sequence: int) -> bool:
        """As `has`, also for an expired entry."""
        cursor = self._cursor
        if sequence in cursor.acquired or sequence in cursor.finished:
            return False
        if sequence < cursor.position:
            if sequence not in self.waiting:
                return False
        elif sequence < cursor.ahead_end and sequence in self.leaving:
            return False
        return True

    def value(self, sequence: int) -> bytes | None:
        """The entry, if it exists and is free."""
        value = self._cursor.queue.value(sequence)
        return value if value is not None and self.has(sequence, value) else None

    def take(self, sequence: int) -> None:
        """Marks it as no longer free."""
        cursor = self._cursor
        if sequence < cursor.position:
            if cursor.exclusions.aside:
                cursor.exclusions.taken(sequence)
            self.waiting.discard(sequence)
            self.taken.add(sequence)
        else:
            cursor.ahead.add(sequence)
            cursor.ahead_end = max(cursor.ahead_end, sequence + 1)

    def hand(self, consumer: EntryConsumer, sequence: int, value: bytes) -> bool:
        """Hands the consumer the entry, which is free. False if it was delivered too often, and becomes a dead
        letter."""
        cursor = self._cursor
        if cursor.prefetched:
            cursor.queue.read_ahead.forget(cursor)  # it would be handed out from there again
        size, failures = packed.size_of(value), cursor.failures(sequence)
        if cursor.is_exhausted(failures):
            cursor.exhaust(sequence, size)
            self.take(sequence)
            return False
        self.take(sequence)
        cursor.acquired[sequence] = Acquired(consumer, size)
        consumer.count_held(size)
        consumer.take(sequence, value, failures)
        return True

    def leave(self, sequence: int) -> None:
        """It leaves the disk, or is finished, although no consumer had it."""
        self.leaving.add(sequence)
        if sequence < self._cursor.position:
            self.waiting.discard(sequence)
            self.taken.add(sequence)
        else:
            self._cursor.ahead_end = max(self._cursor.ahead_end, sequence + 1)

    def give_back(self, sequence: int) -> None:
        """It is free again."""
        if sequence in self.taken:
            self.taken.remove(sequence)
            self._given_back = True
        if self._waiting is not None and sequence < self._cursor.position:
            self._waiting.add(sequence)

    def end(self) -> None:
        """Removes the taken entries from the heap of requeued ones, which has each of the others once."""
        if self.taken or self._given_back:
            cursor = self._cursor
            cursor.requeued = [sequence for sequence in set(cursor.requeued) if sequence not in self.taken]
            heapify(cursor.requeued)

    @property
    def leaving(self) -> set[int]:
        """Entries that are leaving the disk."""
        if self._leaving is None:
            self._leaving = self._cursor.queue.leaving()
        return self._leaving
