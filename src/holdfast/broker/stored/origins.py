"""Custody at the destination: each origin's messages once, in order (CUSTODY, "End to end").

Rules of this file: pure state: the caller says what arrived and how long it waited; it never reads a clock and never
writes. The caller stores the record in the same transaction as the append that it decides about.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final
from uuid import UUID

from holdfast.broker.stored.custody_records import OriginRecord
from holdfast.broker.stored.gaps import GapClocks
from holdfast.broker.stored.groups import Group, Groups, Waiting
from holdfast.broker.stored.ranges import RangeSet

NEVER_S: Final = float("inf")

ENDED_MAX: Final = 1_024
"""Ranges of tombstoned numbers that are remembered, so that a live copy that still arrives is recognised as late."""

FINISHED_MAX: Final = 32_768
"""Ranges kept above the mark, whatever `ranges_max` allows: with them an origin's record fits a row of the store."""


class Verdict(Enum):
    """What happens to a copy that arrived."""

    DUPLICATE = "duplicate"
    DELIVER = "deliver"
    LATE = "late"
    WAIT = "wait"
    FULL = "full"


@dataclass(slots=True, eq=False)
class Origin:
    """One origin's numbers at this destination. `mark`: everything up to it is finished. `finished`: finished numbers
    above it. `ended`: numbers that a tombstone, an operator or a grace time ended without delivery. `passed`: the
    highest number that was delivered before a gap below it closed. `clocks`: how long each gap was waited for.
    `suffix`: the name of this node for which the numbers were given; empty: the first name under which its store was
    opened; in a virtual host HOST@ precedes it.
    """

    origin: UUID
    mark: int = 0
    passed: int = 0
    clocks: GapClocks = field(default_factory=GapClocks)
    finished: RangeSet = field(default_factory=RangeSet)
    ended: RangeSet = field(default_factory=RangeSet)
    waiting: dict[int, Waiting] = field(default_factory=dict)
    """By number; changed by `wait`, `leave` and `restore` alone."""
    duplicates: int = 0
    late: int = 0
    suffix: str = ""
    host: str = ""
    """The virtual host in which its messages end, "" for the default one."""
    known: RangeSet = field(init=False)
    """What is finished beyond the mark, or waits."""
    shortest_wait_s: float = field(init=False, default=NEVER_S)
    """No waiting number may pass a gap that has waited for less than this."""
    groups: Groups = field(init=False, default_factory=Groups)
    """The waiting messages that become visible together."""
    waited_before_s: float = field(init=False, default=0.0)
    """From a row of an earlier version, without a clock for each gap: the initial value of the gaps' clocks."""

    def __post_init__(self) -> None:
        self._derive()

    def _derive(self) -> None:
        self.known = self.finished.copy()
        self.shortest_wait_s = NEVER_S
        numbers = sorted(self.waiting)
        for number in numbers:
            self.known.add(number)
            self._expect(self.waiting[number])
        self.groups = Groups([(number, self.waiting[number]) for number in numbers])

    def _expect(self, waiting: Waiting) -> None:
        if waiting.order == "bounded" and waiting.group is None:
            self.shortest_wait_s = min(self.shortest_wait_s, waiting.order_wait_s)

    @classmethod
    def load(cls, origin: UUID, record: OriginRecord, suffix: str = "", host: str = "") -> "Origin":
        known = record.mark, record.passed, record.clocks, record.finished, record.ended
        loaded = cls(origin, *known, suffix=suffix, host=host)
        loaded.waited_before_s = 0.0 if record.clocks else record.waited_s
        return loaded

    def record(self) -> OriginRecord:
        return OriginRecord(self.mark, self.passed, self.clocks.longest_s, self.finished, self.ended, self.clocks)

    def restore(self, record: OriginRecord, waiting: list[tuple[int, Waiting | None]]) -> None:
        """Reverts what a refused turn changed; `waiting`: what each number was before, in the order of the changes."""
        self.mark, self.passed = record.mark, record.passed
        self.clocks, self.finished, self.ended = record.clocks, record.finished, record.ended
        for number, before in reversed(waiting):
            if before is None:
                self.waiting.pop(number, None)
            else:
                self.waiting[number] = before
        self._derive()

    @property
    def expected(self) -> int:
        """The next number, which has a place whatever else is full."""
        return self.mark + 1

    @property
    def next_missing(self) -> int:
        """The lowest number that is neither finished nor waiting."""
        return self.known.end_of_run(self.mark + 1) + 1

    def is_new(self, number: int) -> bool:
        """Whether no copy of `number` has arrived, and it was not ended."""
        return number > self.mark and number not in self.known

    def decide(
        self,
        number: int,
        order: str,
        *,
        order_wait_s: float = 0.0,
        ranges_max: int,
        group: tuple[int, int] | None = None,
    ) -> Verdict:
        """What happens to the copy `number` for a queue of that `order`. `group`: the first and the last number of its
        group. Changes nothing."""
        if number in self.waiting:
            return Verdict.DUPLICATE
        if number in self.ended:
            return Verdict.LATE
        if number <= self.mark or number in self.finished:
            return Verdict.DUPLICATE
        if group is not None:
            return Verdict.WAIT if self._may_join(number, group, ranges_max) else Verdict.FULL
        late = number < self.passed and order != "strict"  # a strict one waits, whichever others were delivered
        if not self.missing_below(number):
            return Verdict.LATE if late else Verdict.DELIVER
        if not self._fits(number, ranges_max):
            return Verdict.FULL
        if late:
            return Verdict.LATE
        if len(self.waiting) >= ranges_max * 16:
            return Verdict.FULL
        if order == "bounded" and not self.waiting and self.waited_s(number) >= order_wait_s:
            return Verdict.DELIVER  # what it would wait for was waited for
        return Verdict.DELIVER if order == "none" else Verdict.WAIT

    def _may_join(self, number: int, group: tuple[int, int], ranges_max: int) -> bool:
        """Whether a message of a group may wait for the others. The next missing number always may, because others wait
        for it."""
        if number == self.next_missing and (number < self.known.last or group[0] in self.groups.by_first):
            return True
        return len(self.waiting) < ranges_max * 16 and self._fits(number, ranges_max)

    def _fits(self, number: int, ranges_max: int) -> bool:
        """Whether `number`, which is ahead of a missing one, adds no range beyond the bound."""
        if len(self.finished) < min(ranges_max, FINISHED_MAX):
            return True
        return number - 1 in self.known or number + 1 in self.known

    def may_end(self, number: int, ranges_max: int) -> bool:
        """Whether a tombstone of `number` may be accepted; at the bound it is given back, as a live copy is."""
        return number in self.known or not self.missing_below(number) or self._fits(number, ranges_max)

    def missing_below(self, number: int) -> bool:
        """Whether an earlier number is neither finished nor ended; it may be waiting."""
        return self.finished.end_of_run(self.mark + 1) + 1 < number

    # ------------------------------------------------------------------------------------------------ waiting

    def _gap_below(self, number: int) -> int:
        """The highest missing number below `number`; if there is none, at most the mark."""
        return self.known.start_of_run(number - 1) - 1

    def waited_s(self, number: int) -> float:
        """How long the last gap below `number` has been waited for; all others for longer."""
        missing = self._gap_below(number)
        return self.clocks.waited_s(missing) if missing > self.mark else NEVER_S

    def wait(self, number: int, waiting: Waiting, waited_s: float = 0.0) -> None:
        """`number` waits for the gaps below it; a gap for which nothing waited before begins at `waited_s`."""
        missing = self._gap_below(number)
        if missing > self.mark:
            self.clocks.begin(missing, waited_s)
        self.waiting[number] = waiting
        self.known.add(number)
        self._expect(waiting)
        group = self.groups.add(number, waiting)
        if group is not None and self.is_whole(group):
            self.groups.due = True

    def leave(self, number: int) -> Waiting:
        """`number` does not wait any longer; `finish` follows."""
        waiting = self.waiting.pop(number)
        self.groups.remove(number, waiting)
        if not self.waiting:
            self.shortest_wait_s = NEVER_S
        return waiting

    def in_order(self) -> int | None:
        """The waiting number below which nothing is missing; None if there is none."""
        number = self.finished.end_of_run(self.mark + 1) + 1
        return number if number in self.waiting else None

    def is_whole(self, group: Group) -> bool:
        """Whether no message of the group is missing: each waits here, or is finished."""
        return not self.known.gaps(max(group.first, self.mark + 1), group.last, 1) if group.last > self.mark else True

    def may_show(self, group: Group) -> bool:
        """Whether the waiting messages of the group may be delivered now, together."""
        first = min(group.members)
        if not self.is_whole(group) or len(self.finished) + len(group.members) > FINISHED_MAX:
            return False
        if not self.missing_below(first):
            return True
        return not group.strict and self.waited_s(first) >= group.order_wait_s

    def give_up(self, group: Group) -> None:
        """Gives the group up: each of its messages is delivered by itself."""
        for waiting in self.groups.give_up(group, self.waiting):
            self._expect(waiting)

    def waited_enough(self, number: int) -> bool:
        """Whether the waiting `number` may pass the gaps below it."""
        waiting = self.waiting[number]
        waited = waiting.order == "bounded" and self.waited_s(number) >= waiting.order_wait_s
        return waited and self.has_row_for(number)

    def has_row_for(self, number: int) -> bool:
        """Whether `number`, once finished, leaves the record within its row."""
        return len(self.finished) < FINISHED_MAX or number - 1 in self.finished or number + 1 in self.finished

    @property
    def may_release(self) -> bool:
        """Whether a waiting number may be delivered now. It may be True too often, but never wrongly False."""
        if not self.waiting:
            return False
        groups = self.groups
        if groups.due or groups.apart or self.in_order() is not None:
            return True
        return self.clocks.longest_s >= self.shortest_wait_s

    def went_on(self, number: int) -> None:
        """`number` was delivered while an earlier one is missing: numbers below it are late."""
        self.passed = max(self.passed, number)

    # ------------------------------------------------------------------------------------------------ ends

    def finish(self, number: int) -> None:
        """`number` is stored in its queue with this batch."""
        if self.ended:
            self.ended.remove(number)
            self._bound_ended()
        if number == self.mark + 1 and not self.known:  # the common case: nothing is missing
            self.mark = number
        elif number > self.mark:
            self.finished.add(number)
            self.known.add(number)
            self._raise_mark()

    def end(self, first: int, last: int | None = None) -> list[tuple[int, int]]:
        """Ends `first` (to `last`) without delivery; returns the numbers that were still missing."""
        last = first if last is None else last
        missing = self.known.gaps(max(first, self.mark + 1), last) if last > self.mark else []
        if len(missing) > 1:  # in order, each is put at the end
            self.ended = RangeSet(sorted([*self.ended, *missing]))
            self.finished = RangeSet(sorted([*self.finished, *missing]))
            self.known = RangeSet(sorted([*self.known, *missing]))
        for low, high in missing if len(missing) == 1 else ():
            self.ended.add(low, high)
            self.finished.add(low, high)
            self.known.add(low, high)
        self._bound_ended()
        self._raise_mark()
        self.groups.due = bool(self.groups.by_first)
        return missing

    def _bound_ended(self) -> None:
        if len(self.ended) > ENDED_MAX:
            self.ended = RangeSet(list(self.ended)[-ENDED_MAX:])

    def skip(self) -> list[tuple[int, int]]:
        """Closes every gap below the last known number; returns the ranges that count as lost."""
        return self.end(self.mark + 1, self._last)

    def gaps(self, count_max: int | None = None) -> list[tuple[int, int]]:
        """Missing numbers between the mark and the last known number; at most the first `count_max` ranges."""
        last = self._last
        return self.known.gaps(self.mark + 1, last, count_max) if last > self.mark else []

    @property
    def _last(self) -> int:
        """The last known number: the highest that arrived, or that is in the group of a waiting one."""
        return max(self.known.last, self.groups.last) if self.groups.by_first else self.known.last

    def _raise_mark(self) -> None:
        mark = self.finished.end_of_run(self.mark + 1)
        if mark > self.mark:
            self.mark = mark
            self.finished.drop_below(mark + 1)
            self.known.drop_below(mark + 1)
            if self.clocks:
                self.clocks.drop_below(mark + 1)
