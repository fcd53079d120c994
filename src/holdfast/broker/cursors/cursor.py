"""A cursor: one reader's place in a queue, shared by the consumers that compete for it (amqp-illustrations,
"Notes on Addressing, Queues and Links"; CUSTODY, "Readers").

Rules of this file: it writes to a batch only through the queue; never reads a clock; consumers take turns, at first in
the order of their attaches. An entry is offered only once it is on disk, and, on a durable queue, only below the
cursor's stored *watermark*: after a crash everything below the watermark counts as shown, so that a redelivery is
always marked as one.
"""

from heapq import heapify, heappop
from itertools import takewhile
from typing import Any, Final

from holdfast.broker.cursors import back_ahead, halting
from holdfast.broker.cursors.entry_consumer import Acquired, EntryConsumer, EntrySelector, refuses
from holdfast.broker.cursors.exclusions import LOOKS_MAX, LOOKS_PER_ENTRY
from holdfast.broker.cursors.holdings import Holdings
from holdfast.broker.cursors.owner import Owner
from holdfast.broker.cursors.priorities import Priorities
from holdfast.broker.cursors.runs import (
    RUN_COUNT,
    RUN_LEAST,
    RUN_PER_ENTRY,
    SHARE_MIN,
    hand_run,
    is_plain,
    share_of,
)
from holdfast.broker.cursors.selections import Selections
from holdfast.broker.cursors.sharing import Sharing
from holdfast.broker.cursors.shown import WATERMARK_AHEAD
from holdfast.broker.cursors.to_show import MARKS_MAX, Credit, end_for_all, has_unshown_aside, take_alike
from holdfast.broker.entries import entry, packed
from holdfast.broker.entries.entry_log import EntryLog
from holdfast.broker.entries.read_ahead import READ_BYTES, READ_COUNT
from holdfast.broker.entries.work import RETIRES_MAX

PUMP_BYTES: Final = 4 * 1024 * 1024
"""Bytes that a pump hands out at most, and one entry more: whether the socket accepts them is known only at the end of
the turn."""


class Cursor(Holdings):
    """Offers entries to its consumers: to those in `unfiltered` in turn, and to those with selectors what matches."""

    __slots__ = (
        "aside_full", "attaches", "is_mixed", "is_stored", "lease_epoch", "leaves_unshown", "leaving", "looks", "mode",
        "passed", "passed_bytes", "place_kept", "returning", "selections", "selections_first", "unshown_aside",
        "wanted_left",
    )  # fmt: skip

    def __init__(
        self, queue: EntryLog, owner: "Owner[Cursor]", name: str = "", *, mode: str = "copy", floor: int = 0
    ) -> None:
        super().__init__(queue, owner, name, floor=floor)
        self.mode = mode
        self.passed: int
        self.passed_bytes: int
        """Entries that this pump met and that had expired, or left meanwhile; their bytes, and those about which it
        asked selectors."""
        self.looks: int
        """Checks of this pump whether a consumer can have an entry."""
        self.leaving: set[int] | None = None
        """Entries that are leaving the disk, read once in a pump."""
        self.aside_full = False
        """Whether the last pump ended because no more entries may be set aside: the entries behind wait for that."""
        self.is_mixed = False
        """`takes_differ`, while a pump runs."""
        self.leaves_unshown = False
        """Whether this pump leaves entries to others that count as never shown."""
        self.unshown_aside = False
        """`has_unshown_aside`, when the pump began."""
        self.wanted_left: int | None = None
        """`wanted`, once this pump has asked for it."""
        self.place_kept = False
        """Whether the last pump ended at an entry for a consumer that is deferred to the next turn, for no other."""
        self.returning = False
        """Whether entries of links that ended are not all back in their places (custody/returns.py). Until they are,
        nothing is handed out: it would come before them."""
        self.lease_epoch = 0
        self.is_stored = False
        """Of a named cursor: whether a record of it is on disk."""
        self.attaches = 0
        """How many consumers were attached since the node's start."""
        self.selections: Sharing[Any] | None = None
        """As `selective`."""
        self.selections_first = False
        """Whether consumers with selectors are offered before the others in the next pump."""

    # ------------------------------------------------------------------------------------------------ consumers

    def attach(self, consumer: EntryConsumer, selector: EntrySelector | None = None, *, shows: bool = True) -> None:
        """Adds a consumer, which competes for the entries that match its selector, or for all. `shows`: False for a
        consumer with a selector that does not deliver its entries to a client; they do not count as delivered."""
        self.consumers[consumer] = None
        self.consumers_differ()
        self.attaches += 1
        if not self.name:
            self.queue.consumers_changed(True)
        if selector is not None or self.queue.config.priorities:
            self.sharing.join(consumer, selector, shows=shows)
        else:
            self.unfiltered[consumer] = None
            self.exclusions.joined(consumer)
        self.queue.touch()

    @property
    def sharing(self) -> Sharing[Any]:
        """`selections`, created if there are none."""
        if self.selections is None:
            shares = Priorities(self) if self.queue.config.priorities else Selections(self)
            self.selections = self.selective = shares
        return self.selections

    def release(self, consumer: EntryConsumer) -> None:
        """Removes the consumer; the entries that it holds stay acquired by it. Can be done again after a failure."""
        if consumer not in self.consumers:
            return
        back: list[int] = []
        if self.selections is not None and consumer in self.selections:
            equals = self.selections.equals(consumer)
            self.selections.leave(consumer)
            back = self.exclusions.selective_left(consumer, equals, self.requeued)
        elif consumer in self.unfiltered:
            del self.unfiltered[consumer]
            back = self.exclusions.left(consumer, self.requeued)
            if not self.unfiltered:
                self.forget_read_ahead()
        if back:
            self.queue.look_again(back)
        del self.consumers[consumer]
        self.consumers_differ()
        if not (self.name or self.consumers):
            self.queue.consumers_changed(False)
        if self.selections is not None:
            self.selections.look_again_at_passed()
        self.queue.touch()  # the others may have waited for it

    def detach(self, consumer: EntryConsumer, *, failed: bool = True) -> None:
        """Removes the consumer; the entries that it held return to their places. It goes through all acquired
        entries."""
        self.release(consumer)
        self.requeue([sequence for sequence, item in self.acquired.items() if item.consumer is consumer], failed=failed)

    def wanted(self) -> int:
        """How many entries the consumers without a selector want, as `EntryConsumer.will_want`."""
        return sum(consumer.will_want() for consumer in self.unfiltered)

    def recover(self) -> None:
        """Makes the cursor consistent again: a failure may have come between two steps that belong together. A
        consumer that only one of the two places knows is removed, and an acquired entry is in no other place."""
        shared = () if self.selections is None else self.selections
        self.unfiltered = {each: None for each in self.unfiltered if each in self.consumers}
        self.consumers = {each: None for each in self.consumers if each in self.unfiltered or each in shared}
        self.consumers_differ()
        if not self.name:
            self.queue.consumers_changed(bool(self.consumers))
        self.ahead = {sequence for sequence in self.acquired if sequence >= self.position}
        self.requeued = [sequence for sequence in self.requeued if sequence not in self.acquired]
        heapify(self.requeued)
        self.exclusions.recount(self.unfiltered, self.consumers, self.requeued)
        if self.selections is not None:
            self.selections.keep_alone(self.consumers)
            self.selections.start_anew()

    # ------------------------------------------------------------------------------------------------ offering

    @property
    def has_ahead(self) -> bool:
        """Whether there is anything for `pump` to look at, and it may; otherwise it does nothing."""
        if self.returning:
            return False
        if self.selections is not None and self.selections.has_ahead:
            return True
        return bool(self.unfiltered) and (
            self.position < self.queue.visible or bool(self.requeued) or bool(self.exclusions.aside)
        )

    @property
    def counted_aside(self) -> int:
        """Bytes that are counted for entries that are set aside."""
        hits = 0 if self.selections is None else self.selections.counted
        return self.exclusions.counted_aside + hits

    @property
    def counted_ready(self) -> int:
        """Bytes that are counted for the index of ready entries."""
        return 0 if self.selections is None else self.selections.counted_ready

    def asked_up_to(self, consumer: EntryConsumer) -> int:
        """One past the last entry about which it was asked, or its group: it may be handed what lies behind."""
        if self.selections is not None and consumer in self.selections:
            return self.selections.asked_up_to(consumer)
        return self.position

    def shown_next(self) -> int:
        """One past the highest sequence that consumers may be shown next."""
        unfiltered = self.position + self.wanted() if self.unfiltered else 0
        if self.is_counted and unfiltered:
            if self.requeued:
                return self.watermark  # they are shown before
            if self.takes_differ:
                unfiltered = min(unfiltered, self._end_for_all(unfiltered, aside=has_unshown_aside(self)))
        if self.selections is None or self.is_counted:  # where deliveries are counted, entries are marked one by one
            return unfiltered
        return max(unfiltered, self.selections.shown_next())

    def pump(self, limit: int) -> int:
        """Hands out entries to consumers in turn; returns how many. `limit`: entries that it looks at in all, handed
        out or not, RUN_PER_ENTRY of a run as one, for consumers with and without selectors each; of each kind
        PUMP_BYTES. All of it counts for the turn (Work.offered_count)."""
        if self.selections is None:
            return self._pump_unfiltered(limit)
        if self.queue.config.priorities:
            given = self.selections.pump(limit)
            self.queue.count_out(given)
            return given
        self.selections_first = not self.selections_first
        given = 0
        for selective in (self.selections_first, not self.selections_first):
            if not selective:
                given += self._pump_unfiltered(limit)
            elif self.selections.has_ahead:
                handed = self.selections.pump(limit)
                self.queue.count_out(handed)
                given += handed
        if self.aside_full and self.exclusions.has_room():  # consumers with selectors took some of it
            self.queue.touch()
        return given

    def _pump_unfiltered(self, limit: int) -> int:
        consumers = [consumer for consumer in self.unfiltered if consumer.wants() > 0]
        self.aside_full = self.place_kept = False
        self.is_mixed = self.takes_differ
        self.leaves_unshown = False
        self.wanted_left = None
        self.leaving = None
        self.passed = self.passed_bytes = self.looks = 0
        queue = self.queue
        if self.exclusions.aside and consumers:
            looks = self.exclusions.offer_to(consumers, self.requeued, limit)
            queue.work.offered_count += looks // LOOKS_PER_ENTRY
            if looks >= LOOKS_MAX:
                queue.touch()
        self.unshown_aside = self.is_mixed and has_unshown_aside(self)
        aside = self.setting_aside = {}
        accepted_by: dict[int, EntryConsumer] = {}
        try:
            given, ran = self._hand_out(consumers, limit, aside, accepted_by)
            if self.selections is not None and consumers and not aside:
                back, passed = back_ahead.offer(self, self.selections, limit - given - self.passed, PUMP_BYTES)
                given += back
                self.passed += passed
            if aside:
                self.exclusions.set_aside(aside, accepted_by)
                if self.counts and self.selections is not None:
                    self.queue.touch()  # with these aside the cursor may be halted no more
        except Exception:
            self.keep(*aside)
            raise
        finally:
            self.setting_aside = {}
        if self.aside_full and not queue.withheld.aside.room:
            queue.work.halted.setdefault(queue.withheld.aside, {})[queue] = None
        count = given - ran - (-ran // RUN_PER_ENTRY) + len(aside) + self.passed
        if count >= limit:
            queue.touch()
            if not given:
                queue.work.cut_short.add(self)
        queue.count_out(given)
        queue.work.offered_count += count
        queue.work.offered_bytes += self.passed_bytes
        if self.prefetched:
            read_bytes, self.read_bytes = self.read_bytes, 0
            self.queue.read_ahead.keep(self, read_bytes)
        elif self.read_ahead_bytes:
            self.queue.read_ahead.forget(self)
        return given

    def _hand_out(
        self, consumers: list[EntryConsumer], limit: int, aside: dict[int, int], accepted_by: dict[int, EntryConsumer]
    ) -> tuple[int, int]:
        """How many entries were handed out, and how many of them in runs. Entries that none of the consumers can have
        are added to `aside` and `accepted_by`, as in `Exclusions`. If a consumer that was deferred to the next turn can
        have an entry, the entry and all behind it keep their places."""
        given = in_runs = 0
        left_to_another = False
        round_left = share = 0
        run_max = RUN_COUNT
        room_bytes = look_bytes = PUMP_BYTES
        while consumers:
            left = limit - (given - in_runs - (-in_runs // RUN_PER_ENTRY)) - len(aside) - self.passed
            if left <= 0:
                break
            consumer = consumers[0]
            if given and consumer.wants() <= 0:  # links of one session share its window: asked before each entry
                del consumers[0]
                continue
            if min(room_bytes, look_bytes, PUMP_BYTES - self.passed_bytes) <= 0 or self.looks >= LOOKS_MAX:
                self.queue.touch()
                break
            if self.selector is None and is_plain(self, consumer):
                if not round_left or len(consumers) == 1:
                    round_left, share = len(consumers), share_of(self, len(consumers))
                round_left -= 1
                if share >= SHARE_MIN:
                    most = min(left * RUN_PER_ENTRY, share, run_max)
                    ran, ran_bytes = hand_run(self, consumer, most, min(room_bytes, consumer.room_bytes))
                    # Cached entries behind it may not be plain either; entries that were read go one by one first.
                    run_max = RUN_COUNT if ran == most or self.prefetched else RUN_LEAST + 2 * ran
                    given += ran
                    in_runs += ran
                    self._were_wanted(ran, consumer)
                    room_bytes -= ran_bytes
                    if ran:
                        if consumer in self.unfiltered:
                            consumer.count_held(ran_bytes)
                            self._next_turn(consumer, consumers)
                        elif len(consumers) == 1:
                            break
                        else:
                            consumers.remove(consumer)
                        if not self.has_ahead:
                            break
                        continue
            item = self._next(left)
            if item is None:
                break
            sequence, value, size, failures = item
            try:
                found, delivery_bytes, taker = self._choose(consumers, sequence, value, size)
                if taker is not None:
                    accepted_by[sequence] = taker
            except Exception:
                self.keep(sequence)
                raise
            if found is not consumer:
                left_to_another = True
            if found is None:
                look_bytes -= len(value)
                self.leaves_unshown = True
                self.place_kept = self.exclusions.for_later(self.unfiltered, sequence, value, size, delivery_bytes)
                self.aside_full = not self.exclusions.has_room(len(aside))
                if self.place_kept or self.aside_full:
                    self.keep(sequence)
                    break
                aside[sequence] = delivery_bytes
                continue
            if self.is_counted and not (self.may_be_shown(sequence) or refuses(found, sequence, value)):
                self._ask_to_show(consumers, found, item, left)
                break
            consumer = found
            self.acquired[sequence] = Acquired(consumer, size)
            consumer.count_held(size)
            room_bytes -= len(value) if self.selector is None else len(value) * self.selector.weight
            consumer.take(sequence, value, failures)
            given += 1
            self._were_wanted(1, consumer)
            if consumer not in self.unfiltered:  # it could not have this one, and was detached
                consumers.remove(consumer)
            else:
                self._next_turn(consumer, consumers)
        if not consumers and left_to_another:
            self.place_kept = any(consumer.deferred for consumer in self.unfiltered)
        self.queue.work.offered_count += self.looks // LOOKS_PER_ENTRY
        self.queue.work.offered_bytes += 2 * PUMP_BYTES - room_bytes - look_bytes
        return given, in_runs

    def _ask_to_show(
        self, consumers: list[EntryConsumer], found: EntryConsumer, item: tuple[int, bytes, int, int | None], left: int
    ) -> None:
        """The next entry, `item`, is for `found` once it is stored that it is shown. The same is requested for those
        behind it that the consumers get with the credit that they have. Until then they wait as requeued ones."""
        credit, marked, waiting = Credit(consumers), list[int](), list[int]()
        following: tuple[int, bytes, int, int | None] | None = item
        self.leaves_unshown = True  # what follows is marked one by one, not by a watermark
        try:
            while following is not None:
                sequence, value, size, _ = following
                waiting.append(sequence)
                chosen: EntryConsumer | None = found
                if sequence != item[0]:
                    chosen, _, _ = self._choose(credit.consumers, sequence, value, size)
                if chosen is not None:
                    if refuses(chosen, sequence, value):
                        break
                    credit.assign(chosen)
                    marked.append(sequence)
                if not credit.consumers or len(waiting) >= min(left, MARKS_MAX) or self.looks >= LOOKS_MAX:
                    break
                following = self._next(left - len(waiting))
        finally:
            self.keep(*waiting)
        self.queue.work.offered_count += len(waiting)
        self.mark_shown(marked)

    def _choose(
        self, consumers: list[EntryConsumer], sequence: int, value: bytes, size: int
    ) -> tuple[EntryConsumer | None, int, EntryConsumer | None]:
        """As `choose`, without what it took, which counts for this pump."""
        found, delivery_bytes, taker, looks, weight = self.choose(consumers, sequence, value, size)
        self.looks += looks
        self.passed_bytes += len(value) * weight
        return found, delivery_bytes, taker

    def _next_turn(self, consumer: EntryConsumer, consumers: list[EntryConsumer]) -> None:
        """The consumer was handed something: now, and in the next pump, it is the turn of the next one."""
        if len(self.unfiltered) > 1:
            self.next_turn(consumer)
            consumers.remove(consumer)
            consumers.append(consumer)

    def _next(self, limit: int) -> tuple[int, bytes, int, int | None] | None:
        """The next entry to hand out (sequence, value, size, failed deliveries); None if `limit` entries were
        passed."""
        queue = self.queue
        most = self.passed + limit
        weight = 1 if self.selector is None else self.selector.weight
        while self.passed < most:
            is_new = not self.requeued
            if not is_new:
                sequence = self.requeued[0]
                value = queue.value(sequence)
                heappop(self.requeued)
                if value is None:  # purged or expired meanwhile
                    self.forget_counts(sequence)
                    self.passed += 1
                    continue
            else:
                found = self._ahead()
                if found is None:
                    return None
                sequence, value = found
            try:
                if not queue.in_transit and queue.expired(value):  # in transit a tombstone takes its place
                    self.drop_expired(sequence, value)
                elif (
                    self.selector is None
                    or (is_new and self._was_matched(sequence, value))
                    or self.selector.matches(value)
                ):
                    failures = self.failures(sequence)
                    if failures is None or not self.is_exhausted(failures):
                        return sequence, value, packed.size_of(value), failures
                    self.exhaust(sequence, packed.size_of(value))
                elif self.tracked:
                    self.leave_out(sequence)
                else:
                    self.forget_counts(sequence)
                    queue.retire(sequence, packed.size_of(value))
            except Exception:
                self.keep(sequence)
                raise
            self.passed += 1
            self.passed_bytes += len(value) * weight
            if self.passed_bytes >= PUMP_BYTES or len(queue.work.batch.retires) >= RETIRES_MAX:
                break
        queue.touch()  # a backlog of expired entries takes more than one turn
        return None

    def _was_matched(self, sequence: int, value: bytes) -> bool:
        """Whether the entry is known to match the selector."""
        return sequence >= self.matched_from and not value[1] & entry.BLOB

    def _ahead(self) -> tuple[int, bytes] | None:
        """The first entry at or after `position` that is visible, below the watermark and not finished."""
        queue = self.queue
        if self.halted and not self.fills_gaps:
            for account in halting.short_of(self):
                queue.work.halted.setdefault(account, {})[queue] = None
            return None
        limit = min(queue.visible, self.watermark_stored) if queue.config.durable else queue.visible
        if self.tracked and (passed := self.finished.end_of_run(self.position)) >= self.position:
            self.move_to(passed + 1)
        if self.is_mixed and limit <= self.position < queue.visible:
            if not self.prefetched and self.position not in queue.cache:
                self._read()
            if self.wanted_left is None:
                self.wanted_left = self.wanted()
            end = self._end_for_all(self.position + self.wanted_left, aside=self.unshown_aside)
            if end > self.position:
                self.ask_watermark(end)
                return None
            limit = queue.visible  # entries are asked about one by one
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
                    self._skip_to(self.prefetched[-1][0])  # the sequences up to it were never stored, or have left
                    break
                sequence, value = self.prefetched[-1]
            self._skip_to(sequence)
            if sequence in self.finished or (self.tracked and sequence < self.floor):
                self.move_to(max(sequence + 1, self.floor, self.finished.end_of_run(sequence) + 1))
                continue
            if sequence < self.ahead_end and self._is_taken(sequence):
                self.move_to(sequence + 1)
                continue
            if self.counts and self.is_counted and not self.is_mixed and not self.may_be_shown(sequence):
                break
            self.position = sequence + 1
            if self.prefetched:
                self.prefetched.pop()
            return sequence, value
        if self.position < queue.visible:
            if self.is_mixed and limit < queue.visible:
                return self._ahead()
            self.want_watermark()
        return None

    def _is_taken(self, sequence: int) -> bool:
        """Whether a consumer with a selector has the entry, or the entry is leaving."""
        if sequence in self.ahead:
            return True
        if self.leaving is None:
            self.leaving = self.queue.leaving()
        return sequence in self.leaving

    def _read(self) -> None:
        """Reads the next entries: more than are wanted now, if there is memory for them, or if many were passed
        over."""
        queue = self.queue
        if self.read_ahead_bytes:
            queue.read_ahead.forget(self)
        count = READ_COUNT if queue.read_ahead.has_room() else max(1, min(READ_COUNT, max(self.wanted(), self.passed)))
        finished = self.finished.next_after(self.position)
        if finished is not None:
            count = min(count, finished - self.position)
        found = queue.read(self.position, count_max=count, bytes_max=READ_BYTES)
        while found and self.position < self.ahead_end:  # else leaving entries would be handed out later
            stays = [item for item in found if item[0] in self.ahead or not self._is_taken(item[0])]
            if stays:
                found = stays
                break
            self._skip_to(found[-1][0] + 1)
            found = queue.read(self.position, count_max=count, bytes_max=READ_BYTES)
        self.prefetched = found[::-1]
        self.read_bytes = sum([len(value) for _, value in self.prefetched])

    @property
    def halted(self) -> bool:
        """Whether no entry that was never shown is offered until some entries below are finished."""
        return halting.is_halted(self)

    @property
    def fills_gaps(self) -> bool:
        """Whether what comes next lies below finished entries, as it may after a restart: then a halted cursor offers
        it, because once it is finished, the ranges are fewer."""
        return bool(self.finished) and self.position < self.finished.last and halting.has_room_for_more(self)

    def _skip_to(self, sequence: int) -> None:
        """Sequences that were never stored, or have left, count as finished."""
        if self.tracked and sequence > self.position:
            self.finished.add(self.position, sequence - 1)
            self.raise_floor()
            self.count_ranges()
            self.owner.reclaim()
        if self.position < sequence:
            self.move_to(sequence)

    @property
    def takes_differ(self) -> bool:
        """Whether deliveries are counted and a consumer cannot have every entry, or entries that count as never shown
        wait for one."""
        return self.is_counted and not (take_alike(self) and not has_unshown_aside(self))

    def _were_wanted(self, count: int, consumer: EntryConsumer) -> None:
        """The consumer, if it is still there, was given so many of those that are wanted."""
        if self.wanted_left is not None:
            self.wanted_left = self.wanted_left - count if consumer in self.unfiltered else None

    def _end_for_all(self, end: int, *, aside: bool) -> int:
        """How far, below `end`, a watermark may be stored where `takes_differ`; at least the present one. `aside`:
        `has_unshown_aside`."""
        if self.leaves_unshown or aside:
            return self.watermark
        first, cache = max(self.position, self.watermark), self.queue.cache
        end = min(end, self.queue.next_sequence)
        if self.prefetched and first <= self.prefetched[0][0]:
            return end_for_all(self, reversed(self.prefetched), first, end)
        known = takewhile(cache.__contains__, range(first, end))
        return end_for_all(self, ((sequence, cache[sequence]) for sequence in known), first, end)

    def want_watermark(self) -> None:
        """Asks for a stored watermark as far as the consumers want now."""
        least = 1 if self.is_counted else WATERMARK_AHEAD  # entries that were not shown must not count as shown
        self.ask_watermark(self.position + max(least, self.wanted()))
