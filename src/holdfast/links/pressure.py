"""Back-pressure: bytes that came from peers and are not on disk yet are bounded, whatever credit and windows allow.

Rules of this file: bytes are counted when they are read, for each connection and turn, until the turn's commit is done.
Only bytes that a commit frees stop the reading, so reading always continues. Deliveries that wait for something else
(room in a queue) are bounded where they wait (incoming.py). Neighbours have a reserve of their own, so that their
control traffic is still read during uploads of clients; a neighbour that is paused because of its own messages gets
signs of life (peering/sessions.py).
"""

from collections.abc import Iterable, Sized
from typing import Final

from holdfast.amqp.connection import Partials
from holdfast.engine import events
from holdfast.engine.outbox import Outbox
from holdfast.engine.port import PIECE_BYTES
from holdfast.peers.connections import Connections
from holdfast.peers.limits.memory import Memory
from holdfast.peers.peer import UNSTORED, Peer
from holdfast.settings.limits import Limits
from holdfast.state.turns import Turns
from holdfast.units import KIB

CONTROL_BYTES: Final = 64 * KIB
"""Unstored bytes of a neighbour up to which it is still read, however much others have: it is control, not messages."""


def _is_neighbour(peer: Peer) -> bool:
    """Whether a session has adopted it as its neighbour's connection; a name alone proves nothing."""
    return peer.neighbour is not None


class Pressure:
    """Bytes in memory that came from peers, and the connections that are not read for now."""

    def __init__(
        self,
        limits: Limits,
        connections: Connections,
        turns: Turns,
        memory: Memory,
        outbox: Outbox,
        streams: Sized,
    ) -> None:
        """`streams`: large messages that are on their way in."""
        self._limits = limits
        self._connections = connections
        self._turns = turns
        self._memory = memory
        self._outbox = outbox
        self._streams = streams
        self.paused: dict[Peer, None] = {}
        self._all_paused = self._all_paused_beyond = False
        """Whether every connection was checked since the bound for all was exceeded, and since the bound for neighbours
        was."""
        self.ahead_bytes = 0
        """Bytes of large messages that are in no batch yet (large_receives.py)."""
        self.put_off_bytes = 0
        """Bytes that the driver has read and not handed over yet."""
        self.partials = Partials(self._limits.unfinished_bytes_max)
        """Bytes of incomplete deliveries (amqp/links/receiver.py)."""

    def heard(self, peer: Peer, size: int) -> None:
        """Counts bytes that came from `peer` in this turn."""
        peer.heard_bytes += size
        self._count(peer, size)

    def rewrote(self, peer: Peer, size: int) -> None:
        """An entry of so many bytes was rewritten for `peer`, which may be gone: that counts as if it had sent it."""
        self._count(peer, size)

    def _count(self, peer: Peer, size: int) -> None:
        turn = self._turns.gathered
        turn.heard_bytes += size
        turn.heard[peer] = turn.heard.get(peer, 0) + size
        self._memory.unstored.add(size)
        self._memory.passed_bytes += size
        self._bound(peer)

    def put_off(self, peer: Peer, size: int) -> None:
        """The driver has read so many bytes from `peer`, and hands them over later."""
        self.put_off_bytes += size
        self._memory.unstored.add(size)
        self._bound(peer)

    def _bound(self, peer: Peer) -> None:
        limits = self._limits
        total = self._total()
        if total <= limits.connection_unstored_bytes_max and total <= limits.unstored_bytes_max:
            return
        if total > limits.unstored_bytes_max:
            beyond = total > limits.unstored_bytes_max + limits.neighbours_unstored_bytes_max
            looks: Iterable[Peer] = (peer,) if self._connections.holds(peer) else ()
            if not self._all_paused or (beyond and not self._all_paused_beyond):  # there may be thousands
                looks = self._connections.values()
                self._all_paused, self._all_paused_beyond = True, beyond
            for other in looks:
                if not _is_neighbour(other) or (beyond and self._of(other) > CONTROL_BYTES):
                    self._pause(other)
        if self._of(peer) > limits.connection_unstored_bytes_max and self._connections.holds(peer):
            self._pause(peer)

    def _total(self) -> int:
        in_flight = self._turns.in_flight
        heard_bytes = self._turns.gathered.heard_bytes + (in_flight.heard_bytes if in_flight is not None else 0)
        return heard_bytes + self.ahead_bytes + self.put_off_bytes

    def _of(self, peer: Peer) -> int:
        in_flight = self._turns.in_flight
        before = in_flight.heard.get(peer, 0) if in_flight is not None else 0
        return self._turns.gathered.heard.get(peer, 0) + before + peer.ahead_bytes

    def _pause(self, peer: Peer) -> None:
        self.paused[peer] = None
        if peer.pause(UNSTORED):
            self._outbox.put(events.PauseReading(connection=peer.number))

    def relieve(self) -> None:
        """Called once a turn: reads connections again when the waiting bytes are down to half of both bounds."""
        total = self._total()
        self._memory.unstored.hold(total + len(self._streams) * PIECE_BYTES)
        self._all_paused = self._all_paused_beyond = False
        if not self.paused:
            return
        limits = self._limits
        for peer in list(self.paused):
            reserve = limits.neighbours_unstored_bytes_max if _is_neighbour(peer) else 0
            if not self._connections.holds(peer):
                del self.paused[peer]
            elif total > limits.unstored_bytes_max // 2 + reserve:
                continue
            elif self._of(peer) <= limits.connection_unstored_bytes_max // 2:
                del self.paused[peer]
                if peer.unpause(UNSTORED):
                    self._outbox.put(events.ResumeReading(connection=peer.number))
