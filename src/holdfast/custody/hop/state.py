"""The hop to one neighbour, as its custody senders see it (CUSTODY, "The hop").

Rules of this file: data. A session sets it from above (next_hop.py); nothing here names the session.
"""

from collections.abc import Callable
from typing import Protocol

from holdfast.engine.due_times import Timed
from holdfast.peers.peer import Peer


class Doubting(Protocol):
    """A sender of which the neighbour's answer is awaited. `in_doubt`: number -> sequence of what waits for it."""

    destination: str
    in_doubt: dict[int, int]


class TimedSender(Timed, Protocol):
    """A sender that may have something to do at a moment of its own."""

    @property
    def timed(self) -> bool: ...


class HopState:
    """What all senders to one neighbour share; it outlives sessions."""

    def __init__(self, name: str) -> None:
        """`name`: the neighbour's."""
        self.name = name
        self.peer: Peer | None = None
        """The connection of the session that is Established; None while none is."""
        self.unanswered: dict[Doubting, float] = {}
        """Those that sent something, and since when nothing of it was answered."""
        self.timed: dict[TimedSender, None] = {}
        """Those that may have something to do at a moment of their own: all are many, and few of them do."""
        self.messages_in = self.messages_out = 0
        """Taken of links that have ended, and stored by the neighbour."""
        self.stir: Callable[[], None] = _nobody
        """Its next moment may be nearer than was told last."""

    @property
    def established(self) -> bool:
        return self.peer is not None


def _nobody() -> None:
    """Stands for a session until there is one."""
