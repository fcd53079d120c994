"""How much more the store takes: as it said last, less what is on its way there and what is gathered for it."""

from typing import Any, Final, Protocol

from holdfast.broker.entries.work import Work
from holdfast.state.turns import Turns

FORWARDING_BYTES: Final = 1024 * 1024
"""What of the store's reserve forwarding may use, so that two full neighbours do not wait for each other for ever."""


class Measured(Protocol):
    """A store that knows how much it takes."""

    @property
    def shared_bytes(self) -> int: ...
    def room_bytes(self) -> int: ...


class Room:
    """`bytes`: what the store said that it takes, when it said so last."""

    __slots__ = ("_store", "_turns", "_work", "bytes")

    def __init__(self, store: Measured, turns: Turns, work: Work[Any]) -> None:
        self._store = store
        self._turns = turns
        self._work = work
        self.bytes = store.room_bytes()

    def measure(self) -> None:
        """Asks the store again: space may be back while nothing was committed."""
        self.bytes = self._store.room_bytes()

    def has(self, size: int, *, forwarding: bool = False, reserve: int = 0) -> bool:
        """Whether the store surely takes one more entry of that size; forwarding may use a part of the reserve.

        `reserve`: bytes of it beyond that part, for what must get through when even that is used up.
        """
        room = self.bytes - self.appended_bytes
        return room + min(self._store.shared_bytes, (FORWARDING_BYTES if forwarding else 0) + reserve) >= size

    @property
    def appended_bytes(self) -> int:
        """What the commit under way and the turn that is gathered add to the store."""
        in_flight = self._turns.in_flight
        under_way = 0 if in_flight is None else in_flight.batch.bytes_appended
        return under_way + self._work.batch.bytes_appended

    @property
    def is_known(self) -> bool:
        """Whether the store's word on its room is fresh: nothing was taken since that is not on disk yet."""
        return self._turns.in_flight is None and not self._work.batch.bytes_appended
