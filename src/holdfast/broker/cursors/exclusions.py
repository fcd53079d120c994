"""Which consumers of a cursor cannot have which entries, and the entries that wait because of it (AMQP 1.0 §3.4.5,
undeliverable-here; §2.7.3, max-message-size).

Rules of this file: an entry that no consumer with credit can have is set aside, and not looked at again until there is
a consumer that can have it. A pump never reads entries that are set aside. Entries that a consumer declared
undeliverable are known by sequence; entries that are too large for it, by its limit. The memory for this is counted in
accounts of its own. The caller ends consumers if too many entries are undeliverable.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from heapq import heapify, heappop, heappush
from sys import maxsize
from typing import Final

from holdfast.broker.cursors.entry_consumer import BESIDE_BYTES, EntryConsumer
from holdfast.broker.entries.withheld import Withheld

ASIDE_MAX: Final = 16_384
"""Entries of one cursor that are set aside; at the bound it examines no more until one of them is acquired or
leaves."""

ASIDE_MIN: Final = 64
"""The same where the node's memory for them is used up."""

LOOKS_MAX: Final = 20_000
"""Checks whether a consumer can have an entry in one pump, about; the next pump continues."""

LOOKS_PER_ENTRY: Final = 64
"""Checks that count as one entry for the turn, because they take about as long as handing one out."""

STALE_SPARE: Final = 64
"""Stale entries in the order of size, beyond twice those that are set aside, at which the order is rebuilt."""

SCAN_MAX: Final = 256
"""If more are set aside, only a pump searches them for a consumer."""

ASIDE_BYTES: Final = 256
"""Bytes of memory of an entry that is set aside, about."""

EXCLUDED_BYTES: Final = 160
"""The same for an entry that a consumer declared undeliverable."""

GIVEN_BACK_BYTES: Final = 192
"""The same for an entry that was requeued and is not finished, including its place among those that wait."""

NONE: Final[Mapping[int, EntryConsumer]] = {}


class Exclusions:
    """The entries that consumers of one cursor cannot have. Each consumer keeps the sequences that it declared
    undeliverable in its own `excluded`."""

    __slots__ = (
        "_accounts", "_by_size", "_limits", "_limits_heap", "_looked", "_mixed", "_refused", "_smallest", "accepted_by",
        "aside", "counted_aside", "counted_excluded", "counted_given_back", "largest", "live",
    )  # fmt: skip

    def __init__(self, accounts: Withheld) -> None:
        self.aside: dict[int, int] = {}
        """Unacquired entries that no consumer with credit could have when they were examined, ascending; the value is
        the size of the delivery if it is too large for one of those consumers, else 0."""
        self.accepted_by: dict[int, EntryConsumer] = {}
        """One consumer with a selector for each entry of `aside` that only such consumers accept."""
        self.live: dict[int, int] = {}
        """Each unfinished entry that a consumer declared undeliverable, and how many of the present consumers did;
        `excluded` may hold others too."""
        self.largest = 0
        """The largest delivery that any consumer accepts."""
        self.counted_aside = self.counted_excluded = self.counted_given_back = 0
        """The bytes that the accounts count for this cursor."""
        self._accounts = accounts
        self._limits: dict[int, int] = {}
        """How many consumers there are with each limit."""
        self._limits_heap: list[int] = []
        """Those limits, negative; some may be of consumers that left."""
        self._by_size: list[tuple[int, int]] = []
        """(bytes, negative, sequence) of entries set aside for their size, without those of `accepted_by`; some may be
        stale."""
        self._smallest = maxsize
        """No entry that is set aside has fewer bytes."""
        self._mixed: set[int] = set()
        """Those of these entries that another consumer declared undeliverable; some may be stale."""
        self._looked: set[EntryConsumer] = set()
        """Consumers that can have none of the entries that are set aside."""
        self._refused = 0
        """Sequences in all `excluded` together."""

    # ------------------------------------------------------------------------------------------------ consumers

    def joined(self, consumer: EntryConsumer) -> None:
        """A consumer was added."""
        limit = consumer.bytes_max
        self._limits[limit] = self._limits.get(limit, 0) + 1
        if self._limits[limit] == 1:
            heappush(self._limits_heap, -limit)
            if len(self._limits_heap) > 2 * len(self._limits) + 16:
                self._limits_heap = [-limit for limit in self._limits]
                heapify(self._limits_heap)
        self.largest = max(self.largest, limit)

    def left(self, consumer: EntryConsumer, requeued: list[int]) -> list[int]:
        """`consumer` has left: moves into the heap `requeued`, and returns, the entries that must be offered again,
        because it was the one that could take them."""
        self.forget_excluded(consumer)
        self._looked.discard(consumer)
        limit = consumer.bytes_max
        self._limits[limit] -= 1
        if not self._limits[limit]:
            del self._limits[limit]
        while self._limits_heap and -self._limits_heap[0] not in self._limits:
            heappop(self._limits_heap)
        self.largest = -self._limits_heap[0] if self._limits_heap else 0
        back = self._offer_anew(requeued)
        self._count()
        return back

    def selective_left(
        self, consumer: EntryConsumer, equals: Iterable[EntryConsumer], requeued: list[int]
    ) -> list[int]:
        """As `left`, of a consumer with a selector. `equals`: the consumers with an equal one. What the largest of them
        can have waits for that one; what is offered again may be accepted by others."""
        self.forget_excluded(consumer)
        back: list[int] = []
        other = max(equals, key=lambda equal: equal.bytes_max, default=None)
        for sequence in [sequence for sequence, one in self.accepted_by.items() if one is consumer]:
            if other is not None and self.aside[sequence] <= other.bytes_max and sequence not in other.excluded:
                self.accepted_by[sequence] = other
            else:
                back.append(sequence)
        self._put_back(back, requeued)
        self._count()
        return back

    def _put_back(self, sequences: Iterable[int], requeued: list[int]) -> list[int]:
        """Moves entries that are set aside into the heap `requeued`; returns them in order."""
        ascending = sorted(sequences)
        for sequence in ascending:
            self._remove(sequence)
            heappush(requeued, sequence)
        return ascending

    def _remove(self, sequence: int) -> None:
        """The entry, which may be set aside, is so no longer."""
        self.aside.pop(sequence, None)
        if self.accepted_by:
            self.accepted_by.pop(sequence, None)

    def forget_excluded(self, consumer: EntryConsumer) -> None:
        """`consumer` has left: forgets what it declared undeliverable."""
        self._refused = max(0, self._refused - len(consumer.excluded))
        live = self.live
        if live:
            for sequence in consumer.excluded:
                consumers = live.get(sequence, 0)
                if consumers > 1:
                    live[sequence] = consumers - 1
                elif consumers:
                    del live[sequence]
        consumer.excluded.clear()
        self._count()

    def _offer_anew(self, requeued: list[int]) -> list[int]:
        """Moves into the heap `requeued`, and returns, entries that no consumer accepts because of their size, or
        perhaps none."""
        aside, selected, largest = self.aside, self.accepted_by, self.largest
        back = self._mixed.intersection(aside).difference(selected)  # not each consumer of such a size could have these
        self._mixed.clear()
        if self._by_size and -self._by_size[0][0] > largest:
            too_large = [(-size, sequence) for size, sequence in self._by_size if -size > largest]
            self._by_size = [item for item in self._by_size if -item[0] <= largest]
            heapify(self._by_size)
            back.update([item for size, item in too_large if aside.get(item) == size and item not in selected])
        return self._put_back(back, requeued)

    def recount(
        self, consumers: Collection[EntryConsumer], every: Collection[EntryConsumer], requeued: list[int]
    ) -> None:
        """Counts the consumers again, and `every` with those that have selectors: a failure may have come between a
        change and its count. As `left` if one has left."""
        self._limits.clear()
        self._limits_heap.clear()
        self.largest = 0
        self._refused = sum(len(consumer.excluded) for consumer in every)
        excluded = Counter(sequence for consumer in every for sequence in consumer.excluded)
        self.live = {sequence: excluded[sequence] for sequence in self.live if sequence in excluded}
        self._looked.intersection_update(consumers)
        for consumer in consumers:
            self.joined(consumer)
        gone = {sequence: one for sequence, one in self.accepted_by.items() if one not in every}
        self._put_back(gone, requeued)
        self._offer_anew(requeued)
        self._count()

    def choose(
        self,
        consumers: list[EntryConsumer],
        every: Iterable[EntryConsumer],
        sequence: int,
        value: bytes,
        size: int,
    ) -> tuple[EntryConsumer | None, int]:
        """Which of `consumers`, of which the first wants something, gets the entry, None if none of them can have it,
        and the bytes of the delivery if it may be too large, else 0. `size`: as the queue counts it; `every`: includes
        those that want nothing."""
        bytes_most = size + BESIDE_BYTES
        delivery_bytes = 0
        left_to_another = False
        for consumer in consumers:
            if sequence in consumer.excluded:
                continue
            if bytes_most > consumer.bytes_max:
                if not delivery_bytes:
                    delivery_bytes = consumer.delivery_bytes(sequence, value)
                    left_to_another = self.another_takes(every, sequence, delivery_bytes)
                if left_to_another and delivery_bytes > consumer.bytes_max:
                    continue
            if consumer is consumers[0] or consumer.wants() > 0:
                return consumer, delivery_bytes
        return None, delivery_bytes

    def for_later(
        self, consumers: Iterable[EntryConsumer], sequence: int, value: bytes, size: int, delivery_bytes: int
    ) -> bool:
        """Whether one of `consumers` can have the entry and is deferred to the next turn; `size`: as the queue counts
        it; `delivery_bytes`: of the delivery, 0 if not known."""
        for consumer in consumers:
            if consumer.deferred and sequence not in consumer.excluded:
                if consumer.bytes_max >= size + BESIDE_BYTES:
                    return True
                delivery_bytes = delivery_bytes or consumer.delivery_bytes(sequence, value)
                if delivery_bytes <= consumer.bytes_max:
                    return True
        return False

    def another_takes(self, consumers: Iterable[EntryConsumer], sequence: int, size: int) -> bool:
        """Whether one of all `consumers`, with or without credit, can have the entry, a delivery of `size` bytes."""
        if size > self.largest:
            return False
        if sequence not in self.live:
            return True
        return any(size <= consumer.bytes_max and sequence not in consumer.excluded for consumer in consumers)

    # ------------------------------------------------------------------------------------------------ undeliverable

    def exclude(self, consumer: EntryConsumer, sequences: Iterable[int]) -> None:
        """Excludes these entries from `consumer`."""
        excluded, live = consumer.excluded, self.live
        self._refused -= len(excluded)
        if not live and excluded:  # nothing of it is left
            excluded.clear()
        for sequence in sequences:
            if sequence not in excluded:
                excluded.add(sequence)
                live[sequence] = live.get(sequence, 0) + 1
        self._refused += len(excluded)
        self._count()

    def count(self, consumer: EntryConsumer) -> int:
        """How many unfinished entries `consumer` cannot have."""
        excluded = consumer.excluded
        self._refused -= len(excluded)
        excluded.difference_update([sequence for sequence in excluded if sequence not in self.live])
        self._refused += len(excluded)
        self._count()
        return len(excluded)

    def done(self, sequences: Iterable[int]) -> None:
        """These entries are finished, or left the queue."""
        if self.live:
            for sequence in sequences:
                self.live.pop(sequence, None)
        if self.aside:
            for sequence in sequences:
                self._remove(sequence)
        if self.counted_aside:
            self._count()

    def done_below(self, floor: int) -> None:
        """All entries below `floor` are finished."""
        self.done([sequence for sequence in (*self.live, *self.aside) if sequence < floor])

    # ------------------------------------------------------------------------------------------------ set aside

    @property
    def aside_max(self) -> int:
        """How many may be set aside now."""
        return ASIDE_MAX if self._accounts.aside.room else min(ASIDE_MIN, ASIDE_MAX)

    def has_room(self, beside: int = 0) -> bool:
        """Whether one more may be set aside, beside so many that will be."""
        return len(self.aside) + beside < self.aside_max

    def set_aside(self, sizes: dict[int, int], accepted_by: Mapping[int, EntryConsumer] = NONE) -> None:
        """Sets entries aside that no consumer with credit can have: sequences, with their bytes as in `aside`, and
        those that only consumers with selectors accept, as in `accepted_by`."""
        self._count(len(self.aside) + len(sizes))
        smallest = min(sizes.values())
        sequences = sizes.keys()
        self._looked = {
            consumer
            for consumer in self._looked
            if consumer.bytes_max < smallest or consumer.excluded.issuperset(sequences)
        }
        if len(self._by_size) > 2 * len(self.aside) + STALE_SPARE:
            self._by_size = [
                (-size, sequence) for sequence, size in self.aside.items() if size and sequence not in self.accepted_by
            ]
            heapify(self._by_size)
        in_order = not self.aside or min(sequences) > next(reversed(self.aside))
        self.aside.update(sorted(sizes.items()))  # from here on nothing is called that could fail
        if not in_order:
            self.aside = dict(sorted(self.aside.items()))
        self._smallest = min(self._smallest, smallest)
        for sequence, size in sizes.items():
            if sequence in accepted_by:
                self.accepted_by[sequence] = accepted_by[sequence]
            elif size:
                heappush(self._by_size, (-size, sequence))
                if sequence in self.live:
                    self._mixed.add(sequence)

    def taken(self, sequence: int) -> None:
        """A consumer has acquired the entry: removes it from those set aside."""
        if sequence in self.aside:
            self._remove(sequence)
            self._count()

    def offer_to(self, consumers: list[EntryConsumer], requeued: list[int], limit: int) -> int:
        """Moves into the heap `requeued` the entries that one of `consumers` can have, for each at most as many as it
        wants, and `limit` in all. Returns how many it looked at, at most about LOOKS_MAX."""
        looks = 0
        for consumer in consumers:
            if not self.aside or limit <= 0 or looks >= LOOKS_MAX:
                break
            if consumer in self._looked or consumer.bytes_max < self._smallest:
                continue
            wanted = min(limit, consumer.wants())
            if wanted <= 0:
                continue
            found, looked = self._for(consumer, wanted)
            looks += looked
            limit -= len(found)
            self._put_back(found, requeued)
            if len(found) < wanted:
                self._looked.add(consumer)
        self._count()
        return looks

    def _for(self, consumer: EntryConsumer, count: int) -> tuple[list[int], int]:
        """The first `count` that `consumer` can have, and how many were looked at."""
        limit, excluded = consumer.bytes_max, consumer.excluded
        found: list[int] = []
        looked = 0
        for sequence, size in self.aside.items():
            looked += 1
            if size <= limit and sequence not in excluded:
                found.append(sequence)
                if len(found) >= count:
                    break
        return found, looked

    def has_none_for(self, consumer: EntryConsumer) -> bool:
        """Whether `consumer` certainly can have none of the entries that are set aside. It does not look through
        many."""
        if not self.aside or consumer in self._looked or consumer.bytes_max < self._smallest:
            return True
        if len(self.aside) > SCAN_MAX or self._for(consumer, 1)[0]:
            return False
        self._looked.add(consumer)
        return True

    # ------------------------------------------------------------------------------------------------ counted

    def _count(self, aside: int | None = None) -> None:
        """Updates the account; `aside`: how many entries will be set aside at once."""
        if not self.aside:
            self._looked.clear()
            self._by_size.clear()
            self._mixed.clear()
            self.accepted_by.clear()
            self._smallest = maxsize
        held = (len(self.aside) if aside is None else aside) * ASIDE_BYTES
        excluded = self._refused * EXCLUDED_BYTES
        self._accounts.aside.recount(self.counted_aside, held)
        self.counted_aside = held
        self._accounts.excluded.recount(self.counted_excluded, excluded)
        self.counted_excluded = excluded

    def count_given_back(self, count: int) -> None:
        """Counts entries that were requeued and are not finished; called once a turn after changes."""
        size = count * GIVEN_BACK_BYTES
        self._accounts.given_back.recount(self.counted_given_back, size)
        self.counted_given_back = size

    def forget(self) -> None:
        """The cursor was deleted: removes its counts."""
        self._accounts.aside.refund(self.counted_aside)
        self._accounts.excluded.refund(self.counted_excluded)
        self._accounts.given_back.refund(self.counted_given_back)
        self.counted_aside = self.counted_excluded = self.counted_given_back = 0
