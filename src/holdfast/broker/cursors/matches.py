"""What matches the selectors of a queue's consumers and waits: for credit, until it is on disk that it is shown, or for
a consumer that can have it (docs/adr/0063).

Rules of this file: what waits lies below the position of its selection, and goes out before anything behind it. An
entry that became free again waits anew.
"""

from collections.abc import Iterable
from sys import maxsize
from typing import Final

from holdfast.broker.cursors.came_back import AskedAgain, CameBack
from holdfast.broker.cursors.entry_consumer import EntryConsumer, EntrySelector
from holdfast.broker.cursors.holdings import Holdings
from holdfast.broker.cursors.selection import HIT_BYTES, Selection
from holdfast.broker.cursors.sharing import MATCHES_PER_ENTRY, Sharing
from holdfast.broker.cursors.waiting_for_others import WaitingForOthers

HITS_MAX: Final = 4_096
"""Entries of one selection that match and wait for credit: at the bound it scans no further. As many may wait for other
consumers: at that bound it forgets the highest of them."""

HITS_MIN: Final = 64
"""The same where the node's memory for them is used up."""


class Matches(Sharing[Selection]):
    """The selections of a cursor, and what waits for their consumers."""

    __slots__ = ("_asked_back", "_looked", "came_back", "for_unfiltered")

    def __init__(self, cursor: Holdings) -> None:
        super().__init__(cursor)
        self._looked: set[EntryConsumer] = set()
        """Consumers that can have nothing of what their selection has looked at."""
        self._asked_back: tuple[int, set[Selection]] | None = None
        """One of `_back` that the last pump could not ask all selections about, and those that it has asked."""
        self.came_back = CameBack()
        self.for_unfiltered = AskedAgain()
        """How far the consumers without a selector were asked about these (broker/cursors/back_ahead.py)."""

    # ------------------------------------------------------------------------------------------------ consumers

    @property
    def hits_max(self) -> int:
        """Hits that each selection may have now, and entries that may wait for other consumers."""
        return HITS_MAX if self._cursor.queue.withheld.aside.room else HITS_MIN

    def join(self, consumer: EntryConsumer, selector: EntrySelector | None, *, shows: bool = True) -> None:
        """As `Sharing.join`; those without a selector are elsewhere."""
        assert selector is not None
        selection = self._by_text.get(selector.text)
        if selection is None:
            selection = self._by_text[selector.text] = Selection(selector, self._first(), shows=shows)
        selection.consumers[consumer] = None
        self._of[consumer] = selection
        self._ask_about_all(selection, [consumer])

    def leave(self, consumer: EntryConsumer) -> None:
        self._looked.discard(consumer)
        super().leave(consumer)

    def look_again_at_passed(self) -> None:
        for selection in self._by_text.values():
            self._ask_about_all(selection, list(selection.consumers))
        self.for_unfiltered.rewind(0)

    def _ask_about_all(self, selection: Selection, consumers: list[EntryConsumer]) -> None:
        """These consumers may have what others of the selection could not have."""
        if selection.passed_over is not None:
            self._rewind(selection, selection.passed_over)
        if selection.for_others:
            selection.for_others.ask_again(consumers)
            self._looked.difference_update(consumers)
        selection.again.rewind(0)

    def not_accepted(self, sequence: int) -> None:
        value = self._cursor.queue.value(sequence)
        if value is not None:
            for selection in self._by_text.values():
                if sequence < selection.position and selection.selector.matches(value):
                    selection.pass_over(sequence)

    def _rewind(self, selection: Selection, position: int) -> None:
        selection.rewind(position)
        self._looked.difference_update(selection.consumers)

    def start_anew(self) -> None:
        self._back.clear()
        self._asked_back = None
        self._looked.clear()
        self.came_back.forget()
        self.for_unfiltered.rewind(0)
        for selection in self._by_text.values():
            selection.again.rewind(0)
            selection.passed_over = None
            selection.rewind(min(self._first(), self._cursor.position))
        self._count()

    def freed(self, sequences: Iterable[int]) -> None:
        sequences = list(sequences)
        if self._asked_back is not None and self._asked_back[0] in sequences:
            self._asked_back = None
        if sequences:
            self.came_back.add(sequences)
            lowest = min(sequences)
            self.for_unfiltered.rewind(lowest)
            for selection in self._by_text.values():
                selection.again.rewind(lowest)
        super().freed(sequences)
        if self._back:
            self._looked.clear()

    def passed_over(self, group: Selection, free: dict[int, bytes]) -> list[int]:
        end = self._cursor.queue.visible if group.passed_over is None else group.passed_over
        return [
            sequence
            for sequence, value in free.items()
            if sequence < min(group.position, end)
            and not (group.for_others.forgotten_from is not None and sequence >= group.for_others.forgotten_from)
            and sequence not in group
            and not self.looks_again_at(sequence)
            and group.selector.matches(value)
        ]

    # ------------------------------------------------------------------------------------------------ free again

    def _look_at_freed(self) -> None:
        """Entries that became free, and match, are hits again."""
        assert self._free is not None
        for sequence in sorted(self._back) if self._back else ():
            if self._is_over:
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
        if len(selection.hits) >= self.hits_max:
            self._rewind(selection, sorted(selection.hits)[len(selection.hits) // 2])
        if sequence < selection.position:
            selection.add(sequence)
            self._looked.difference_update(selection.consumers)

    # ------------------------------------------------------------------------------------------------ offered

    def _offer_waiting(self, selection: Selection) -> int:
        """Hands what waits to those of the selection's consumers that want something, each the lowest that it can
        have; how many. What was forgotten is scanned again for those that may have some of it."""
        assert self._free is not None
        given = 0
        while not self._is_over:
            wanting = selection.wanting()
            if not wanting:
                break
            sequence = selection.first_for(wanting)
            forgotten = selection.for_others.rescan_from(wanting)
            if forgotten is not None and (sequence is None or forgotten < sequence) and not self._halts():
                given += self._rescan(
                    selection, selection.for_others, wanting, maxsize if sequence is None else sequence,
                    most=self.hits_max, given_max=maxsize,
                )  # fmt: skip
                continue
            if sequence is None:
                break
            value = self._free.value(sequence)
            asked = selection.not_yet_asked(wanting, sequence)
            consumer = None if value is None else self._choose(asked, sequence, value)
            if value is not None and consumer is not None and not self._may_hand(selection, consumer, sequence, value):
                break
            self._pay(1, 0 if value is None else len(value))
            if value is None:
                selection.forget(sequence)
            elif consumer is not None:
                selection.forget(sequence)
                self._hand(selection, consumer, sequence, value)
                given += 1
            elif sequence in selection.for_others:
                selection.for_others.was_asked(asked, sequence)
            else:
                self._leave_to_others(selection, sequence, value)
        return given

    def was_forgotten(self, group: Selection, waiting: WaitingForOthers, sequence: int, value: bytes) -> bool:
        return sequence not in group and group.selector.matches(value)

    def _keep_for_mark(self, group: Selection, sequence: int, value: bytes) -> None:
        self._add(group, sequence)

    def _passes_over(self, group: Selection, sequence: int) -> bool:
        group.pass_over(sequence)
        return True

    # ------------------------------------------------------------------------------------------------ kept

    def _leave_to_others(self, selection: Selection, sequence: int, value: bytes) -> None:
        """No consumer of the selection that wants something can have the entry: it waits for the others, if they
        can."""
        others = list(self._takers(selection.consumers, sequence, value))
        self._pay(len(selection.consumers) // MATCHES_PER_ENTRY, 0)
        if others:
            selection.leave_to_others(sequence, others, self.hits_max)
            self._looked.difference_update(others)
        else:
            selection.pass_over(sequence)

    def _keep(self, selection: Selection, sequence: int, value: bytes) -> bool:
        """Keeps the entry, the next that matches and that was not handed out; False if there is no room for it."""
        wanting = selection.wanting()
        if wanting and self._choose(wanting, sequence, value) is None:
            selection.position = sequence + 1
            self._leave_to_others(selection, sequence, value)
        elif self._choose(selection.consumers, sequence, value) is None:
            selection.position = sequence + 1
            selection.pass_over(sequence)
        elif len(selection.hits) < self.hits_max:
            selection.position = sequence + 1
            selection.add(sequence)
            self._looked.difference_update(selection.consumers)
        else:
            return False
        return True

    # ------------------------------------------------------------------------------------------------ counted

    def _count(self) -> None:
        held = HIT_BYTES * len(self._back) + sum(selection.size for selection in self._by_text.values())
        self._cursor.queue.withheld.aside.recount(self.counted, held)
        self.counted = held
