"""Bounds for all peers together: unidentified connections, connections from one address, unread output.

Rules of this file: it counts, and drops connections. A peer that we dialled, or that a session has adopted as a
neighbour, is never dropped in favour of another one.
"""

from collections.abc import Callable
from typing import Final

from holdfast.amqp.effort import TAKEN
from holdfast.engine import events
from holdfast.engine.outbox import Outbox
from holdfast.peers.connections import Connections, Deliver
from holdfast.peers.limits.memory import Memory
from holdfast.peers.link_tables import LinkTables
from holdfast.peers.peer import EFFORT, Peer, host_of
from holdfast.settings.limits import Limits

EFFORT_A_TURN: Final = 10_000
"""Effort of one turn for all connections that wait for their share of work (amqp/effort.py); the last one may exceed
it."""


class Guard:
    """Enforces the bounds of unidentified connections, addresses, unread output and work, and chooses the connection to
    drop."""

    def __init__(
        self,
        limits: Limits,
        connections: Connections,
        outbox: Outbox,
        memory: Memory,
        links: LinkTables,
        deliver: Deliver,
        others: Callable[[], int],
    ) -> None:
        """`others`: how many connections do not count as clients: neighbours', and those that are being refused."""
        self._limits = limits
        self._connections = connections
        self._outbox = outbox
        self._memory = memory
        self._links = links
        self._deliver = deliver
        self._others = others
        self.half_open: dict[Peer, None] = {}
        """Accepted connections that have not opened yet, the oldest first."""
        self.reserved: dict[Peer, str] = {}
        """Those of them beyond the bounds for clients, with the reason; a neighbour is not bounded."""
        self.waiting: dict[Peer, None] = {}
        """Those whose engines wait for their share of work, the one that has waited longest first."""
        self.by_address: dict[str, int] = {}
        """Accepted connections by the remote host."""
        self._counted: dict[Peer, None] = {}
        """Connections that `by_address` counts."""

    # ------------------------------------------------------------------------------------------------ who is there

    def came(self, peer: Peer) -> None:
        """Counts an accepted connection. The oldest one that has not opened may be dropped to make room."""
        limits = self._limits
        host = host_of(peer.address)
        count = self.by_address.get(host, 0)
        self.by_address[host] = count + 1
        self._counted[peer] = None
        if count >= limits.address_connections_max:
            most = "the most that one address may have (address_connections_max)"
            self._reserve(peer, f"address {host} has {limits.address_connections_max} connections, {most}")
        elif self._clients() >= limits.connections_max:
            most = "the most there may be (connections_max)"
            self._reserve(peer, f"this node has {limits.connections_max} connections of clients, {most}")
        if len(self.half_open) >= limits.handshakes_max:
            oldest = next(iter(self.half_open))
            count = len(self.half_open)
            self._connections.drop(
                oldest, f"{count} connections have not opened, the most there may be (handshakes_max)"
            )
        self.half_open[peer] = None

    def _reserve(self, peer: Peer, reason: str) -> None:
        """Keeps the connection, which may turn out to be a neighbour's; the oldest unidentified connection makes
        room."""
        while len(self.reserved) >= self._limits.reserved_connections_max:
            oldest = next(iter(self.reserved))
            self._connections.drop(oldest, self.reserved.pop(oldest))
        self.reserved[peer] = reason

    def _clients(self) -> int:
        """Connections of clients that have a place."""
        return len(self._connections) - 1 - len(self.reserved) - self._others()

    def opened(self, peer: Peer) -> None:
        """The connection was identified: it gets a place, or is refused."""
        self.half_open.pop(peer, None)
        self.reserved.pop(peer, None)

    def left(self, peer: Peer) -> None:
        """Once for each connection."""
        self.half_open.pop(peer, None)
        self.reserved.pop(peer, None)
        self.waiting.pop(peer, None)
        self.uncount(peer)

    def uncount(self, peer: Peer) -> None:
        """Stops counting it for its address: it was refused, or has ended."""
        if peer not in self._counted:  # dialled by us, or refused before
            return
        host = host_of(peer.address)
        del self._counted[peer]
        count = self.by_address.get(host, 0) - 1
        if count > 0:
            self.by_address[host] = count
        else:
            self.by_address.pop(host, None)

    # ------------------------------------------------------------------------------------------------ what is taken

    def waits(self, peer: Peer) -> None:
        """Its engine has more to read than it may handle now: the connection is not read meanwhile."""
        if peer not in self.waiting:
            self.waiting[peer] = None
            if peer.pause(EFFORT):
                self._outbox.put(events.PauseReading(connection=peer.number))

    def next_deadline(self) -> float | None:
        """When one of the waiting connections may continue."""
        if not self.waiting:
            return None
        moments = [peer.amqp.resumes_at for peer in self.waiting]
        return min([at for at in moments if at is not None], default=None)

    def tick(self, now: float) -> None:
        """Connections that may continue get a turn's share each, as far as the turn allows; the others keep their
        order."""
        left = EFFORT_A_TURN
        for peer in list(self.waiting):
            resumes_at = peer.amqp.resumes_at
            if peer not in self.waiting or (resumes_at is not None and resumes_at > now):
                continue  # the share of another connection may have ended this one
            if left <= 0:
                break
            del self.waiting[peer]
            if peer.late:  # before the unread bytes
                peer.amqp.renew(now)
                self._links.refills.update(peer.late)
                peer.late.clear()
                left -= TAKEN
            else:
                self._deliver(peer, peer.amqp.resume(now))
                left -= peer.amqp.effort_used
            if not self._connections.holds(peer):
                continue
            peer.touch()
            if peer.amqp.resumes_at is None:
                if peer.unpause(EFFORT):
                    self._outbox.put(events.ResumeReading(connection=peer.number))
            elif not peer.amqp.closed:
                self.waiting[peer] = None

    def writing(self, peer: Peer, writable: bool) -> None:
        """The socket's buffer crossed its high or low mark."""
        peer.writable = writable
        peer.unread_bytes = 0
        self._memory.changed[peer] = None
        if writable:
            for link in list(peer.egress):
                link.credited()

    def unread(self, peer: Peer, chunks: list[bytes | memoryview]) -> bool:
        """Counts output for a connection that does not read; True if it is too much, and the connection is dropped. No
        messages are sent to it, so the output consists of answers to its own requests.
        """
        size = sum(len(chunk) for chunk in chunks)
        peer.unread_bytes += size
        self._memory.passed_bytes += size
        limit = self._limits.output_bytes_max
        if peer.unread_bytes <= limit:
            return False
        self._connections.drop(peer, f"it does not read: more than {limit} bytes of answers wait (output_bytes_max)")
        return True
