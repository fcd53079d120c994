"""What links that ended held, on its way back to its places: a bounded number in each turn.

Rules of this file: few go back at once, so that the end of most links is over when it is told. What waits here is in
the hands of its link, though that is gone: nobody else has it, and a restart shows it again. A connection may have held
millions; nobody waits for the end of that.
"""

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.broker.cursor import Cursor

if TYPE_CHECKING:
    from holdfast.broker.taker import Taker
    from holdfast.core.node import NodeCore

GIVEN_BACK_MAX: Final = 10_000
"""Entries that go back in one turn: some 10 ms."""


class Return(NamedTuple):
    """`sequences`: what is left, in the order of its going; what is no more in the taker's hands is passed over."""

    taker: "Taker"
    cursor: Cursor
    sequences: deque[int]
    failed: bool


class Returns:
    """Gives back what links that ended held, a bounded number each turn."""

    def __init__(self, core: "NodeCore") -> None:
        self.core = core
        self.waiting: deque[Return] = deque()
        self._left = GIVEN_BACK_MAX

    @property
    def pending(self) -> bool:
        """Whether `step` is to be called in this turn."""
        return bool(self.waiting) or self._left < GIVEN_BACK_MAX

    def give_back(self, taker: "Taker", cursor: Cursor, sequences: list[int], *, failed: bool) -> None:
        """What of these is in the hands of `taker`, which is gone, goes back; `failed`: as `Cursor.give_back`."""
        if self.waiting or len(sequences) > self._left:
            self.waiting.append(Return(taker, cursor, deque(sequences), failed))
        elif sequences:
            self._left -= len(sequences)
            self._back(taker, cursor, sequences, failed)

    def step(self) -> None:
        """This turn's share."""
        left = GIVEN_BACK_MAX
        while self.waiting and left > 0:
            taker, cursor, sequences, failed = self.waiting[0]
            some = [sequences.popleft() for _ in range(min(left, len(sequences)))]
            left -= len(some)
            if not self.core.catalog.has_cursor(cursor):  # deleted, with all that was in it
                sequences.clear()
            else:
                self._back(taker, cursor, some, failed)
            if not sequences:
                self.waiting.popleft()
        self._left = left

    def stop(self) -> None:
        """The node stops: all of it is back in its places."""
        for taker, cursor, sequences, failed in self.waiting:
            if self.core.catalog.has_cursor(cursor):
                self._back(taker, cursor, list(sequences), failed)
        self.waiting.clear()

    def _back(self, taker: "Taker", cursor: Cursor, sequences: list[int], failed: bool) -> None:
        shown = cursor.shown
        mine = [sequence for sequence in sequences if sequence in shown and shown[sequence].taker is taker]
        cursor.give_back(mine, failed=failed)
