"""Consumers of a queue that sorts: each gets the entry of the highest priority that is ready, and of one priority the
oldest (JMS 2.0 §3.4.10; docs/adr/0072).

Rules of this file: nothing is handed out before all visible entries were scanned. Entries of the index that have left
are noticed when it is their turn.
"""

from typing import Final

from holdfast.broker.cursors import halting
from holdfast.broker.cursors.entry_consumer import BESIDE_BYTES, EntryConsumer, EntrySelector
from holdfast.broker.cursors.holdings import Holdings
from holdfast.broker.cursors.looking import SCAN_COUNT, Looking
from holdfast.broker.cursors.ranked import EVERYTHING, Ranked
from holdfast.broker.cursors.ready import LEVELS, Level, level_of
from holdfast.broker.cursors.runs import RUN_COUNT, RUN_LEAST, RUN_PER_ENTRY, SHARE_MAX
from holdfast.broker.cursors.selection import FreeEntries
from holdfast.broker.cursors.sharing import SCAN_BYTES
from holdfast.broker.cursors.shown import WATERMARK_AHEAD
from holdfast.broker.cursors.unstored import Unstored
from holdfast.broker.entries import packed
from holdfast.broker.entries.read_ahead import READ_BYTES
from holdfast.broker.entries.work import RETIRES_MAX

APART_MAX: Final = 16_384
"""Entries of one group that its consumers with credit cannot have; at the bound it is offered no more."""

MARKS_MAX: Final = 256
"""Entries that are marked as shown at once, where that is stored for each."""

FILLING_MAX: Final = 256
"""Acquired entries up to which a subscription that has finished too much out of order still gets the oldest ones."""


class Priorities(Looking):
    """All consumers of a cursor whose queue sorts."""

    __slots__ = ("_run_max", "_unstored")

    def __init__(self, cursor: Holdings) -> None:
        super().__init__(cursor)
        self._run_max = RUN_COUNT
        self._unstored: Unstored | None = None
        """From the first call of `lowest` on."""

    # ------------------------------------------------------------------------------------------------ consumers

    def join(self, consumer: EntryConsumer, selector: EntrySelector | None, *, shows: bool = True) -> None:
        group = self._group(selector or EVERYTHING, shows=shows)
        group.consumers[consumer] = None
        self._of[consumer] = group

    def leave(self, consumer: EntryConsumer) -> None:
        self._of[consumer].apart_for.discard(consumer)
        super().leave(consumer)

    def _stays(self, group: Ranked) -> bool:
        return group.stays

    def look_again_at_passed(self) -> None:
        for group in self._by_text.values():
            self._back |= group.clear_apart()

    def set_apart(self, sequence: int) -> None:
        value = self._cursor.queue.value(sequence)
        if value is not None:
            for group in self._by_text.values():
                group.set_apart(sequence, value, list(group.consumers))

    # ------------------------------------------------------------------------------------------------ asked

    @property
    def has_ahead(self) -> bool:
        visible = self._cursor.queue.visible
        return bool(self._back) or any(
            group.consumers
            and (
                group.position < visible
                or len(group.apart)
                or any(level or level.behind is not None for level in group.ready.levels)
            )
            for group in self._by_text.values()
        )

    def has_something(self, consumer: EntryConsumer, *, watermarks: bool) -> bool:
        if self._back:
            return True
        group = self._of[consumer]
        if len(group.apart) and consumer not in group.apart_for:
            return True
        if len(group.apart) >= APART_MAX:
            return False
        if halting.is_halted(self._cursor):
            return self._lacking(group) is not None or self._while_halted(group) is not None
        if group.position < self._cursor.queue.visible:
            return True
        level = self._highest(group)
        if level is None or (first := level.first) is None:
            return level is not None  # it is to be looked for
        return watermarks or self._may_have(group, first)

    def passed_over(self, group: Ranked, free: dict[int, bytes]) -> list[int]:
        known = {*group.apart.all(), *group.ready.all(), *self._back}
        behind = [level.behind for level in group.ready.levels]
        return [
            sequence
            for sequence, value in free.items()
            if sequence < group.position
            and sequence not in known
            and not ((forgotten := behind[level_of(value)]) is not None and sequence >= forgotten)
            and group.selector.matches(value)
            and (self._cursor.selector is None or self._cursor.selector.matches(value))
        ]

    @property
    def looks_on(self) -> bool:
        """Whether `lowest` has found none because more is to be looked at."""
        group = self._by_text.get(EVERYTHING.text)
        return bool(self._back) or (group is not None and group.position < self._cursor.queue.visible)

    def lowest(self) -> tuple[int, bytes] | None:
        """Removes from the index the oldest entry of the lowest priority that is not acquired. None if there is none,
        if more must be scanned first, or if an entry that is not on disk yet has a lower priority."""
        if self._unstored is None:
            self._unstored = Unstored(self._cursor.queue)
        unstored = self._unstored.lowest()
        group = self._group(EVERYTHING)
        group.stays = True
        self._left, self._bytes_left = SCAN_COUNT, SCAN_BYTES
        self._free = FreeEntries(self._cursor)
        try:
            self._follow()
            self._look_at_freed()
            self._scan([group])
            while not self._is_over and not self._back and group.position >= self._cursor.queue.visible:
                ready, apart = group.ready.levels, group.apart.levels
                levels = range(min(unstored + 1, LEVELS))
                level = next((item for item in levels if ready[item] or ready[item].behind or apart[item]), None)
                if level is None:
                    return None
                firsts = [first for item in (ready[level], apart[level]) if (first := item.first) is not None]
                if not firsts:
                    self._refill(group, ready[level])
                    continue
                sequence = min(firsts)
                ready[level].remove(sequence)
                apart[level].remove(sequence)
                value = self._value(sequence)
                self._pay(1, 0 if value is None else len(value))
                if value is not None:
                    return sequence, value
        finally:
            self._free.end()
            self._free = None
            self._read_now.clear()
            self._count()
        return None

    def give_back(self, sequence: int) -> None:
        """What `lowest` found stays."""
        self._back.add(sequence)

    # ------------------------------------------------------------------------------------------------ offered

    def pump(self, limit: int) -> int:
        work = self._cursor.queue.work
        self._left, self._bytes_left = limit, SCAN_BYTES
        self._run_max = RUN_COUNT
        self._free = FreeEntries(self._cursor)
        given = 0
        try:
            self._follow()
            self._offer_apart()
            self._look_at_freed()
            self._scan([group for group in self._by_text.values() if group.wanting()])
            while not self._is_over and not self._back:
                handed = sum([self._offer(group) for group in list(self._by_text.values())])
                if not handed:
                    break
                given += handed
            self._ask()
        finally:
            self._free.end()
            self._free = None
            self._read_now.clear()
            self._count()
            work.offered_count += limit - self._left
            work.offered_bytes += SCAN_BYTES - self._bytes_left
        self._move()
        self._after()
        return given

    def _after(self) -> None:
        """If the pump ended at its own bounds, it continues in the next turn; otherwise consumers that got nothing
        wait."""
        cursor, queue = self._cursor, self._cursor.queue
        if self._is_over or self._back:
            queue.touch()
            return
        if halting.is_halted(cursor):
            for account in halting.short_of(cursor):
                queue.work.halted.setdefault(account, {})[queue] = None
        self._let_cache_go()

    def _ask(self) -> None:
        """Requests that it is stored that the next entries are shown."""
        cursor = self._cursor
        for group in self._by_text.values():
            level = self._highest(group)
            first = None if level is None else level.first
            if first is None or self._may_have(group, first):
                continue
            wanted = group.wanted()
            if wanted and cursor.is_counted:
                sequences = group.ready.peek(min(wanted, MARKS_MAX)) if group.shows else []
                cursor.mark_shown([sequence for sequence in sequences if self._value(sequence) is not None])
            elif wanted:
                cursor.ask_watermark(group.position + max(WATERMARK_AHEAD, wanted))

    def _let_cache_go(self) -> None:
        """Entries that wait behind higher priorities must not fill the cache for consumers that keep up."""
        queue = self._cursor.queue
        cached = queue.cached
        if queue.cache and cached.held > cached.held_max - cached.held_max // 4:
            queue.uncache_each(list(queue.cache)[: 1 + len(queue.cache) // 4])

    def _offer_apart(self) -> None:
        """What is apart is looked at again for a consumer that was not asked."""
        for group in self._by_text.values():
            if len(group.apart) and not group.apart_for.issuperset(group.wanting()):
                self._back |= group.clear_apart()

    # ------------------------------------------------------------------------------------------------ handed out

    def _highest(self, group: Ranked) -> Level | None:
        """The level that is next, where that is known; it may be one that is to be looked for again."""
        if group.position < self._cursor.queue.visible:
            return None
        return next((level for level in reversed(group.ready.levels) if level or level.behind is not None), None)

    def _lacking(self, group: Ranked) -> Level | None:
        """A level that must be scanned before the oldest entry is known, if the oldest goes first."""
        cursor = self._cursor
        if not cursor.tracked or halting.outstanding_room(cursor):
            return None
        return next((level for level in group.ready.levels if not level and level.behind is not None), None)

    def _while_halted(self, group: Ranked) -> int | None:
        """Hands out entries although the cursor is halted: the highest of the requeued entries, or, for a subscription
        that has finished too much out of order, the oldest entries, so that this becomes less."""
        cursor = self._cursor
        if cursor.tracked and not halting.outstanding_room(cursor):
            firsts = [first for level in group.ready.levels if (first := level.first) is not None]
            return min(firsts, default=None) if len(cursor.acquired) < FILLING_MAX else None
        for level in reversed(group.ready.levels):
            first = level.first
            if first is not None and first in cursor.counts:
                return first
            if level.came_back is not None:
                return level.came_back
        return None

    def _offer(self, group: Ranked) -> int:
        """Hands something to the consumer of the group that is next; how many."""
        wanting = group.wanting()
        if not wanting or self._is_over or len(group.apart) >= APART_MAX:
            return 0
        return self._run(group, wanting) or self._one(group, wanting)

    def _one(self, group: Ranked, wanting: list[EntryConsumer]) -> int:
        """Hands out the next entry; how many."""
        assert self._free is not None
        cursor, queue = self._cursor, self._cursor.queue
        while not self._is_over and len(queue.work.batch.retires) < RETIRES_MAX:
            if halting.is_halted(cursor):
                lacking = self._lacking(group)
                if lacking is not None:
                    self._refill(group, lacking)
                    continue
                sequence = self._while_halted(group)
                level = next((item for item in group.ready.levels if sequence in (item.first, item.came_back)), None)
                if sequence is None or level is None:
                    return 0
            else:
                level = self._highest(group)
                if level is not None and not level:
                    self._refill(group, level)
                    continue
                sequence = None if level is None else level.first
                if sequence is None or level is None:
                    return 0
            value = self._value(sequence)
            if value is not None and not self._may_have(group, sequence):
                return 0
            level.remove(sequence)
            self._pay(1, 0 if value is None else len(value))
            if value is None:
                continue
            if queue.expired(value):
                self._free.leave(sequence)
                cursor.drop_expired(sequence, value)
                continue
            consumer = self._choose(wanting, sequence, value)
            if consumer is None:
                group.set_apart(sequence, value, wanting)
                if len(group.apart) >= APART_MAX:
                    return 0
                continue
            self._hand(group, consumer, sequence, value)
            return 1
        queue.touch()
        return 0

    def _run(self, group: Ranked, wanting: list[EntryConsumer]) -> int:
        """The hot path: hands a consumer many entries at once that were never shown; returns how many. It ends before
        the first that is not plain."""
        cursor, queue, consumer = self._cursor, self._cursor.queue, wanting[0]
        if cursor.is_counted or not queue.config.durable or halting.is_halted(cursor):
            return 0
        if (consumer.excluded and cursor.exclusions.live) or group.position < queue.visible:
            return 0
        alone = len(wanting) == 1
        most = min(self._run_max if alone else min(self._run_max, SHARE_MAX, len(group.ready) // len(wanting)),
                   consumer.wants(), self._left * RUN_PER_ENTRY)  # fmt: skip
        if cursor.tracked:
            most = min(most, halting.outstanding_room(cursor))
        if most < 2:
            return 0
        sequences = group.ready.peek(most)
        values = self._values(sequences, min(self._bytes_left, consumer.room_bytes)) if len(sequences) > 1 else []
        sizes = packed.lasting_sizes(values)
        count = self._plain_count(sequences, values[: len(sizes)], consumer)
        taken = consumer.take_all(sequences[:count], values[:count]) if count > 1 else 0
        self._run_max = RUN_COUNT if taken == most else RUN_LEAST + 2 * taken
        if not taken:
            return 0
        sequences, values, sizes = sequences[:taken], values[:taken], sizes[:taken]
        cursor.hold_run(consumer, sequences, sizes)  # first: they were sent
        cursor.ahead.update(sequences)
        cursor.ahead_end = max(cursor.ahead_end, max(sequences) + 1)
        consumer.count_held(sum(sizes))
        group.ready.skip(taken)
        queue.uncache_each(sequences)
        self._next_turn(group, consumer)
        self._pay(-(-taken // RUN_PER_ENTRY), sum(map(len, values)))
        return taken

    def _values(self, sequences: list[int], bytes_max: int) -> list[bytes]:
        """The entries of `sequences` up to the first that is not free, or until the bytes are exceeded."""
        assert self._free is not None
        queue, free = self._cursor.queue, self._free
        found = [queue.cache.get(sequence) or self._read_now.get(sequence) for sequence in sequences]
        if None in found:
            missing = [sequence for sequence, value in zip(sequences, found, strict=True) if value is None]
            read = queue.values(missing, min(bytes_max, READ_BYTES))
            leaving = free.leaving
            found = [
                (None if sequence in leaving else read.get(sequence)) if value is None else value
                for sequence, value in zip(sequences, found, strict=True)
            ]
        if None not in found and sum(map(len, found)) <= bytes_max:  # type: ignore[arg-type]  # no None is among them
            return found  # type: ignore[return-value]
        values: list[bytes] = []
        for value in found:
            if value is None or bytes_max <= 0:
                break
            values.append(value)
            bytes_max -= len(value)
        return values

    def _plain_count(self, sequences: list[int], values: list[bytes], consumer: EntryConsumer) -> int:
        """How many from the first on were never shown, are not acquired, and fit the consumer."""
        cursor = self._cursor
        low = max(cursor.position, cursor.shown_below)
        end = cursor.watermark_stored
        bytes_max = min(consumer.run_bytes_max, consumer.bytes_max - BESIDE_BYTES)
        acquired, counts = cursor.acquired, cursor.counts
        sequences = sequences[: len(values)]
        if (  # all of them, which is the usual case
            values
            and low <= min(sequences)
            and max(sequences) < end
            and max(map(len, values)) <= bytes_max
            and not counts
            and acquired.keys().isdisjoint(sequences)
        ):
            return len(values)
        for count, (sequence, value) in enumerate(zip(sequences, values, strict=False)):
            if not low <= sequence < end or len(value) > bytes_max or sequence in acquired or sequence in counts:
                return count
        return len(values)
