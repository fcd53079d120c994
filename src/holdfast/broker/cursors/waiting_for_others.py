"""Entries that match, and that no consumer with credit can be given, but another consumer can: they are undeliverable
on the links of those with credit, or too large for them (docs/adr/0063, docs/adr/0072).

Rules of this file: entries are known by their sequences, some of which may have left: the caller checks whether an
entry exists. Each consumer is asked once about each of them. At the bound the highest are forgotten, and scanned again
for the consumers that may have some of them alone, for each from a place of its own; so nothing that is here keeps an
entry from a consumer.
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

    __slots__ = ("_kept", "_next_for", "_rescan_for", "_to_mark", "forgotten_from", "forgotten_to")

    def __init__(self) -> None:
        self._kept: list[int] = []
        """Ascending, and below `forgotten_from`."""
        self._next_for: dict[EntryConsumer, int] = {}
        """The lowest sequence about which each consumer was not asked; a consumer that is not here can have none."""
        self.forgotten_from: int | None = None
        """From here on entries were forgotten."""
        self.forgotten_to = 0
        """None was from here on."""
        self._rescan_for: dict[EntryConsumer, int] = {}
        """Consumers that may have some of the forgotten ones, each from there on; 0 for all of them."""
        self._to_mark: set[EntryConsumer] = set()
        """Of the others and of those with a place, those that may have some of what is kept: if any of that is
        forgotten, they may have it."""

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
            self.forgotten_to = max(self.forgotten_to, sequence + 1)
            for consumer in consumers:
                self._rescan_for[consumer] = min(sequence, self._rescan_for.get(consumer, sequence))
        else:
            if sequence not in self:
                insort(kept, sequence)
            self._wait_for(sequence, consumers)
        if len(kept) > most:
            self._forget_beyond(most)

    def _wait_for(self, sequence: int, consumers: Iterable[EntryConsumer]) -> None:
        """The entry, which is kept, waits for these consumers."""
        for consumer in consumers:
            self._next_for[consumer] = min(sequence, self._next_for.get(consumer, sequence))
            if self._rescan_for.get(consumer, maxsize):
                self._to_mark.add(consumer)

    def _forget_beyond(self, most: int) -> None:
        """Forgets all but the first `most`."""
        last = self._kept[-1]
        self.forgotten_from, self.forgotten_to = self._kept[most], max(self.forgotten_to, last + 1)
        del self._kept[most:]
        next_for = self._next_for
        self._rescan_for.update([(one, 0) for one in self._to_mark if next_for.get(one, maxsize) <= last])
        self._to_mark.clear()  # the rest can have none of these, and nothing behind them is kept

    def discard(self, sequence: int) -> None:
        """Removes the entry, if it is here."""
        at = bisect_left(self._kept, sequence)
        if at < len(self._kept) and self._kept[at] == sequence:
            del self._kept[at]

    def rewind(self, position: int) -> None:
        """Removes everything from `position` on, because it is scanned again."""
        del self._kept[bisect_left(self._kept, position) :]
        self.forgotten_to = min(self.forgotten_to, position)
        self._end_if_none_forgotten()

    def _end_if_none_forgotten(self) -> None:
        if self.forgotten_from is not None and self.forgotten_from >= self.forgotten_to:
            self.forgotten_from, self.forgotten_to = None, 0
            self._rescan_for.clear()
            self._to_mark.update(self._next_for)

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

    # ------------------------------------------------------------------------------------------------ forgotten

    def to_rescan(self, consumers: Iterable[EntryConsumer]) -> list[EntryConsumer]:
        """Those of the consumers that may have some of the forgotten entries, and nothing of what is kept."""
        if not self._rescan_for:
            return []
        return [one for one in consumers if self.place_of(one) < self.forgotten_to and self.first_for((one,)) is None]

    def place_of(self, consumer: EntryConsumer) -> int:
        """From where on the consumer may have forgotten entries."""
        assert self.forgotten_from is not None
        return max(self._rescan_for.get(consumer, maxsize), self.forgotten_from)

    def rescan_from(self, consumers: Iterable[EntryConsumer]) -> int | None:
        """Where to scan again for those of the consumers that were asked about all that is kept. None if for none of
        them."""
        return min([self.place_of(consumer) for consumer in self.to_rescan(consumers)], default=None)

    def rescanned(self, consumers: Iterable[EntryConsumer], position: int) -> None:
        """These consumers were asked about the forgotten entries below `position` again."""
        for consumer in consumers:
            if consumer in self._rescan_for:
                self._rescan_for[consumer] = max(position, self._rescan_for[consumer])
                if position >= self.forgotten_to:
                    del self._rescan_for[consumer]

    def keep_again(self, sequence: int, consumers: Iterable[EntryConsumer]) -> None:
        """The lowest of the forgotten entries waits for these consumers."""
        self._kept.append(sequence)
        self.known_to(sequence + 1)
        self._wait_for(sequence, consumers)

    def known_to(self, position: int) -> None:
        """Of the forgotten entries, those below `position` are kept again, have left, or wait for nobody here."""
        if self.forgotten_from is not None:
            self.forgotten_from = max(position, self.forgotten_from)
            self._end_if_none_forgotten()

    # ------------------------------------------------------------------------------------------------ consumers

    def ask_again(self, consumers: Iterable[EntryConsumer]) -> None:
        """These consumers are asked about every entry again: one has joined, or one has left that entries were left
        for."""
        consumers = [*consumers]
        if self._kept:
            self._next_for.update(dict.fromkeys(consumers, 0))
        if self.forgotten_from is None:
            self._to_mark.update(consumers)
        else:
            self._rescan_for.update(dict.fromkeys(consumers, 0))

    def leave(self, consumer: EntryConsumer) -> None:
        """The consumer has left."""
        self._next_for.pop(consumer, None)
        self._rescan_for.pop(consumer, None)
        self._to_mark.discard(consumer)

    @property
    def consumers(self) -> set[EntryConsumer]:
        """Those that may have some of these entries or of the forgotten ones."""
        return {*self._rescan_for, *self._next_for}
