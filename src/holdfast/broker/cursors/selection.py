"""Consumers with equal selectors, and the entries that match a selector (docs/adr/0063).

Rules of this file: entries are known by their sequences; an entry is only read to find out whether it is free.
"""

from abc import ABC, abstractmethod
from heapq import heapify, heappop, heappush

from holdfast.broker.cursors.entry_consumer import EntryConsumer, EntrySelector
from holdfast.broker.cursors.holdings import Holdings


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

    def wanting(self) -> list[EntryConsumer]:
        """The consumers that accept entries now."""
        return [consumer for consumer in self.consumers if consumer.wants() > 0]

    def wanted(self) -> int:
        """How many entries the consumers take, as `EntryConsumer.will_want`."""
        return sum(consumer.will_want() for consumer in self.consumers)


class Selection(Group):
    """Free entries below `position` that match are in the heap `hits` or in `apart`, except those from `passed_over` on
    that none of the consumers can have."""

    __slots__ = ("apart", "apart_for", "hits", "passed_over", "waiting")

    def __init__(self, selector: EntrySelector, position: int, *, shows: bool) -> None:
        super().__init__(selector, position, shows=shows)
        self.hits: list[int] = []
        self.apart: set[int] = set()
        """Entries that no consumer with credit could have, and others can; they are no longer in `hits`."""
        self.apart_for: set[EntryConsumer] = set()
        """Consumers that can have none of these."""
        self.waiting: set[int] = set()
        """What is in `hits` or in `apart`."""
        self.passed_over: int | None = None

    def add(self, sequence: int) -> None:
        """The entry, which lies below the position, matches and is free."""
        if sequence not in self.waiting or sequence in self.apart:
            self.apart.discard(sequence)
            heappush(self.hits, sequence)
            self.waiting.add(sequence)

    def forget(self, sequence: int) -> None:
        if sequence in self.waiting:
            self.waiting.discard(sequence)
            self.apart.discard(sequence)
            self.hits = [hit for hit in self.hits if hit != sequence]
            heapify(self.hits)

    def pop(self) -> None:
        """Removes the lowest hit."""
        self.waiting.discard(heappop(self.hits))

    def pop_apart(self, consumers: list[EntryConsumer]) -> None:
        """Sets the lowest hit apart, because none of these consumers can have it."""
        self.apart_for = self.apart_for.intersection(consumers) if self.apart else set(consumers)
        self.apart.add(heappop(self.hits))

    def rejoin_apart(self) -> None:
        """Entries that were set apart are hits again."""
        if self.apart:
            self.hits += self.apart
            heapify(self.hits)
            self.apart.clear()
        self.apart_for.clear()

    def rewind(self, position: int) -> None:
        """Entries from `position` on must be matched again."""
        if position < self.position:
            self.position = position
            self.hits = [sequence for sequence in self.hits if sequence < position]
            heapify(self.hits)
            self.apart = {sequence for sequence in self.apart if sequence < position}
            self.waiting = self.apart.union(self.hits)
        if self.passed_over is not None and self.passed_over >= position:
            self.passed_over = None

    def pass_over(self, sequence: int) -> None:
        """The entry matches, and none of the consumers can have it."""
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
