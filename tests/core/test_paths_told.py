"""Which nodes a message passed, told to the reader that asks (docs/amqp.md, "Paths")."""

from typing import Any

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.extensions import TELLS_PATH
from holdfast.amqp.wire.performatives import Properties
from holdfast.amqp.wire.types import Symbol, Ulong
from support.hops import STRICT, apart, send
from support.rig import Client, Node, Rig
from support.routing import network

TOLD = Symbol("x-opt-holdfast-path")


def paths(client: Client, **options: Any) -> list[list[str] | None]:
    """As a reader of all is told them, by sequence."""
    link = client.reader("work", 0, **options)
    client.rig.settle()
    offered = link.remote_attach.offered_capabilities if link.remote_attach is not None else None
    assert (TELLS_PATH in (offered or ())) == bool(options)
    return [(message.message_annotations or {}).get(TOLD) for message in client.messages(link)]


def square(rig: Rig) -> list[Node]:
    """a to c by b, or by d, which costs more."""
    costs = {"d-c": 5.0}
    return network(rig, "a-b", "b-c", "a-d", "d-c", costs=costs, c=STRICT)


def test_a_reader_that_asks_is_told_the_nodes_passed() -> None:
    rig = Rig()
    a, b, c, d = square(rig)
    rig.run(10)
    send(rig, a, "1", to="c")
    apart(rig, "b", "c")
    assert b.core is not None
    b.core.neighbours["c"].dial_at = None
    rig.run(5)
    send(rig, a, "2", to="c")
    rig.run(5)
    told = paths(rig.client(c), desired_capabilities=(TELLS_PATH,))
    assert told == [["a", "b", "c"], ["a", "d", "c"]]
    assert d.bodies("@c") == []


def test_who_does_not_ask_is_not_told() -> None:
    rig = Rig()
    a, _, c, _ = square(rig)
    rig.run(10)
    send(rig, a, "1", to="c")
    rig.run(5)
    client = rig.client(c)
    assert paths(client) == [None]
    assert [sorted(message.message_annotations or {}) for message in client.messages()] == [
        ["x-opt-enqueued-time", "x-opt-sequence-number"]
    ]


def test_what_was_sent_here_has_no_path_and_a_client_cannot_make_one_up() -> None:
    rig = Rig()
    _, _, c, _ = square(rig)
    rig.run(10)
    client = rig.client(c)
    link = client.sender("work")
    rig.settle()
    client.send(link, "1", message_annotations={TOLD: ["x", "c"]})
    rig.settle()
    assert paths(rig.client(c), desired_capabilities=(TELLS_PATH,)) == [None]


def test_a_store_that_nobody_can_name_is_told_by_its_uuid() -> None:
    rig = Rig()
    a, _, c = rig.line("a", "b", "c", c=STRICT)
    rig.run(5)
    send(rig, a, "1", to="c")
    rig.run(5)
    told = paths(rig.client(c), desired_capabilities=(TELLS_PATH,))
    assert told == [[str(a.store.uuid), "b", "c"]]  # without a topology only neighbours are known by name


def test_the_identity_is_told_with_the_path() -> None:
    rig = Rig()
    a, _, c, _ = square(rig)
    rig.run(10)
    for body in ("1", "2"):
        send(rig, a, body, to="c")
    rig.run(5)
    client = rig.client(c)
    link = client.reader("work", 0, desired_capabilities=(TELLS_PATH,))
    rig.settle()
    told = [message.message_annotations or {} for message in client.messages(link)]
    assert [notes[Symbol("x-opt-holdfast-origin")] for notes in told] == [a.store.uuid] * 2
    numbers = [notes[Symbol("x-opt-holdfast-number")] for notes in told]
    assert numbers == [1, 2] and all(type(number) is Ulong for number in numbers)


def test_a_reader_and_who_asks_where_are_told_the_same_names() -> None:
    rig = Rig()
    a, _, c = rig.line("a", "b", "c", c=STRICT)
    rig.run(5)
    link = rig.client(a).sender("work@c")
    rig.settle()
    link.send(Message(properties=Properties(message_id="order-17"), data=[b"1"]).encode(), context="1")
    rig.run(5)
    (path,) = paths(rig.client(c), desired_capabilities=(TELLS_PATH,))
    _, found, _ = rig.client(c).manage("WHERE", "node", message_id="order-17")
    assert path is not None and found["steps"][-1]["path"] == path[:-1]
