"""The entries that a cursor has handed out: acquired, requeued and finished ones (amqp-illustrations, "Consumption from
Message Queues"; CUSTODY, "Readers").

Rules of this file: it writes to a batch only through the queue; never reads a clock; does not decide which consumer
gets which entry. All entries below `position` were looked at for the consumers without a selector; entries beyond it
that other consumers got are `ahead`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from sys import maxsize
from typing import Any, NamedTuple, Protocol

from holdfast.broker.cursors.delivery_counts import EXHAUSTED
from holdfast.broker.cursors.entry_consumer import Acquired, EntryConsumer, EntrySelector
from holdfast.broker.cursors.exclusions import Exclusions
from holdfast.broker.cursors.owner import Owner
from holdfast.broker.cursors.shown import Shown
from holdfast.broker.entries import packed
from holdfast.broker.entries.entry_log import EntryLog
from holdfast.broker.stored.ranges import RangeSet


class Selective(Protocol):
    """The consumers of a cursor that have selectors, which are notified of entries that they may get."""

    def freed(self, sequences: Iterable[int]) -> None:
        """These entries are no longer acquired, or no longer leaving."""

    def not_accepted(self, sequence: int) -> None:
        """No consumer of this cursor accepts the entry: each group passes it over."""

    def taker(self, sequence: int, value: bytes, size: int) -> tuple[EntryConsumer | None, int, int]:
        """One of them, with or without credit, that can have the entry, a delivery of `size` bytes; how many consumers
        were looked at for this, and the weight of the selectors that were asked."""

    def forget(self) -> None:
        """The cursor was deleted: removes their counts."""


class Choice(NamedTuple):
    """Who is handed an entry."""

    found: EntryConsumer | None
    delivery_bytes: int
    taker: EntryConsumer | None
    """A consumer with a selector to which it is left."""
    looks: int
    """How many consumers were looked at, beyond the first."""
    weight: int
    """The weight of the selectors that were asked."""


class Holdings(Shown):
    """The state of a cursor. `name` is empty for the queue's shared cursor. `floor`: all below is finished;
    `finished`: what is above."""

    __slots__ = (
        "acquired", "ahead", "ahead_end", "counted_bytes", "exclusions", "exhausted", "finished", "finished_bytes",
        "floor", "is_bounded", "links_ended", "matched_from", "position", "prefetched", "read_ahead_bytes",
        "read_bytes", "requeued", "selective", "selector", "setting_aside", "tracked", "unfiltered",
    )  # fmt: skip

    def __init__(self, queue: EntryLog, owner: Owner[Any], name: str = "", *, floor: int = 0) -> None:
        super().__init__(queue, owner, name)
        self.is_bounded = False
        """Whether the number of unfinished messages is bounded (broker/backlogs.py), and with it that of ranges."""
        self.floor = floor
        self.position = floor
        self.finished = RangeSet()
        self.finished_bytes = 0
        """Bytes of the entries of the last `finish`."""
        self.tracked = bool(name)
        """Whether finished entries are kept as ranges (for a named cursor, or one beside named ones) or leave the disk
        at once."""
        self.requeued: list[int] = []
        self.acquired: dict[int, Acquired] = {}
        self.ahead: set[int] = set()
        """Those of `acquired` that are not below the position."""
        self.ahead_end = 0
        """Entries between the position and this one may have been handed out, and may be leaving the disk."""
        self.exhausted: dict[int, None] = {}
        """Entries of `acquired` held by EXHAUSTED that are in no turn yet."""
        self.prefetched: list[tuple[int, bytes]] = []
        self.counted_bytes = 0
        """Bytes that `finished` counts in the node's memory."""
        self.read_ahead_bytes = 0
        """Bytes counted for the read-ahead, until its last entry is handed out (broker/entries/read_ahead.py)."""
        self.read_bytes = 0
        """Bytes read in this pump that are not counted yet."""
        self.unfiltered: dict[EntryConsumer, None] = {}
        """Consumers without a selector, the next one first."""
        self.exclusions = Exclusions(queue.withheld)
        self.setting_aside: dict[int, int] = {}
        """Entries that this pump sets aside at its end, as in `Exclusions.aside`."""
        self.selector: EntrySelector | None = None
        """The selector of a subscription: entries that do not match are finished."""
        self.matched_from: int = maxsize
        """Of a subscription of a topic: entries from here on that are neither large nor finished match."""
        self.selective: Selective | None = None
        """Set when the first consumer with a selector attaches."""
        self.links_ended: dict[int, int] = {}
        """How many links each entry has detached because it was too large for them."""

    @property
    def offered_end(self) -> int:
        """One past the highest sequence that was looked at or handed out."""
        return max(self.position, self.ahead_end)

    def exhaust(self, sequence: int, size: int) -> None:
        """The entry, which is neither acquired nor requeued, becomes a dead letter."""
        self.acquired[sequence] = Acquired(EXHAUSTED, size)
        self.exhausted[sequence] = None
        self.queue.work.exhausted[self] = None

    def acquire_for(self, holder: object, sizes: Mapping[int, int]) -> None:
        """`holder` acquires entries, at any place, that nothing has acquired. `sizes`: their bytes, by sequence."""
        for sequence, size in sizes.items():
            if sequence >= self.position:
                self.ahead.add(sequence)
                self.ahead_end = max(self.ahead_end, sequence + 1)
            elif self.exclusions.aside:
                self.exclusions.taken(sequence)
            self.acquired[sequence] = Acquired(holder, size)
        if self.requeued:
            self.requeued = [sequence for sequence in self.requeued if sequence not in sizes]
            heapify(self.requeued)

    def take_back(self, sequences: Iterable[int], holder: object = EXHAUSTED) -> None:
        """Entries that were to become dead letters stay, and are offered again."""
        mine = [item for item in sequences if item in self.acquired and self.acquired[item].consumer is holder]
        for sequence in mine:
            self.exhausted.pop(sequence, None)
            self._back(sequence)
        if mine:
            self.queue.touch()
            self.freed(mine)

    def keep(self, *sequences: int) -> None:
        """No consumer acquired these: they are offered again, in their places."""
        self.requeued += sequences
        heapify(self.requeued)

    def hold_run(self, consumer: EntryConsumer, sequences: Sequence[int], sizes: Sequence[int]) -> None:
        """That consumer has acquired these entries, one or more."""
        if sizes.count(sizes[0]) == len(sizes):
            self.acquired.update(dict.fromkeys(sequences, Acquired(consumer, sizes[0])))
        else:
            self.acquired.update(zip(sequences, [Acquired(consumer, size) for size in sizes], strict=True))

    def freed(self, sequences: Iterable[int]) -> None:
        """These entries are no longer acquired, or stay although they were to leave."""
        if self.selective is not None:
            self.selective.freed(sequences)

    def move_to(self, position: int) -> None:
        """All entries below `position` were looked at: entries that were `ahead` may be below it now."""
        self.position = position
        if self.ahead:
            self.ahead = {sequence for sequence in self.ahead if sequence >= position}

    def choose(self, consumers: list[EntryConsumer], sequence: int, value: bytes, size: int) -> Choice:
        """Which of these consumers without a selector is handed the entry: as `Exclusions.choose`, but what is too
        large for that consumer is left to one with a selector that can have it, with or without credit."""
        found, delivery_bytes = self.exclusions.choose(consumers, self.unfiltered, sequence, value, size)
        looks = 0 if found is consumers[0] else len(self.unfiltered)
        if found is None or delivery_bytes <= found.bytes_max or self.selective is None:
            return Choice(found, delivery_bytes, None, looks, 0)
        taker, more, weight = self.selective.taker(sequence, value, delivery_bytes)
        return Choice(found if taker is None else None, delivery_bytes, taker, looks + more, weight)

    def next_turn(self, consumer: EntryConsumer) -> None:
        """The consumer, which has no selector, was handed something, and has its next turn last."""
        if len(self.unfiltered) > 1 and consumer in self.unfiltered:
            del self.unfiltered[consumer]
            self.unfiltered[consumer] = None

    def another_takes(self, sequence: int, size: int) -> bool:
        """Whether a consumer that takes deliveries of `size` bytes, with or without credit, can have the entry."""
        if self.exclusions.another_takes(self.unfiltered, sequence, size):
            return True
        value = None if self.selective is None else self.queue.value(sequence)
        if value is None or self.selective is None:
            return False
        return self.selective.taker(sequence, value, size)[0] is not None

    def set_aside(self, sequence: int, size: int) -> bool:
        """An acquired entry, as a delivery of `size` bytes, waits for a consumer that accepts so much. False if too
        many do."""
        if sequence in self.acquired:
            is_ahead = sequence in self.ahead
            if not (is_ahead or self.exclusions.has_room(len(self.setting_aside))):
                return False
            self.queue.look_again([sequence])
            if not is_ahead:
                self.exclusions.set_aside({sequence: size})
            self.ahead.discard(sequence)
            del self.acquired[sequence]
            if self.selective is not None:
                self.selective.not_accepted(sequence)
        return True

    # ------------------------------------------------------------------------------------------------ outcomes

    def finish(self, sequences: list[int]) -> list[int]:
        """Finishes those of `sequences` that are acquired; returns them."""
        done: list[int] = []
        try:
            self._finish(sequences, done)
        except Exception:
            self._unfinish(done)
            raise
        return done

    def _finish(self, sequences: list[int], done: list[int]) -> None:
        queue = self.queue
        acquired = self.acquired
        counts = self.counts
        tracked = self.tracked
        size = 0
        for sequence in sequences:
            held = acquired.pop(sequence, None)
            if held is None:
                continue
            done.append(sequence)
            size += held.size
            if counts:
                counts.pop(sequence, None)
            if tracked:
                self.finished.add(sequence)
        self.finished_bytes = size
        if self.ahead:
            self._gone_ahead(done)
        if self.exclusions.live:
            self.exclusions.done(done)
        if self.links_ended:
            for sequence in done:
                self.links_ended.pop(sequence, None)
        if done and tracked:
            self.raise_floor()
            self.owner.dirty(self)
            self.owner.reclaim()
        elif done:
            queue.retire_all(done, size)

    def _gone_ahead(self, sequences: Collection[int]) -> None:
        """Entries that were handed out ahead of the position leave: the read-ahead may still hold them."""
        gone = self.ahead.intersection(sequences)
        if gone:
            self.ahead -= gone
            if self.prefetched:
                self.prefetched = [item for item in self.prefetched if item[0] not in gone]
                if not self.prefetched:
                    self.forget_read_ahead()

    def _unfinish(self, sequences: list[int]) -> None:
        """These are no longer acquired and did not leave: they are offered again, as delivered before."""
        self.ahead.difference_update(sequences)
        there = [sequence for sequence in sequences if self.queue.value(sequence) is not None]
        self.offer_anew(there)
        waiting = set(self.requeued)
        for sequence in there:
            if sequence in waiting or sequence >= self.position:
                self.counts.setdefault(sequence, 1)

    def offer_anew(self, sequences: list[int]) -> None:
        """Entries that were to leave stay; those below the position are not acquired."""
        known = {*self.below_position()}
        below = [sequence for sequence in sequences if self.floor <= sequence < self.position]
        self.keep(*(sequence for sequence in below if sequence not in known and sequence not in self.finished))
        if self.prefetched and len(below) < len(sequences):  # read ahead without them
            self.forget_read_ahead()
        self.freed(sequences)

    def finish_wherever(self, sequences: list[int]) -> None:
        """As `finish`, also for entries that were requeued meanwhile, because a copy is stored elsewhere."""
        left = self.finish(sequences)
        if (self.requeued or self.exclusions.aside) and len(left) < len(sequences):
            gone = set(sequences).difference(left).intersection((*self.requeued, *self.exclusions.aside))
            values = [(sequence, self.queue.value(sequence)) for sequence in gone]
            sizes = [(sequence, packed.size_of(value)) for sequence, value in values if value is not None]
            self.acquired.update((sequence, Acquired(next(iter(self.consumers)), size)) for sequence, size in sizes)
            if gone:
                self.requeued = [sequence for sequence in self.requeued if sequence not in gone]
                heapify(self.requeued)
                self.finish(list(gone))

    def moved(self, sequence: int) -> None:
        """An acquired entry is moved elsewhere with this turn's batch."""
        self.acquired.pop(sequence)
        self._gone_ahead((sequence,))
        self.forget_counts(sequence)

    def drop_expired(self, sequence: int, value: bytes) -> None:
        """An entry whose time to live is over leaves, or is finished for this cursor if others read the queue too."""
        if self.tracked:
            self.leave_out(sequence)
        else:
            self.forget_counts(sequence)
            self.queue.retire_expired(sequence, packed.size_of(value))

    def leave_out(self, sequence: int) -> None:
        """This cursor has finished the entry although no consumer took it."""
        self.forget_counts(sequence)
        self.finished.add(sequence)
        self.raise_floor()
        self.owner.dirty(self)
        self.owner.reclaim()

    def forget_counts(self, sequence: int) -> None:
        """Forgets the counts of the entry."""
        if self.counts.pop(sequence, None) is not None and self.is_counted:
            self.queue.touch_counters()
        self.links_ended.pop(sequence, None)
        self.exclusions.done((sequence,))

    def requeue(self, sequences: list[int], *, failed: bool) -> None:
        """Puts acquired entries back to their places; `failed` raises their delivery counts."""
        if sequences:
            self.queue.look_again(sequences)
            self.queue.touch()
        most = self.queue.config.deliveries_max
        for sequence in sequences:
            held = self.acquired.get(sequence)
            if held is not None and held.consumer is not EXHAUSTED:
                self.counts[sequence] = self.counts.get(sequence, 0) + failed
                if failed and most is not None and self.is_exhausted(self.failures(sequence)):
                    self.exhaust(sequence, held.size)
                    continue
                self._back(sequence)
        if most is not None and sequences:
            self.queue.touch_counters()
        self.freed(sequences)

    def _back(self, sequence: int) -> None:
        del self.acquired[sequence]  # from here on nothing is called that could fail
        if sequence in self.ahead:
            self.ahead.discard(sequence)
        else:
            heappush(self.requeued, sequence)

    def advance(self, sequence: int) -> None:
        """All entries below `sequence` are finished: monotone, idempotent (CUSTODY, "Readers")."""
        if sequence <= self.floor:
            return
        self.finished.add(self.floor, sequence - 1)
        self.raise_floor()
        if self.requeued:
            self.requeued = [item for item in self.requeued if item >= self.floor]
            heapify(self.requeued)
        self.exclusions.done_below(self.floor)
        for below in [item for item in self.counts if item < self.floor]:
            self.forget_counts(below)
        self.owner.dirty(self)
        self.owner.reclaim()

    def raise_floor(self) -> None:
        """Moves the floor up over finished entries."""
        floor = max(self.floor, self.finished.end_of_run(self.floor) + 1)
        self.finished.drop_below(floor)
        self.floor = floor
        if self.position < floor:
            self.move_to(floor)

    def count_ranges(self) -> None:
        """Counts the finished ranges in the node's memory; to be called where they change without `dirty`."""
        held = self.finished.held_bytes
        if held != self.counted_bytes:
            self.queue.ranges.recount(self.counted_bytes, held)
            self.counted_bytes = held

    # ------------------------------------------------------------------------------------------------ leaving

    def forget_read_ahead(self) -> None:
        """Drops the entries that were read ahead; they are read again when needed."""
        self.queue.read_ahead.forget(self)

    def forget_memory(self) -> None:
        """The cursor was deleted: removes its counts."""
        self.forget_read_ahead()
        self.queue.ranges.refund(self.counted_bytes)
        self.counted_bytes = 0
        self.counts.clear()
        self.exhausted.clear()
        self.exclusions.forget()
        if self.selective is not None:
            self.selective.forget()

    def pass_over(self, sequences: list[int]) -> None:
        """The oldest entries that are not acquired, ascending, leave the queue."""
        self.forget_all(sequences)
        if not self.tracked:  # the entries between them are acquired, or leave too
            if sequences[-1] >= self.position:
                self.move_to(sequences[-1] + 1)
            return
        for sequence in sequences:
            if sequence >= self.floor:
                self.finished.add(sequence)
        self.raise_floor()
        self.owner.dirty(self)

    def drop(self, sequences: list[int]) -> None:
        """Entries that are not acquired leave the queue, from any place."""
        waiting = frozenset(sequences)
        if not self.queue.config.priorities:
            waiting = waiting.intersection(self.below_position())
        self.forget_all(sequences)
        if self.prefetched:
            self.forget_read_ahead()
        if waiting and self.tracked:  # what lies ahead is passed when this cursor comes there, unless its queue sorts
            for sequence in waiting:
                self.finished.add(sequence)
            self.raise_floor()
            self.owner.dirty(self)

    def forget_all(self, sequences: list[int]) -> None:
        """Entries left the queue by a purge or by expiry while no consumer held them."""
        for sequence in sequences:
            self.forget_counts(sequence)
        if self.requeued:
            gone = frozenset(sequences)
            self.requeued = [sequence for sequence in self.requeued if sequence not in gone]
            heapify(self.requeued)

    def below_position(self) -> list[int]:
        """Entries below the position that are not finished."""
        held = [sequence for sequence in self.acquired if sequence not in self.ahead] if self.ahead else self.acquired
        return [*held, *self.requeued, *self.exclusions.aside]

    def forget(self, sequence: int) -> None:
        """As `forget_all` for one entry, the lowest of those that were requeued: it is cheap."""
        self.forget_counts(sequence)
        if self.requeued and self.requeued[0] == sequence:
            heappop(self.requeued)
        elif sequence < self.position and sequence in self.requeued:
            self.requeued.remove(sequence)
            heapify(self.requeued)
