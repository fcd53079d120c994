"""When more of something is asked of a remote that has refused it.

Rules of this file: kept over connections, because a remote may close one to refuse. A refusal that may cost a
connection is risked rarely.
"""

from typing import Final

from holdfast.engine.back_off import back_off_s

AGAIN_S: Final = (60.0, 3600.0)
"""The first and the longest time for which no more is asked for after a refusal."""


class Refused:
    """The refusals of one thing. `due_at`: no more is asked for before."""

    def __init__(self) -> None:
        self.due_at = 0.0
        self._in_a_row = 0

    def again(self, now: float) -> None:
        """More was refused."""
        self.due_at = now + back_off_s(AGAIN_S, self._in_a_row)
        self._in_a_row += 1

    def taken(self) -> None:
        """The remote has taken more: the next wait is the first one again."""
        self._in_a_row = 0
