"""Entries whose dead letters are in a turn, for queues with several cursors.

Rules of this file: a holder that is no consumer holds such an entry until it is known whether the turn was stored.
"""

from collections.abc import Iterable

from holdfast.broker.cursors.cursor import Cursor
from holdfast.state import tied
from holdfast.state.catalog import Catalog


class MovingOut:
    """The entries held by `holder`."""

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
        """The turn was stored or undone: returns those of the entries that the holder still has. There are none if the
        cursor was deleted, or if this ran before and a later step failed."""
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
