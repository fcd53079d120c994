"""The finished ranges of a subscription with a bound of bytes, and the sizes of its unfinished messages. Rules of this
file: a finished message has no size here, because finishing always adds to these ranges. Sizes of messages that are not
on disk yet are kept separately.
"""

from collections.abc import Iterable
from typing import Final

from holdfast.broker.stored.ranges import RangeSet

SIZE_BYTES: Final = 96
"""Bytes of memory of a size, about."""


class Weighed(RangeSet):
    """A RangeSet with the `sizes` of messages on disk that are not in it, and their sum."""

    __slots__ = ("_coming", "sizes", "total")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self.sizes: dict[int, int] = {}
        self._coming: dict[int, int] = {}
        """The same for messages that may not be on disk yet, ascending."""
        self.total = 0
        super().__init__(ranges)

    @property
    def held_bytes(self) -> int:
        return super().held_bytes + SIZE_BYTES * (len(self.sizes) + len(self._coming))

    def add(self, first: int, last: int | None = None) -> None:
        RangeSet.add(self, first, last)
        if last is None or last == first:
            self.forget(first)
            return
        for sizes in (self.sizes, self._coming):
            numbers = range(first, last + 1) if last - first < len(sizes) else [*sizes]
            for number in numbers:
                if first <= number <= last:
                    self.forget(number)

    def forget(self, number: int) -> None:
        """Forgets a message that is finished or was undone."""
        self.total -= self.sizes.pop(number, 0)
        self._coming.pop(number, None)

    def note(self, number: int, size: int) -> None:
        """Records the size of a message that is on disk and unfinished."""
        self.total += size - self.sizes.get(number, 0)
        self.sizes[number] = size

    def comes(self, number: int, size: int) -> None:
        """Records the size of a message that is not on disk yet."""
        self._coming[number] = size

    def show_up_to(self, end: int) -> None:
        """All below is on disk."""
        while self._coming and (first := next(iter(self._coming))) < end:
            self.note(first, self._coming.pop(first))
