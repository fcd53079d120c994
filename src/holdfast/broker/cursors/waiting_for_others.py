"""Entries that match, and that no consumer with credit can be given, but another consumer can: they are undeliverable
on the links of those with credit, or too large for them (docs/adr/0063, docs/adr/0072).

Rules of this file: entries are known by their sequences, some of which may have left: the caller checks whether an
entry exists. Each consumer is asked once about each of them. At the bound the highest are forgotten, and scanned again
for consumers that may have some of them; so nothing that is here keeps an entry from a consumer.
"""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from sys import maxsize
from typing import Final

from holdfast.broker.cursors.entry_consumer import EntryConsumer

FOR_OTHERS_BYTES: Final = 160
"""What such an entry takes of memory, about."""


class WaitingForOthers:
    """The entries of one group, or of one priority of it."""

    __slots__ = ("_kept", "_next_for", "_rescan_for", "forgotten_from")

    def __init__(self) -> None:
        self._kept: list[int] = []
        """Ascending, and below `forgotten_from`."""
        self._next_for: dict[EntryConsumer, int] = {}
        """The lowest sequence about which each consumer was not asked; a consumer that is not here can have none."""
        self.forgotten_from: int | None = None
        """From here on entries were forgotten."""
        self._rescan_for: set[EntryConsumer] = set()
        """Consumers that may have some of the forgotten ones."""

    def __len__(self) -> int:
        return len(self._kept)

    def __bool__(self) -> bool:
        return bool(self._kept) or self.forgotten_from is not None

    def __contains__(self, sequence: int) -> bool:
        at = bisect_left(self._kept, sequence)
        return at < len(self._kept) and self._kept[at] == sequence

    def __iter__(self) -> Iterator[int]:
        return iter(self._kept)

    def from_on(self, sequence: int) -> Iterator[int]:
        """Those that are not below this one."""
        return islice(self._kept, bisect_left(self._kept, sequence), None)

    @property
    def first(self) -> int | None:
        """The lowest."""
        return self._kept[0] if self._kept else None

    # ------------------------------------------------------------------------------------------------ kept

    def add(self, sequence: int, consumers: Collection[EntryConsumer], most: int) -> None:
        """The entry waits for these consumers: no other can have it, and none of them wants one now. At most `most`
        entries are kept."""
        kept = self._kept
        if self.forgotten_from is None and len(kept) >= most and sequence > kept[-1]:
            self.forgotten_from = sequence
        if self.forgotten_from is not None and sequence >= self.forgotten_from:
            self._rescan_for.update(consumers)
            return
        if sequence not in self:
            insort(kept, sequence)
        for consumer in consumers:
            self._next_for[consumer] = min(sequence, self._next_for.get(consumer, sequence))
        while len(kept) > most:
            self.forgotten_from = last = kept.pop()
            self._rescan_for.update([consumer for consumer, first in self._next_for.items() if first <= last])

    def discard(self, sequence: int) -> None:
        """Removes the entry, if it is here."""
        at = bisect_left(self._kept, sequence)
        if at < len(self._kept) and self._kept[at] == sequence:
            del self._kept[at]

    def rewind(self, position: int) -> None:
        """Removes everything from `position` on, because it is scanned again."""
        del self._kept[bisect_left(self._kept, position) :]
        if self.forgotten_from is not None and self.forgotten_from >= position:
            self.forgotten_from = None
            self._rescan_for.clear()

    # ------------------------------------------------------------------------------------------------ asked

    @property
    def is_awaited(self) -> bool:
        """Whether some consumer may have some of these entries or of the forgotten ones, now or with credit."""
        return bool(self._next_for or self._rescan_for)

    def first_for(self, consumers: Iterable[EntryConsumer]) -> int | None:
        """The lowest that is kept and that one of these consumers may have. Removes consumers that can have nothing
        more of what is kept."""
        lowest: int | None = None
        for consumer in consumers if self._next_for else ():
            first = self._next_for.get(consumer)
            if first is not None:
                at = bisect_left(self._kept, first)
                if at == len(self._kept):
                    del self._next_for[consumer]
                elif lowest is None or self._kept[at] < lowest:
                    lowest = self._kept[at]
        return lowest

    def not_yet_asked(self, consumers: Iterable[EntryConsumer], sequence: int) -> list[EntryConsumer]:
        """Those of the consumers that were not asked about this entry, which is kept."""
        return [consumer for consumer in consumers if self._next_for.get(consumer, maxsize) <= sequence]

    def was_asked(self, consumers: Iterable[EntryConsumer], sequence: int) -> None:
        """These consumers, which were asked in order, can have none of the entries up to this one."""
        for consumer in consumers:
            self._next_for[consumer] = sequence + 1

    def rescan_from(self, consumers: Iterable[EntryConsumer]) -> int | None:
        """Where to scan again for one of these consumers, which was asked about all that is kept. None if for none of
        them."""
        for consumer in consumers if self._rescan_for else ():
            if consumer in self._rescan_for and self.first_for((consumer,)) is None:
                return self.forgotten_from
        return None

    # ------------------------------------------------------------------------------------------------ consumers

    def ask_again(self, consumers: Iterable[EntryConsumer]) -> None:
        """These consumers are asked about every entry again: one has joined, or one has left that entries were left
        for."""
        if self._kept:
            self._next_for.update(dict.fromkeys(consumers, 0))
        if self.forgotten_from is not None:
            self._rescan_for.update(consumers)

    def leave(self, consumer: EntryConsumer) -> None:
        """The consumer has left."""
        self._next_for.pop(consumer, None)
        self._rescan_for.discard(consumer)

    @property
    def consumers(self) -> set[EntryConsumer]:
        """Those that may have some of these entries or of the forgotten ones."""
        return self._rescan_for.union(self._next_for)
