"""Entries whose dead letters are in a turn, of cursors beside which others read the queue.

Rules of this file: such an entry is in the hands of a holder that stands for no consumer, until it is known whether the
turn is stored.
"""

from collections.abc import Iterable

from holdfast.broker.cursors.cursor import Cursor
from holdfast.state import tied
from holdfast.state.catalog import Catalog


class MovingOut:
    """Those in the hands of `holder`."""

    def __init__(self, catalog: Catalog, holder: object) -> None:
        self._catalog = catalog
        self._holder = holder
        self.by_cursor: dict[Cursor, dict[int, None]] = {}

    def add(self, cursor: Cursor, sequence: int) -> None:
        """The entry's dead letter is in the gathered turn."""
        self.by_cursor.setdefault(cursor, {})[sequence] = None

    def of(self, cursor: Cursor) -> Iterable[int]:
        """The cursor's entries that are in a turn."""
        return self.by_cursor.get(cursor, {}).keys()

    def decided(self, cursor: Cursor, sequences: Iterable[int]) -> list[int]:
        """The turn is stored, or was undone: returns those of the entries that the holder still has. There are none
        where the cursor was deleted, or where this was done before and failed later on."""
        moving = self.by_cursor.get(cursor, {})
        for sequence in sequences:
            moving.pop(sequence, None)
        if not moving:
            self.by_cursor.pop(cursor, None)
        tied.untie(self._catalog, cursor, sequences)
        if not self._catalog.has_cursor(cursor):
            return []
        held = cursor.acquired
        return [number for number in sequences if number in held and held[number].consumer is self._holder]
