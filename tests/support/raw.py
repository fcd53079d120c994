"""A peer that says whatever bytes it is told to, joined to a node in memory.

Rules of this file: nothing is checked on this side; what the node answers is kept as performatives.
"""

from typing import Any

from amqp.joined import performatives, wire
from holdfast.amqp.wire.frames import AMQP_HEADER
from holdfast.amqp.wire.performatives import Attach, Begin, Flow, Open, Source, Target, Transfer
from support.rig import Node, Rig

HELLO = AMQP_HEADER + wire(Open("raw"), Begin(None, 0, 5_000, 5_000))
DATA = b"\x00\x53\x75\xa0\x01x"
"""A message of one data section."""


class _Nobody:
    """Watches nothing."""

    def hear(self, data: bytes) -> None:
        """Whatever it is."""

    say = hear


class Raw:
    """One connection. `heard`: (channel, performative, payload) since the last `take`; `alive`: the node keeps it."""

    def __init__(
        self,
        rig: Rig,
        node: Node,
        *,
        address: str = "10.0.0.1",
        loopback: bool = True,
        encrypted: bool = False,
        nonce: bytes = b"",
    ) -> None:
        self.rig = rig
        self.node = node
        self.received = b""
        self.over = False
        peer = f"{address}:1024"
        self.end = rig.attach(self, node, peer=peer, loopback=loopback, encrypted=encrypted, nonce=nonce)
        theirs = self.end.wire.other(self.end)
        theirs.watch = _Nobody()  # type: ignore[assignment]  # what this peer says need not be frames
        self.number = theirs.number

    def receive(self, data: bytes) -> None:
        self.received += data

    def lost(self) -> None:
        self.over = True

    @property
    def alive(self) -> bool:
        """Whether the node still has the connection."""
        return self.node.core is not None and self.number in self.node.core.connections

    @property
    def served(self) -> bool:
        """Whether the connection has a place, and is not kept for the answer that it has none."""
        core = self.node.core
        return self.alive and core is not None and core.connections[self.number] not in core.refusals.due

    def say(self, *said: Any, channel: int = 0, settle: bool = True) -> list[Any]:
        """Bytes as they are, performatives framed, all in one read; what the node answered."""
        data = b"".join(item if isinstance(item, bytes) else wire(item, channel=channel) for item in said)
        if self.end.alive:
            self.end.wire.write(self.end, data)
        if settle:
            self.rig.settle()
        return self.take()

    def take(self, kind: type | None = None) -> list[Any]:
        """What the node said since; of one kind if given."""
        data, self.received = self.received, b""
        found = [value for _, value, _ in performatives(data)]
        return [value for value in found if kind is None or isinstance(value, kind)]


def opened(rig: Rig, node: Node, **options: Any) -> Raw:
    """A peer with a session on channel 0."""
    raw = Raw(rig, node, **options)
    raw.say(HELLO)
    return raw


def sends(address: str = "work", *, handle: int = 0, name: str | None = None, **terms: Any) -> Attach:
    """The attach of a link on which the peer sends."""
    return Attach(
        name or f"to{handle}", handle, False, source=Source(), target=Target(address), initial_delivery_count=0, **terms
    )


def receives(address: str = "work", *, handle: int = 0, name: str | None = None, **terms: Any) -> Attach:
    """The attach of a link on which the peer receives."""
    return Attach(name or f"from{handle}", handle, True, source=Source(address), target=Target("here"), **terms)


def credit(count: int, *, handle: int = 0, window: int = 5_000, **more: Any) -> Flow:
    """The flow that grants it."""
    return Flow(0, window, 0, 5_000, handle, 0, count, **more)


def transfer(number: int = 0, payload: bytes = DATA, *, handle: int = 0, **more: Any) -> bytes:
    """A framed transfer of one frame, or of the first of several with `more`."""
    return wire((Transfer(handle, number, bytes((number & 0xFF,)), 0, **more), payload))
