"""A node tells clients the same, whether frames are spelt out or passed as they are (docs/simulator.md)."""

from typing import Any

import pytest

from amqp.node_player import Player
from holdfast.amqp.connection import Connection, LinkAttached, LinkDetached, Opened, Outcomes, Settings
from holdfast.amqp.message import Message
from holdfast.amqp.performatives import Properties, Source, Target
from holdfast.core import events


class Talk:
    """A client's engine at a node, in one of both forms; `told` is what it heard, in words that hold no object."""

    def __init__(self, node: Player, number: int, *, decoded: bool, **settings: Any) -> None:
        self.node, self.number, self.decoded = node, number, decoded
        self.engine = Connection(
            Settings(**{"container_id": "c", "mechanism": "ANONYMOUS"} | settings, decoded=decoded),
            server=False, now=node.now,
        )  # fmt: skip
        self.told: list[Any] = []
        node.handle(events.ConnectionOpened(connection=number, peer="client", loopback=True, decoded=decoded))

    def settle(self) -> None:
        for _ in range(50):
            chunks = self.engine.take_output(self.node.now)
            if self.decoded and chunks:
                self.node.handle(
                    events.FramesReceived(connection=self.number, frames=chunks, size=sum(map(len, chunks)))
                )
            elif chunks:
                self.node.handle(events.BytesReceived(connection=self.number, data=b"".join(chunks)))
            self.node.turn()
            answer = self.node.chunks.pop(self.number, [])
            if not chunks and not answer:
                return
            if self.decoded:
                heard = self.engine.receive_frames(answer, self.node.now)
            else:
                heard = self.engine.receive(b"".join(answer), self.node.now)
            self.told += [_words(event) for event in heard]
        raise AssertionError("they do not come to rest")


def _words(event: Any) -> Any:
    if isinstance(event, Opened):
        return event.open
    if isinstance(event, LinkAttached):
        return event.link.name, event.link.remote_attach
    if isinstance(event, LinkDetached):
        return event.link.name, event.closed, event.error, event.unsettled
    if isinstance(event, Outcomes):
        return event.contexts, event.state, event.settled
    payload = getattr(event, "payload", None)
    return type(event).__name__, None if payload is None else bytes(payload), getattr(event, "error", None)


def story(decoded: bool) -> list[Any]:
    """The relay, a dynamic node, aliases, a refused connection, an attach with its detach behind it."""
    node = Player()
    one = Talk(node, 1, decoded=decoded, desired_capabilities=("sole-connection-for-container",))
    session = one.engine.begin()
    made = session.attach_receiver("dynamic", Source(dynamic=True), Target())
    made.grant(5)
    relay = session.attach_sender("relay", Source(), Target())
    one.settle()
    address = made.remote_attach.source.address
    for to in (address, "q", "missing", None, "/queues/q", "amqps://host/q"):
        properties = None if to is None else Properties(to=to)
        relay.send(Message(properties=properties, data=[b"x" * 100]).encode(), context=to)
    one.settle()
    two = Talk(node, 2, decoded=decoded)
    two.engine.begin().attach_receiver("late", Source("q"), Target())
    two.settle()
    session.attach_receiver("brief", Source("q"), Target()).detach()
    made.detach()
    one.settle()
    relay.send(Message(properties=Properties(to=address), data=[b"late"]).encode(), context="late")
    one.settle()
    one.engine.close()
    one.settle()
    three = Talk(node, 3, decoded=decoded)
    three.settle()
    return [one.told, two.told, three.told]


@pytest.mark.parametrize("connection", [0, 1, 2])
def test_either_form_tells_the_same(connection: int) -> None:
    spelt, passed = story(False)[connection], story(True)[connection]
    assert spelt and passed == spelt
