"""Consumers of a queue that sorts: each gets the entry of the highest priority that is ready, and of one priority the
oldest (JMS 2.0 §3.4.10; docs/adr/0072).

Rules of this file: nothing is handed out before all visible entries were scanned. Entries of the index that have left
are noticed when it is their turn.
"""

from itertools import islice
from sys import maxsize

from holdfast.broker.cursors import halting
from holdfast.broker.cursors.entry_consumer import BESIDE_BYTES, EntryConsumer, EntrySelector
from holdfast.broker.cursors.holdings import Holdings
from holdfast.broker.cursors.looking import SCAN_COUNT, Looking
from holdfast.broker.cursors.ranked import EVERYTHING, Ranked
from holdfast.broker.cursors.ready import LEVELS, level_of
from holdfast.broker.cursors.runs import RUN_COUNT, RUN_LEAST, RUN_PER_ENTRY, SHARE_MAX
from holdfast.broker.cursors.selection import FreeEntries
from holdfast.broker.cursors.sharing import SCAN_BYTES
from holdfast.broker.cursors.shown import WATERMARK_AHEAD
from holdfast.broker.cursors.to_show import MARKS_MAX, take_alike
from holdfast.broker.cursors.unstored import Unstored
from holdfast.broker.entries import packed
from holdfast.broker.entries.read_ahead import READ_BYTES
from holdfast.broker.entries.work import RETIRES_MAX


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
        group.ask_again([consumer])

    def _stays(self, group: Ranked) -> bool:
        return group.stays

    def look_again_at_passed(self) -> None:
        for group in self._by_text.values():
            group.ask_again(list(group.consumers))

    def not_accepted(self, sequence: int) -> None:
        value = self._cursor.queue.value(sequence)
        if value is not None:
            for group in self._by_text.values():
                if sequence < group.position and group.selector.matches(value):
                    group.ready.levels[level_of(value)].leave_to_others(sequence, [], self.for_others_max)

    # ------------------------------------------------------------------------------------------------ asked

    @property
    def has_ahead(self) -> bool:
        visible = self._cursor.queue.visible
        return bool(self._back) or any(
            group.consumers
            and (
                group.position < visible
                or any(level or level.behind is not None or level.for_others.is_awaited for level in group.ready.levels)
            )
            for group in self._by_text.values()
        )

    def has_something(self, consumer: EntryConsumer, *, watermarks: bool) -> bool:
        if self._back:
            return True
        group = self._of[consumer]
        if group.position < self._cursor.queue.visible and not halting.is_halted(self._cursor):
            return True
        found = self._next(group, [consumer])
        if found is None:
            return False
        _, sequence = found
        return sequence is None or watermarks or self._may_have(group, sequence)

    def passed_over(self, group: Ranked, free: dict[int, bytes]) -> list[int]:
        known = {
            *group.ready.all(),
            *(sequence for level in group.ready.levels for sequence in level.for_others),
            *self._back,
        }
        forgotten = [
            min(
                [place for place in (level.behind, level.for_others.forgotten_from) if place is not None],
                default=maxsize,
            )
            for level in group.ready.levels
        ]
        return [
            sequence
            for sequence, value in free.items()
            if sequence < group.position
            and sequence not in known
            and sequence < forgotten[level_of(value)]
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
                levels = group.ready.levels[: min(unstored + 1, LEVELS)]
                level = next((item for item in levels if item or item.behind is not None or item.for_others), None)
                if level is None:
                    return None
                sequence = level.lowest
                if sequence is None:
                    self._look_further(group, level, [])
                    continue
                level.remove(sequence)
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
            self._look_at_freed()
            self._scan([group for group in self._by_text.values() if group.wanting()])
            while not self._is_over and not self._back:
                handed = sum([self._offer(group) for group in list(self._by_text.values())])
                if not handed:
                    break
                given += handed
            self._ask()
            is_over = self._is_over
        finally:
            self._free.end()
            self._free = None
            self._read_now.clear()
            self._count()
            work.offered_count += limit - self._left
            work.offered_bytes += SCAN_BYTES - self._bytes_left
        self._move()
        self._after(is_over=is_over)
        return given

    def _after(self, *, is_over: bool) -> None:
        """If the pump ended at its own bounds, it continues in the next turn; otherwise consumers that got nothing
        wait."""
        cursor, queue = self._cursor, self._cursor.queue
        if is_over or self._back:
            queue.touch()
            queue.work.cut_short.add(cursor)
            return
        if halting.is_halted(cursor):
            for account in halting.short_of(cursor):
                queue.work.halted.setdefault(account, {})[queue] = None
        self._let_cache_go()

    def _ask(self) -> None:
        """Requests that it is stored that the next entries are shown; for one group also if the pump is over, as
        Selections."""
        cursor = self._cursor
        alike, asked = take_alike(cursor), False
        for group in self._by_text.values():
            if asked and self._is_over:
                break
            wanting = group.wanting()
            level, first = self._next(group, wanting) or (None, None)
            if level is None or first is None or self._may_have(group, first):
                continue
            wanted = group.wanted()
            if wanted and cursor.is_counted:
                if not alike and self._is_requested(group, first):
                    continue
                asked = True
                most = min(wanted, MARKS_MAX)
                here = {first, *islice(level.for_others.from_on(first), most), *level.peek(most)}
                sequences = dict.fromkeys((*sorted(here), *group.ready.peek(most)))
                self._mark_shown(group, self._still_free(group, sequences))
            elif wanted:
                cursor.ask_watermark(group.position + max(WATERMARK_AHEAD, wanted))

    def _let_cache_go(self) -> None:
        """Entries that wait behind higher priorities must not fill the cache for consumers that keep up."""
        queue = self._cursor.queue
        cached = queue.cached
        if queue.cache and cached.held > cached.held_max - cached.held_max // 4:
            queue.uncache_each(list(queue.cache)[: 1 + len(queue.cache) // 4])

    # ------------------------------------------------------------------------------------------------ handed out

    def _offer(self, group: Ranked) -> int:
        """Hands something to the consumer of the group that is next; how many."""
        wanting = group.wanting()
        if not wanting or self._is_over:
            return 0
        return self._run(group, wanting) or self._one(group, wanting)

    def _one(self, group: Ranked, wanting: list[EntryConsumer]) -> int:
        """Hands out the next entry; how many."""
        assert self._free is not None
        cursor, queue = self._cursor, self._cursor.queue
        while not self._is_over and len(queue.work.batch.retires) < RETIRES_MAX:
            found = self._next(group, wanting)
            if found is None:
                return 0
            level, sequence = found
            if sequence is None:
                given = self._look_further(group, level, wanting)
                if given:
                    return given
                continue
            value = self._value(sequence)
            if value is None or queue.expired(value):
                self._pay(1, 0 if value is None else len(value))
                level.remove(sequence)
                if value is not None:
                    self._free.leave(sequence)
                    cursor.drop_expired(sequence, value)
                continue
            asked = level.not_yet_asked(wanting, sequence)
            consumer = self._choose(asked, sequence, value)
            if consumer is not None and not self._may_hand(group, consumer, sequence, value):
                return 0
            self._pay(1, len(value))
            if consumer is None:
                self._leave_to_others(group, level, sequence, value, asked)
                continue
            level.remove(sequence)
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
        if group.has_waiting_for(wanting):
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
        """How many from the first on were never shown, are neither acquired nor finished, and fit the consumer."""
        cursor = self._cursor
        low = max(cursor.position, cursor.shown_below)
        end = cursor.watermark_stored
        bytes_max = min(consumer.run_bytes_max, consumer.bytes_max - BESIDE_BYTES)
        acquired, counts, finished = cursor.acquired, cursor.counts, cursor.finished
        sequences = sequences[: len(values)]
        if (  # all of them, which is the usual case
            values
            and low <= min(sequences)
            and max(sequences) < end
            and max(map(len, values)) <= bytes_max
            and not counts
            and not finished
            and acquired.keys().isdisjoint(sequences)
        ):
            return len(values)
        for count, (sequence, value) in enumerate(zip(sequences, values, strict=False)):
            if not low <= sequence < end or len(value) > bytes_max:
                return count
            if sequence in acquired or sequence in counts or sequence in finished:
                return count
        return len(values)
