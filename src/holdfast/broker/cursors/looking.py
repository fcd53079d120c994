"""Which entries are ready in a queue that sorts, as far as it was scanned (JMS 2.0 §3.4.10; docs/adr/0072).

Rules of this file: it hands out nothing. It keeps an index of one log in memory, which may still contain entries that
have left. At the bounds of memory the index forgets the youngest entries of the lowest priority, and reads them again
later.
"""

from sys import maxsize
from typing import Final

from holdfast.broker.cursors import halting
from holdfast.broker.cursors.entry_consumer import EntryConsumer, EntrySelector
from holdfast.broker.cursors.holdings import Holdings
from holdfast.broker.cursors.ranked import EVERYTHING, Ranked
from holdfast.broker.cursors.ready import BACK_BYTES, Level, Ready, level_of
from holdfast.broker.cursors.sharing import MATCHES_PER_ENTRY, Sharing
from holdfast.broker.cursors.waiting_for_others import WaitingForOthers
from holdfast.broker.entries.read_ahead import READ_BYTES

READY_MAX: Final = 8 * 1024 * 1024
"""Entries in one group's index; beyond that it forgets the youngest of the lowest priority."""

READY_MIN: Final = 4_096
"""The same where the node's memory for it is used up."""

FOR_OTHERS_MAX: Final = 4_096
"""Entries of one group and priority that wait for other consumers; beyond that the youngest are scanned again when they
are wanted."""

FOR_OTHERS_MIN: Final = 64
"""The same where the node's memory for them is used up."""

MOVED_LEAST: Final = 4_096
"""Sequences by which the cursor's position moves at once, at least."""

SCAN_COUNT: Final = 1_024
"""Entries that one visit to the store looks at."""

WEIGHT_SCANNED: Final = 32
"""Weight of selectors for which a visit examines half as many entries, twice this a third, and so on."""

SCANNED_PER_ENTRY: Final = 16
"""Entries examined only for their priority that take about as long as one that is handed out."""


def _size(found: list[tuple[int, bytes]]) -> int:
    return sum([len(value) for _, value in found])


class Looking(Sharing[Ranked]):
    """The groups of a cursor whose queue sorts, and their indexes."""

    __slots__ = ("_asked", "_followed", "_read_now", "counted_index")

    def __init__(self, cursor: Holdings) -> None:
        super().__init__(cursor)
        self._asked = cursor.selector
        """The subscription's selector for which everything was scanned."""
        self._followed = cursor.position
        """The cursor's position when entries below it were last removed."""
        self._read_now: dict[int, bytes] = {}
        """Bytes that this pump has read."""
        self.counted_index = 0
        """Bytes that the indexes count in the node's memory."""

    def _group(self, selector: EntrySelector, *, shows: bool = True) -> Ranked:
        group = self._by_text.get(selector.text)
        if group is None:
            group = self._by_text[selector.text] = Ranked(selector, self._first(), shows=shows)
        return group

    def start_anew(self) -> None:
        self._back.clear()
        for group in self._by_text.values():
            group.ready = Ready()
            group.position = min(self._first(), self._cursor.position)
        self._count()

    def _follow(self) -> None:
        """Entries that the cursor has passed, for example by a purge, are no longer ready, unless they were requeued.
        If a subscription has another selector, everything is scanned again."""
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
        """Now and then the cursor passes entries that are acquired or have left; otherwise expired entries would stay
        in the index for long."""
        cursor, group = self._cursor, self._by_text.get(EVERYTHING.text)
        if group is None or group.position - cursor.position < MOVED_LEAST:
            return
        lowest = [
            place
            for level in group.ready.levels
            for place in (level.first, level.behind, level.for_others.first, level.for_others.forgotten_from)
            if place is not None
        ]
        position = min([*lowest, *self._back, group.position])
        if position - cursor.position >= MOVED_LEAST:
            cursor.move_to(position)
            self._followed = position

    def _look_at_freed(self) -> None:
        """Entries that became free and match are ready again."""
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
        """The entry, if it exists and is free."""
        assert self._free is not None
        if not self._free.is_free(sequence):
            return None
        known = self._read_now.get(sequence)
        return self._cursor.queue.value(sequence) if known is None else known

    # ------------------------------------------------------------------------------------------------ looked at

    def _scan(self, wanted: list[Ranked]) -> None:
        """Scans what the groups `wanted` have not scanned yet; other groups that are as far scan with them."""
        cursor, queue = self._cursor, self._cursor.queue
        visible = queue.visible
        while not self._is_over:
            behind = [group for group in wanted if group.position < visible]
            if not behind or (cursor.selector is not None and halting.is_halted(cursor)):
                return
            first = min([group.position for group in behind])
            here = [group for group in self._by_text.values() if group.position == first]
            end = min([group.position for group in self._by_text.values() if group.position > first], default=visible)
            found = self._read(first, min(end, visible), here)
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

    def _read(self, first: int, end: int, groups: list[Ranked]) -> list[tuple[int, bytes]]:
        """Some of what is visible from `first` on, below `end`: the less, the longer it takes to ask the groups."""
        queue, subscribed = self._cursor.queue, self._cursor.selector
        weight = sum([group.selector.weight for group in groups]) + (0 if subscribed is None else subscribed.weight)
        count = max(1, SCAN_COUNT // (1 + weight // WEIGHT_SCANNED))
        if first in queue.cache:
            return [*enumerate(queue.in_memory(first, min(first + count, end), READ_BYTES), first)]
        found = queue.read(first, count_max=count, bytes_max=READ_BYTES)
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
        """The entries that match the subscription; the others are finished for it."""
        kept: list[tuple[int, bytes]] = []
        for item in found:
            if subscribed.matches(item[1]):
                kept.append(item)
            else:
                self._leave_out(item[0])
        return kept

    def _leave_out(self, sequence: int) -> None:
        """The subscription has finished an entry that it does not select."""
        assert self._free is not None
        self._free.leave(sequence)
        self._cursor.leave_out(sequence)

    def _keep_within(self, group: Ranked) -> None:
        """Shrinks the index to its bounds."""
        most = READY_MAX if self._cursor.queue.withheld.ready.room else READY_MIN
        while len(group.ready) > most and group.ready.shrink():
            pass

    def _refill(self, group: Ranked, level: Level) -> None:
        """Scans again for some entries of a level that were forgotten."""
        position = level.behind
        assert position is not None
        wanted = group.ready.levels.index(level)
        subscribed = self._cursor.selector
        found = self._read(position, group.position, [group])
        mine = [
            sequence
            for sequence, value in self._free_of(found)
            if level_of(value) == wanted
            and sequence not in level.for_others
            and group.selector.matches(value)
            and (subscribed is None or subscribed.matches(value))
        ]
        level.behind = None if not found or found[-1][0] + 1 >= group.position else found[-1][0] + 1
        if mine:
            level.extend(mine)
        self._pay(max(1, -(-len(found) // SCANNED_PER_ENTRY)), _size(found))

    # ------------------------------------------------------------------------------------------------ next

    def _next(self, group: Ranked, consumers: list[EntryConsumer]) -> tuple[Level, int | None] | None:
        """What is next for one of these consumers: its level and its sequence, or a level and None if that must be
        scanned first. None if there is nothing, or if that is not known."""
        cursor = self._cursor
        if halting.is_halted(cursor):
            return self._next_while_halted(group, consumers)
        if group.position < cursor.queue.visible:
            return None
        for level in reversed(group.ready.levels):
            if level or level.behind is not None or level.for_others.is_awaited:
                sequence, is_known = level.next_for(consumers)
                if sequence is not None or not is_known:
                    return level, sequence
        return None

    def _next_while_halted(self, group: Ranked, consumers: list[EntryConsumer]) -> tuple[Level, int | None] | None:
        """As `_next`: the highest of the requeued entries and of those that wait for other consumers, or, for a
        subscription that has finished too much out of order, the oldest entry, so that this becomes less."""
        cursor = self._cursor
        if cursor.tracked and not halting.outstanding_room(cursor):
            found = [(level, *level.next_for(consumers)) for level in group.ready.levels]
            unknown = next((level for level, _, is_known in found if not is_known), None)
            if unknown is not None and len(cursor.acquired) < halting.FILLING_MAX:
                return unknown, None
            known = {first: level for level, first, _ in found if first is not None}
            if not known or len(cursor.acquired) >= halting.FILLING_MAX:
                return None
            oldest = min(known)
            return known[oldest], oldest
        for level in reversed(group.ready.levels):
            first = level.first_for(consumers)
            if first is not None and first in cursor.counts:
                return level, first
            back = [place for place in (level.came_back, level.for_others.first_for(consumers)) if place is not None]
            if back:
                return level, min(back)
        return None

    # ------------------------------------------------------------------------------------------------ forgotten

    scanned_per_entry = SCANNED_PER_ENTRY

    def _look_further(self, group: Ranked, level: Level, consumers: list[EntryConsumer]) -> int:
        """Scans some of what is not known of the level, which one of the consumers may have before anything else of it,
        or, without consumers, which may be the lowest; returns how many were handed out."""
        waiting = level.for_others
        place = waiting.rescan_from(consumers) if consumers else waiting.forgotten_from
        first = level.first_for(consumers) if consumers else level.first_of_all
        if place is not None and (first is None or place < first):
            return self._rescan(
                group, waiting, consumers, maxsize if first is None else first, most=self.for_others_max,
                given_max=1 if halting.is_halted(self._cursor) else maxsize,
            )  # fmt: skip
        self._refill(group, level)
        return 0

    def was_forgotten(self, group: Ranked, waiting: WaitingForOthers, sequence: int, value: bytes) -> bool:
        level, subscribed = group.ready.levels[level_of(value)], self._cursor.selector
        return (
            level.for_others is waiting
            and (level.behind is None or sequence < level.behind)
            and not level.is_ready(sequence)
            and group.selector.matches(value)
            and (subscribed is None or subscribed.matches(value))
        )

    def _keep_for_mark(self, group: Ranked, sequence: int, value: bytes) -> None:
        group.ready.levels[level_of(value)].give_back(sequence)

    def _passes_over(self, group: Ranked, sequence: int) -> bool:
        return False

    # ------------------------------------------------------------------------------------------------ left to others

    @property
    def for_others_max(self) -> int:
        """Entries of each group and priority that may wait for other consumers now."""
        return FOR_OTHERS_MAX if self._cursor.queue.withheld.aside.room else FOR_OTHERS_MIN

    def _leave_to_others(
        self, group: Ranked, level: Level, sequence: int, value: bytes, asked: list[EntryConsumer]
    ) -> None:
        """None of the consumers that were asked can have the entry: it waits for the others."""
        if sequence in level.for_others:
            level.for_others.was_asked(asked, sequence)
        else:
            others = list(self._takers(group.consumers, sequence, value))
            self._pay(len(group.consumers) // MATCHES_PER_ENTRY, 0)
            level.leave_to_others(sequence, others, self.for_others_max)

    # ------------------------------------------------------------------------------------------------ counted

    def _count(self) -> None:
        withheld = self._cursor.queue.withheld
        groups = self._by_text.values()
        held = BACK_BYTES * len(self._back) + sum(group.ready.for_others_size for group in groups)
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
