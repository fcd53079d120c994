"""A blob: a bare message too large to be a value, in pieces (ADR 0014)."""

from typing import Final

PIECE_OVERHEAD: Final = 64
"""Bytes that a piece may cost beside its own."""

EntryRef = tuple[int, int]
"""(queue id, sequence) of an entry."""


class Blob:
    """`length` bytes in the pieces [first, end); those below `first` are gone. `places`: entries that refer to it."""

    __slots__ = ("end", "first", "length", "number", "open", "pins", "places")

    def __init__(self, number: int) -> None:
        self.number = number
        self.length = 0
        self.first = 0
        self.end = 0
        self.open = True
        """It is still being received, or has no entry yet."""
        self.pins = 0
        """Links that are sending it."""
        self.places: dict[EntryRef, None] = {}

    @property
    def needed(self) -> bool:
        return bool(self.places or self.open or self.pins)
