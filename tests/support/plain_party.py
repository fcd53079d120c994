"""A plain broker at the other end of a node's wire (holdfast_lab/base/plain_broker.py).

Rules of this file: those of support/rig.py.
"""

from typing import Any, Protocol

from holdfast.amqp.message.message import Message
from holdfast_lab.base.plain_broker import PlainBroker, PlainConnection
from support.wires import End


class Timed(Protocol):
    """The world, as far as it has a time."""

    now: float


class PlainParty:
    """One connection of a node to the broker."""

    def __init__(self, rig: Timed, broker: PlainBroker, **settings: Any) -> None:
        self.rig = rig
        self.connection = PlainConnection(broker, rig.now, **settings)
        self.end: End | None = None

    def receive(self, data: bytes) -> None:
        self.connection.receive(data, self.rig.now)

    def lost(self) -> None:
        self.connection.lost()

    @property
    def has_written(self) -> bool:
        return bool(self.connection.amqp.output or self.connection.amqp._login_output)

    def flush(self) -> None:
        data = self.connection.take_output(self.rig.now)
        if data and self.end is not None and self.end.alive:
            self.end.wire.write(self.end, data)

    def cut(self) -> None:
        """What is under way vanishes."""
        assert self.end is not None
        self.end.wire.cut()


def bodies(payloads: list[bytes]) -> list[str]:
    return [Message.decode(payload).body_bytes().decode() for payload in payloads]


def payload(body: str, **parts: Any) -> bytes:
    return Message(data=[body.encode()], **parts).encode()
