"""Consumers of a queue that have selectors: each gets the entries that match, in order, wherever in the queue they are
(JMS 2.0 §3.8; amqp-illustrations, "Links"; docs/adr/0063).

Rules of this file: consumers with equal selectors are one `Selection`, which matches each entry once; entries that it
passed over cost nothing more. It never moves the cursor's position: entries that it hands out beyond it are `ahead`. An
entry is free if no consumer holds it and it is not leaving; selections are notified of entries that become free.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from operator import itemgetter
from typing import Final

from holdfast.broker.cursors import halting
from holdfast.broker.cursors.came_back import PASSED_PER_ENTRY
from holdfast.broker.cursors.entry_consumer import BESIDE_BYTES, EntryConsumer
from holdfast.broker.cursors.holdings import Holdings
from holdfast.broker.cursors.matches import Matches
from holdfast.broker.cursors.runs import RUN_COUNT, RUN_LEAST, RUN_PER_ENTRY, SHARE_MAX
from holdfast.broker.cursors.selection import FreeEntries, Selection
from holdfast.broker.cursors.sharing import MATCHES_PER_ENTRY, SCAN_BYTES
from holdfast.broker.cursors.shown import WATERMARK_AHEAD
from holdfast.broker.cursors.to_show import MARKS_MAX, take_alike
from holdfast.broker.entries import entry, packed
from holdfast.broker.entries.read_ahead import READ_BYTES, READ_COUNT

BEYOND_MAX: Final = 256
"""Hits beyond the stored watermark after which a selection waits for a new one."""

BEYOND_EACH: Final = 16
"""Hits beyond the stored watermark are collected while so many entries there were looked at for each: where more match,
what one watermark covers is enough, and entries that wait for it are read again."""


class Selections(Matches):
    """All consumers of a cursor that have selectors."""

    __slots__ = ("_marking",)

    def __init__(self, cursor: Holdings) -> None:
        super().__init__(cursor)
        self._marking: set[Selection] = set()
        """While a pump runs: those for which the next entry that came back waits until it is on disk that it is
        shown."""

    # ------------------------------------------------------------------------------------------------ asked

    @property
    def has_ahead(self) -> bool:
        visible = self._cursor.queue.visible
        return bool(self._back) or any(
            selection.position < visible
            or selection.hits
            or selection.for_others.is_awaited
            or not self._looked.issuperset(selection.consumers)
            for selection in self._by_text.values()
        )

    def has_something(self, consumer: EntryConsumer, *, watermarks: bool) -> bool:
        if self._back:
            return True
        cursor, selection = self._cursor, self._of[consumer]
        if self._is_behind(selection, watermarks=watermarks):
            return True
        if consumer in self._looked:
            return False
        first = selection.first_for((consumer,))
        if first is None:
            return selection.position >= cursor.queue.visible  # the next pump looks again
        return watermarks or self._may_have(selection, first)

    def _is_behind(self, selection: Selection, *, watermarks: bool) -> bool:
        """Whether it must look at more entries, now or once a watermark is stored."""
        cursor = self._cursor
        if len(selection.hits) >= self.hits_max or (not watermarks and self._waits_for_disk(selection)):
            return False
        if not halting.is_halted(cursor):
            at = selection.position
            return at < cursor.queue.visible and (watermarks or self._may_have(selection, at))
        if not halting.has_room_for_more(cursor):
            return False
        first = max(selection.known_below, selection.again.next_for(selection.wanting()))
        known, at = self.came_back.from_on(cursor.counts, first)
        return at < len(known) and (watermarks or self._may_have(selection, known[at]))

    # ------------------------------------------------------------------------------------------------ offered

    def pump(self, limit: int) -> int:
        work = self._cursor.queue.work
        self._left, self._bytes_left = limit, SCAN_BYTES
        self._free = FreeEntries(self._cursor)
        given = 0
        try:
            self._look_at_freed()
            for selection in list(self._by_text.values()):
                given += self._offer_waiting(selection)
            begins_scan = not self._is_over
            given += self._scan()
            if not (begins_scan and self._is_over):  # after a scan that goes on more may be known
                self._ask()
            is_over = self._is_over
        finally:
            self._free.end()
            self._free = None
            self._marking.clear()
            self._count()
            work.offered_count += limit - self._left
            work.offered_bytes += SCAN_BYTES - self._bytes_left
        self._after(is_over=is_over)
        return given

    def _after(self, *, is_over: bool) -> None:
        """If the pump ended at its own bounds, it continues in the next turn; otherwise consumers that got nothing
        wait."""
        queue = self._cursor.queue
        if is_over:
            queue.touch()
            queue.work.cut_short.add(self._cursor)
            return
        for selection in self._by_text.values():
            wanting = selection.wanting()
            if selection.first_for(wanting) is None and selection.position >= queue.visible:
                self._looked.update(wanting)

    def _ask(self) -> None:
        """Requests that it is stored that the next entries are shown; for one selection also if the pump is over,
        because asking who can have its next entry may take the whole share, in each pump anew."""
        alike, asked = take_alike(self._cursor), False
        for selection in self._by_text.values():
            if asked and self._is_over:
                break
            first = selection.first_for(selection.wanting())
            if first is None or self._may_have(selection, first) or not selection.wanted():
                continue
            is_requested = self._is_requested(selection, first)
            if alike or not is_requested:
                asked = True
                others = selection.for_others.from_on(first) if self._cursor.is_counted else ()
                sequences = sorted({first, *selection.hits, *islice(others, MARKS_MAX)})
                self._ask_to_show(selection, self._still_free(selection, sequences), sequences[-1])
                if not is_requested:  # else there may be nothing to request, and the next pump would do the same
                    self._pay(len(sequences) // PASSED_PER_ENTRY, 0)

    def _ask_to_show(self, selection: Selection, found: Iterable[tuple[int, bytes]], last: int) -> None:
        """Requests that it is stored that these entries, which match, are shown, as far as the consumers want; where
        only a watermark is stored, up to `last`."""
        wanted = selection.wanted()
        if wanted and self._cursor.is_counted:
            self._mark_shown(selection, found)
        elif wanted:
            self._cursor.ask_watermark(last + max(WATERMARK_AHEAD, wanted))

    def _scan(self) -> int:
        """Scans entries for the selections that want more, from the lowest position on; each entry once for all
        selections that are there."""
        cursor = self._cursor
        queue = cursor.queue
        given = 0
        while not self._is_over:
            hungry = [selection for selection in self._by_text.values() if self._is_hungry(selection)]
            if not hungry:
                break
            if self._halts():
                given += self._offer_what_came_back(hungry)
                break
            first = min(selection.position for selection in hungry)
            first = first if first >= cursor.position else min(self._next_waiting(first), cursor.position)
            # Those that are hungry are asked first: what others ask may take the whole share, in each pump anew.
            others = [item for item in self._by_text.values() if item.position >= first and item not in hungry]
            here = [*hungry, *others]
            for selection in here:
                selection.position = max(selection.position, first)
            if first >= queue.visible:
                break
            count = min(READ_COUNT, self._left)
            cached = (
                queue.in_memory(first, min(first + count, queue.visible), READ_BYTES) if first in queue.cache else []
            )
            found = [*enumerate(cached, first)] or queue.read(first, count_max=count, bytes_max=READ_BYTES)
            if not found:
                for selection in here:
                    selection.position = max(selection.position, queue.visible)
                break
            given += self._look_at_all(found, here)
            if cached and not cursor.unfiltered:  # what is no hit is read from the disk if it is needed again
                looked = range(first, min(selection.position for selection in here))
                known = [selection for selection in self._by_text.values() if selection.hits or selection.for_others]
                queue.uncache_each(
                    [sequence for sequence in looked if not any(sequence in selection for selection in known)]
                    if known
                    else looked
                )
        return given

    def _offer_what_came_back(self, hungry: list[Selection]) -> int:
        """While the cursor is halted: hands out entries that were shown before and that lie ahead of these selections,
        or that they have forgotten, in turn; how many."""
        given = 0
        while not self._is_over and halting.has_room_for_more(self._cursor):
            handed = sum([self._offer_one_that_came_back(item) for item in hungry if item not in self._marking])
            if not handed:
                break
            given += handed
        return given

    def _offer_one_that_came_back(self, selection: Selection) -> int:
        """Hands the selection the next of them; how many."""
        assert self._free is not None
        cursor, again = self._cursor, selection.again
        if not self._is_hungry(selection):
            return 0
        wanting = selection.wanting()
        known, at = self.came_back.from_on(cursor.counts, max(selection.known_below, again.begin(wanting)))
        passed = at
        while at < len(known) and not self._is_over:
            sequence = known[at]
            at += 1
            if sequence not in cursor.counts or sequence in selection or not self._free.is_free(sequence):
                if at - passed >= PASSED_PER_ENTRY:
                    self._pay(1, 0)
                    passed = at
                again.was_asked(sequence)
                continue
            is_awaited = sequence == again.awaited and not self._may_have(selection, sequence)
            if is_awaited and self._is_requested(selection, sequence):
                self._marking.add(selection)  # asked about anew, it might take the whole share, in each pump
                return 0
            value = self._free.value(sequence)
            self._pay(1, 0 if value is None else len(value) * selection.selector.weight)
            if value is not None and selection.selector.matches(value):
                consumer = self._choose(wanting, sequence, value)
                if consumer is None:
                    again.leave_to_others(sequence, wanting)
                elif not self._may_hand_new(selection, consumer, sequence, value):
                    self._marking.add(selection)
                    again.awaited = sequence
                    if not self._is_requested(selection, sequence):
                        following = self._matching(selection, known[at : at - 1 + MARKS_MAX])
                        self._ask_to_show(selection, chain([(sequence, value)], following), sequence)
                    return 0
                else:
                    again.was_asked(sequence)
                    self._hand(selection, consumer, sequence, value)
                    return 1
            again.was_asked(sequence)
        return 0

    def _may_hand_new(self, selection: Selection, consumer: EntryConsumer, sequence: int, value: bytes) -> bool:
        """As `_may_hand`, of an entry that is no hit: what waits is delivered before the consumer's link is ended."""
        if selection.hits:
            return self._may_have(selection, sequence)
        return self._may_hand(selection, consumer, sequence, value)

    def _matching(self, selection: Selection, sequences: list[int]) -> Iterator[tuple[int, bytes]]:
        """Those of these entries that came back, are free and match, as far as the pump goes."""
        assert self._free is not None
        for sequence in sequences:
            if self._is_over:
                return
            value = self._free.value(sequence) if sequence in self._cursor.counts else None
            self._pay(1, 0 if value is None else len(value) * selection.selector.weight)
            if value is not None and selection.selector.matches(value):
                yield sequence, value

    def _look_at_all(self, found: list[tuple[int, bytes]], here: list[Selection]) -> int:
        """Looks at these as far as the pump goes, or until no selection of `here` is hungry; how many were handed
        out."""
        at = given = 0
        alone = looked = 0
        """`alone`: so many are looked at by themselves before the next run; `looked`: what the last run had."""
        while at < len(found):
            if len(here) == 1 and not alone:
                before = looked
                given += self._run(here[0], found[at:] if at else found)
                looked = bisect_left(found, here[0].position, lo=at, key=itemgetter(0)) - at
                at += looked
                if looked < RUN_LEAST:
                    alone = 1 if before >= RUN_LEAST else RUN_LEAST
                if not looked:
                    continue  # alone, even if this run has used up the share: so would the first of the next pump
            else:
                sequence, value = found[at]
                at += 1
                alone = max(0, alone - 1)
                handed = self._look_at(sequence, value, here)
                if handed is None:
                    if self._is_over:
                        break
                    continue
                given += handed
            if self._is_over or not any(self._is_hungry(selection) for selection in here):
                break
        return given

    def _run(self, selection: Selection, found: list[tuple[int, bytes]]) -> int:
        """The hot path of `_scan`, for one selection: hands matching entries that were never shown and are free to
        those of its consumers that want something, the same number to each; returns how many. It ends before the first
        entry that is not plain, and before a match that has to wait."""
        cursor = self._cursor
        first, end = found[0][0], cursor.watermark_stored
        if first < max(cursor.offered_end, cursor.shown_below) or cursor.counts or cursor.finished:
            return 0
        if cursor.is_counted:
            return 0
        wanting = selection.wanting()
        if any(consumer.excluded for consumer in wanting):
            return 0
        bytes_max = min([min(consumer.run_bytes_max, consumer.bytes_max - BESIDE_BYTES) for consumer in wanting])
        share = RUN_COUNT if len(wanting) == 1 else SHARE_MAX
        wanted = 0 if selection.hits else len(wanting) * min(share, *[consumer.wants() for consumer in wanting])
        room = min([consumer.room_bytes for consumer in wanting])
        sequences: list[int] = []
        values: list[bytes] = []
        position, size = first, 0
        looked = looked_bytes = 0
        weight, bytes_left = selection.selector.weight, self._bytes_left
        matching = selection.selector.each([value for _, value in found])
        for sequence, value in found:
            length = len(value)
            if length > bytes_max or value[12:20] != entry.NEVER or looked_bytes >= bytes_left:
                break
            if next(matching):
                if wanted <= 0 or size >= room or sequence >= end:
                    break
                sequences.append(sequence)
                values.append(value)
                wanted -= 1
                size += length
            position = sequence + 1
            looked += 1
            looked_bytes += length * weight
        share = -(-len(values) // len(wanting))
        taken = 0
        for consumer in wanting:
            end = min(taken + share, len(values))
            if taken < end:
                taken += self._hand_run(selection, consumer, sequences[taken:end], values[taken:end])
            if taken < end:
                break
        selection.position = sequences[taken] if taken < len(values) else position
        self._pay(looked - len(values) + -(-len(values) // RUN_PER_ENTRY), looked_bytes)
        return taken

    def _hand_run(
        self, selection: Selection, consumer: EntryConsumer, sequences: list[int], values: list[bytes]
    ) -> int:
        """As many of these as the consumer takes; how many."""
        cursor = self._cursor
        sizes = packed.lasting_sizes(values)
        taken = consumer.take_all(sequences, values)
        if taken:
            sequences, sizes = sequences[:taken], sizes[:taken]
            cursor.hold_run(consumer, sequences, sizes)
            cursor.ahead.update(sequences)
            cursor.ahead_end = sequences[-1] + 1
            selection.position = cursor.ahead_end
            consumer.count_held(sum(sizes))
            self._next_turn(selection, consumer)
        return taken

    def _is_hungry(self, selection: Selection) -> bool:
        """Whether it must look for more entries: a consumer wants some, and those that wait for a watermark are not
        enough."""
        if len(selection.hits) >= self.hits_max or not selection.wanting():
            return False
        return selection.hits.first is None or not self._waits_for_disk(selection)

    def _waits_for_disk(self, selection: Selection) -> bool:
        """Whether hits wait until it is on disk that they are shown, and are enough."""
        first = selection.hits.first
        if first is None or self._may_have(selection, first):
            return False
        if len(selection.hits) >= min(selection.wanted(), BEYOND_MAX):
            return True
        looked = selection.position - self._cursor.watermark_stored
        return not self._cursor.is_counted and looked < BEYOND_EACH * len(selection.hits)

    def _look_at(self, sequence: int, value: bytes, here: list[Selection]) -> int | None:
        """Matches one entry for the selections `here`, which have come so far; returns how many were handed out, None
        if it is not free. A selection without room for a hit stays where it is, and is removed from `here`; so is one
        for which the pump's share does not suffice: it matches the entry in the next pump."""
        assert self._free is not None
        matching: list[Selection] = []
        asked = weight = 0
        is_free = self._free.has(sequence, value)
        for selection in here:
            if selection.position <= sequence:
                if is_free:
                    if asked and len(value) * weight >= self._bytes_left:
                        break  # which ends the pump, so that they are not asked about the next one before
                    asked += 1
                    weight += selection.selector.weight
                    if selection.selector.matches(value):
                        matching.append(selection)
                        continue  # its position moves after this entry was handled
                selection.position = sequence + 1
        self._pay(1 + asked // MATCHES_PER_ENTRY, len(value) * max(1, weight))
        if not matching:
            return None
        for selection in matching:
            consumer = self._choose(selection.wanting(), sequence, value)
            if consumer is not None and self._may_hand_new(selection, consumer, sequence, value):
                for other in matching:
                    other.position = sequence + 1
                self._hand(selection, consumer, sequence, value)
                here.remove(selection)
                here.append(selection)  # it is the last that is asked about the next one
                return 1
        for selection in matching:
            if not self._keep(selection, sequence, value):
                here.remove(selection)
        return 0
