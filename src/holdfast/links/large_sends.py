"""Large messages that are being sent: read piece by piece, as fast as the peer accepts them (ADR 0014).

Rules of this file: a piece is read only when its socket accepts more and its session's window is open, so that memory
holds less than a piece and a frame of each. Large deliveries of one connection take turns, about a frame each. What one
turn of the loop writes of them is bounded, for each connection and for all, so that everything else can be sent in
between.
"""

from collections.abc import Callable
from typing import Any, Final

from holdfast.amqp.connection import Sender
from holdfast.broker.entries import entry
from holdfast.broker.entries.blob import Blob
from holdfast.engine.port import EntryReader
from holdfast.peers.connections import Connections
from holdfast.peers.limits.memory import Memory
from holdfast.peers.peer import Peer
from holdfast.state.blobs import Blobs
from holdfast.units import KIB, MIB

TURN_BYTES: Final = 256 * KIB
"""Bytes of large messages that one turn writes to one connection; to a neighbour one frame, because control frames wait
for it."""

NEIGHBOUR_TURN_BYTES: Final = 32 * KIB

PUMP_BYTES: Final = 8 * MIB
"""The same for all connections together; it takes about 10 ms."""

STEP_BYTES: Final = 32 * KIB
"""Bytes that one of several large messages may write before the next one continues, at least a frame."""


def bare_length(value: bytes, parts: tuple[Any, ...]) -> int:
    """The size of the delivery of an entry with BLOB; the last of `parts` is the reference."""
    return sum(len(part) for part in parts[:-1]) + entry.blob_of(value).length


class LargeSend:
    """One large delivery; `ended` is called once, when its last frame is written."""

    __slots__ = ("blob", "context", "ended", "index", "outgoing", "peer", "sends", "stopped")

    def __init__(
        self,
        sends: "LargeSends",
        peer: Peer,
        link: Sender,
        value: bytes,
        parts: tuple[Any, ...],
        *,
        context: Any,
        settled: bool,
        message_format: int,
        ended: Callable[[], None],
    ) -> None:
        """`parts` as they would be sent; the last one is the reference to the bare message."""
        self.sends = sends
        self.peer = peer
        self.context = context
        self.ended = ended
        self.index = 0
        self.stopped = False
        """Whether it was given up; its end is reported all the same."""
        self.blob: Blob = sends.blobs.pin(entry.blob_of(value).blob)
        self.outgoing = link.begin(
            b"".join(parts[:-1]),
            bare_length(value, parts),
            context=context,
            settled=settled,
            message_format=message_format,
        )
        peer.sends[self] = None
        sends.connections.sending[peer] = None
        peer.touch()

    @property
    def may_go_on(self) -> bool:
        return self.outgoing.over or not self.outgoing.blocked

    def step(self) -> int:
        """Writes a frame or more; returns their bytes, 0 where nothing may be written now."""
        outgoing = self.outgoing
        written = 0
        while not outgoing.over and not outgoing.blocked and written < STEP_BYTES:
            if outgoing.hungry:
                data = self.sends.store.piece(self.blob.number, self.index)
                assert data is not None, f"blob {self.blob.number} has lost its piece {self.index}"
                self.index += 1
                outgoing.feed(data)
            written += outgoing.flush(STEP_BYTES - written)
        if outgoing.over:
            self.close()
            self.ended()
        return written

    def stop(self) -> None:
        """The peer wants no more of it, or gets it from another node: aborts it."""
        self.stopped = True
        self.outgoing.abort()

    def close(self) -> None:
        """The delivery or its link has ended. Idempotent."""
        if self.peer.sends.pop(self, self) is self:
            return
        self.sends.blobs.unpin(self.blob)
        if not self.peer.sends:
            self.sends.connections.sending.pop(self.peer, None)


class LargeSends:
    """The large messages that all connections are sending."""

    def __init__(self, store: EntryReader, blobs: Blobs, connections: Connections, memory: Memory) -> None:
        self.store = store
        self.blobs = blobs
        self.connections = connections
        self._memory = memory

    def pump(self) -> None:
        """Writes one turn's share, for each connection as far as the turn's budget goes; connections that wrote nothing
        are first in the next turn."""
        sending = self.connections.sending
        left = min(PUMP_BYTES, self._memory.offered_max)
        for peer in list(sending):
            if left <= 0:
                break
            if not peer.writable:
                continue
            left -= _pump_one(peer)
            if peer in sending:
                del sending[peer]
                sending[peer] = None

    def due(self) -> bool:
        """Whether the next turn can write more at once."""
        return any(peer.writable and any(send.may_go_on for send in peer.sends) for peer in self.connections.sending)


def _pump_one(peer: Peer) -> int:
    """A connection's share of the turn; its bytes."""
    most = TURN_BYTES if peer.neighbour is None else NEIGHBOUR_TURN_BYTES
    left = most
    while left > 0 and peer.writable and peer.sends:
        written = 0
        for send in list(peer.sends):
            step = send.step()
            written += step
            if step and send in peer.sends:  # the next one's turn, now and in the next turn
                del peer.sends[send]
                peer.sends[send] = None
            left -= step
            if left <= 0:
                break
        if not written:
            break
        peer.touch()
    return most - left
