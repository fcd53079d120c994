"""Links between queues into federated topics: room and bindings that they wait for; and delayed messages."""

from dataclasses import replace
from typing import Any

import pytest

from holdfast.amqp.connection import Sender
from holdfast.amqp.wire.performatives import Header, Modified, Properties
from holdfast.amqp.wire.types import Symbol, Timestamp, Ulong
from holdfast.federation.settings import Entry
from holdfast.queue_links.remote_room import AGAIN_S
from holdfast.routing.settings import RoutingConfig
from holdfast.settings.queues import LinkConfig, QueueConfig
from holdfast.storage.memory import MemoryStore
from support.federated import DURABLE, federate, publish, publisher, sent_to, subscribe
from support.one_node import done
from support.queue_links import linked, links_of, move
from support.remotes import world as remote_world
from support.rig import Client, Node, Rig
from support.routing import network

INTO: LinkConfig = move("work", "topic/flights", "into")


def joined() -> tuple[Rig, list[Node], Client, tuple[Client, Sender]]:
    """Three nodes in a row; the first has a link into the topic, which the last wants, and room for two copies for it
    while the one between them is away."""
    rig = Rig()
    nodes = network(rig, "a-b", "b-c")
    a, b, c = nodes
    rig.run(3)
    federate(rig, "a-b", "b-c")
    rig.run(3)
    wants, _ = subscribe(rig, c, name="d", source=DURABLE)
    done(rig.client(a), "CREATE", "link", "into", **{"from": "work", "to": "topic/flights"})
    assert a.core is not None
    queue = a.core.catalog.transmission("c")
    queue.config = replace(queue.config, messages_max=2, when_full="block")
    b.crash()
    rig.run(1)
    return rig, nodes, wants, publisher(rig, a, "work")


def state(node: Node, name: str = "into") -> Any:
    return next(row["state"] for row in links_of(node).status("") if row["name"] == name)


# -------------------------------------------------------------------------------------------------------- room


def test_a_link_waits_for_the_room_of_a_copy_and_goes_on() -> None:
    rig, (a, b, _), wants, sender = joined()
    publish(rig, sender, "1", "2", "3", "4")
    rig.run(5)
    assert a.bodies("work") == ["3", "4"] and a.queue("@c").messages == 2
    assert state(a) == "no room"
    awaited = [queue.key for queue in a.core.catalog.queues.values() if links_of(a).awaits_room(queue)]
    assert awaited == ["topic/flights", "@c"], "its target and the queue for the other node"
    turns = a.turns
    rig.run(3)
    assert a.turns - turns < 100  # it waits
    b.start()
    rig.run(20)
    assert a.bodies("work") == [] and wants.bodies() == ["1", "2", "3", "4"]
    assert state(a) == "running" and not links_of(a).handing.remote_room.links


def test_a_link_goes_on_as_soon_as_a_copy_has_left() -> None:
    """Also where nothing else makes the node store that the copy has left."""
    rig, (a, b, _), _, sender = joined()
    publish(rig, sender, "1", "2", "3", "4")
    rig.run(5)
    b.start()
    while not a.queue("@c").fits(1):
        rig.run(0.001)
    rig.run(0.001)
    assert a.bodies("work") != ["3", "4"]


def test_a_link_whose_message_need_not_go_there_any_more_goes_on() -> None:
    """The topic is not forwarded any more: the full queue for the other node stays."""
    rig, (a, _, _), _, sender = joined()
    publish(rig, sender, "1", "2", "3", "4")
    rig.run(5)
    assert a.bodies("work") == ["3", "4"]
    done(rig.client(a), "DELETE", "federation", "flights@b")
    rig.run(2 * AGAIN_S)
    publish(rig, sender, "5")
    rig.run(5)
    assert a.bodies("work") == [] and a.queue("@c").messages == 2
    assert not links_of(a).handing.remote_room.links, "it is looked at no more"


def test_a_link_that_is_deleted_waits_no_more() -> None:
    rig, (a, _, _), _, sender = joined()
    publish(rig, sender, "1", "2", "3", "4")
    rig.run(5)
    assert state(a) == "no room" and a.core is not None
    done(rig.client(a), "DELETE", "link", "into")
    a.core.validate()
    assert not links_of(a).handing.remote_room.links


def test_a_link_goes_on_when_the_queue_for_the_other_node_may_have_more() -> None:
    rig, (a, _, _), _, sender = joined()
    publish(rig, sender, "1", "2", "3", "4")
    rig.run(5)
    assert a.core is not None
    queue = a.queue("@c")
    a.core.validate()
    queue.config = replace(queue.config, messages_max=None)
    publish(rig, sender, "5")
    rig.run(5)
    assert a.bodies("work") == [] and queue.messages == 5


def test_a_disk_without_room_for_all_copies_stops_a_link_until_it_has_room() -> None:
    """The topic's own bound of bytes is less than all copies together."""
    rig, (a, _, _), _, sender = joined()
    assert a.core is not None
    queue = a.queue("@c")
    queue.config = replace(queue.config, messages_max=None)
    topic = a.queue("topic/flights")
    subscribe(rig, a, name="stays", source=DURABLE, credit=0)
    topic.config = replace(topic.config, bytes_max=600)
    publish(rig, sender, "first")
    rig.run(1)
    room = a.core.room
    a.store.room_bytes = lambda: 2_000  # type: ignore[method-assign]
    publish(rig, sender, "x" * 200)
    rig.run(5)
    assert a.bodies("work") == ["x" * 200], room.bytes
    turns = a.turns
    rig.run(3)
    assert a.turns - turns < 100
    del a.store.room_bytes  # type: ignore[method-assign]
    rig.run(30)
    assert a.bodies("work") == [] and queue.messages == 2 and len(a.bodies("topic/flights")) == 2


# -------------------------------------------------------------------------------------------------------- learning

ENTRIES = {"a": ("b",), "b": ("a", "c"), "c": ("b",)}


def test_a_link_waits_while_the_node_learns_what_others_want() -> None:
    rig = Rig()
    made: dict[str, dict[str, Any]] = {
        name: {
            "federation": tuple(Entry("flights", end) for end in ends),
            "routing": RoutingConfig(registration_s=60.0),
        }
        for name, ends in ENTRIES.items()
    }
    made["a"]["links"] = (INTO,)
    made["a"]["queues"] = (QueueConfig(name="work"), QueueConfig(name="topic/flights"))
    a, _, c = network(rig, "a-b", "b-c", **made)
    rig.run(3)
    wants, _ = subscribe(rig, c, name="d", source=DURABLE)
    a.crash()
    a.store = MemoryStore(mint_from=rig.uuid)
    rig.refuse_dials = True
    a.start()
    sender = publisher(rig, a, "work")
    publish(rig, sender, "a")
    rig.run(3)
    assert a.bodies("work") == ["a"] and sender[0].outcomes
    rig.refuse_dials = False
    rig.run(40)
    assert wants.bodies() == ["a"] and a.bodies("work") == []


@pytest.mark.parametrize("others_come", [True, False])
def test_a_relay_waits_while_it_learns_what_others_want(others_come: bool) -> None:
    """At most `registration_s`, if they do not come."""
    rig = Rig()
    routing = RoutingConfig(registration_s=20.0)
    made: dict[str, dict[str, Any]] = {
        "x": {"federation": (Entry("flights", "a", "static", ("#",)),), "routing": routing},
        "a": {"federation": (Entry("flights", "b"),), "routing": routing},
        "b": {"federation": (Entry("flights", "a"),), "routing": routing},
    }
    x, a, b = network(rig, "x-a", "a-b", **made)
    rig.run(5)
    subscribe(rig, b, name="d", source=DURABLE)
    sender = publisher(rig, x)
    publish(rig, sender, "before")
    rig.run(5)
    assert sent_to(a, "b") == 1
    a.crash()
    a.store = MemoryStore(mint_from=rig.uuid)
    publish(rig, sender, "while")  # it waits at x
    b.crash()
    a.start()
    rig.run(6)
    assert a.core is not None and a.core.bindings.learns("flights")
    assert x.queue("@a").messages == 1
    if not others_come:
        rig.run(20)
        assert not a.core.bindings.learns("flights") and x.queue("@a").messages == 0
        return
    b.start()
    rig.run(40)
    wants, _ = subscribe(rig, b, name="d", source=DURABLE)
    rig.run(3)
    assert sorted(wants.bodies()) == ["before", "while"] and x.queue("@a").messages == 0


# -------------------------------------------------------------------------------------------------------- delayed


def test_a_delayed_message_that_a_link_brings_to_a_topic_waits_for_its_time() -> None:
    """A consumer delayed it while it was in the link's source."""
    queues = QueueConfig(name="work"), QueueConfig(name="topic/news")
    rig, node, client = linked(move("work", "topic/news"), queues=queues)
    links = links_of(node)
    link = links.by_name["work-topic/news"]
    links.stop(link, is_stopped=True)
    listener, lasts = rig.client(node, container_id="listener"), rig.client(node, container_id="lasts")
    listener.receiver("topic/news")
    lasts.receiver("topic/news", name="d", source=DURABLE)
    sender = client.sender("work")
    taker = rig.client(node)
    taking = taker.receiver("work", credit=1)
    rig.settle()
    client.send(sender, "later", header=Header(durable=True))
    rig.run(1)
    at = {Symbol("x-opt-delivery-time"): Timestamp(rig.wall_ms + 20_000)}
    taker.accept(Modified(False, False, at))
    rig.run(1)
    taking.detach(closed=True)
    rig.run(1)
    links.stop(link, is_stopped=False)
    rig.run(10)
    assert node.bodies("work") == [] and node.bodies("$delayed") == ["later"]
    assert listener.bodies() == lasts.bodies() == []
    rig.run(30)
    assert listener.bodies() == lasts.bodies() == ["later"]


def test_a_delayed_message_for_a_remote_is_sent_when_it_is_due() -> None:
    rig, node, client, broker = remote_world()
    link = client.sender("work@mq")
    rig.settle()
    delay = {Symbol("x-opt-delivery-delay"): Ulong(2_000)}
    client.send(link, "later", header=Header(durable=True), message_annotations=delay)
    client.send(link, "now", header=Header(durable=True), properties=Properties(subject="s"))
    rig.run(1)
    assert node.bodies("$delayed") == ["later"]
    rig.run(5)
    assert node.bodies("$delayed") == node.bodies("work@mq") == []
    assert "$dead-letters" not in node.core.catalog.queues or node.bodies("$dead-letters") == []
    assert len(broker.came["work"]) == 2
