"""The connections of a node, and the only place where they end.

Rules of this file: every end of a connection calls `left`, once; parts that keep something for connections register a
function for that.
"""

from collections.abc import Callable

from holdfast.amqp.connection import ConnEvent
from holdfast.engine import events
from holdfast.engine.outbox import Outbox
from holdfast.peers.peer import Peer

Deliver = Callable[[Peer, list[ConnEvent]], None]
"""Passes the protocol events of an engine to the links that they concern."""


class Connections(dict[int, Peer]):
    """The open connections, by the driver's number, in the order in which they were opened."""

    def __init__(self, outbox: Outbox, deliver: Deliver) -> None:
        super().__init__()
        self._outbox = outbox
        self._deliver = deliver
        self.leaving: list[Callable[[Peer], None]] = []
        """Functions that are called with each connection that ends, in the order of registration."""
        self.touched: dict[Peer, None] = {}
        """Connections with something to write before the turn ends."""
        self.sending: dict[Peer, None] = {}
        """Connections that are sending large messages, the next one first."""

    def holds(self, peer: Peer) -> bool:
        """Whether it is still open."""
        return self.get(peer.number) is peer

    def each_leaves(self, tell: Callable[[Peer], None]) -> None:
        """`tell` is called with each connection that ends."""
        self.leaving.append(tell)

    def drop(self, peer: Peer, reason: str) -> None:
        """Ends a connection at once; deliveries in progress are lost, and are sent again."""
        if self.pop(peer.number, None) is not None:
            peer.log("INFO", f"connection ended: {reason}")
            self._outbox.put(events.CloseConnection(connection=peer.number, abort=True))
            self._lost(peer, reason)

    def told(self, peer: Peer, found: list[ConnEvent]) -> None:
        """Its engine has ended something: passes the events to those concerned."""
        peer.touch()
        self._deliver(peer, found)

    def lost(self, number: int, reason: str) -> None:
        """Its transport has ended."""
        peer = self.pop(number, None)
        if peer is not None:
            self._lost(peer, reason)

    def _lost(self, peer: Peer, reason: str) -> None:
        self._deliver(peer, peer.amqp.transport_lost())
        self.left(peer, reason)
        self.touched.pop(peer, None)

    def left(self, peer: Peer, reason: str) -> None:
        """Removes it and everything that is kept for it."""
        peer.amqp.tell = None
        for tell in self.leaving:
            tell(peer)
        if peer.neighbour is not None:
            peer.neighbour.lost(peer, reason)
        elif peer.remote is not None:
            peer.remote.lost(peer, reason)
