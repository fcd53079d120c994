"""The room of the store: as last measured, less the commit in progress and the gathered turn."""

from typing import Any, Final, Protocol

from holdfast.broker.entries.work import Work
from holdfast.state.turns import Turns

FORWARDING_BYTES: Final = 1024 * 1024
"""What of the store's reserve forwarding may use, so that two full neighbours do not wait for each other for ever."""


class Measured(Protocol):
    """A store that knows its room."""

    @property
    def shared_bytes(self) -> int: ...
    def room_bytes(self) -> int: ...
    def growth_bytes(self) -> int: ...


class Room:
    """`bytes`: the room as last measured."""

    __slots__ = ("_store", "_turns", "_work", "bytes")

    def __init__(self, store: Measured, turns: Turns, work: Work[Any]) -> None:
        self._store = store
        self._turns = turns
        self._work = work
        self.bytes = store.room_bytes()

    def measure(self) -> None:
        """Measures the room again: space may have become free without a commit."""
        self.bytes = self._store.room_bytes()

    def has(self, size: int, *, forwarding: bool = False, reserve: int = 0) -> bool:
        """Whether the store certainly has room for one more entry of that size; forwarding may use a part of the
        reserve. `reserve`: bytes of it beyond that part, for messages that must be accepted even then.
        """
        room = self.bytes - self.appended_bytes
        return room + min(self._store.shared_bytes, (FORWARDING_BYTES if forwarding else 0) + reserve) >= size

    @property
    def bytes_possible(self) -> int:
        """The room as last measured, and `growth_bytes` of the store: how much fits before producers wait."""
        return self.bytes + self._store.growth_bytes()

    @property
    def appended_bytes(self) -> int:
        """Bytes that the commit in progress and the gathered turn add to the store."""
        in_flight = self._turns.in_flight
        under_way = 0 if in_flight is None else in_flight.batch.bytes_appended
        return under_way + self._work.batch.bytes_appended

    @property
    def is_known(self) -> bool:
        """Whether the measured room is exact, because nothing was taken since that is not on disk."""
        return self._turns.in_flight is None and not self._work.batch.bytes_appended
