"""The node's own queues: made when first needed, at the bound on queues that clients reach too (ADR 0027)."""

import pytest

from holdfast.amqp.wire.performatives import Accepted, Rejected
from holdfast.names import DEAD_LETTERS
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from holdfast.state.catalog import OWN_QUEUES, WAITING
from support.limits import RESOURCE, world
from support.rig import Rig


def test_a_reject_at_the_bound_on_queues_makes_a_dead_letter() -> None:
    rig, node = world(queues_max=1)
    client = rig.client(node)
    link, reader = client.sender("work"), client.receiver("work")
    rig.settle()
    client.send(link, "one")
    rig.settle()
    client.accept(Rejected(), link=reader)
    rig.settle()
    assert node.bodies(DEAD_LETTERS) == ["one"]


def test_a_message_that_waits_for_an_earlier_one_finds_its_place_at_the_bound() -> None:
    rig = Rig()
    jfk, hub = rig.pair(limits=Limits(queues_max=1), queues=(QueueConfig(name="work", order="strict"),))
    rig.run(1)
    jfk.core.catalog.ledger.identities["hub"] = 2  # the first never comes
    client = rig.client(jfk)
    link = client.sender("work@hub")
    rig.settle()
    client.send(link, "two")
    rig.run(1)
    assert hub.bodies(WAITING) == ["two"]


def test_they_take_no_place_from_queues_of_clients() -> None:
    rig, node = world(queues_max=2)
    client = rig.client(node)
    client.receiver(DEAD_LETTERS)
    links = [client.sender(name) for name in ("one", "two", "three")]
    rig.settle()
    assert [link.refused for link in links] == [False, False, True]


@pytest.mark.parametrize("relay", [False, True])
def test_transmission_queues_of_known_nodes_are_outside_the_bound_and_kept_ones_within(relay: bool) -> None:
    from core.test_unroutable import put

    rig = Rig()
    a, b = rig.graph(
        "a-b", routes={"a": {"c": "b", "d": "b"}}, a={"unknown_destination": "keep", "limits": Limits(queues_max=1)}
    )
    rig.run(2)
    client = rig.client(a)
    assert put(client, "work", "1", relay=relay) == ""
    assert [put(client, f"work@{node}", node, relay=relay) for node in ("b", "c", "d")] == ["", "", ""]
    assert put(client, "work@nowhere", "2", relay=relay) == RESOURCE
    assert put(client, "other", "3", relay=relay) == RESOURCE
    rig.run(2)
    assert b.bodies("work") == ["b"]
    assert client.outcomes[0][1] == Accepted()


@pytest.mark.parametrize("name", OWN_QUEUES)
def test_they_are_refused_alike_before_their_first_message(name: str) -> None:
    rig = Rig()
    client = rig.client(rig.node("hub"))
    told = f"queue {name!r} belongs to the node"
    assert client.manage("UPDATE", "queue", name, messages_max=3)[::2] == (
        409, f"{told}, whose configuration bounds it",
    )  # fmt: skip
    assert client.manage("DELETE", "queue", name)[::2] == (409, told)
