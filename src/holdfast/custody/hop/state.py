"""The hop to one neighbour, as its custody senders see it (CUSTODY, "The hop").

Rules of this file: data, which a session sets (next_hop.py); nothing here knows the session.
"""

from collections.abc import Callable, Iterable, Set
from typing import Protocol

from holdfast.broker.entries.host_names import DEFAULT_HOST, host_of
from holdfast.engine.due_times import Timed
from holdfast.peers.neighbours.features import HOSTS
from holdfast.peers.peer import Peer


class Doubting(Protocol):
    """A sender that awaits the neighbour's answers. `in_doubt`: number -> sequence of each transfer without an
    answer."""

    destination: str
    in_doubt: dict[int, int]


class TimedSender(Timed, Protocol):
    """A sender that may have a deadline of its own."""

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
        """Senders with unanswered transfers, and since when nothing was answered."""
        self.timed: dict[TimedSender, None] = {}
        """Senders that may have a deadline of their own: few of many."""
        self.messages_in = self.messages_out = 0
        """Messages accepted on links that have ended, and messages that the neighbour has stored."""
        self.messages_shared = 0
        """Messages sent without their bare messages, which the neighbour had."""
        self.features: Callable[[], Set[str]] = frozenset
        """Features that both the neighbour and this node offer."""
        self.stir: Callable[[], None] = _nobody
        """Its deadline may have become earlier."""

    @property
    def established(self) -> bool:
        return self.peer is not None

    def may_have(self, destination: str) -> bool:
        """Whether messages for that destination may cross to the neighbour, and from it."""
        return host_of(destination) in self.hosts

    def takes(self, destination: str) -> bool:
        """Whether they may, and the neighbour supports such destinations, as far as its features are known."""
        if not host_of(destination):
            return "@" not in destination
        return self.may_have(destination) and HOSTS in self.features()


def _nobody() -> None:
    """The placeholder until there is a session."""
