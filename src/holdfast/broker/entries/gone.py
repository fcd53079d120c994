"""Which entries of a queue left although a subscription may not have read them: those that expired, and those that made
room for later ones.

Rules of this file: pure data, in memory: it shows readers by sequence why a range has gaps, and no decision depends on
it. An entry whose leaving was undone may be in it, and then is no gap.
"""

from typing import Final

from holdfast.broker.stored.ranges import RangeSet

RANGES_MAX: Final = 64
"""Ranges that are remembered of each kind: 6 KB."""


class Gone:
    """The entries of one queue that left, since the node's start."""

    __slots__ = ("dropped", "expired")

    def __init__(self) -> None:
        self.expired = RangeSet()
        self.dropped = RangeSet()

    def note_expired(self, sequences: list[int]) -> None:
        _note(self.expired, sequences)

    def note_dropped(self, sequences: list[int]) -> None:
        _note(self.dropped, sequences)

    def count(self, first: int, end: int) -> tuple[int, int]:
        """How many of the entries of `[first, end)` expired, and how many were dropped, as far as that is known."""
        return _within(self.expired, first, end), _within(self.dropped, first, end)


def _note(known: RangeSet, sequences: list[int]) -> None:
    for sequence in sequences:
        known.add(sequence)
    if len(known) > RANGES_MAX:  # the lowest are forgotten: readers have passed them
        known.drop_below([*known][-RANGES_MAX][0])


def _within(known: RangeSet, first: int, end: int) -> int:
    return sum(max(0, min(last + 1, end) - max(low, first)) for low, last in known)
