"""The hop to one neighbour, as its custody senders see it (CUSTODY, "The hop").

Rules of this file: data. A session sets it from above (next_hop.py); nothing here names the session.
"""

from collections.abc import Callable, Iterable, Set
from typing import Protocol

from holdfast.broker.entries.host_names import DEFAULT_HOST, host_of
from holdfast.engine.due_times import Timed
from holdfast.peers.neighbours.features import HOSTS
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

    def __init__(self, name: str, hosts: Iterable[str] = ()) -> None:
        """`name`: the neighbour's. `hosts`: the virtual hosts beside the default one that may cross, as configured."""
        self.name = name
        self.hosts = frozenset((DEFAULT_HOST, *hosts))
        self.peer: Peer | None = None
        """The connection of the session that is Established; None while none is."""
        self.unanswered: dict[Doubting, float] = {}
        """Those that sent something, and since when nothing of it was answered."""
        self.timed: dict[TimedSender, None] = {}
        """Those that may have something to do at a moment of their own: all are many, and few of them do."""
        self.messages_in = self.messages_out = 0
        """Taken of links that have ended, and stored by the neighbour."""
        self.messages_shared = 0
        """Sent without their bare messages, which the neighbour had."""
        self.features: Callable[[], Set[str]] = frozenset
        """What the neighbour offers of what this node can."""
        self.stir: Callable[[], None] = _nobody
        """Its next moment may be nearer than was told last."""

    @property
    def established(self) -> bool:
        return self.peer is not None

    def may_have(self, destination: str) -> bool:
        """Whether messages for that destination may cross to the neighbour, and from it."""
        return host_of(destination) in self.hosts

    def takes(self, destination: str) -> bool:
        """Whether they may, and the neighbour's version knows such destinations, as far as it has said what it is."""
        if not host_of(destination):
            return "@" not in destination
        return self.may_have(destination) and HOSTS in self.features()


def _nobody() -> None:
    """Stands for a session until there is one."""
