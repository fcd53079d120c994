"""Back-pressure: what came from the peers and is not on disk yet is bounded, whatever credit and windows allow.

Rules of this file: bytes are counted as they are read, a connection's by turn, until the turn's commit is done: only
what a commit resolves stops the reading, which therefore always goes on. What waits for something else (room in a
queue) is bounded where it waits (incoming.py). Neighbours have a reserve of their own, so that clients' uploads leave
their control traffic read; one that is paused for what it brought itself is told that this node lives (sessions.py).
"""

from typing import TYPE_CHECKING, Final

from holdfast.amqp.connection import Partials
from holdfast.broker.port import PIECE_BYTES
from holdfast.core import events
from holdfast.core.peer import UNSTORED, Peer
from holdfast.units import KIB

if TYPE_CHECKING:
    from holdfast.core.node import NodeCore


CONTROL_BYTES: Final = 64 * KIB
"""A neighbour of which so little is unstored is read on whatever all others brought: it is control, not messages."""


def _is_neighbour(peer: Peer) -> bool:
    """Whether a session has it as its neighbour's connection, which nobody is by a name alone."""
    return peer.neighbour is not None


class Pressure:
    """What is held in memory of what came, and which connections are not read from for now."""

    def __init__(self, core: "NodeCore") -> None:
        self.core = core
        self.paused: dict[Peer, None] = {}
        self.ahead_bytes = 0
        """Of large messages, what no batch holds yet (streams.py)."""
        self.put_off_bytes = 0
        """Read by the driver and not handed in yet."""
        self.partials = Partials(core.config.limits.unfinished_bytes_max)
        """Of deliveries that have not come whole (amqp/receiver.py)."""

    def heard(self, peer: Peer, size: int) -> None:
        """So many bytes came from `peer` in this turn."""
        peer.heard_bytes += size
        self._count(peer, size)

    def rewrote(self, peer: Peer, size: int) -> None:
        """An entry of so many bytes was put anew for `peer`, which may be gone: that counts as if it had sent it."""
        self._count(peer, size)

    def _count(self, peer: Peer, size: int) -> None:
        core, turn = self.core, self.core.turns.gathered
        turn.heard_bytes += size
        turn.heard[peer] = turn.heard.get(peer, 0) + size
        core.memory.unstored.add(size)
        core.memory.passed_bytes += size
        self._bound(peer)

    def put_off(self, peer: Peer, size: int) -> None:
        """The driver has read so many bytes of `peer` that it hands in later."""
        self.put_off_bytes += size
        self.core.memory.unstored.add(size)
        self._bound(peer)

    def measured(self, event: events.TurnEnded) -> None:
        """What the driver measured: of the process, of its own buffers, of the turn before."""
        core = self.core
        if event.resident_bytes is not None:
            core.resident_bytes = event.resident_bytes
        self.put_off_bytes = event.put_off_bytes
        if event.unsent:
            core.memory.unsent(event.unsent)
        if event.cpu_s is not None:
            core.turn_times.note(event.cpu_s, event.kinds, core.clock.now)

    def _bound(self, peer: Peer) -> None:
        core = self.core
        limits = core.config.limits
        total = self._total()
        if total <= limits.connection_unstored_bytes_max and total <= limits.unstored_bytes_max:
            return
        if total > limits.unstored_bytes_max:
            beyond = total > limits.unstored_bytes_max + limits.neighbours_unstored_bytes_max
            for other in core.connections.values():
                if not _is_neighbour(other) or (beyond and self._of(other) > CONTROL_BYTES):
                    self._pause(other)
        if self._of(peer) > limits.connection_unstored_bytes_max and core.connections.holds(peer):
            self._pause(peer)

    def _total(self) -> int:
        core = self.core
        in_flight = core.turns.in_flight
        heard_bytes = core.turns.gathered.heard_bytes + (in_flight.heard_bytes if in_flight is not None else 0)
        return heard_bytes + self.ahead_bytes + self.put_off_bytes

    def _of(self, peer: Peer) -> int:
        core = self.core
        in_flight = core.turns.in_flight
        before = in_flight.heard.get(peer, 0) if in_flight is not None else 0
        return core.turns.gathered.heard.get(peer, 0) + before + peer.ahead_bytes

    def _pause(self, peer: Peer) -> None:
        self.paused[peer] = None
        if peer.pause(UNSTORED):
            self.core.outbox.put(events.PauseReading(connection=peer.number))

    def relieve(self) -> None:
        """Once a turn: reads on where what waits is down to half of both bounds."""
        total = self._total()
        self.core.memory.unstored.hold(total + len(self.core.streams) * PIECE_BYTES)
        if not self.paused:
            return
        limits = self.core.config.limits
        for peer in list(self.paused):
            reserve = limits.neighbours_unstored_bytes_max if _is_neighbour(peer) else 0
            if not self.core.connections.holds(peer):
                del self.paused[peer]
            elif total > limits.unstored_bytes_max // 2 + reserve:
                continue
            elif self._of(peer) <= limits.connection_unstored_bytes_max // 2:
                del self.paused[peer]
                if peer.unpause(UNSTORED):
                    self.core.outbox.put(events.ResumeReading(connection=peer.number))
