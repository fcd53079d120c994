"""The connections of a node: turns reports of their sockets into events; listens for them and closes them.

Rules of this file: it decides nothing, except that it drops connections beyond those that the core refuses.
"""

import asyncio
import secrets
from collections.abc import Callable, Iterable
from typing import Final

from holdfast.engine.events import (
    ConnectionLost,
    ConnectionOpened,
    DriverWarned,
    Event,
    Secured,
    SecuringFailed,
    WritingPaused,
    WritingResumed,
)
from holdfast.engine.reads import Reads
from holdfast.names import TLS_SCHEME, HostPort
from holdfast.node.network.certificates import Certificates
from holdfast.node.network.descriptors import Descriptors
from holdfast.node.network.encryption import Encryption
from holdfast.node.network.failures import Failures
from holdfast.node.network.transport import BACKLOG, Peer, listen
from holdfast.peers.limits.refusals import REFUSALS_MAX
from holdfast.settings.node import NodeConfig

CLOSE_TIME_OUT_S: Final = 30.0
"""How long a closed connection may still read what was written before."""
NONCE_BYTES: Final = 18
"""Of each connection: as many as RFC 5802's example has, and a whole number of characters of base 64."""


class Connections:
    """All connections, by number, in `peers`. Created and called on the loop's thread; `feed` hands an event to the
    core."""

    def __init__(
        self,
        config: NodeConfig,
        feed: Callable[[Event], None],
        reads: Reads,
        descriptors: Descriptors,
        certificates: Certificates | None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._feed = feed
        self._reads = reads
        self._descriptors = descriptors
        self._certificates = certificates
        self._loopback_only = not config.has_users
        limits = config.limits
        self._connections_max = limits.connections_max
        places = limits.connections_max + limits.reserved_connections_max
        self._accepted_max = places + REFUSALS_MAX + 2 * len(config.neighbours)
        """The core refuses those past `connections_max`, once it knows that they are no neighbours."""
        self.peers: dict[int, Peer] = {}
        self.written: dict[int, Peer] = {}
        """Connections that were written to since their buffers were last measured, or that still held something."""
        self.failed = Failures(feed).end
        self._servers: list[asyncio.AbstractServer] = []
        self._last_connection = 0
        self._refuses = False
        self._full_told = False
        self._all_gone: Callable[[], None] | None = None

    async def listen(self, where: Iterable[HostPort], where_tls: Iterable[HostPort]) -> list[str]:
        """Listens there; returns each listener's HOST:PORT, with amqps:// before it where TLS is spoken. Raises
        ConfigError or HoldfastError if it cannot."""
        served: list[str] = []
        for scheme, places, make in (
            ("", where, lambda: Peer(self, None)),
            (TLS_SCHEME, where_tls, lambda: Peer(self, None, self._accepted())),
        ):
            for place in places:
                listeners = listen(place, loopback_only=self._loopback_only)
                served.append(f"{scheme}{place._replace(port=listeners[0].getsockname()[1])}")
                for listener in listeners:
                    # The loop listens again, by default with a backlog of 100: a burst would have to repeat its
                    # connects.
                    server = await self._loop.create_server(make, sock=listener, backlog=BACKLOG)
                    self._servers.append(server)
        return served

    def _accepted(self) -> Encryption:
        assert self._certificates is not None
        return self._certificates.accepted()

    def refuse(self) -> None:
        """Takes no further connections. Idempotent."""
        self._refuses = True
        for server in self._servers:
            server.close()

    def close(self, peer: Peer, *, abort: bool) -> None:
        """Ends a connection: at once, or after its output was written."""
        if abort:
            peer.transport.abort()
        elif peer.close_timer is None:
            peer.close_timer = self._loop.call_later(CLOSE_TIME_OUT_S, peer.transport.abort)
            peer.end()

    def close_all(self, then: Callable[[], None]) -> None:
        """Ends all connections after their output was written; `then` is called when the last is gone."""
        self._all_gone = then
        for peer in list(self.peers.values()):
            self.close(peer, abort=False)
        self._tell_if_all_gone()

    def unsent(self) -> tuple[tuple[int, int], ...]:
        """(connection, bytes that wait for its socket) of those for which this changed."""
        written, self.written = self.written, {}
        changed = []
        for connection, peer in written.items():
            size = int(peer.transport.get_write_buffer_size())
            if size:
                self.written[connection] = peer
            if size != peer.unsent_bytes:
                peer.unsent_bytes = size
                changed.append((connection, size))
        return tuple(changed)

    # ---------------------------------------------------------------------------------- reports of the peers

    def connected(self, peer: Peer) -> None:
        """A connection was opened; one beyond the bound is dropped at once."""
        if self._refuses or (peer.neighbour is None and self._is_full()):
            peer.transport.abort()
            return
        self._descriptors.taken(peer.file_number)
        self._last_connection += 1
        peer.connection = self._last_connection
        self.peers[peer.connection] = peer
        self._feed(
            ConnectionOpened(
                connection=peer.connection,
                peer=peer.peer_name,
                loopback=peer.loopback,
                neighbour=peer.neighbour,
                encrypted=peer.encryption is not None,
                nonce=secrets.token_bytes(NONCE_BYTES),
            )
        )

    def secured(self, peer: Peer, encryption: Encryption) -> None:
        """TLS is established on a connection."""
        if peer.connection in self.peers:
            self._feed(
                Secured(connection=peer.connection, version=encryption.version, certificate=encryption.certificate)
            )

    def check_revoked(self) -> None:
        """Ends the connections of which the peer's certificate is revoked now."""
        for peer in list(self.peers.values()):
            peer.check_revoked()

    def securing_failed(self, peer: Peer, reason: str) -> None:
        """TLS has failed on a connection: it ends once the other end was told."""
        self.close(peer, abort=False)
        if peer.connection in self.peers:
            self._feed(SecuringFailed(connection=peer.connection, reason=reason))

    def received(self, connection: int, data: bytes) -> None:
        """One read of a socket."""
        peer = self.peers.get(connection)
        if peer is not None:
            self._reads.received(peer, data)

    def writing(self, connection: int, *, paused: bool) -> None:
        """A socket's buffer crossed its high or low mark."""
        if connection in self.peers:
            event = WritingPaused if paused else WritingResumed
            self._feed(event(connection=connection))

    def lost(self, peer: Peer, reason: str) -> None:
        """A connection is gone."""
        self._reads.lost(peer)
        self.written.pop(peer.connection, None)
        if self.peers.pop(peer.connection, None) is None:
            return
        if len(self.peers) < self._connections_max:
            self._full_told = False
        self._feed(ConnectionLost(connection=peer.connection, reason=reason))
        self._tell_if_all_gone()

    def _tell_if_all_gone(self) -> None:
        if self._all_gone is not None and not self.peers:
            self._all_gone()

    def _is_full(self) -> bool:
        if len(self.peers) < self._accepted_max:
            return False
        if not self._full_told:  # One line for each time the bound is reached, not for each connection.
            self._full_told = True
            text = f"connections_max {self._connections_max} and its reserve reached: further ones are dropped"
            text += " without an answer; raise it, or end some clients"
            self._feed(DriverWarned(about="connections_max", text=text))
        return True
