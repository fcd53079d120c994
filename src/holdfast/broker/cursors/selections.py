"""Consumers of a queue that have selectors: each gets the entries that match, in order, wherever in the queue they are
(JMS 2.0 §3.8; amqp-illustrations, "Links"; docs/adr/0063).

Rules of this file: consumers with equal selectors are one `Selection`, which matches each entry once; entries that it
passed over cost nothing more. It never moves the cursor's position: entries that it hands out beyond it are `ahead`. An
entry is free if no consumer holds it and it is not leaving; selections are notified of entries that become free.
"""

from bisect import bisect_left
from collections.abc import Iterable
from heapq import nsmallest
from operator import itemgetter
from typing import Final

from holdfast.broker.cursors import halting
from holdfast.broker.cursors.entry_consumer import BESIDE_BYTES, EntryConsumer, EntrySelector
from holdfast.broker.cursors.holdings import Holdings
from holdfast.broker.cursors.runs import RUN_COUNT, RUN_LEAST, RUN_PER_ENTRY, SHARE_MAX
from holdfast.broker.cursors.selection import FreeEntries, Selection
from holdfast.broker.cursors.sharing import MATCHES_PER_ENTRY, SCAN_BYTES, Sharing
from holdfast.broker.cursors.shown import WATERMARK_AHEAD
from holdfast.broker.entries import entry, packed
from holdfast.broker.entries.read_ahead import READ_BYTES, READ_COUNT

HITS_MAX: Final = 4_096
"""Entries of one selection that match and wait for credit; at the bound it scans no further."""

HITS_MIN: Final = 64
"""The same where the node's memory for them is used up."""

BEYOND_MAX: Final = 256
"""Hits beyond the stored watermark after which a selection waits for a new one."""

HIT_BYTES: Final = 160
"""What such an entry takes of memory, about."""

BEYOND_EACH: Final = 16
"""Hits beyond the stored watermark are collected while so many entries there were looked at for each: where more match,
what one watermark covers is enough, and entries that wait for it are read again."""


class Selections(Sharing[Selection]):
    """All consumers of a cursor that have selectors."""

    __slots__ = ("_asked_back", "_looked")

    def __init__(self, cursor: Holdings) -> None:
        super().__init__(cursor)
        self._looked: set[EntryConsumer] = set()
        """Consumers that can have nothing of what their selection has looked at."""
        self._asked_back: tuple[int, set[Selection]] | None = None
        """One of `_back` that the last pump could not ask all selections about, and those that it has asked."""

    # ------------------------------------------------------------------------------------------------ consumers

    @property
    def hits_max(self) -> int:
        """Hits that each selection may have now."""
        return HITS_MAX if self._cursor.queue.withheld.aside.room else HITS_MIN

    def join(self, consumer: EntryConsumer, selector: EntrySelector | None, *, shows: bool = True) -> None:
        """As `Sharing.join`; those without a selector are elsewhere."""
        assert selector is not None
        selection = self._by_text.get(selector.text)
        if selection is None:
            selection = self._by_text[selector.text] = Selection(selector, self._first(), shows=shows)
        selection.consumers[consumer] = None
        self._of[consumer] = selection
        if selection.passed_over is not None:
            self._rewind(selection, selection.passed_over)

    def leave(self, consumer: EntryConsumer) -> None:
        self._looked.discard(consumer)
        super().leave(consumer)

    def look_again_at_passed(self) -> None:
        for selection in self._by_text.values():
            selection.rejoin_apart()
            if selection.passed_over is not None:
                self._rewind(selection, selection.passed_over)

    def _rewind(self, selection: Selection, position: int) -> None:
        selection.rewind(position)
        self._looked.difference_update(selection.consumers)

    def start_anew(self) -> None:
        self._back.clear()
        self._asked_back = None
        self._looked.clear()
        for selection in self._by_text.values():
            selection.passed_over = None
            selection.rejoin_apart()
            selection.rewind(min(self._first(), self._cursor.position))
        self._count()

    def freed(self, sequences: Iterable[int]) -> None:
        if self._asked_back is not None:
            sequences = list(sequences)
            if self._asked_back[0] in sequences:
                self._asked_back = None
        super().freed(sequences)
        if self._back:
            self._looked.clear()

    # ------------------------------------------------------------------------------------------------ asked

    @property
    def has_ahead(self) -> bool:
        visible = self._cursor.queue.visible
        return bool(self._back) or any(
            selection.position < visible or selection.hits or not self._looked.issuperset(selection.consumers)
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
        if not selection.hits:
            return selection.position >= cursor.queue.visible or bool(selection.apart)  # the next pump looks again
        return watermarks or self._may_have(selection, selection.hits[0])

    def _is_behind(self, selection: Selection, *, watermarks: bool) -> bool:
        """Whether it must look at more entries, now or once a watermark is stored."""
        cursor = self._cursor
        if selection.position >= cursor.queue.visible or len(selection.waiting) >= self.hits_max:
            return False
        return not halting.is_halted(cursor) and (watermarks or self._may_have(selection, selection.position))

    def passed_over(self, group: Selection, free: dict[int, bytes]) -> list[int]:
        end = self._cursor.queue.visible if group.passed_over is None else group.passed_over
        return [
            sequence
            for sequence, value in free.items()
            if sequence < min(group.position, end)
            and sequence not in group.waiting
            and not self.looks_again_at(sequence)
            and group.selector.matches(value)
        ]

    # ------------------------------------------------------------------------------------------------ offered

    def pump(self, limit: int) -> int:
        work = self._cursor.queue.work
        self._left, self._bytes_left = limit, SCAN_BYTES
        self._free = FreeEntries(self._cursor)
        given = 0
        try:
            self._look_at_freed()
            for selection in list(self._by_text.values()):
                given += self._offer_hits(selection)
            given += self._scan()
        finally:
            self._free.end()
            self._free = None
            self._count()
            work.offered_count += limit - self._left
            work.offered_bytes += SCAN_BYTES - self._bytes_left
        self._after()
        return given

    def _after(self) -> None:
        """If the pump ended at its own bounds, it continues in the next turn; otherwise consumers that got nothing
        wait."""
        queue = self._cursor.queue
        if self._left <= 0 or self._bytes_left <= 0:
            queue.touch()
            return
        for selection in self._by_text.values():
            if selection.hits and not self._may_have(selection, selection.hits[0]):
                wanted = selection.wanted()
                if wanted and self._cursor.is_counted:
                    if selection.shows:
                        self._cursor.mark_shown(nsmallest(wanted, selection.hits))
                elif wanted:
                    self._cursor.ask_watermark(max(selection.hits) + max(WATERMARK_AHEAD, wanted))
            elif selection.position >= queue.visible or len(selection.waiting) >= self.hits_max:
                self._looked.update(selection.wanting())

    def _look_at_freed(self) -> None:
        """Entries that became free, and match, are hits again."""
        assert self._free is not None
        for sequence in sorted(self._back) if self._back else ():
            if self._left <= 0 or self._bytes_left <= 0:
                return
            value = self._free.value(sequence)
            if value is None:
                self._pay(1, 0)
            elif not self._ask_again(sequence, value):
                return
            self._back.discard(sequence)

    def _ask_again(self, sequence: int, value: bytes) -> bool:
        """Asks the selections that have passed it about an entry that became free; False if the pump's share ended
        before that: the next pump continues with the others."""
        place, done = self._asked_back or (sequence, set[Selection]())
        done = done if place == sequence else set[Selection]()
        asked = [item for item in self._by_text.values() if sequence < item.position and item not in done]
        self._asked_back = None
        self._pay(1 + len(asked) // MATCHES_PER_ENTRY, 0 if asked else len(value))
        for number, selection in enumerate(asked):
            if number and self._bytes_left <= 0:
                self._asked_back = sequence, done.union(asked[:number])
                return False
            self._pay(0, len(value) * selection.selector.weight)
            if selection.selector.matches(value):
                self._add(selection, sequence)
        return True

    def _add(self, selection: Selection, sequence: int) -> None:
        """The entry is a hit. Where there are too many, half of them are looked for again."""
        if len(selection.waiting) >= self.hits_max:
            self._rewind(selection, sorted(selection.waiting)[len(selection.waiting) // 2])
        if sequence < selection.position:
            selection.add(sequence)
            self._looked.difference_update(selection.consumers)

    def _offer_hits(self, selection: Selection) -> int:
        """Hands the selection's hits to those of its consumers that want something. What none of these can have is
        not looked at again before another one wants something."""
        assert self._free is not None
        given = 0
        if not selection.apart_for.issuperset(selection.wanting()):
            selection.rejoin_apart()
        while selection.hits and self._left > 0 and self._bytes_left > 0:
            wanting = selection.wanting()
            if not wanting or not self._may_have(selection, selection.hits[0]):
                break
            sequence = selection.hits[0]
            value = self._free.value(sequence)
            self._pay(1, 0 if value is None else len(value))
            if value is None:
                selection.pop()
                continue
            consumer = self._choose(wanting, sequence, value)
            if consumer is not None:
                selection.pop()
                self._hand(selection, consumer, sequence, value)
                given += 1
            elif self._choose(list(selection.consumers), sequence, value) is None:
                selection.pop()
                selection.pass_over(sequence)
            else:
                selection.pop_apart(wanting)
        return given

    def _scan(self) -> int:
        """Scans entries for the selections that want more, from the lowest position on; each entry once for all
        selections that are there."""
        cursor = self._cursor
        queue = cursor.queue
        given = 0
        while self._left > 0 and self._bytes_left > 0:
            hungry = [selection for selection in self._by_text.values() if self._is_hungry(selection)]
            if not hungry:
                break
            if halting.is_halted(cursor):
                for account in halting.short_of(cursor):
                    queue.work.halted.setdefault(account, {})[queue] = None
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
                hits = set[int]().union(*[selection.waiting for selection in self._by_text.values()])
                queue.uncache_each([sequence for sequence in looked if sequence not in hits] if hits else looked)
        return given

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
            else:
                sequence, value = found[at]
                at += 1
                alone = max(0, alone - 1)
                handed = self._look_at(sequence, value, here)
                if handed is None:
                    if self._left <= 0 or self._bytes_left <= 0:
                        break
                    continue
                given += handed
            if self._left <= 0 or self._bytes_left <= 0 or not any(self._is_hungry(selection) for selection in here):
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
        self._pay(looked - taken + -(-taken // RUN_PER_ENTRY), looked_bytes)
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

    def _next_waiting(self, first: int) -> int:
        """The lowest entry from `first` on that was given back or set aside."""
        assert self._free is not None
        return min((sequence for sequence in self._free.waiting if sequence >= first), default=self._cursor.position)

    def _is_hungry(self, selection: Selection) -> bool:
        """Whether it must look for more entries: a consumer wants some, and those that wait for a watermark are not
        enough."""
        if len(selection.waiting) >= self.hits_max or not selection.wanting():
            return False
        if not selection.hits or self._may_have(selection, selection.hits[0]):
            return True
        if len(selection.hits) >= min(selection.wanted(), BEYOND_MAX):
            return False
        looked = selection.position - self._cursor.watermark_stored
        return self._cursor.is_counted or looked >= BEYOND_EACH * len(selection.hits)

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
            if not self._may_have(selection, sequence):
                continue
            consumer = self._choose(selection.wanting(), sequence, value)
            if consumer is not None:
                for other in matching:
                    other.position = sequence + 1
                self._hand(selection, consumer, sequence, value)
                here.remove(selection)
                here.append(selection)  # it is the last that is asked about the next one
                return 1
        for selection in matching:
            if self._choose(list(selection.consumers), sequence, value) is None:
                selection.pass_over(sequence)
                selection.position = sequence + 1
            elif len(selection.waiting) < self.hits_max:
                selection.position = sequence + 1
                selection.add(sequence)
                self._looked.difference_update(selection.consumers)
            else:
                here.remove(selection)
        return 0

    # ------------------------------------------------------------------------------------------------ counted

    def _count(self) -> None:
        held = HIT_BYTES * (len(self._back) + sum(len(selection.waiting) for selection in self._by_text.values()))
        self._cursor.queue.withheld.aside.recount(self.counted, held)
        self.counted = held
