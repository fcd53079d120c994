"""Consumers of a queue that sorts: each is handed the highest priority that is ready, and within one priority what came
first (JMS 2.0 §3.4.10; docs/adr/0072).

Rules of this file: nothing is handed out before all that is visible was looked at. What is known is an index of one
log, in memory; entries that left by another way are found gone when it is their turn. At the bounds of memory the index
forgets the youngest of the lowest priority, and reads them again.
"""

from typing import Final

from holdfast.broker.cursors import halting
from holdfast.broker.cursors.entry_consumer import BESIDE_BYTES, EntryConsumer, EntrySelector
from holdfast.broker.cursors.holdings import WATERMARK_AHEAD, Holdings
from holdfast.broker.cursors.ranked import EVERYTHING, Ranked
from holdfast.broker.cursors.ready import BACK_BYTES, LEVELS, Level, Ready, level_of
from holdfast.broker.cursors.selection import FreeEntries
from holdfast.broker.cursors.sharing import SCAN_BYTES, Sharing
from holdfast.broker.cursors.unstored import Unstored
from holdfast.broker.entries import entry
from holdfast.broker.entries.read_ahead import READ_BYTES
from holdfast.broker.entries.work import RETIRES_MAX

READY_MAX: Final = 8 * 1024 * 1024
"""Entries that one group's index knows; past that it forgets the youngest of the lowest priority."""

READY_MIN: Final = 4_096
"""The same where the node's memory for it is used up."""

MOVED_LEAST: Final = 4_096
"""So far the cursor's position moves at once."""

APART_MAX: Final = 16_384
"""Entries of one group that its consumers with credit cannot have; at the bound it is offered no more."""

SCAN_COUNT: Final = 1_024
"""Entries that one visit to the store looks at."""

SCANNED_PER_ENTRY: Final = 16
"""So many that are looked at for their priority alone take about the time of one that is handed out."""

RUN_COUNT: Final = 256
"""Entries that one consumer is handed at once."""

RUN_LEAST: Final = 8
"""Entries that are tried at once after a run that ended early, beside twice as many as that had."""

RUN_PER_ENTRY: Final = 8
"""So many of a run take about the time of one that is handed out by itself."""

SHARE_MAX: Final = 64
"""The same where there are several consumers."""

MARKS_MAX: Final = 256
"""Entries that are marked as shown at once, where that is stored for each."""

FILLING_MAX: Final = 256
"""Entries in consumers' hands with which a subscription that has finished too much out of order goes on, the oldest
first."""


def _size(found: list[tuple[int, bytes]]) -> int:
    return sum([len(value) for _, value in found])


class Priorities(Sharing[Ranked]):
    """All consumers of a cursor whose queue sorts."""

    __slots__ = ("_asked", "_followed", "_read_now", "_run_max", "_unstored", "counted_index")

    def __init__(self, cursor: Holdings) -> None:
        super().__init__(cursor)
        self._asked = cursor.selector
        """The subscription's, for which all was looked at."""
        self._followed = cursor.position
        """The cursor's position when what lies below it was last taken out."""
        self._read_now: dict[int, bytes] = {}
        """What this pump has read."""
        self._run_max = RUN_COUNT
        self._unstored: Unstored | None = None
        """From the first call of `lowest` on."""
        self.counted_index = 0
        """What the indexes are counted with in the node's memory."""

    # ------------------------------------------------------------------------------------------------ consumers

    def join(self, consumer: EntryConsumer, selector: EntrySelector | None, *, shows: bool = True) -> None:
        group = self._group(selector or EVERYTHING, shows=shows)
        group.consumers[consumer] = None
        self._of[consumer] = group

    def _group(self, selector: EntrySelector, *, shows: bool = True) -> Ranked:
        group = self._by_text.get(selector.text)
        if group is None:
            group = self._by_text[selector.text] = Ranked(selector, self._first(), shows=shows)
        return group

    def leave(self, consumer: EntryConsumer) -> None:
        self._of[consumer].apart_for.discard(consumer)
        super().leave(consumer)

    def _stays(self, group: Ranked) -> bool:
        return group.stays

    def look_again_at_passed(self) -> None:
        for group in self._by_text.values():
            self._back |= group.take_apart()

    def start_anew(self) -> None:
        self._back.clear()
        for group in self._by_text.values():
            group.take_apart()
            group.ready = Ready()
            group.position = min(self._first(), self._cursor.position)
        self._count()

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
        """The oldest of the lowest priority that is in nobody's hands, which is ready no more; None where there is
        none, where more is to be looked at before that is known, or where one that is not on disk yet is lower."""
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

    @property
    def _is_over(self) -> bool:
        """Whether this pump has done its share."""
        return self._left <= 0 or self._bytes_left <= 0

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
        """Where the pump ended for its own bounds it goes on in the next turn; else who got nothing waits for more."""
        cursor, queue = self._cursor, self._cursor.queue
        if self._is_over or self._back:
            queue.touch()
            return
        if halting.is_halted(cursor):
            for account in halting.short_of(cursor):
                queue.work.halted.setdefault(account, {})[queue] = None
        self._let_cache_go()

    def _ask(self) -> None:
        """Asks for it to be stored that what is next is shown."""
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
        """What waits behind higher priorities is not to fill what is kept for those that keep up."""
        queue = self._cursor.queue
        cached = queue.cached
        if queue.cache and cached.held > cached.held_max - cached.held_max // 4:
            queue.uncache_each(list(queue.cache)[: 1 + len(queue.cache) // 4])

    def _follow(self) -> None:
        """What the cursor has passed, as by a purge, is ready no more, unless it waits to be offered again. For another
        selector of a subscription all is looked at again."""
        position = self._cursor.position
        if self._asked is not self._cursor.selector:
            self._asked = self._cursor.selector
            self.start_anew()
        if position - self._followed < MOVED_LEAST:
            return
        assert self._free is not None
        self._followed = position
        for group in self._by_text.values():
            group.ready.drop_below(position)
            group.position = max(group.position, position)
        self._back |= self._free.waiting

    def _move(self) -> None:
        """The cursor passes what is in hands or gone, now and then: else what expires would be kept known for long."""
        cursor, group = self._cursor, self._by_text.get(EVERYTHING.text)
        if group is None or group.position - cursor.position < MOVED_LEAST:
            return
        levels = [*group.ready.levels, *group.apart.levels]
        lowest = [place for level in levels for place in (level.first, level.behind) if place is not None]
        position = min([*lowest, *self._back, group.position])
        if position - cursor.position >= MOVED_LEAST:
            cursor.move_to(position)
            self._followed = position

    def _offer_apart(self) -> None:
        """What is apart is looked at again for a consumer that was not asked."""
        for group in self._by_text.values():
            if len(group.apart) and not group.apart_for.issuperset(group.wanting()):
                self._back |= group.take_apart()

    def _look_at_freed(self) -> None:
        """Those of what became free that match are ready again."""
        assert self._free is not None
        subscribed = self._cursor.selector
        for sequence in sorted(self._back) if self._back else ():
            if self._is_over:
                return
            asked = [group for group in self._by_text.values() if sequence < group.position]
            value = self._value(sequence)
            self._pay(1, 0 if value is None else len(value) * max(1, sum(group.selector.weight for group in asked)))
            if value is not None and subscribed is not None and not subscribed.matches(value):
                self._leave_out(sequence)
            elif value is not None:
                for group in asked:
                    if group.selector.matches(value):
                        group.ready.levels[level_of(value)].give_back(sequence)
            self._back.discard(sequence)

    def _value(self, sequence: int) -> bytes | None:
        """The entry where it is there and free."""
        assert self._free is not None
        if not self._free.is_free(sequence):
            return None
        known = self._read_now.get(sequence)
        return self._cursor.queue.value(sequence) if known is None else known

    # ------------------------------------------------------------------------------------------------ looked at

    def _scan(self, wanted: list[Ranked]) -> None:
        """Looks at what the groups `wanted` have not looked at yet; those that have come as far look on with them."""
        cursor, queue = self._cursor, self._cursor.queue
        visible = queue.visible
        while not self._is_over:
            behind = [group for group in wanted if group.position < visible]
            if not behind or (cursor.selector is not None and halting.is_halted(cursor)):
                return
            first = min([group.position for group in behind])
            here = [group for group in self._by_text.values() if group.position == first]
            end = min([group.position for group in self._by_text.values() if group.position > first], default=visible)
            found = self._read(first, min(end, visible))
            free = found if self._all_free(first) else self._free_of(found)
            if cursor.tracked:
                self._finish_missing(first, found, min(end, visible))
            if cursor.selector is not None:
                free = self._kept(cursor.selector, free)
            weight = 0 if cursor.selector is None else cursor.selector.weight
            for group in here:
                if group.selector is EVERYTHING:
                    group.ready.extend(free)
                else:
                    group.ready.extend([item for item in free if group.selector.matches(item[1])])
                    weight += group.selector.weight
                group.position = found[-1][0] + 1 if found else min(end, visible)
                self._keep_within(group)
            share = len(found) if weight else -(-len(found) // SCANNED_PER_ENTRY)
            self._pay(max(1, share), 0 if first in queue.cache and not weight else _size(found) * max(1, weight))

    def _finish_missing(self, first: int, found: list[tuple[int, bytes]], end: int) -> None:
        """Numbers that were never stored, or left before, count as finished."""
        finished, numbers = self._cursor.finished, [sequence for sequence, _ in found] or [end]
        if numbers[-1] - first >= len(numbers):
            for number in numbers:
                if number > first:
                    finished.add(first, number - 1)
                first = number + 1
            self._cursor.raise_floor()

    def _read(self, first: int, end: int) -> list[tuple[int, bytes]]:
        """Some of what is visible from `first` on, below `end`."""
        queue = self._cursor.queue
        if first in queue.cache:
            return [*enumerate(queue.in_memory(first, min(first + SCAN_COUNT, end), READ_BYTES), first)]
        found = queue.read(first, count_max=SCAN_COUNT, bytes_max=READ_BYTES)
        while found and found[-1][0] >= end:
            found.pop()
        self._read_now.update(found)
        return found

    def _all_free(self, first: int) -> bool:
        """Whether nothing from `first` on was ever handed out, nor finished."""
        cursor = self._cursor
        return first >= cursor.offered_end and not (cursor.finished and cursor.finished.last >= first)

    def _free_of(self, found: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        assert self._free is not None
        is_free = self._free.is_free
        return [item for item in found if is_free(item[0])]

    def _kept(self, subscribed: EntrySelector, found: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """Those that the subscription does not leave out; it is done with the others."""
        kept: list[tuple[int, bytes]] = []
        for item in found:
            if subscribed.matches(item[1]):
                kept.append(item)
            else:
                self._leave_out(item[0])
        return kept

    def _leave_out(self, sequence: int) -> None:
        """The subscription is done with an entry that it does not select."""
        assert self._free is not None
        self._free.leave(sequence)
        self._cursor.leave_out(sequence)

    def _keep_within(self, group: Ranked) -> None:
        """The index forgets what is more than it may hold."""
        most = READY_MAX if self._cursor.queue.withheld.ready.room else READY_MIN
        while len(group.ready) > most and group.ready.shrink():
            pass

    def _refill(self, group: Ranked, level: Level) -> None:
        """Looks again for some of a level that was forgotten."""
        position = level.behind
        assert position is not None
        wanted = group.ready.levels.index(level)
        subscribed = self._cursor.selector
        found = self._read(position, group.position)
        mine = [
            sequence
            for sequence, value in self._free_of(found)
            if level_of(value) == wanted
            and group.selector.matches(value)
            and (subscribed is None or subscribed.matches(value))
        ]
        level.behind = None if not found or found[-1][0] + 1 >= group.position else found[-1][0] + 1
        if mine:
            level.extend(mine)
        self._pay(max(1, -(-len(found) // SCANNED_PER_ENTRY)), _size(found))

    # ------------------------------------------------------------------------------------------------ handed out

    def _highest(self, group: Ranked) -> Level | None:
        """The level that is next, where that is known; it may be one that is to be looked for again."""
        if group.position < self._cursor.queue.visible:
            return None
        return next((level for level in reversed(group.ready.levels) if level or level.behind is not None), None)

    def _lacking(self, group: Ranked) -> Level | None:
        """A level that is to be looked for before it is known what is oldest, where the oldest goes first."""
        cursor = self._cursor
        if not cursor.tracked or halting.outstanding_room(cursor):
            return None
        return next((level for level in group.ready.levels if not level and level.behind is not None), None)

    def _while_halted(self, group: Ranked) -> int | None:
        """What is handed out though the cursor is halted: of what came back the highest, or, of a subscription that
        has finished too much out of order, what is oldest, so that it is less."""
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
        """The hot path: hands a consumer what was never shown, many at once; returns how many. It ends before the first
        that is not as plain."""
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
        sizes = entry.lasting_sizes(values)
        count = self._plain_count(sequences, values[: len(sizes)], consumer)
        taken = consumer.take_all(sequences[:count], values[:count]) if count > 1 else 0
        self._run_max = RUN_COUNT if taken == most else RUN_LEAST + 2 * taken
        if not taken:
            return 0
        group.ready.skip(taken)
        sequences, values, sizes = sequences[:taken], values[:taken], sizes[:taken]
        cursor.hold_run(consumer, sequences, sizes)
        cursor.ahead.update(sequences)
        cursor.ahead_end = max(cursor.ahead_end, max(sequences) + 1)
        queue.uncache_each(sequences)
        consumer.count_held(sum(sizes))
        self._next_turn(group, consumer)
        self._pay(-(-taken // RUN_PER_ENTRY), sum([len(value) for value in values]))
        return taken

    def _values(self, sequences: list[int], bytes_max: int) -> list[bytes]:
        """The entries of `sequences` up to the first that is not free, or past the bytes."""
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
        values: list[bytes] = []
        for value in found:
            if value is None or bytes_max <= 0:
                break
            values.append(value)
            bytes_max -= len(value)
        return values

    def _plain_count(self, sequences: list[int], values: list[bytes], consumer: EntryConsumer) -> int:
        """How many from the first on were never shown, are in nobody's hands, and fit the consumer."""
        cursor = self._cursor
        low = max(cursor.position, cursor.shown_below)
        end = cursor.watermark_stored
        bytes_max = min(consumer.run_bytes_max, consumer.bytes_max - BESIDE_BYTES)
        acquired, counts = cursor.acquired, cursor.counts
        for count, (sequence, value) in enumerate(zip(sequences, values, strict=False)):
            if not low <= sequence < end or len(value) > bytes_max or sequence in acquired or sequence in counts:
                return count
        return len(values)

    # ------------------------------------------------------------------------------------------------ counted

    def _count(self) -> None:
        withheld = self._cursor.queue.withheld
        groups = self._by_text.values()
        held = BACK_BYTES * len(self._back) + sum(group.apart.size for group in groups)
        withheld.aside.recount(self.counted, held)
        self.counted = held
        index = sum(group.ready.size for group in groups)
        withheld.ready.recount(self.counted_index, index)
        self.counted_index = index

    def forget(self) -> None:
        super().forget()
        self._cursor.queue.withheld.ready.refund(self.counted_index)
        self.counted_index = 0

    @property
    def counted_ready(self) -> int:
        return self.counted_index
