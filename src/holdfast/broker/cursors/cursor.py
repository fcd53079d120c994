"""A cursor: one reader's place in a queue, shared by the consumers that compete for it (amqp-illustrations,
"Notes on Addressing, Queues and Links"; CUSTODY, "Readers").

Rules of this file: never writes a batch but through the queue; never reads a clock; consumers take turns,
in attach order at first. An entry is offered only once it is on disk, and, on a durable queue, only
below the cursor's stored *watermark*: after a crash everything below the watermark counts as shown, so that a
redelivery is always marked as one.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from holdfast.broker.cursors import halting
from holdfast.broker.cursors.entry_consumer import Acquired, EntryConsumer, EntrySelector
from holdfast.broker.cursors.exclusions import LOOKS_MAX, LOOKS_PER_ENTRY, Exclusions
from holdfast.broker.cursors.owner import Owner
from holdfast.broker.entries import entry
from holdfast.broker.entries.entry_log import EntryLog
from holdfast.broker.entries.read_ahead import READ_BYTES, READ_COUNT
from holdfast.broker.entries.work import RETIRES_MAX
from holdfast.broker.stored.ranges import RangeSet

PUMP_BYTES: Final = 4 * 1024 * 1024
"""What a pump hands out at most, and one entry more: whether a socket takes it is known only when the turn ends."""

RUN_COUNT: Final = 256
"""Entries handed out between two questions whether more are wanted."""

RUN_PER_ENTRY: Final = 8
"""So many entries of a run take about the time of one that is handed out, or passed, by itself, and count as one."""

WATERMARK_AHEAD: Final = 256
"""A watermark is stored at least that far ahead of a cursor that reads a backlog, so that it is not stored for each."""


class Cursor:
    """`name` is empty for the queue's shared cursor. `floor`: all below is finished; `finished`: what is above."""

    __slots__ = (
        "acquired", "aside_full", "consumers", "counted_bytes", "counts", "exclusions", "finished", "finished_bytes",
        "floor", "lease_epoch", "links_ended", "mode", "name", "owner", "passed", "passed_bytes", "place_kept",
        "position", "prefetched", "queue", "read_ahead_bytes", "read_bytes", "requeued", "selector", "shown_below",
        "tracked", "watermark", "watermark_stored",
    )  # fmt: skip

    def __init__(
        self, queue: EntryLog, owner: "Owner[Cursor]", name: str = "", *, mode: str = "copy", floor: int = 0
    ) -> None:
        self.queue = queue
        self.owner = owner
        """The same queue, as whose cursor this is told of."""
        self.name = name
        self.mode = mode
        self.floor = floor
        self.position = floor
        self.finished = RangeSet()
        self.finished_bytes = 0
        """Of what the last `finish` was told."""
        self.tracked = bool(name)
        """Whether what is finished is kept as ranges (named, or beside named ones) or leaves the disk at once."""
        self.requeued: list[int] = []
        self.acquired: dict[int, Acquired] = {}
        self.counts: dict[int, int] = {}
        self.prefetched: list[tuple[int, bytes]] = []
        self.counted_bytes = 0
        """What `finished` is counted with in the node's memory."""
        self.read_ahead_bytes = 0
        """What is counted of it, until the last is handed out (broker/entries/read_ahead.py)."""
        self.read_bytes = 0
        """What was read anew in this pump, and is not counted yet."""
        self.passed: int
        self.passed_bytes: int
        """Entries that this pump met and that had expired, or left meanwhile, and their bytes."""
        self.watermark = self.watermark_stored = 0
        self.shown_below = 0
        """Entries below were possibly shown before the node was last started."""
        self.consumers: dict[EntryConsumer, None] = {}
        self.exclusions = Exclusions(queue.withheld)
        self.aside_full = False
        """Whether the last pump ended because no more may be set aside: what lies behind waits for that."""
        self.place_kept = False
        """Whether the last pump ended at an entry for a consumer that is deferred to the next turn, for no other."""
        self.links_ended: dict[int, int] = {}
        """How many links each entry has ended that was larger than they take."""
        self.lease_epoch = 0
        self.selector: EntrySelector | None = None
        """Of a subscription: what it leaves out is done with."""

    # ------------------------------------------------------------------------------------------------ consumers

    def attach(self, consumer: EntryConsumer) -> None:
        self.consumers[consumer] = None
        if not self.name:
            self.queue.consumers_changed(True)
        self.exclusions.joined(consumer)
        self.queue.touch()

    def release(self, consumer: EntryConsumer) -> None:
        """Takes the consumer away; what it held stays in its hands."""
        if consumer in self.consumers:
            del self.consumers[consumer]
            if not (self.name or self.consumers):
                self.queue.consumers_changed(False)
            back = self.exclusions.left(consumer, self.requeued)
            if not self.consumers:
                self.forget_read_ahead()
            if back:
                self.queue.look_again(back)
            self.queue.touch()  # the others may have waited for it

    def detach(self, consumer: EntryConsumer, *, failed: bool = True) -> None:
        """Takes the consumer away; what it held goes back to its old place. All that is shown is looked through."""
        self.release(consumer)
        self.requeue([sequence for sequence, item in self.acquired.items() if item.consumer is consumer], failed=failed)

    def wanted(self) -> int:
        return sum(consumer.will_want() for consumer in self.consumers)

    # ------------------------------------------------------------------------------------------------ offering

    @property
    def has_ahead(self) -> bool:
        """Whether there is anything that `pump` could look at; where there is not, it does nothing."""
        return self.position < self.queue.visible or bool(self.requeued) or bool(self.exclusions.aside)

    def pump(self, limit: int) -> int:
        """Hands out entries to consumers in turn; returns how many. `limit`: entries that it looks at in all, handed
        out or not, RUN_PER_ENTRY of a run as one; of each kind PUMP_BYTES. All of it counts for the turn
        (Work.offered_count)."""
        consumers = [consumer for consumer in self.consumers if consumer.wants() > 0]
        self.aside_full = self.place_kept = False
        self.passed = self.passed_bytes = 0
        queue = self.queue
        if self.exclusions.aside and consumers:
            looks = self.exclusions.offer_to(consumers, self.requeued, limit)
            queue.work.offered_count += looks // LOOKS_PER_ENTRY
            if looks >= LOOKS_MAX:
                queue.touch()
        aside: dict[int, int] = {}
        try:
            given, ran = self._hand_out(consumers, limit, aside)
            if aside:
                self.exclusions.set_aside(aside)
        except Exception:
            self._keep(*aside)
            raise
        count = given - ran - (-ran // RUN_PER_ENTRY) + len(aside) + self.passed
        if count >= limit:
            queue.touch()
        queue.count_out(given)
        queue.work.offered_count += count
        queue.work.offered_bytes += self.passed_bytes
        if self.prefetched:
            read_bytes, self.read_bytes = self.read_bytes, 0
            self.queue.read_ahead.keep(self, read_bytes)
        elif self.read_ahead_bytes:
            self.queue.read_ahead.forget(self)
        return given

    def _hand_out(self, consumers: list[EntryConsumer], limit: int, aside: dict[int, int]) -> tuple[int, int]:
        """What `pump` hands out, and how many of it in runs; `aside` gets what none of the consumers can have, as
        `Exclusions.aside`, but for what one can have that goes on next turn: it keeps its place, and all behind it."""
        given = in_runs = looks = 0
        left_to_another = False
        room_bytes = look_bytes = PUMP_BYTES
        while consumers:
            left = limit - (given - in_runs - (-in_runs // RUN_PER_ENTRY)) - len(aside) - self.passed
            if left <= 0:
                break
            consumer = consumers[0]
            if given and consumer.wants() <= 0:  # links of one session share its window: asked before each entry
                del consumers[0]
                continue
            if room_bytes <= 0 or look_bytes <= 0 or looks >= LOOKS_MAX:
                self.queue.touch()
                break
            if len(consumers) == 1 and self._is_plain(consumer):
                ran, ran_bytes = self._run(
                    consumer, min(left * RUN_PER_ENTRY, RUN_COUNT), min(room_bytes, consumer.room_bytes)
                )
                given += ran
                in_runs += ran
                room_bytes -= ran_bytes
                if ran:
                    if consumer not in self.consumers:
                        break
                    consumer.count_held(ran_bytes)
                    if not self.has_ahead:
                        break
                    continue
            item = self._next(left)
            if item is None:
                break
            sequence, value, size, failures = item
            try:
                found = self.exclusions.choose(consumers, self.consumers, sequence, value, size, aside)
            except Exception:
                aside.pop(sequence, None)
                self._keep(sequence)
                raise
            if found is not consumer:
                looks += len(self.consumers)
                left_to_another = True
            if found is None:
                look_bytes -= len(value)
                self.place_kept = self.exclusions.for_later(self.consumers, sequence, value, size, aside[sequence])
                self.aside_full = len(self.exclusions.aside) + len(aside) > self.exclusions.aside_max
                if self.place_kept or self.aside_full:
                    self._keep(sequence)
                    del aside[sequence]
                    break
                continue
            consumer = found
            self.acquired[sequence] = Acquired(consumer, size)
            consumer.count_held(size)
            room_bytes -= len(value)
            consumer.take(sequence, value, failures)
            given += 1
            if consumer not in self.consumers:  # it could not have this one, and was sent away
                consumers.remove(consumer)
            elif len(self.consumers) > 1:  # the next one's turn, now and in the next pump
                del self.consumers[consumer]
                self.consumers[consumer] = None
                consumers.remove(consumer)
                consumers.append(consumer)
        if not consumers and left_to_another:
            self.place_kept = any(consumer.deferred for consumer in self.consumers)
        self.queue.work.offered_count += looks // LOOKS_PER_ENTRY
        self.queue.work.offered_bytes += 2 * PUMP_BYTES - room_bytes - look_bytes
        return given, in_runs

    def another_takes(self, sequence: int, size: int) -> bool:
        """Whether a consumer that takes deliveries of `size` bytes, with or without credit, can have the entry."""
        return self.exclusions.another_takes(self.consumers, sequence, size)

    def set_aside(self, sequence: int, size: int) -> None:
        """An entry in a consumer's hands, as a delivery of `size` bytes, waits for a consumer that takes so much."""
        if sequence in self.acquired:
            self.queue.look_again([sequence])
            self.exclusions.set_aside({sequence: size})
            del self.acquired[sequence]

    def _is_plain(self, consumer: EntryConsumer) -> bool:
        """Whether what lies ahead can only be what was never shown, all of it for `consumer`."""
        return not (
            self.requeued
            or self.tracked
            or self.prefetched
            or self.counts
            or (consumer.excluded and self.exclusions.live)
            or self.position < self.shown_below
            or self.finished
            or not self.queue.config.durable
        )

    def _run(self, consumer: EntryConsumer, limit: int, bytes_max: int) -> tuple[int, int]:
        """The hot path of `pump`: hands out what lies ahead, many at once, up to what may expire; returns how many, and
        their bytes. `wants` is asked once: a link whose session's window ends within the run queues the rest itself."""
        queue = self.queue
        first = self.position
        end = min(first + min(limit, consumer.wants()), queue.visible, self.watermark_stored)
        if first >= end:
            return 0, 0
        sequences: Sequence[int]
        found: list[tuple[int, bytes]] = []
        value = queue.cache.get(first)
        cached = value is not None
        if value is not None:
            if len(value) > consumer.run_bytes_max:
                return 0, 0
            values = queue.in_memory(first, end, bytes_max)
            sequences = range(first, first + len(values))
        else:
            found = queue.read(first, count_max=end - first, bytes_max=bytes_max)
            while found and found[-1][0] >= end:
                found.pop()
            sequences = [sequence for sequence, _ in found]
            values = [value for _, value in found]
        sizes = entry.lasting_sizes(values)
        if len(sizes) < len(values):
            sequences, values = sequences[: len(sizes)], values[: len(sizes)]
        taken = consumer.take_all(sequences, values) if values else 0
        if not taken:
            if self.read_ahead_bytes:
                queue.read_ahead.forget(self)
            self.prefetched = found[::-1]
            self.read_bytes = sum([len(value) for _, value in found])
            return 0, 0
        if taken < len(values):
            sequences, values, sizes = sequences[:taken], values[:taken], sizes[:taken]
        if sizes.count(sizes[0]) == taken:
            self.acquired.update(dict.fromkeys(sequences, Acquired(consumer, sizes[0])))
        else:
            self.acquired.update(zip(sequences, [Acquired(consumer, size) for size in sizes], strict=True))
        self.position = sequences[-1] + 1
        if cached:
            queue.uncache_run(sequences, values)
        return taken, sum(sizes)

    def _keep(self, *sequences: int) -> None:  # nobody has these after all: they are offered anew, in their places
        self.requeued += sequences
        heapify(self.requeued)

    def failures(self, sequence: int) -> int | None:
        """Failed deliveries so far of an entry that was shown before; None for one that never was."""
        if sequence < self.shown_below:
            return max(1, self.counts.get(sequence, 0))
        return self.counts.get(sequence)

    def _next(self, limit: int) -> tuple[int, bytes, int, int | None] | None:
        """The next entry to hand out, or None where `limit` were passed: sequence, value, size, failed deliveries."""
        queue = self.queue
        most = self.passed + limit
        while self.passed < most:
            if self.requeued:
                sequence = self.requeued[0]
                value = queue.value(sequence)
                heappop(self.requeued)
                if value is None:  # purged or expired meanwhile
                    self.counts.pop(sequence, None)
                    self.passed += 1
                    continue
            else:
                found = self._ahead()
                if found is None:
                    return None
                sequence, value = found
            try:
                if not queue.in_transit and queue.expired(value):  # in transit its end goes in its place
                    self._drop_expired(sequence, value)
                elif self.selector is None or self.selector.matches(value):
                    return sequence, value, entry.size_of(value), self.failures(sequence)
                else:
                    self._leave_out(sequence)
            except Exception:
                self._keep(sequence)
                raise
            self.passed += 1
            self.passed_bytes += len(value)
            if self.passed_bytes >= PUMP_BYTES or len(queue.work.batch.retires) >= RETIRES_MAX:
                break
        queue.touch()  # a backlog of what has expired is not one turn's work
        return None

    def _drop_expired(self, sequence: int, value: bytes) -> None:
        """An entry whose time to live is over leaves, or is done with where others read it too."""
        if self.tracked:
            self._leave_out(sequence)
        else:
            self.forget_counts(sequence)
            self.queue.retire_expired(sequence, entry.size_of(value))

    def _leave_out(self, sequence: int) -> None:
        """This reader is done with the entry, though nobody took it."""
        self.forget_counts(sequence)
        self.finished.add(sequence)
        self.raise_floor()
        self.owner.dirty(self)
        self.owner.reclaim()

    def _ahead(self) -> tuple[int, bytes] | None:
        """The first entry at or after `position` that is visible, below the watermark and not finished."""
        queue = self.queue
        if self.halted:
            for account in halting.short_of(self):
                queue.work.halted.setdefault(account, {})[queue] = None
            return None
        limit = min(queue.visible, self.watermark_stored) if queue.config.durable else queue.visible
        while self.position < limit:
            value = queue.cache.get(self.position) if not self.prefetched else None
            if value is not None:
                sequence = self.position
                queue.uncache(sequence)
            else:
                while self.prefetched and self.prefetched[-1][0] < self.position:
                    self.prefetched.pop()
                if not self.prefetched:
                    self._read()
                if not self.prefetched:
                    self._skip_to(queue.visible)
                    return None
                if self.prefetched[-1][0] >= limit:
                    self._skip_to(self.prefetched[-1][0])  # the numbers up to it were never stored, or left
                    break
                sequence, value = self.prefetched[-1]
            self._skip_to(sequence)
            if sequence in self.finished or (self.tracked and sequence < self.floor):
                self.position = max(sequence + 1, self.floor, self.finished.end_of_run(sequence) + 1)
                continue
            self.position = sequence + 1
            if self.prefetched:
                self.prefetched.pop()
            return sequence, value
        if self.position < queue.visible:
            self.want_watermark()
        return None

    def _read(self) -> None:
        """Fetches what comes next: more than is wanted now, where there is memory for it or so much was passed."""
        queue = self.queue
        if self.read_ahead_bytes:
            queue.read_ahead.forget(self)
        count = READ_COUNT if queue.read_ahead.has_room() else max(1, min(READ_COUNT, max(self.wanted(), self.passed)))
        self.prefetched = queue.read(self.position, count_max=count, bytes_max=READ_BYTES)
        self.prefetched.reverse()
        self.read_bytes = sum([len(value) for _, value in self.prefetched])

    @property
    def halted(self) -> bool:
        """Nothing that was never shown is offered until some of what lies below is done."""
        return halting.is_halted(self)

    def _skip_to(self, sequence: int) -> None:
        """Numbers that were never stored, or left before, count as finished."""
        if self.tracked and sequence > self.position:
            self.finished.add(self.position, sequence - 1)
            self.raise_floor()
        self.position = max(self.position, sequence)

    def want_watermark(self) -> None:
        """Asks for a stored watermark as far as the consumers want now; the queue writes it with its counters."""
        ahead = self.position + max(WATERMARK_AHEAD, self.wanted())
        if ahead > self.watermark and self.consumers:
            if self.name:
                self.owner.dirty(self)
            else:
                self.queue.touch_counters()
            self.watermark = min(ahead, max(self.queue.next_sequence, self.watermark))
            self.queue.work.urgent = True

    # ------------------------------------------------------------------------------------------------ outcomes

    def finish(self, sequences: list[int]) -> list[int]:
        """Those of `sequences` that were in a consumer's hands are done with; returns them."""
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

    def _unfinish(self, sequences: list[int]) -> None:
        """Nobody has these any more, and they did not leave: they are offered anew, as delivered before."""
        self.offer_anew(sequences)
        for sequence in set(sequences).intersection(self.requeued):
            self.counts.setdefault(sequence, 1)

    def offer_anew(self, sequences: list[int]) -> None:
        """Entries that were to leave stay; those that lie below the position are in nobody's hands."""
        known = {*self.below_position()}
        below = [sequence for sequence in sequences if self.floor <= sequence < self.position]
        self._keep(*(sequence for sequence in below if sequence not in known and sequence not in self.finished))

    def finish_wherever(self, sequences: list[int]) -> None:
        """As `finish`, also of what was given back meanwhile and waits for its turn: another holds a copy for good."""
        left = self.finish(sequences)
        if (self.requeued or self.exclusions.aside) and len(left) < len(sequences):
            gone = set(sequences).difference(left).intersection((*self.requeued, *self.exclusions.aside))
            values = [(sequence, self.queue.value(sequence)) for sequence in gone]
            sizes = [(sequence, entry.size_of(value)) for sequence, value in values if value is not None]
            self.acquired.update((sequence, Acquired(next(iter(self.consumers)), size)) for sequence, size in sizes)
            if gone:
                self.requeued = [sequence for sequence in self.requeued if sequence not in gone]
                heapify(self.requeued)
                self.finish(list(gone))

    def moved(self, sequence: int) -> None:
        """An entry that was in a consumer's hands goes elsewhere with this turn's batch."""
        self.acquired.pop(sequence)
        self.forget_counts(sequence)

    def forget_counts(self, sequence: int) -> None:
        """Nothing more is to be known of the entry."""
        self.counts.pop(sequence, None)
        self.links_ended.pop(sequence, None)
        self.exclusions.done((sequence,))

    def requeue(self, sequences: list[int], *, failed: bool) -> None:
        """What a consumer could not finish; `failed` raises its delivery count. Old places are kept."""
        if sequences:
            self.queue.look_again(sequences)
            self.queue.touch()
        for sequence in sequences:
            if sequence in self.acquired:
                self.counts[sequence] = (self.failures(sequence) or 0) + failed
                del self.acquired[sequence]  # from here on nothing is called that could fail
                heappush(self.requeued, sequence)

    def advance(self, sequence: int) -> None:
        """All below `sequence` is done: monotone, idempotent (CUSTODY, "Readers")."""
        if sequence <= self.floor:
            return
        self.finished.add(self.floor, sequence - 1)
        self.raise_floor()
        self.position = max(self.position, self.floor)
        if self.requeued:
            self.requeued = [item for item in self.requeued if item >= self.floor]
            heapify(self.requeued)
        self.exclusions.done_below(self.floor)
        for below in [item for item in self.counts if item < self.floor]:
            self.forget_counts(below)
        self.owner.dirty(self)
        self.owner.reclaim()

    def raise_floor(self) -> None:
        """What is finished from the floor on lies below it."""
        floor = max(self.floor, self.finished.end_of_run(self.floor) + 1)
        self.finished.drop_below(floor)
        self.floor = floor

    # ------------------------------------------------------------------------------------------------ leaving

    def forget_read_ahead(self) -> None:
        """What was read ahead is let go; it is read again when it is wanted."""
        self.queue.read_ahead.forget(self)

    def forget_memory(self) -> None:
        """The cursor is gone: nothing is counted for it any more."""
        self.forget_read_ahead()
        self.queue.ranges.refund(self.counted_bytes)
        self.counted_bytes = 0
        self.counts.clear()
        self.exclusions.forget()

    def pass_over(self, sequences: list[int]) -> None:
        """The oldest entries that are not in a consumer's hands, ascending, leave the queue: they are not offered."""
        self.forget_all(sequences)
        if not self.tracked:  # what lies between them is in hands, or leaves too
            self.position = max(self.position, sequences[-1] + 1)
            return
        for sequence in sequences:
            if sequence >= self.floor:
                self.finished.add(sequence)
        self.raise_floor()
        self.owner.dirty(self)

    def drop(self, sequences: list[int]) -> None:
        """Entries that are in no consumer's hands leave the queue, from whatever place."""
        waiting = frozenset(sequences).intersection(self.below_position())
        self.forget_all(sequences)
        if self.prefetched:
            self.forget_read_ahead()
        if waiting and self.tracked:  # what lies ahead is passed when this cursor comes there
            for sequence in waiting:
                self.finished.add(sequence)
            self.raise_floor()
            self.owner.dirty(self)

    def forget_all(self, sequences: list[int]) -> None:
        """Entries left the queue by another way (purge, expiry) while no consumer held them."""
        for sequence in sequences:
            self.forget_counts(sequence)
        if self.requeued:
            gone = frozenset(sequences)
            self.requeued = [sequence for sequence in self.requeued if sequence not in gone]
            heapify(self.requeued)

    def below_position(self) -> list[int]:
        """Entries that were looked at and are not done with."""
        return [*self.acquired, *self.requeued, *self.exclusions.aside]

    def forget(self, sequence: int) -> None:
        """As `forget_all` for one, the lowest of what was given back: it costs little."""
        self.forget_counts(sequence)
        if self.requeued and self.requeued[0] == sequence:
            heappop(self.requeued)
        elif sequence < self.position and sequence in self.requeued:
            self.requeued.remove(sequence)
            heapify(self.requeued)
