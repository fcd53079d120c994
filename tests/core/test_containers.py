"""What a node says to an open: its offers, and one connection for a container that asks for it (CLIENTS 5, 33, 36)."""

from typing import Any

import pytest

from amqp.joined import hear, performatives, wire
from holdfast.amqp.connection import Connection, Settings
from holdfast.amqp.wire.frames import AMQP_HEADER, FRAME_SIZE_MIN
from holdfast.amqp.wire.performatives import Attach, Begin, Close, Error, Open, Source
from holdfast.amqp.wire.types import Symbol
from holdfast.engine import events
from holdfast.settings.hosts import UserConfig
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.settings.queues import QueueConfig
from support.rig import Client, Node, Rig

SOLE = "sole-connection-for-container"
FAILED = Symbol("amqp:connection-establishment-failed")
IN_USE = Error(
    "amqp:invalid-field",
    "container-id 'c': that container has a connection already",
    {Symbol("invalid-field"): Symbol("container-id")},
)


def connect(node: Node, container: str, *desired: str) -> Client:
    client = node.rig.client(node, container_id=container, desired_capabilities=desired)
    node.rig.settle()
    return client


def refused(client: Client) -> bool:
    """Whether the client was told so in its open; its connection then is over."""
    opened = client.amqp.remote_open
    assert opened is not None
    told = FAILED in (opened.properties or {})
    assert told is client.over
    return told


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [((), (), False), ((SOLE,), (), True), ((), (SOLE,), True), ((SOLE,), (SOLE,), True)],
)
def test_a_second_connection_of_one_container(first: tuple[str, ...], second: tuple[str, ...], expected: bool) -> None:
    hub = Rig().node("hub")
    one = connect(hub, "c", *first)
    assert refused(connect(hub, "c", *second)) is expected
    assert not refused(connect(hub, "other", SOLE)) and not refused(one)
    hub.rig.settle()
    assert one.amqp.usable


def test_nobody_keeps_another_user_out_by_claiming_his_container() -> None:
    users = tuple(UserConfig(name=name, password="x") for name in ("ann", "bob"))
    hub = Rig().node("hub", users=users)

    def login(user: str) -> Client:
        told = {"mechanism": "PLAIN", "user": user, "password": "x"}
        client = hub.rig.client(hub, container_id="ann's", desired_capabilities=(SOLE,), **told)
        hub.rig.settle()
        return client

    bob, ann, again = (login(user) for user in ("bob", "ann", "ann"))
    assert [refused(client) for client in (bob, ann, again)] == [False, False, True]


def test_the_id_is_free_when_the_connection_is_gone() -> None:
    hub = Rig().node("hub")
    one = connect(hub, "c", SOLE)
    one.amqp.close()
    hub.rig.settle()
    two = connect(hub, "c", SOLE)
    assert not refused(two)
    two.close_transport()
    hub.rig.settle()
    assert not refused(connect(hub, "c", SOLE))


def test_it_is_offered_to_who_asks_for_it() -> None:
    hub = Rig().node("hub")
    for desired, offered in (((SOLE,), True), ((), False), (("something-else",), False)):
        opened = connect(hub, f"c{len(desired)}", *desired).amqp.remote_open
        assert opened is not None
        assert (SOLE in (opened.offered_capabilities or ())) is offered


def raw(hub: Node, data: bytes) -> list[Any]:
    """What a node answers to those bytes of a new connection."""
    number = hub.rig._number()
    said: list[bytes] = []
    assert hub.core is not None
    for event in (
        events.ConnectionOpened(connection=number, peer="raw", loopback=True),
        events.BytesReceived(connection=number, data=data),
        events.TurnEnded(wall_ms=hub.rig.wall_ms),
    ):
        for command in hub.core.handle(event, hub.rig.now):
            if isinstance(command, events.SendBytes):
                said += command.chunks
    return [value for _, value, _ in performatives(b"".join(said))]


def test_what_is_pipelined_behind_a_refused_open_does_nothing() -> None:
    hub = Rig().node("hub")
    connect(hub, "c", SOLE)
    flight = wire(
        Open("c", desired_capabilities=(SOLE,)), Begin(None, 0, 9, 9), Attach("l", 0, True, source=Source("made"))
    )
    opened, close = raw(hub, AMQP_HEADER + flight)
    assert opened.properties[FAILED] is True and opened.properties[Symbol("product")] == "Holdfast"
    assert close == Close(IN_USE)
    assert hub.core is not None and "made" not in hub.core.catalog.queues


def test_every_later_open_is_without_the_word_of_the_refused_one() -> None:
    hub = Rig().node("hub")
    connect(hub, "c", SOLE)
    assert refused(connect(hub, "c", SOLE)) and not refused(connect(hub, "d", SOLE))


def test_neighbours_are_not_held_to_it() -> None:
    """A client that takes a node's name and asks to be alone is refused; the node keeps its session."""
    rig = Rig()
    _, hub = rig.pair()
    rig.run(3)
    assert refused(connect(hub, "jfk", SOLE))
    rig.run(3)
    assert hub.core is not None and hub.core.neighbours["jfk"].established


@pytest.mark.parametrize("desired", [(), (SOLE,)])
def test_an_open_fits_into_the_least_frame(desired: tuple[str, ...]) -> None:
    """§2.4.1: before the open is answered, 512 bytes are the most."""
    hub = Rig().node("n" * 200, neighbours=(NeighbourConfig(name="jfk"),))
    engine = Connection(
        Settings(container_id="c", max_frame_size=FRAME_SIZE_MIN, desired_capabilities=desired), server=False, now=0.0
    )
    number = hub.rig._number()
    assert hub.core is not None
    said = b""
    for event in (
        events.ConnectionOpened(connection=number, peer="raw", loopback=True),
        events.BytesReceived(connection=number, data=b"".join(engine.take_output(0.0))),
        events.TurnEnded(wall_ms=hub.rig.wall_ms),
    ):
        for command in hub.core.handle(event, hub.rig.now):
            if isinstance(command, events.SendBytes):
                said += b"".join(command.chunks)
    (told,) = hear(engine, said, 0.0)
    assert told.open.container_id == "n" * 200
    assert len(said) - len(AMQP_HEADER) <= FRAME_SIZE_MIN


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("/queues/work", "work"),
        ("/queues/a%2Fb%20c", "a/b c"),
        ("/queues/%C3%A9", "é"),
        ("/queues/work%40hub", "work"),
        ("amqps://host.example/work", "work"),
        ("AMQP://user:p%40ss@host.example:5671/a%2Fb/c", "a/b/c"),
    ],
)
def test_other_brokers_forms_of_an_address_are_its_aliases(asked: str, name: str) -> None:
    """CLIENTS 39; the address is echoed as it came (13)."""
    hub = Rig().node("hub", create_queues=True)
    client = hub.rig.client(hub)
    sender, receiver = client.sender(asked), client.receiver(asked)
    hub.rig.settle()
    assert sender.remote_attach is not None and sender.remote_attach.target.address == asked
    assert receiver.remote_attach is not None and receiver.remote_attach.source.address == asked
    client.send(sender, "1")
    hub.rig.settle()
    assert client.bodies(receiver) == ["1"] and list(hub.core.catalog.queues) == [name]


@pytest.mark.parametrize("asked", ["/queues/", "/queues/%", "/queues/%FF", "amqps://host", "amqps://host/", "amqp:///"])
def test_an_alias_of_nothing_is_refused(asked: str) -> None:
    hub = Rig().node("hub", create_queues=True, queues=(QueueConfig(name="work"),))
    client = hub.rig.client(hub)
    client.sender(asked)
    client.receiver(asked)
    hub.rig.settle()
    assert [item.error.condition for item in client.detached if item.error] == ["amqp:invalid-field"] * 2
    assert list(hub.core.catalog.queues) == ["work"]


def test_management_has_its_aliases_too() -> None:
    hub = Rig().node("hub")
    client = hub.rig.client(hub)
    link = client.sender("amqps://host/$management")
    other = client.sender("/queues/%24management")
    hub.rig.settle()
    assert link.credit and other.credit and not client.detached
