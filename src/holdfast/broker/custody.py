"""Custody at the destination: each origin's messages once, in order (CUSTODY, "End to end").

Rules of this file: pure state, told what came and how long it waited; never reads a clock, never writes. The caller
stores the record in the same transaction as the append that it decides.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final
from uuid import UUID

from holdfast.broker.ranges import RangeSet
from holdfast.broker.records import OriginRecord

ENDED_MAX: Final = 1_024
"""Ranges of tombstoned numbers remembered, so that a live copy after all is known as late."""

FINISHED_MAX: Final = 32_768
"""Ranges kept above the mark, whatever `ranges_max` allows: with them an origin's record fits a row of the store."""


class Verdict(Enum):
    """What becomes of a copy that came."""

    DUPLICATE = "duplicate"
    DELIVER = "deliver"
    LATE = "late"
    WAIT = "wait"
    FULL = "full"


@dataclass(slots=True)
class Waiting:
    """A message that waits for an earlier one: where it lies, for whom, and by which rule."""

    held_at: int
    queue: str
    order: str
    order_wait_s: float


@dataclass(slots=True, eq=False)
class Origin:
    """One origin's numbers at this destination.

    `mark`: all up to it is finished. `finished`: what is beyond. `ended`: numbers that a tombstone, an operator or
    a grace time ended without delivery. `passed`: the highest number that went on before a gap below it closed.
    """

    origin: UUID
    mark: int = 0
    passed: int = 0
    waited_s: float = 0.0
    finished: RangeSet = field(default_factory=RangeSet)
    ended: RangeSet = field(default_factory=RangeSet)
    waiting: dict[int, Waiting] = field(default_factory=dict)
    duplicates: int = 0
    late: int = 0

    @classmethod
    def load(cls, origin: UUID, record: OriginRecord) -> "Origin":
        return cls(origin, record.mark, record.passed, record.waited_s, record.finished, record.ended)

    def record(self) -> OriginRecord:
        return OriginRecord(self.mark, self.passed, self.waited_s, self.finished, self.ended)

    @property
    def expected(self) -> int:
        """The next number that has a place whatever else is full."""
        return self.mark + 1

    @property
    def next_missing(self) -> int:
        """The lowest number that was neither finished nor waits here."""
        number = self.finished.end_of_run(self.expected) + 1
        while number in self.waiting:
            number = self.finished.end_of_run(number + 1) + 1
        return number

    def decide(self, number: int, order: str, *, order_wait_s: float = 0.0, ranges_max: int) -> Verdict:
        """What becomes of the copy `number` bound for a queue of that `order`. Changes nothing."""
        if number in self.waiting:
            return Verdict.DUPLICATE
        if number in self.ended:
            return Verdict.LATE
        if number <= self.mark or number in self.finished:
            return Verdict.DUPLICATE
        late = number < self.passed and order != "strict"  # a strict one waits, whoever else went on
        if not self.missing_below(number):
            return Verdict.LATE if late else Verdict.DELIVER
        if not self._fits(number, ranges_max):
            return Verdict.FULL
        if late:
            return Verdict.LATE
        if len(self.waiting) >= ranges_max * 16:
            return Verdict.FULL
        if order == "bounded" and self.waited_s and self.waited_s >= order_wait_s and not self.waiting:
            return Verdict.DELIVER  # what it would wait for was waited for
        return Verdict.DELIVER if order == "none" else Verdict.WAIT

    def _fits(self, number: int, ranges_max: int) -> bool:
        """Whether `number`, which is ahead of a missing one, adds no range past the bound."""
        return len(self.finished) < min(ranges_max, FINISHED_MAX) or any(
            beside in self.finished or beside in self.waiting for beside in (number - 1, number + 1)
        )

    def may_end(self, number: int, ranges_max: int) -> bool:
        """Whether a tombstone of `number` may be taken; at the bound it goes back, as a live copy does."""
        known = number in self.waiting or number in self.finished
        return known or not self.missing_below(number) or self._fits(number, ranges_max)

    def missing_below(self, number: int) -> bool:
        """Whether an earlier number is still to come: neither finished nor ended, waiting ones included."""
        return self.finished.end_of_run(self.mark + 1) + 1 < number

    def finish(self, number: int) -> None:
        """`number` is stored in its queue with this batch."""
        self.ended.remove(number)
        self._bound_ended()
        if number > self.mark:
            self.finished.add(number)
            self._raise_mark()

    def end(self, first: int, last: int | None = None) -> list[tuple[int, int]]:
        """The waiting for `first` (to `last`) is over without delivery; returns what of it was still missing."""
        last = first if last is None else last
        known = self._known()
        missing = known.gaps(max(first, self.mark + 1), last) if last > self.mark else []
        for low, high in missing:
            self.ended.add(low, high)
            self.finished.add(low, high)
        self._bound_ended()
        self._raise_mark()
        return missing

    def _bound_ended(self) -> None:
        while len(self.ended) > ENDED_MAX:
            self.ended.drop_below(next(iter(self.ended))[1] + 1)

    def skip(self, up_to: int = 0) -> list[tuple[int, int]]:
        """Closes every gap below the last number known, or up to `up_to`; returns the ranges that count as lost."""
        return self.end(self.mark + 1, max(self._known().last, up_to))

    def gaps(self) -> list[tuple[int, int]]:
        """Numbers missing between the mark and the last one known."""
        known = self._known()
        return known.gaps(self.mark + 1, known.last) if known.last > self.mark else []

    def _known(self) -> RangeSet:
        known = self.finished.copy()
        for number in self.waiting:
            known.add(number)
        return known

    def _raise_mark(self) -> None:
        mark = self.finished.end_of_run(self.mark + 1)
        if mark > self.mark:
            self.mark = mark
            self.finished.drop_below(mark + 1)
            self.waited_s = 0.0

    def releasable(self) -> int | None:
        """The lowest waiting number that may go now, None where none may; ask again after it was finished."""
        in_order = self.finished.end_of_run(self.mark + 1) + 1
        if in_order in self.waiting:
            return in_order
        if not self.waited_s:
            return None
        for number in sorted(self.waiting):
            waiting = self.waiting[number]
            waited = waiting.order == "bounded" and self.waited_s >= waiting.order_wait_s
            if waited and self._has_row_for(number):
                return number
        return None

    def _has_row_for(self, number: int) -> bool:
        """Whether `number`, once finished, leaves the record within its row."""
        return len(self.finished) < FINISHED_MAX or number - 1 in self.finished or number + 1 in self.finished

    def went_on(self, number: int) -> None:
        """`number` was delivered while an earlier one is missing: what comes below it is late."""
        self.passed = max(self.passed, number)
