"""How often the deliveries of a cursor's entries have failed, where that is stored (docs/adr/0066).

Rules of this file: `changed` has the entries that differ from the store; nothing is written here. An entry with the
count 0 was shown, and its delivery did not fail: its next delivery is marked as a redelivery. An entry is *marked* if
it is shown although the cursor's watermark does not cover it, as for consumers with selectors: if the node is
killed, its delivery has failed.
"""

from collections.abc import Iterable
from typing import Final

EXHAUSTED: Final = "exhausted"
"""The holder of an entry that has reached `deliveries_max` and is being dead-lettered."""


class DeliveryCounts(dict[int, int]):
    """Failed deliveries, by sequence, as a cursor without a bound keeps them in a plain dictionary."""

    __slots__ = ("changed", "marked", "marked_stored", "unstored")

    def __init__(self, counts: dict[int, int]) -> None:
        super().__init__(counts)
        self.changed: set[int] = {sequence for sequence, count in counts.items() if count}
        self.unstored: set[int] = set()
        """Entries whose failure is not on disk yet: they are not offered again before that."""
        self.marked: set[int] = set()
        self.marked_stored: set[int] = set()
        """Entries of `marked` whose mark is on disk: these may be shown."""

    def __bool__(self) -> bool:
        return len(self) > 0 or bool(self.marked)

    def __setitem__(self, sequence: int, count: int) -> None:
        if count != self.get(sequence, 0):
            self.changed.add(sequence)
            self.unstored.add(sequence)
        super().__setitem__(sequence, count)

    def setdefault(self, sequence: int, count: int = 0) -> int:
        if sequence not in self:
            self[sequence] = count
        return self[sequence]

    def pop(self, sequence: int, default: int | None = None) -> int | None:  # type: ignore[override]
        if sequence in self.marked:
            self.marked.discard(sequence)
            self.marked_stored.discard(sequence)
            self.changed.add(sequence)
        found = super().pop(sequence, default)
        self.unstored.discard(sequence)
        if found is not None:
            self.changed.add(sequence)
        return found

    def clear(self) -> None:
        for sequence in (*self, *self.marked):
            self.pop(sequence)

    def mark(self, sequences: Iterable[int]) -> bool:
        """Marks these entries; returns whether the row of any of them is still to be written, also because the commit
        that was to store it was refused."""
        shown = set(sequences)
        self.changed |= shown - self.marked
        self.marked |= shown
        return not self.changed.isdisjoint(shown)

    def unmark(self) -> None:
        """Called when the node stops properly, after the deliveries of acquired entries were counted as failed: no
        entry needs a mark. The rows of released entries, with the count 0, are stored too, so that these still count as
        shown."""
        self.changed |= self.marked
        self.changed.update(self)
        self.marked.clear()
        self.marked_stored.clear()

    def stored(self, sequences: Iterable[int]) -> None:
        """The rows of these entries are on disk."""
        written = [sequence for sequence in sequences if sequence not in self.changed]
        self.marked_stored.update(self.marked.intersection(written))
        self.unstored.difference_update(written)

    def row(self, sequence: int) -> tuple[int, bool] | None:
        """The row for the entry: its count, and whether it is marked; None: no row, it was never shown."""
        marked = sequence in self.marked
        return (self.get(sequence, 0), marked) if marked or sequence in self else None
