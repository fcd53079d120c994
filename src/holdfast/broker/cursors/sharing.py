"""What is common to consumers that do not simply get the next entry, but one by a selector or a priority
(docs/adr/0063, docs/adr/0072).

Rules of this file: consumers with equal selectors are one group, which matches each entry once. A pump does not move
the cursor's position: entries that it hands out beyond it are `ahead`. An entry is free if no consumer holds it and it
is not leaving; groups that have passed an entry are notified when it becomes free again.
"""

from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Iterator
from itertools import islice
from typing import Final, Generic, TypeVar

from holdfast.broker.cursors import halting
from holdfast.broker.cursors.delivery_counts import DeliveryCounts
from holdfast.broker.cursors.entry_consumer import BESIDE_BYTES, EntryConsumer, EntrySelector, refuses
from holdfast.broker.cursors.holdings import Holdings
from holdfast.broker.cursors.selection import FreeEntries, Group
from holdfast.broker.cursors.to_show import MARKS_MAX, take_alike, with_their_credit
from holdfast.broker.cursors.waiting_for_others import WaitingForOthers
from holdfast.broker.entries import packed
from holdfast.broker.entries.read_ahead import READ_BYTES, READ_COUNT

MATCHES_PER_ENTRY: Final = 8
"""So many selectors asked about one entry count as one entry more that was looked at."""

SCAN_BYTES: Final = 4 * 1024 * 1024
"""What one pump reads, about."""

GroupT = TypeVar("GroupT", bound=Group)


class Sharing(ABC, Generic[GroupT]):
    """Consumers of a cursor in groups."""

    __slots__ = ("_back", "_by_text", "_bytes_left", "_cursor", "_free", "_left", "_of", "counted")

    def __init__(self, cursor: Holdings) -> None:
        self._cursor = cursor
        self._by_text: dict[str, GroupT] = {}
        self._of: dict[EntryConsumer, GroupT] = {}
        self._back: set[int] = set()
        """What became free below a group's position, and was not looked at since."""
        self.counted = 0
        """What is counted in the node's memory for entries that wait."""
        self._free: FreeEntries | None = None
        """While a pump runs."""
        self._left = self._bytes_left = 0

    # ------------------------------------------------------------------------------------------------ consumers

    def __contains__(self, consumer: object) -> bool:
        return consumer in self._of

    def __iter__(self) -> Iterator[GroupT]:
        return iter(self._by_text.values())

    @abstractmethod
    def join(self, consumer: EntryConsumer, selector: EntrySelector | None, *, shows: bool = True) -> None:
        """Adds a consumer, which gets entries that `selector` matches. `shows`: as in `Group`."""

    def leave(self, consumer: EntryConsumer) -> None:
        """The consumer has left; its entries are requeued separately."""
        group = self._of.pop(consumer)
        group.consumers.pop(consumer, None)
        group.left(consumer)
        if not group.consumers and not self._stays(group):
            self._by_text.pop(group.selector.text, None)
        if not self._by_text:
            self._back.clear()
        self._count()

    def keep_alone(self, consumers: Container[EntryConsumer]) -> None:
        """Keeps only these consumers: a failure may have come between the end of one and the update of its group."""
        for consumer in [each for each in self._of if each not in consumers]:
            self.leave(consumer)
        for text, group in list(self._by_text.items()):
            if not group.consumers and not self._stays(group):
                del self._by_text[text]

    def _stays(self, group: GroupT) -> bool:
        """Whether the group is needed without consumers."""
        return False

    @abstractmethod
    def look_again_at_passed(self) -> None:
        """A consumer has left for which entries were kept that consumers here cannot have."""

    @abstractmethod
    def start_anew(self) -> None:
        """Scans everything again: a failure may have come between a scan and its record."""

    def freed(self, sequences: Iterable[int]) -> None:
        """Entries became free: those that were scanned before are scanned again."""
        end = max([group.position for group in self._by_text.values()], default=0)
        for sequence in sequences:
            if sequence not in self._cursor.acquired:
                if self._free is not None:
                    self._free.give_back(sequence)
                if sequence < end:
                    self._back.add(sequence)
        if self._back:
            self._count()

    def rewritten(self, sequence: int) -> None:
        """The entry has other annotations, which its groups may not match any more, or now."""
        for group in self._by_text.values():
            group.forget(sequence)
        self.freed([sequence])
        self._count()
        self._cursor.queue.touch()

    @abstractmethod
    def not_accepted(self, sequence: int) -> None:
        """No consumer of this cursor accepts the entry: each group passes it over."""

    def looks_again_at(self, sequence: int) -> bool:
        """Whether the entry, which became free, is scanned in the next pump."""
        return sequence in self._back

    def taker(self, sequence: int, value: bytes, size: int) -> tuple[EntryConsumer | None, int, int]:
        """Of all consumers, with or without credit, the one that has been here the longest of those that can have the
        entry, a delivery of `size` bytes; how many consumers were looked at for this, and the weight of the selectors
        that were asked."""
        matching: dict[GroupT, bool] = {}
        weight = looks = 0
        for consumer, group in self._of.items():
            looks += 1
            if size > consumer.bytes_max or sequence in consumer.excluded:
                continue
            if group not in matching:
                weight += group.selector.weight
                matching[group] = group.selector.matches(value)
            if matching[group]:
                return consumer, looks, weight
        return None, looks, weight

    def equals(self, consumer: EntryConsumer) -> Iterable[EntryConsumer]:
        """The consumers of the same group."""
        return self._of[consumer].consumers

    def _first(self) -> int:
        """The lowest sequence that may be free."""
        cursor = self._cursor
        return min((*cursor.requeued, *cursor.exclusions.aside), default=cursor.position)

    # ------------------------------------------------------------------------------------------------ asked

    @property
    @abstractmethod
    def has_ahead(self) -> bool:
        """Whether there is anything for `pump` to look at, or a consumer to which it must report that there is
        nothing."""

    @abstractmethod
    def has_something(self, consumer: EntryConsumer, *, watermarks: bool) -> bool:
        """Whether a pump may hand `consumer` anything, now or, with `watermarks`, once one is stored. False is
        certain."""

    def asked_up_to(self, consumer: EntryConsumer) -> int:
        """One past the last entry about which it is known whether the consumer's group may have it."""
        return self._of[consumer].position

    @abstractmethod
    def passed_over(self, group: GroupT, free: dict[int, bytes]) -> list[int]:
        """Free entries that match and that no group knows, for the invariants: there must be none."""

    def shown_next(self) -> int:
        """One past the highest sequence that the consumers may be shown next, if all entries match."""
        return max(
            [group.position + wanted for group in self._by_text.values() if (wanted := group.wanted())], default=0
        )

    def _may_have(self, group: GroupT, sequence: int) -> bool:
        """Whether everything is on disk that has to be before the entry is handed out."""
        return self._cursor.may_be_shown(sequence) if group.shows else self._cursor.may_be_moved(sequence)

    def _may_hand(self, group: GroupT, consumer: EntryConsumer, sequence: int, value: bytes) -> bool:
        """As `_may_have`, or nothing is delivered: the entry only ends the consumer's link."""
        return self._may_have(group, sequence) or refuses(consumer, sequence, value)

    # ------------------------------------------------------------------------------------------------ offered

    @abstractmethod
    def pump(self, limit: int) -> int:
        """Hands out entries to consumers in turn; returns how many. `limit`: entries that it looks at in all. All of it
        counts for the turn (Work.offered_count)."""

    @property
    def _is_over(self) -> bool:
        """Whether this pump has done its share."""
        return self._left <= 0 or self._bytes_left <= 0

    @property
    def _weight(self) -> int:
        """What a byte costs that all selectors match."""
        return sum(group.selector.weight for group in self._by_text.values())

    def _choose(self, consumers: Iterable[EntryConsumer], sequence: int, value: bytes) -> EntryConsumer | None:
        """The first of `consumers` that can have the entry."""
        return next(self._takers(consumers, sequence, value), None)

    def _takers(self, consumers: Iterable[EntryConsumer], sequence: int, value: bytes) -> Iterator[EntryConsumer]:
        """Those of `consumers` that can have the entry. One that is too large for all consumers of the cursor goes to
        the next one, which ends undeliverable entries."""
        bytes_most = packed.size_of(value) + BESIDE_BYTES
        size: int | None = None
        left_to_another: bool | None = None
        for consumer in consumers:
            if sequence in consumer.excluded:
                continue
            if bytes_most > consumer.bytes_max:
                size = consumer.delivery_bytes(sequence, value) if size is None else size
                if size > consumer.bytes_max:
                    if left_to_another is None:
                        self._pay(len(self._by_text) // MATCHES_PER_ENTRY, len(value) * self._weight)
                        left_to_another = self._cursor.another_takes(sequence, size)
                    if left_to_another:
                        continue
            yield consumer

    def _value(self, sequence: int) -> bytes | None:
        """The entry, if it exists and is free."""
        assert self._free is not None
        return self._free.value(sequence)

    def _is_requested(self, group: GroupT, sequence: int) -> bool:
        """Whether it was requested before that it is stored what the entry waits for; it is requested again, in case
        that commit was refused. Until then nothing more is requested for what comes behind."""
        counts = self._cursor.counts
        if not isinstance(counts, DeliveryCounts) or (group.shows and sequence not in counts.marked):
            return False
        if group.shows:
            self._cursor.mark_shown((sequence,))
        return True

    def _still_free(self, group: GroupT, sequences: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        """Those of these entries, which wait, that nobody got meanwhile, as far as the pump goes, but at least one; the
        others wait no longer. Of entries that are marked already, where that is enough to mark more, no bytes."""
        assert self._free is not None and isinstance(self._cursor.counts, DeliveryCounts)
        marked = self._cursor.counts.marked if take_alike(self._cursor) else ()
        found = False
        for sequence in sequences:
            if found and self._is_over:
                return
            if sequence in marked and self._free.is_free(sequence):
                found = True
                yield sequence, b""
                continue
            value = self._value(sequence)
            self._pay(1, 0 if value is None else len(value))
            if value is None:
                group.forget(sequence)
            else:
                found = True
                yield sequence, value

    def _mark_shown(self, group: GroupT, found: Iterable[tuple[int, bytes]]) -> None:
        """Requests that it is stored which of these entries, which match and are free, are shown: those that the
        group's consumers get with the credit that they have."""
        if not group.shows:
            return
        if take_alike(self._cursor):
            self._cursor.mark_shown([sequence for sequence, _ in islice(found, group.wanted())])
            return
        self._cursor.mark_shown(with_their_credit(group.consumers, islice(found, 2 * MARKS_MAX), self._choose))

    def _hand(self, group: GroupT, consumer: EntryConsumer, sequence: int, value: bytes) -> None:
        assert self._free is not None
        if self._free.hand(consumer, sequence, value):
            self._next_turn(group, consumer)

    def _next_turn(self, group: GroupT, consumer: EntryConsumer) -> None:
        """These consumers were handed something, and have their next turn last."""
        if len(group.consumers) > 1 and consumer in group.consumers:
            del group.consumers[consumer]
            group.consumers[consumer] = None
        if len(self._by_text) > 1 and group.selector.text in self._by_text:
            self._by_text[group.selector.text] = self._by_text.pop(group.selector.text)

    def _pay(self, entries: int, size: int) -> None:
        self._left -= entries
        self._bytes_left -= size

    # ------------------------------------------------------------------------------------------------ forgotten

    scanned_per_entry = 1
    """Forgotten entries that are looked at for the time that one takes that is handed out."""

    @abstractmethod
    def was_forgotten(self, group: GroupT, waiting: WaitingForOthers, sequence: int, value: bytes) -> bool:
        """Whether the entry, which is free, matches and is known nowhere, so that it is one that `waiting` has
        forgotten."""

    @abstractmethod
    def _keep_for_mark(self, group: GroupT, sequence: int, value: bytes) -> None:
        """The entry is kept until it is on disk that it is shown."""

    @abstractmethod
    def _passes_over(self, group: GroupT, sequence: int) -> bool:
        """Whether the group need not keep an entry that no consumer can have; then it is noted."""

    def _rescan(
        self, group: GroupT, waiting: WaitingForOthers, wanting: list[EntryConsumer], end: int, *, most: int,
        given_max: int,
    ) -> int:  # fmt: skip
        """Offers forgotten entries below `end` to those of `wanting` that may have some; returns how many were handed
        out, at most `given_max`. While there are fewer than `most`, those that they cannot have are kept again."""
        assert self._free is not None and waiting.forgotten_from is not None
        asked = waiting.to_rescan(wanting)
        position = min([waiting.place_of(consumer) for consumer in asked], default=waiting.forgotten_from)
        is_known = position == waiting.forgotten_from
        end = min(end, waiting.forgotten_to)
        found = self._read_again(position, end)
        position = found[-1][0] + 1 if found else end
        given = looked = 0
        members = len(group.consumers)
        for sequence, value in found:
            is_asked = bool(asked) and given < given_max
            if self._is_over or not (is_asked or (is_known and len(waiting) < most)):
                position = sequence
                break
            looked += 1
            self._pay(not looked % self.scanned_per_entry, len(value) * group.selector.weight)
            if not (self._free.has(sequence, value) and self.was_forgotten(group, waiting, sequence, value)):
                continue
            here = [consumer for consumer in asked if waiting.place_of(consumer) <= sequence] if is_asked else []
            consumer = self._choose(here, sequence, value)
            if consumer is not None and not self._may_hand(group, consumer, sequence, value):
                self._have_rescanned(waiting, asked, sequence + 1, is_known=is_known)
                self._keep_for_mark(group, sequence, value)
                return given
            if consumer is not None:
                self._have_rescanned(waiting, asked, sequence + 1, is_known=is_known)
                forgotten = waiting.forgotten_from
                self._hand(group, consumer, sequence, value)
                self._pay(1, 0)
                given += 1
                if len(group.consumers) < members or waiting.forgotten_from != forgotten:
                    return given  # the others may have to be asked about all of it
                asked.remove(consumer)
                asked = [consumer for consumer in (*asked, consumer) if consumer.wants() > 0]
            elif is_known:
                takers = list(self._takers(group.consumers, sequence, value))
                self._pay(len(group.consumers) // MATCHES_PER_ENTRY, 0)
                if takers or not self._passes_over(group, sequence):
                    is_known = len(waiting) < most
                    waiting.known_to(sequence)
                    if is_known:
                        waiting.keep_again(sequence, takers)
        self._have_rescanned(waiting, asked if given < given_max else (), position, is_known=is_known)
        return given

    def _have_rescanned(
        self, waiting: WaitingForOthers, asked: Iterable[EntryConsumer], position: int, *, is_known: bool
    ) -> None:
        """Scanned forgotten entries below `position` again for `asked`; `is_known`: none of these is forgotten now."""
        waiting.rescanned(asked, position)
        if is_known:
            waiting.known_to(position)

    def _read_again(self, first: int, end: int) -> list[tuple[int, bytes]]:
        """Some entries from `first` on, below `end`, without such as cannot be free."""
        cursor, queue = self._cursor, self._cursor.queue
        first = first if first >= cursor.position else min(self._next_waiting(first), cursor.position)
        if first >= end:
            return []
        if first in queue.cache:
            return [*enumerate(queue.in_memory(first, min(first + READ_COUNT, end), READ_BYTES), first)]
        found = queue.read(first, count_max=READ_COUNT, bytes_max=READ_BYTES)
        while found and found[-1][0] >= end:
            found.pop()
        return found

    def _next_waiting(self, first: int) -> int:
        """The lowest entry from `first` on that was given back or set aside."""
        assert self._free is not None
        return min((sequence for sequence in self._free.waiting if sequence >= first), default=self._cursor.position)

    def _halts(self) -> bool:
        """Whether entries that were never shown are not offered now; then they are once there is memory."""
        cursor = self._cursor
        if not halting.is_halted(cursor):
            return False
        for account in halting.short_of(cursor):
            cursor.queue.work.halted.setdefault(account, {})[cursor.queue] = None
        return True

    # ------------------------------------------------------------------------------------------------ counted

    @abstractmethod
    def _count(self) -> None:
        """Updates the accounts of memory."""

    def forget(self) -> None:
        """The cursor was deleted: removes its counts."""
        self._cursor.queue.withheld.aside.refund(self.counted)
        self.counted = 0

    @property
    def counted_ready(self) -> int:
        """Bytes that are counted for the index of ready entries."""
        return 0
