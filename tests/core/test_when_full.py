"""What a full queue does with one message more (docs/configuration.md, `when_full`)."""

from typing import Any

import pytest

from holdfast.amqp.wire.performatives import Accepted, Rejected
from holdfast.settings.queues import QueueConfig
from support.one_node import fill, world
from support.rig import Client, Node, Rig
from support.streams import LARGE, LIMITS


def full(when_full: str, *, count: int = 3, **fields: Any) -> tuple[Rig, Node, Client]:
    """A queue that is full of "1", "2" and "3"."""
    rig, node, client = world(QueueConfig(name="work", messages_max=count, when_full=when_full), **fields)
    fill(rig, client, count)
    assert node.bodies("work") == [str(number) for number in range(1, count + 1)]
    return rig, node, client


def send(rig: Rig, client: Client, *bodies: str, settle: bool = True) -> list[Any]:
    link = client.sender("work")
    rig.settle()
    for body in bodies:
        if link.credit:
            client.send(link, body)
            if settle:
                rig.settle()
    rig.settle()
    return [state for _, state in client.outcomes[-len(bodies) :]]


@pytest.mark.parametrize("settle", [True, False])
def test_the_oldest_make_room(settle: bool) -> None:
    """Also where more come in one turn than the queue holds: what is not on disk yet is dropped once it is."""
    rig, node, client = full("drop-oldest")
    outcomes = send(rig, client, *(f"{number}" for number in range(4, 12)), settle=settle)
    rig.run(1)
    assert outcomes == [Accepted()] * 8
    assert node.bodies("work") == ["9", "10", "11"]
    assert client.manage("READ", "queue", "work")[1]["dropped_total"] == 8


def test_what_a_consumer_holds_stays() -> None:
    rig, node, client = full("drop-oldest")
    holder = rig.client(node)
    holder.receiver("work", credit=2)
    rig.settle()
    send(rig, client, "4", "5")
    assert sorted(node.bodies("work")) == ["1", "2", "5"]
    holder.accept()
    rig.run(1)
    assert node.bodies("work") == ["5"]


def test_where_all_is_held_a_message_waits() -> None:
    rig, node, client = full("drop-oldest")
    holder = rig.client(node)
    holder.receiver("work", credit=3)
    rig.settle()
    link = client.sender("work")
    rig.settle()
    client.send(link, "4")
    rig.settle()
    assert sorted(node.bodies("work")) == ["1", "2", "3"]
    holder.accept(count=1)
    rig.run(1)
    assert sorted(node.bodies("work")) == ["2", "3", "4"]


def test_a_subscription_that_has_not_read_them_loses_them_too() -> None:
    rig, node, client = world(QueueConfig(name="work", messages_max=3, when_full="drop-oldest"))
    assert client.manage("OPEN", "subscription", "s", queue="work", mode="copy", start="first")[0] == 201
    fill(rig, client, 3)
    send(rig, client, "4", "5")
    assert node.bodies("work") == ["3", "4", "5"]


def test_a_new_message_becomes_a_dead_letter() -> None:
    rig, node, client = full("dead-letter")
    assert send(rig, client, "4", "5") == [Accepted(), Accepted()]
    assert node.bodies("work") == ["1", "2", "3"] and node.bodies("$dead-letters") == ["4", "5"]
    reader = rig.client(node)
    reader.receiver("$dead-letters")
    rig.settle()
    notes = reader.messages()[0].message_annotations
    assert "is full" in str(notes)


def test_a_large_one_makes_room_or_becomes_a_dead_letter() -> None:
    for when_full, kept in (("drop-oldest", "work"), ("dead-letter", "$dead-letters")):
        rig, node, client = full(when_full, limits=LIMITS)
        send(rig, client, "x" * LARGE)
        for _ in range(10):
            rig.run(0.5)
        reader = rig.client(node)
        reader.receiver(kept)
        for _ in range(10):
            rig.run(0.5)
        assert "x" * LARGE in reader.bodies()


@pytest.mark.parametrize("when_full", ["drop-oldest", "dead-letter"])
def test_a_refused_commit_refuses_the_message(when_full: str) -> None:
    rig, node, client = full(when_full)
    node.refuse = 1
    (outcome,) = send(rig, client, "4")
    assert isinstance(outcome, Rejected) or outcome != Accepted()
    rig.run(1)
    assert node.core is not None
    assert not any("4" in node.bodies(name) for name in node.core.catalog.queues)


def test_a_message_from_another_node_makes_room_as_well() -> None:
    rig = Rig()
    jfk, hub = rig.pair(queues=(QueueConfig(name="work", messages_max=2, when_full="drop-oldest"),))
    client = rig.client(jfk)
    link = client.sender("work@hub")
    rig.settle()
    for number in range(5):
        client.send(link, f"{number}")
        rig.run(1)
    assert hub.bodies("work") == ["3", "4"]
