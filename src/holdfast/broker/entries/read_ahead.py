"""Bounds the entries that cursors have read from the store and not handed out: a megabyte each, and there may be
thousands of cursors.

Rules of this file: a cursor that finds no room in the account reads only what is needed now; entries that were read and
not used for long are dropped, and read again when needed. No clock: time is counted in pumps.
"""

from typing import Final, Protocol

from holdfast.accounts import Account

READ_COUNT: Final = 256
READ_BYTES: Final = 1024 * 1024
"""What one visit to the store fetches ahead of a cursor."""

LOW_BYTES: Final = 64 * 1024
"""With less room than this nothing is read ahead."""

IDLE_PUMPS: Final = 1_000
"""A cursor that has handed out nothing in so many pumps of all cursors that read ahead makes room for another."""


class Reader(Protocol):
    """A cursor with entries that were read ahead."""

    prefetched: list[tuple[int, bytes]]
    read_ahead_bytes: int
    """What is counted of it."""
    read_bytes: int
    """What was read anew and is not counted yet."""


class ReadAhead:
    """Bounds what the cursors of a node read ahead. `account` counts the entries of a read until the last of them is
    handed out."""

    __slots__ = ("_holders", "_pumps", "account")

    def __init__(self, account: Account) -> None:
        self.account = account
        self._holders: dict[Reader, int] = {}
        """Cursors that have something, by when they were last looked at, and the pump at which they handed it out."""
        self._pumps = 0

    def has_room(self) -> bool:
        """Whether more may be read than is wanted now. If not, an idle cursor makes room for the next time."""
        if self.account.room >= LOW_BYTES:
            return True
        if self._holders:
            oldest = next(iter(self._holders))
            used = self._holders.pop(oldest)
            if self._pumps - used > IDLE_PUMPS:
                self._let_go(oldest)
            else:
                self._holders[oldest] = used
        self._pumps += 1
        return False

    def keep(self, cursor: Reader, size: int) -> None:
        """`cursor` was pumped and has entries left, of which `size` bytes are new; they are dropped if there is no
        room."""
        self._pumps += 1
        if size and not self.account.charge(size):
            self.forget(cursor)
            return
        cursor.read_ahead_bytes += size
        self._holders[cursor] = self._pumps

    def forget(self, cursor: Reader) -> None:
        """`cursor` has nothing left, or must read it again."""
        if self._holders.pop(cursor, None) is not None:
            self._let_go(cursor)
        cursor.prefetched.clear()
        cursor.read_bytes = 0

    def _let_go(self, cursor: Reader) -> None:
        cursor.prefetched.clear()
        self.account.refund(cursor.read_ahead_bytes)
        cursor.read_ahead_bytes = 0

    def let_all_go(self) -> None:
        """Drops everything, because the memory is needed for something else."""
        for cursor in list(self._holders):
            self.forget(cursor)
