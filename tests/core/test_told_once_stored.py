"""Listeners of topics, whose subscriptions are not durable: large messages, order, and commits that are refused."""

from dataclasses import replace
from typing import Any

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Accepted, Discharge, Header, Properties, TransactionalState
from holdfast.amqp.wire.types import Symbol, Ulong
from holdfast.federation.settings import Entry
from holdfast.routing.settings import RoutingConfig
from holdfast.settings.queues import QueueConfig
from holdfast.storage.memory import MemoryStore
from support.federated import DURABLE, federate, publish, publisher, subscribe
from support.queue_links import linked, move
from support.rig import Client, Node, Rig
from support.routing import network
from support.streams import LARGE, LIMITS, is_clean, start
from support.transactions import Controller, request


def large(subject: str = "a") -> dict[str, Any]:
    return {"properties": Properties(subject=subject), "header": Header(durable=True)}


def lengths(client: Client) -> list[int]:
    return [len(body) for body in client.bodies()]


# -------------------------------------------------------------------------------------------------------- large


def test_a_large_message_that_waits_while_the_node_learns_comes_to_a_listener() -> None:
    """Its last piece is stored by then, and nothing on disk refers to it."""
    rig = Rig()
    routing = RoutingConfig(registration_s=5.0)
    federation = (Entry("flights", "b"),)
    a, b = network(rig, "a-b", a={"federation": federation, "limits": LIMITS, "routing": routing})
    b.crash()
    a.crash()
    a.store = MemoryStore(mint_from=rig.uuid)
    rig.refuse_dials = True
    a.start()
    listener, _ = subscribe(rig, a)
    client, link = publisher(rig, a)
    client.send(link, "x" * LARGE, **large())
    rig.settle()
    assert a.core is not None and a.core.bindings.learns("flights") and not client.outcomes
    rig.run(10)
    assert lengths(listener) == [LARGE] and not listener.over
    listener.accept()
    rig.run(2)
    assert is_clean(a)


def test_a_large_message_behind_one_that_waits_for_another_node_comes_to_a_listener() -> None:
    rig = Rig()
    a, b, c = network(rig, "a-b", "b-c", **{name: {"limits": LIMITS} for name in "abc"})
    rig.run(3)
    federate(rig, "a-b", "b-c")
    rig.run(3)
    subscribe(rig, c, "b", name="d", source=DURABLE)
    listener, _ = subscribe(rig, a)
    assert a.core is not None
    queue = a.core.catalog.transmission("c")
    queue.config = replace(queue.config, messages_max=1, when_full="block")
    b.crash()
    rig.run(1)
    sender = publisher(rig, a)
    publish(rig, sender, "b", "b")
    sender[0].send(sender[1], "x" * LARGE, **large())
    rig.run(2)
    assert len(sender[0].outcomes) == 1
    b.start()
    rig.run(20)
    assert lengths(listener) == [1, 1, LARGE]
    listener.accept()
    rig.run(2)
    assert is_clean(a)


def test_a_link_moves_a_large_message_to_a_listener_alone() -> None:
    """It leaves its queue with the commit after which the listener gets it."""
    rig, node, client = linked(move("work", "topic/news"), limits=LIMITS)
    listener = rig.client(node)
    listener.receiver("topic/news")
    link = client.sender("work")
    rig.settle()
    client.send(link, "x" * LARGE, **large())
    rig.run(2)
    assert lengths(listener) == [LARGE]
    listener.accept()
    rig.run(2)
    assert is_clean(node)


def test_a_listener_that_leaves_before_the_commit_keeps_no_large_message() -> None:
    rig = Rig()
    node = start(rig)
    listener = rig.client(node)
    listening = listener.receiver("topic/news")
    client = rig.client(node)
    link = client.sender("topic/news")
    rig.settle()
    node.hold_commits = True
    client.send(link, "x" * LARGE, **large())
    rig.settle()
    listening.detach(closed=True)
    rig.settle()
    node.hold_commits = False
    rig.run(5)
    assert [state for _, state in client.outcomes] == [Accepted()]
    assert is_clean(node)


# -------------------------------------------------------------------------------------------------------- order


def in_one_turn(client: Client, link: Any, controller: Controller, transaction: bytes, body: str) -> None:
    """A message of the transaction and its discharge are sent, and nothing is awaited."""
    state = TransactionalState(transaction)
    link.send(Message(data=[body.encode()], header=Header(durable=True)).encode(), context=body, state=state)
    controller.link.send(request(Discharge(transaction, False)), context="end")


def listened(*, is_durable: bool = True, **fields: Any) -> tuple[Rig, Node, Client, Client, Client]:
    """A topic with a durable subscription, or none, and a listener: the clients of these, and one that publishes."""
    rig = Rig()
    node = rig.node("hub", **fields)
    durable, listener = rig.client(node, container_id="durable"), rig.client(node, container_id="listener")
    if is_durable:
        durable.receiver("topic/news", name="d", source=DURABLE)
    listener.receiver("topic/news")
    return rig, node, durable, listener, rig.client(node)


def test_messages_before_and_behind_a_transaction_of_one_turn_come_in_order() -> None:
    rig, _, durable, listener, client = listened()
    link = client.sender("topic/news")
    rig.settle()
    controller = Controller(client)
    transaction = controller.begin()
    client.send(link, "1", header=Header(durable=True))
    in_one_turn(client, link, controller, transaction, "2")
    client.send(link, "3", header=Header(durable=True))
    rig.settle()
    assert sorted(durable.bodies()) == ["1", "2", "3"]
    assert listener.bodies() == durable.bodies()


def test_what_is_published_behind_a_large_message_comes_behind_it() -> None:
    """With a durable subscription, and with listeners alone."""
    for is_durable in (True, False):
        rig, node, _, listener, client = listened(is_durable=is_durable, limits=LIMITS)
        link = client.sender("topic/news")
        rig.settle()
        client.send(link, "x" * LARGE, **large())
        client.send(link, "behind", header=Header(durable=True))
        rig.run(3)
        assert lengths(listener) == [LARGE, 6], is_durable
        assert not any("defect" in line for line in node.logs)


def test_a_link_and_a_publisher_do_not_overtake_each_other() -> None:
    """Listeners have the order of the topic."""
    rig, _, durable, listener, client = listened(links=(move("work", "topic/news"),))
    link, published = client.sender("work"), client.sender("topic/news")
    rig.settle()
    for number in range(10):
        client.send(link if number % 3 else published, str(number), header=Header(durable=True))
    rig.run(2)
    assert sorted(durable.bodies()) == [str(number) for number in range(10)]
    assert listener.bodies() == durable.bodies()


# -------------------------------------------------------------------------------------------------------- refused


def test_a_refused_commit_at_its_destination_delivers_a_federated_message_once() -> None:
    """Nobody durable wants it there, so nothing of it is stored but that it has come."""
    rig = Rig()
    a, _, c = network(rig, "a-b", "b-c")
    rig.run(3)
    federate(rig, "a-b", "b-c")
    rig.run(3)
    far, _ = subscribe(rig, c)
    sender = publisher(rig, a)
    publish(rig, sender, "x")
    rig.run(2)
    assert far.bodies() == ["x"]
    c.refuse, c.refuse_all = 1, True
    publish(rig, sender, "a")
    rig.run(10)
    assert not c.refuse and far.bodies() == ["x", "a"]


def test_a_refused_commit_tells_a_listener_of_a_delayed_message_once() -> None:
    rig, node, client = linked()
    listener = rig.client(node)
    listener.receiver("topic/news")
    link = client.sender("topic/news")
    rig.settle()
    delay = {Symbol("x-opt-delivery-delay"): Ulong(2_000)}
    client.send(link, "later", header=Header(durable=True), message_annotations=delay)
    rig.run(1)
    node.refuse, node.refuse_all = 1, True
    rig.run(10)
    assert not node.refuse and listener.bodies() == ["later"]


def test_a_refused_commit_tells_a_listener_of_what_a_link_moves_once() -> None:
    rig, node, client = linked(move("work", "topic/news"), queues=(QueueConfig(name="work"),))
    listener = rig.client(node)
    listener.receiver("topic/news")
    link = client.sender("work")
    rig.settle()
    node.core.queue_links.stop(node.core.queue_links.by_name["work-topic/news"], is_stopped=True)
    client.send(link, "moved", header=Header(durable=True))
    rig.run(1)
    node.core.queue_links.stop(node.core.queue_links.by_name["work-topic/news"], is_stopped=False)
    node.refuse, node.refuse_all = 1, True
    rig.run(10)
    assert not node.refuse and listener.bodies() == ["moved"] and node.bodies("work") == []
