"""A producer whose link is resumed, by hand (AMQP 1.0 §2.6.13).

Rules of this file: it knows what is in doubt as a client does, and says no more than it is told to.
"""

from typing import Any

from holdfast.amqp.connection import Sender
from support.rig import Client, Node, Rig

HOLD_S = 30


class Producer:
    """A sending peer that keeps its unsettled map, by hand: body by tag, and what it asks of its target."""

    def __init__(self, rig: Rig, node: Node, name: str = "p", *, hostname: str | None = None, **target: Any) -> None:
        self.rig, self.node, self.name = rig, node, name
        self.hostname = hostname
        self.target = {"timeout": HOLD_S} | target
        self.next_tag = 0
        self.doubt: dict[bytes, str] = {}
        self.client = rig.client(node, hostname=hostname)
        self.link = self.attach(None)

    def attach(self, unsettled: dict[bytes, Any] | None) -> Sender:
        offset = self.client.session.tag_offset(self.next_tag)
        self.link = self.client.sender(
            "work", name=self.name, unsettled=unsettled, properties={"holdfast:tag-offset": offset}, target=self.target
        )
        self.link.use_tags(offset)
        self.rig.settle()
        return self.link

    def send(self, *bodies: str) -> None:
        for body in bodies:
            self.client.send(self.link, body)

    def flush(self) -> bytes:
        """What the client has said and the node has not read yet, taken off the wire."""
        self.client.flush()
        end = self.client.end
        assert end is not None
        data = bytes(end.wire.other(end).inbox)
        end.wire.other(end).inbox.clear()
        return data

    def say(self, client: Client, data: bytes) -> None:
        assert client.end is not None
        client.end.wire.other(client.end).receive(data)

    def lose(self, *, silent: bool = False) -> None:
        """The connection breaks; what had no outcome is in doubt."""
        assert self.client.end is not None
        live = self.link.suspended if self.link.over else self.link.unsettled_tags()
        self.doubt |= live
        self.next_tag = self.link.next_tag
        self.client.end.wire.cut(silent=silent)

    def come_back(self) -> dict[bytes, Any] | None:
        """Attaches again with the map; returns the node's."""
        self.client = self.rig.client(self.node, hostname=self.hostname)
        self.attach(dict.fromkeys(self.doubt))
        return self.told

    @property
    def told(self) -> dict[bytes, Any] | None:
        """The node's map."""
        assert self.link.remote_attach is not None
        unsettled: dict[bytes, Any] | None = self.link.remote_attach.unsettled
        return unsettled
