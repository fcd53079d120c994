"""Qpid Proton's engine alone, without its reactor: the test decides what goes into one write and what is read when.

Rules of this file: the socket's time limit is the limit of all waiting.
"""

import socket
from collections.abc import Callable
from typing import Any

from proton import Collector, Connection, Delivery, Link, Message, Transport


def engine(*, sasl: bool = False, max_frame_bytes: int | None = None) -> tuple[Connection, Transport, Collector]:
    """A connection whose own open is under way, and its transport."""
    connection = Connection()
    connection.container = "engine"
    collector = Collector()
    connection.collect(collector)
    connection.open()
    transport = Transport()
    if max_frame_bytes is not None:
        transport.max_frame_size = max_frame_bytes
    if sasl:
        transport.sasl().allowed_mechs("ANONYMOUS")
    transport.bind(connection)
    return connection, transport, collector


def flush(transport: Transport, wire: socket.socket, *, part_bytes: int | None = None) -> int:
    """Sends all that is pending, in one segment or in parts of that size; returns how much that was."""
    payload = bytes(transport.peek(transport.pending()) or b"") if transport.pending() > 0 else b""
    if payload:
        step = part_bytes or len(payload)
        for at in range(0, len(payload), step):
            wire.sendall(payload[at : at + step])
        transport.pop(len(payload))
    return len(payload)


def pump_until(transport: Transport, wire: socket.socket, done: Callable[[], object]) -> None:
    """Reads and writes until `done()`; the socket's time limit is the limit."""
    while not done():
        flush(transport, wire)
        data = wire.recv(65536)
        assert data, "the node ended the connection"
        while data:  # its buffer need not hold all of it at once
            room = transport.capacity()
            transport.push(data[:room])
            data = data[room:]
    flush(transport, wire)


class EntryConsumer:
    """Accepts what comes over a receiving link and keeps the bodies; reads parts as they come, so that windows open."""

    def __init__(self, receiver: Link) -> None:
        self.receiver = receiver
        self.bodies: list[Any] = []
        self._parts = b""

    def take(self) -> int:
        """Reads all that there is; how many whole messages there have been."""
        while (delivery := self.receiver.current) is not None:
            self._parts += self.receiver.recv(delivery.pending) or b""
            if delivery.partial:
                break
            message = Message()
            message.decode(self._parts)
            self._parts = b""
            self.bodies.append(bytes(message.body) if isinstance(message.body, memoryview) else message.body)
            self.receiver.advance()  # to settle the current one would move on by itself
            delivery.update(Delivery.ACCEPTED)
            delivery.settle()
        return len(self.bodies)
