"""The rows that a node wants announced of one topic, and in what they differ from a set.

Rules of this file: pure. A change costs what it changes, however many rows there are; everything is worked out anew at
each refresh, so that a fault in memory does no lasting harm.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast.federation.rows import Row
from holdfast.federation.sets import Held, difference


@dataclass(slots=True)
class Wanted:
    """`changes`: how often the rows have changed. `missing`, `extra`: what is wanted and not in the set that `compare`
    was last given, and what only that has; in the order in which it came about."""

    rows: set[Row] = field(default_factory=set)
    changes: int = 0
    missing: dict[Row, None] = field(default_factory=dict)
    extra: dict[Row, None] = field(default_factory=dict)
    _held: Held | None = None
    """The set that they were compared with; None if everything must be compared."""

    def change(self, add: Iterable[Row], remove: Iterable[Row]) -> list[Row]:
        """Returns the rows that are new."""
        new = [row for row in add if row not in self.rows]
        gone = [row for row in remove if row in self.rows]
        if new or gone:
            self.changes += 1
        for row in gone:
            self.rows.discard(row)
            _move(row, self.missing, self.extra)
        for row in new:
            self.rows.add(row)
            _move(row, self.extra, self.missing)
        return new

    def want(self, rows: Iterable[Row]) -> list[Row]:
        """As `change`, to exactly these rows."""
        rows = frozenset(rows)
        return self.change(_in_order(rows - self.rows), _in_order(self.rows - rows))

    def compare(self, held: Held) -> None:
        """Works out `missing` and `extra` for that set."""
        before, self._held = self._held, held
        if before is None:
            self.missing = dict.fromkeys(_in_order(self.rows - held.rows))
            self.extra = dict.fromkeys(_in_order(held.rows - self.rows))
            return
        came, went = difference(before, held)
        for row in _in_order(came):
            if row in self.rows:
                self.missing.pop(row, None)
            else:
                self.extra[row] = None
        for row in _in_order(went):
            if row in self.rows:
                self.missing[row] = None
            else:
                self.extra.pop(row, None)

    def forget(self) -> None:
        """The next comparison is one of all rows."""
        self._held = None


def _move(row: Row, before: dict[Row, None], after: dict[Row, None]) -> None:
    """The row leaves `before`, or, if it is not there, comes to `after`."""
    if row in before:
        del before[row]
    else:
        after[row] = None


def _in_order(rows: Iterable[Row]) -> list[Row]:
    """In the same order in each process."""
    return sorted(rows, key=lambda row: (row.pattern, row.predicate or "", row.bits))
