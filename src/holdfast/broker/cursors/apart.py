"""Entries that no consumer with credit could have, and others of their group can: undeliverable on its link, or too
large for it (docs/adr/0063, docs/adr/0072).

Rules of this file: entries are known by their sequences, some of which may have left: the caller checks whether an
entry exists. Each consumer is asked once about each of them. At the bound the highest are forgotten, and scanned again
for who may have some of them; so nothing that is here keeps an entry from a consumer.
"""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator
from sys import maxsize
from typing import Final

from holdfast.broker.cursors.entry_consumer import EntryConsumer

APART_BYTES: Final = 160
"""What such an entry takes of memory, about."""


class Apart:
    """The entries of one group, or of one priority of it."""

    __slots__ = ("_again", "_from", "_kept", "forgotten")

    def __init__(self) -> None:
        self._kept: list[int] = []
        """Ascending, and below `forgotten`."""
        self._from: dict[EntryConsumer, int] = {}
        """From which sequence on each consumer may have some of these; who is not here can have none."""
        self.forgotten: int | None = None
        """From here on entries were forgotten."""
        self._again: set[EntryConsumer] = set()
        """Consumers that may have some of the forgotten ones."""

    def __len__(self) -> int:
        return len(self._kept)

    def __bool__(self) -> bool:
        return bool(self._kept) or self.forgotten is not None

    def __contains__(self, sequence: int) -> bool:
        at = bisect_left(self._kept, sequence)
        return at < len(self._kept) and self._kept[at] == sequence

    def __iter__(self) -> Iterator[int]:
        return iter(self._kept)

    @property
    def first(self) -> int | None:
        """The lowest."""
        return self._kept[0] if self._kept else None

    # ------------------------------------------------------------------------------------------------ kept

    def add(self, sequence: int, consumers: Collection[EntryConsumer], most: int) -> None:
        """Of all consumers only these can have the entry, and none of them wants one now. No more than `most` are
        kept."""
        kept = self._kept
        if self.forgotten is None and len(kept) >= most and sequence > kept[-1]:
            self.forgotten = sequence
        if self.forgotten is not None and sequence >= self.forgotten:
            self._again.update(consumers)
            return
        if sequence not in self:
            insort(kept, sequence)
        for consumer in consumers:
            self._from[consumer] = min(sequence, self._from.get(consumer, sequence))
        while len(kept) > most:
            self.forgotten = last = kept.pop()
            self._again.update([consumer for consumer, first in self._from.items() if first <= last])

    def discard(self, sequence: int) -> None:
        """Removes it, if it is there."""
        at = bisect_left(self._kept, sequence)
        if at < len(self._kept) and self._kept[at] == sequence:
            del self._kept[at]

    def rewind(self, position: int) -> None:
        """Removes everything from `position` on, because it is scanned again."""
        del self._kept[bisect_left(self._kept, position) :]
        if self.forgotten is not None and self.forgotten >= position:
            self.forgotten = None
            self._again.clear()

    # ------------------------------------------------------------------------------------------------ asked

    @property
    def is_awaited(self) -> bool:
        """Whether a consumer may have any of it, now or with credit."""
        return bool(self._from or self._again)

    def first_for(self, consumers: Iterable[EntryConsumer]) -> int | None:
        """The lowest that is kept and that one of these consumers may have."""
        lowest: int | None = None
        for consumer in consumers if self._from else ():
            first = self._from.get(consumer)
            if first is not None:
                at = bisect_left(self._kept, first)
                if at == len(self._kept):
                    del self._from[consumer]
                elif lowest is None or self._kept[at] < lowest:
                    lowest = self._kept[at]
        return lowest

    def asked(self, consumers: Iterable[EntryConsumer], sequence: int) -> list[EntryConsumer]:
        """Those of the consumers that may have this one, which is kept."""
        return [consumer for consumer in consumers if self._from.get(consumer, maxsize) <= sequence]

    def refuse(self, consumers: Iterable[EntryConsumer], sequence: int) -> None:
        """These, which were `asked`, can have none up to this one."""
        for consumer in consumers:
            self._from[consumer] = sequence + 1

    def again_for(self, consumers: Iterable[EntryConsumer]) -> int | None:
        """Where to scan again for one of these consumers, which was asked about all that is kept."""
        for consumer in consumers if self._again else ():
            if consumer in self._again and self.first_for((consumer,)) is None:
                return self.forgotten
        return None

    # ------------------------------------------------------------------------------------------------ consumers

    def ask_again(self, consumers: Iterable[EntryConsumer]) -> None:
        """These may have any of it: one has joined, or another has left for which these could not have it."""
        if self._kept:
            self._from.update(dict.fromkeys(consumers, 0))
        if self.forgotten is not None:
            self._again.update(consumers)

    def leave(self, consumer: EntryConsumer) -> None:
        """The consumer has left."""
        self._from.pop(consumer, None)
        self._again.discard(consumer)

    @property
    def consumers(self) -> set[EntryConsumer]:
        """Those that may have any of it."""
        return self._again.union(self._from)
