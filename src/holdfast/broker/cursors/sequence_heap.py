"""Sequences of which the lowest is next, and any may be removed.

Rules of this file: what is removed stays in the heap until it is the lowest there, or until most of the heap was
removed; so removing one costs little wherever it is.
"""

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final

SPARE: Final = 64
"""The heap is rebuilt once it has so many more removed sequences than members."""


class SequenceHeap:
    """Sequences, each once."""

    __slots__ = ("_heap", "_members")

    def __init__(self) -> None:
        self._members: set[int] = set()
        self._heap: list[int] = []
        """All members, and some that were removed; the first is a member."""

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, sequence: object) -> bool:
        return sequence in self._members

    def __iter__(self) -> Iterator[int]:
        return iter(self._members)

    @property
    def first(self) -> int | None:
        """The lowest."""
        return self._heap[0] if self._heap else None

    def add(self, sequence: int) -> None:
        """Adds it, if it is not there."""
        if sequence not in self._members:
            self._members.add(sequence)
            heappush(self._heap, sequence)

    def discard(self, sequence: int) -> None:
        """Removes it, if it is there."""
        members, heap = self._members, self._heap
        if sequence not in members:
            return
        members.remove(sequence)
        if len(heap) > 2 * len(members) + SPARE:
            self.replace(members)
        else:
            while heap and heap[0] not in members:
                heappop(heap)

    def replace(self, sequences: Iterable[int]) -> None:
        """Replaces all sequences with these."""
        self._members = set(sequences)
        self._heap = list(self._members)
        heapify(self._heap)

    def keep_below(self, position: int) -> None:
        """Removes everything from `position` on."""
        self.replace([sequence for sequence in self._members if sequence < position])

    def keep_from(self, position: int) -> None:
        """Removes everything below `position`."""
        if self._heap and self._heap[0] < position:
            self.replace([sequence for sequence in self._members if sequence >= position])
