"""Sets of numbers, kept as inclusive ranges: finished sequences of a cursor, numbers of a producer or an origin.

Rules of this file: pure data; ranges are disjoint, never adjacent, ascending. Finding is O(log n) and inserting O(n) in
the number of ranges, which the owner bounds.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

RANGE_BYTES: Final = 96
"""Bytes of memory of a range, about."""


class RangeSet:
    """A set of integers as `[first, last]` pairs, both inclusive."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in ranges:
            self.add(first, last)

    def __contains__(self, number: int) -> bool:
        index = bisect_right(self._firsts, number) - 1
        return index >= 0 and number <= self._lasts[index]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(zip(self._firsts, self._lasts, strict=True))

    def __len__(self) -> int:
        """The number of ranges, not of members."""
        return len(self._firsts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RangeSet) and self._firsts == other._firsts and self._lasts == other._lasts

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"RangeSet({list(self)})"

    def copy(self) -> "RangeSet":
        twin = RangeSet()
        twin._firsts = self._firsts.copy()
        twin._lasts = self._lasts.copy()
        return twin

    @property
    def held_bytes(self) -> int:
        """Its bytes of memory, about."""
        return RANGE_BYTES * len(self._firsts)

    @property
    def last(self) -> int:
        """The greatest member, 0 where there is none."""
        return self._lasts[-1] if self._lasts else 0

    def add(self, first: int, last: int | None = None) -> None:
        """Adds `first`, or all of `[first, last]`."""
        if last is None:
            last = first
        firsts, lasts = self._firsts, self._lasts
        if lasts and first == lasts[-1] + 1:  # the common case: the next number
            lasts[-1] = last
            return
        low = bisect_right(firsts, first) - 1
        if low < 0 or lasts[low] < first - 1:
            low += 1
        high = low
        while high < len(firsts) and firsts[high] <= last + 1:
            high += 1
        if low < high:
            first = min(first, firsts[low])
            last = max(last, lasts[high - 1])
        firsts[low:high] = [first]
        lasts[low:high] = [last]

    def remove(self, number: int) -> None:
        """Removes `number`; no error if it is not a member."""
        index = bisect_right(self._firsts, number) - 1
        if index < 0 or number > self._lasts[index]:
            return
        first, last = self._firsts[index], self._lasts[index]
        pieces = [(low, high) for low, high in ((first, number - 1), (number + 1, last)) if low <= high]
        self._firsts[index : index + 1] = [low for low, _ in pieces]
        self._lasts[index : index + 1] = [high for _, high in pieces]

    def drop_below(self, bound: int) -> None:
        """Removes every member below `bound`."""
        firsts, lasts = self._firsts, self._lasts
        index = bisect_right(lasts, bound - 1)
        del firsts[:index], lasts[:index]
        if firsts and firsts[0] < bound:
            firsts[0] = bound

    def end_of_run(self, number: int) -> int:
        """The greatest n such that all of `[number, n]` is in the set; `number - 1` if `number` is not a member."""
        index = bisect_right(self._firsts, number) - 1
        return self._lasts[index] if index >= 0 and number <= self._lasts[index] else number - 1

    def start_of_run(self, number: int) -> int:
        """The least n such that all of `[n, number]` is in the set; `number + 1` if `number` is not a member."""
        index = bisect_right(self._firsts, number) - 1
        return self._firsts[index] if index >= 0 and number <= self._lasts[index] else number + 1

    def next_after(self, number: int) -> int | None:
        """The least member that is greater than `number`, which is not a member; None if there is none."""
        index = bisect_right(self._firsts, number)
        return self._firsts[index] if index < len(self._firsts) else None

    def count_below(self, bound: int) -> int:
        """How many members are less than `bound`."""
        index = bisect_left(self._firsts, bound)
        if not index:
            return 0
        firsts, lasts = self._firsts[:index], self._lasts[:index]
        return sum(lasts) - sum(firsts) + index - max(0, lasts[-1] - bound + 1)

    def gaps(self, first: int, last: int, count_max: int | None = None) -> list[tuple[int, int]]:
        """The parts of `[first, last]` that are not in the set, ascending; at most the first `count_max` ranges."""
        return list(islice(self.each_gap(first, last), count_max))

    def each_gap(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """As `gaps`, one by one; the set does not change meanwhile."""
        index = bisect_left(self._lasts, first)
        while first <= last:
            if index >= len(self._firsts) or self._firsts[index] > last:
                yield first, last
                break
            if self._firsts[index] > first:
                yield first, self._firsts[index] - 1
            first = self._lasts[index] + 1
            index += 1
