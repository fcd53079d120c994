"""Sockets: their options, listening, and the asyncio protocol that passes on their bytes.

Rules of this file: it knows neither AMQP nor the core; bytes are passed on unchanged, or as TLS has them
(encryption.py), with one call for each read.
Source for the options: tcp(7).
"""

import asyncio
import errno
import fcntl
import socket
import struct
import termios
from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol, cast

from holdfast.dialling import is_loopback
from holdfast.engine.reads import Reading
from holdfast.errors import ConfigError
from holdfast.names import HostPort
from holdfast.node.network.encryption import Encryption
from holdfast.node.socket_errors import cannot_listen, describe

BACKLOG: Final = 1024
WRITE_HIGH_BYTES: Final = 256 * 1024
WRITE_LOW_BYTES: Final = 64 * 1024
NOTSENT_BYTES: Final = 128 * 1024
"""What may lie unsent in the kernel's buffer of a connection that came to us."""
NEIGHBOUR_WRITE_HIGH_BYTES: Final = 32 * 1024
NEIGHBOUR_WRITE_LOW_BYTES: Final = 8 * 1024
NEIGHBOUR_NOTSENT_BYTES: Final = 16 * 1024
"""The same to a neighbour: on a thin link control cannot overtake what is already in the socket."""
UNJOINED_BYTES: Final = 16 * 1024
"""From so many bytes on a chunk is written from where it lies."""


class PeerOwner(Protocol):
    """What a Peer reports to."""

    def connected(self, peer: "Peer") -> None: ...
    def secured(self, peer: "Peer", encryption: Encryption) -> None: ...
    def securing_failed(self, peer: "Peer", reason: str) -> None: ...
    def received(self, connection: int, data: bytes) -> None: ...
    def lost(self, peer: "Peer", reason: str) -> None: ...
    def writing(self, connection: int, *, paused: bool) -> None: ...
    def failed(self, peer: "Peer", error: Exception) -> None: ...


class Peer(asyncio.Protocol, Reading):
    """One connection. `connection` is 0 until its owner has accepted it, and stays 0 if the owner refused it.

    `encryption`: of TLS; None where none is spoken. With it, `written_bytes` and whatever else counts output counts
    what the socket was given, as the kernel does; never what the core has said.
    """

    __slots__ = (
        "close_timer",
        "encryption",
        "loopback",
        "neighbour",
        "owner",
        "peer_name",
        "transport",
        "unsent_bytes",
        "why",
        "written_bytes",
    )

    transport: asyncio.Transport

    def __init__(self, owner: PeerOwner, neighbour: str | None, encryption: Encryption | None = None) -> None:
        super().__init__()
        self.owner = owner
        self.neighbour = neighbour
        self.encryption = encryption
        self.why: str | None = None
        """For what the transport cannot say: how TLS failed."""
        self.peer_name = ""
        self.loopback = False
        self.written_bytes = 0
        self.unsent_bytes = 0
        """The last state of the transport's buffer that was reported to the core."""
        self.close_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its base class
        try:
            self._opened()
        except Exception as error:
            self.owner.failed(self, error)

    def _opened(self) -> None:
        address = self.transport.get_extra_info("peername")
        if isinstance(address, tuple) and len(address) >= 2:
            self.peer_name = str(HostPort(address[0], address[1]))
            self.loopback = is_loopback(address[0])
        own = self.transport.get_extra_info("socket")
        if self.neighbour is None:
            set_options(own, NOTSENT_BYTES)
            self.transport.set_write_buffer_limits(WRITE_HIGH_BYTES, WRITE_LOW_BYTES)
        else:
            set_options(own, NEIGHBOUR_NOTSENT_BYTES)
            self.transport.set_write_buffer_limits(NEIGHBOUR_WRITE_HIGH_BYTES, NEIGHBOUR_WRITE_LOW_BYTES)
        self.owner.connected(self)
        if self.encryption is not None and self.neighbour is not None and not self.transport.is_closing():
            self.encryption.start()
            self._flush(self.encryption)

    def data_received(self, data: bytes) -> None:
        try:
            if self.encryption is None:
                self.owner.received(self.connection, data)
            elif self.why is None:
                self._decrypt(self.encryption, data)
        except Exception as error:
            self.owner.failed(self, error)

    def _decrypt(self, encryption: Encryption, data: bytes) -> None:
        established = encryption.established
        said = encryption.receive(data)
        if encryption.established and not established:
            self.owner.secured(self, encryption)
        answered = self._flush(encryption)
        if answered and established:
            encryption.answered(answered, self.transport.get_write_buffer_size())
        if said:
            self.owner.received(self.connection, said)
        if encryption.ended:
            self.transport.close()
        self._look_at(encryption)

    def write_encrypted(self, encryption: Encryption, chunks: Sequence[bytes | memoryview]) -> None:
        """Writes what the core says, as TLS has it."""
        if self.why is None:
            encryption.send(chunks)
            self._flush(encryption)
            self._look_at(encryption)

    def _flush(self, encryption: Encryption) -> int:
        """Writes what TLS has to say; returns its bytes."""
        output = encryption.take_output()
        if output:
            self.transport.write(output)
            self.written_bytes += len(output)
        return len(output)

    def check_revoked(self) -> None:
        """Ends it if its peer's certificate is revoked now."""
        if self.encryption is not None:
            self.encryption.check_revoked()
            self._look_at(self.encryption)

    def _look_at(self, encryption: Encryption) -> None:
        if encryption.failure is not None and self.why is None:
            self.why = encryption.failure
            self.owner.securing_failed(self, encryption.failure)

    def end(self) -> None:
        """Closes it once its output was written; TLS says so."""
        if self.encryption is not None and self.why is None:
            self.encryption.close()
            self._flush(self.encryption)
        self.transport.close()

    def stop_reading(self) -> None:
        if not self.transport.is_closing():
            self.transport.pause_reading()

    def start_reading(self) -> None:
        if not self.transport.is_closing():
            self.transport.resume_reading()

    def acknowledged_bytes(self) -> int | None:
        """How much of `written_bytes` the other end's system has acknowledged; None if this system cannot report it.

        Linux: SIOCOUTQ, "the amount of unsent data in the socket send queue" and of what was sent and not
        acknowledged (tcp(7)); it has the number of TIOCOUTQ.
        """
        try:
            number = self.transport.get_extra_info("socket").fileno()
            answer = fcntl.ioctl(number, termios.TIOCOUTQ, bytes(4))
        except (OSError, ValueError):
            return None
        (queued_bytes,) = struct.unpack("=i", answer)
        return max(0, self.written_bytes - int(self.transport.get_write_buffer_size()) - int(queued_bytes))

    @property
    def file_number(self) -> int | None:
        """The socket's descriptor; None if the transport has none."""
        own = self.transport.get_extra_info("socket")
        return None if own is None else int(own.fileno())

    def pause_writing(self) -> None:
        self._writing(paused=True)

    def resume_writing(self) -> None:
        self._writing(paused=False)

    def _writing(self, *, paused: bool) -> None:
        try:
            self.owner.writing(self.connection, paused=paused)
        except Exception as error:
            self.owner.failed(self, error)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.close_timer is not None:
            self.close_timer.cancel()
        self.owner.lost(self, self.why or ("closed" if exc is None else describe(exc)))


def write(transport: asyncio.WriteTransport, chunks: Sequence[bytes | memoryview]) -> int:
    """Writes the chunks, and joins small ones, because many chunks cost the loop more than copying them. Returns their
    bytes.
    """
    if len(chunks) == 1:
        transport.write(chunks[0])
        return len(chunks[0])
    if max(map(len, chunks)) < UNJOINED_BYTES:
        data = b"".join(chunks)
        transport.write(data)
        return len(data)
    transport.writelines([*_joined(chunks)])
    return sum(map(len, chunks))


def _joined(chunks: Sequence[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    small: list[bytes | memoryview] = []
    for chunk in chunks:
        if len(chunk) < UNJOINED_BYTES:
            small.append(chunk)
            continue
        if small:
            yield b"".join(small)
            small.clear()
        yield chunk
    if small:
        yield b"".join(small)


def set_options(own: Any, notsent_bytes: int) -> None:
    """Sets TCP_NODELAY, and a small unsent buffer in the kernel. Options that the system does not know are skipped."""
    for option, value in ((socket.TCP_NODELAY, 1), (socket.TCP_NOTSENT_LOWAT, notsent_bytes)):
        try:
            own.setsockopt(socket.IPPROTO_TCP, option, value)
        except OSError:
            continue


def _bound(family: int, address: Any) -> socket.socket:
    own = socket.socket(family, socket.SOCK_STREAM)
    try:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            own.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        own.setblocking(False)
        own.bind(address)
        own.listen(BACKLOG)
    except OSError:
        own.close()
        raise
    return own


def listen(where: HostPort, *, loopback_only: bool) -> list[socket.socket]:
    """Listening sockets for each address of `where`, all on one port; ask `getsockname` of the first for it.

    Raises ConfigError if the host is not one of this machine, or not on loopback although it must be, and HoldfastError
    if the port is in use.
    """
    try:
        infos = socket.getaddrinfo(where.host, where.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise cannot_listen("node listen", where, error) from None
    listeners: list[socket.socket] = []
    port = where.port
    for family, _, _, _, address in sorted(infos, key=lambda info: info[0] != socket.AF_INET):
        if loopback_only and not is_loopback(str(address[0])):
            continue
        try:
            listener = _bound(family, (address[0], port, *address[2:]))
        except OSError as error:
            if listeners and error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                continue
            for listener in listeners:
                listener.close()
            raise cannot_listen("node listen", where, error) from None
        port = listener.getsockname()[1]
        listeners.append(listener)
    if not listeners:
        raise ConfigError(
            f"node listen has {where} without a [[user]]; add a user, or listen on loopback only "
            "(127.0.0.1, ::1, localhost)"
        )
    return listeners
