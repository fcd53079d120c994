"""How much a large message may have before its body: as much as one that comes whole, at a client's node and at each
hop behind it (links/large_receives.py)."""

from typing import Any

import pytest

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Accepted, Rejected
from holdfast.amqp.wire.types import Symbol
from holdfast.settings.limits import Limits
from holdfast.units import KIB, MIB
from support.rig import Client, Rig

NOTE = Symbol("x-opt-note")


def noted(client: Client, count: int = 1) -> list[int]:
    """The bytes of the notes of what came."""
    [*found] = client.messages()
    return [len((message.message_annotations or {}).get(NOTE, "")) for message in found]


@pytest.mark.parametrize("annotation_bytes_max", [64 * KIB, 512 * KIB])
@pytest.mark.parametrize(("note", "body"), [(300 * KIB, 10), (500 * KIB, 10), (300 * KIB, 2 * MIB)])
def test_a_hop_takes_what_a_client_may_send(annotation_bytes_max: int, note: int, body: int) -> None:
    """Whatever the hop itself allows its clients, and also where the message is a large one for the hop alone. It was
    given back each time, and everything of that origin waited behind it for good."""
    rig = Rig()
    limits = Limits(annotation_bytes_max=512 * KIB)
    theirs = Limits(stream_bytes=64 * KIB, annotation_bytes_max=annotation_bytes_max)
    a, b, c = rig.line("a", "b", "c", a={"limits": limits}, b={"limits": theirs}, c={"limits": theirs})
    rig.run(3)
    client = rig.client(a)
    link = client.sender("work@c")
    rig.settle()
    sent: list[dict[str, Any]] = [{}, {"message_annotations": {NOTE: "a" * note}}, {}]
    for parts in sent:
        client.send(link, "y" * body, **parts)
        rig.settle()
    rig.run(10)
    assert all(isinstance(state, Accepted) for _, state in client.outcomes)
    assert a.queue("@c").messages == b.queue("@c").messages == 0
    reader = rig.client(c)
    reader.receiver("work")
    rig.run(3)
    assert noted(reader) == [0, note, 0]
    assert reader.accept() == ["y" * body] * 3


def test_one_that_becomes_large_by_what_the_hop_says_beside_it() -> None:
    """It fills its frames at the client's node and needs one more at the hop, though both allow the same."""
    rig = Rig()
    limits = Limits(annotation_bytes_max=512 * KIB)
    jfk, hub = rig.pair(jfk={"limits": limits, "queues": ()}, limits=limits)
    rig.run(3)
    client = rig.client(jfk)
    link = client.sender("work@hub")
    rig.settle()
    client.send(link, "first")
    rig.run(1)
    notes = {NOTE: "a" * (300 * KIB)}
    beside = len(Message(data=[b"y" * MIB], message_annotations=notes).encode()) - MIB
    for short in range(0, 400, 20):  # what the hop adds is less than 400 bytes
        frames = -(-limits.stream_bytes // link._payload_max)
        client.send(link, "y" * (frames * link._payload_max - beside - short), message_annotations=notes)
        rig.settle()
    client.send(link, "last")
    rig.run(10)
    assert all(isinstance(state, Accepted) for _, state in client.outcomes)
    assert jfk.queue("@hub").messages == 0 and hub.queue("work").messages == 22


@pytest.mark.parametrize(("note", "outcome"), [(250 * KIB, Rejected), (300 * KIB, Accepted), (513 * KIB, Rejected)])
def test_a_client_sends_what_is_allowed(note: int, outcome: type) -> None:
    annotation_bytes_max = 64 * KIB if outcome is Rejected and note < 300 * KIB else 512 * KIB
    rig = Rig()
    node = rig.node("n", limits=Limits(stream_bytes=64 * KIB, annotation_bytes_max=annotation_bytes_max))
    client = rig.client(node)
    link = client.sender("work")
    rig.settle()
    client.send(link, "y" * MIB, message_annotations={NOTE: "a" * note})
    rig.run(1)
    [(_, state)] = client.outcomes
    assert isinstance(state, outcome)
