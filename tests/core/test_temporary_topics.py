"""Temporary topics: dynamic nodes that spread messages to their subscriptions (AMQP JMS mapping; docs/amqp.md)."""

from typing import Any

import pytest

from holdfast.amqp.connection import Receiver, Sender
from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Accepted, Header, Properties, Source, Target
from holdfast.amqp.wire.types import Described, Symbol, Ulong
from holdfast.core import undo
from holdfast.endpoints.addresses.dynamic_nodes import TemporaryTopic
from holdfast.settings.limits import Limits
from support.rig import Client, Node, Rig
from support.streams import LARGE, LIMITS
from support.transactions import Controller

TOPIC = (Symbol("temporary-topic"),)
POLICY = Symbol("lifetime-policy")
CODES = {"close": 0x2B, "no-links": 0x2C, "no-messages": 0x2D, "no-links-or-messages": 0x2E}


def world(**fields: Any) -> tuple[Rig, Node, Client]:
    rig = Rig()
    hub = rig.node("hub", **fields)
    hub.unwatched.add("None")  # nothing of it is stored
    return rig, hub, rig.client(hub)


def create(client: Client, policy: str = "close", name: str = "qpid-jms:temp-topic-creator:1") -> tuple[Sender, str]:
    """As Qpid JMS creates one."""
    target = Target(
        dynamic=True, expiry_policy=Symbol("link-detach"), capabilities=TOPIC,
        dynamic_node_properties={POLICY: Described(Ulong(CODES[policy]), [])},
    )  # fmt: skip
    link = client.session.attach_sender(name, Source(), target, snd_settle_mode=0, rcv_settle_mode=0)
    client.rig.settle()
    answer = link.remote_attach
    assert answer is not None and isinstance(answer.target, Target), client.detached
    assert answer.target.dynamic and answer.target.capabilities == TOPIC
    assert answer.target.dynamic_node_properties == {POLICY: Described(Ulong(CODES[policy]), [])}
    return link, str(answer.target.address)


def subscribe(client: Client, address: str, **source: Any) -> Receiver:
    link = client.receiver(address, source={"capabilities": TOPIC, **source})
    client.rig.settle()
    return link


def send(client: Client, address: str, *bodies: str, **parts: Any) -> Sender:
    link = client.sender(address, target={"capabilities": TOPIC})
    client.rig.settle()
    for body in bodies:
        client.send(link, body, **parts)
    client.rig.settle()
    return link


def topics(node: Node) -> list[TemporaryTopic]:
    assert node.core is not None
    node.core.validate()
    return [queue for queue in node.core.catalog.queues.values() if isinstance(queue, TemporaryTopic)]


def nothing_is_left(node: Node) -> bool:
    assert node.core is not None
    nodes = node.core.dynamic_nodes
    held = [name for name in node.core.catalog.queues if name.startswith("$temporary/")]
    return not (held or nodes.of_peer or nodes.due) and node.core.memory.dynamic.held == 0


def test_each_subscription_is_given_every_message() -> None:
    rig, hub, maker = world()
    _, address = create(maker)
    assert address.startswith("$temporary/")
    readers = [rig.client(hub) for _ in range(2)]
    for reader in readers:
        subscribe(reader, address)
    send(rig.client(hub), address, "1", "2")
    assert [reader.bodies() for reader in readers] == [["1", "2"]] * 2
    late = rig.client(hub)
    subscribe(late, address)
    rig.run(1)
    assert late.bodies() == []  # it was not there


def test_a_dynamic_source_is_a_topic_with_its_first_subscription() -> None:
    rig, hub, maker = world()
    terms = Source(dynamic=True, capabilities=TOPIC)
    link = maker.session.attach_receiver("mine", terms, Target("here"))
    link.grant(10)
    rig.settle()
    assert link.remote_attach is not None and isinstance(link.remote_attach.source, Source)
    address = str(link.remote_attach.source.address)
    other = rig.client(hub)
    subscribe(other, address)
    send(rig.client(hub), address, "1")
    assert maker.bodies() == other.bodies() == ["1"]
    link.detach(closed=True)
    rig.settle()
    (detached,) = other.detached
    assert detached.error is not None and str(detached.error.condition) == "amqp:resource-deleted"
    assert nothing_is_left(hub)


@pytest.mark.parametrize("ends", ["detach", "close", "wire"])
def test_it_ends_with_the_link_that_made_it(ends: str) -> None:
    rig, hub, maker = world()
    link, address = create(maker)
    reader, writer = rig.client(hub), rig.client(hub)
    subscribe(reader, address)
    send(writer, address, "1")
    assert len(topics(hub)) == 1
    if ends == "detach":
        link.detach(closed=True)
    elif ends == "close":
        maker.amqp.close()
    else:
        maker.close_transport()
    rig.settle()
    for client in (reader, writer):
        (detached,) = client.detached
        assert detached.error is not None and str(detached.error.condition) == "amqp:resource-deleted"
    assert nothing_is_left(hub) and topics(hub) == []


@pytest.mark.parametrize("policy", ["no-links", "no-messages", "no-links-or-messages"])
def test_lifetime_policies(policy: str) -> None:
    rig, hub, maker = world()
    link, address = create(maker, policy)
    reader = rig.client(hub)
    subscription = subscribe(reader, address)
    send(rig.client(hub), address, "1").detach(closed=True)
    link.detach(closed=True)
    rig.settle()
    assert len(topics(hub)) == 1  # it has a subscription, of which a message is not settled
    reader.accept()
    rig.settle()
    assert len(topics(hub)) == (policy != "no-messages")
    if policy != "no-messages":
        subscription.detach(closed=True)
        rig.settle()
    assert nothing_is_left(hub)


def test_they_are_bounded_as_dynamic_queues_are() -> None:
    rig, hub, maker = world(limits=Limits(dynamic_nodes_max=2))
    create(maker)
    create(maker, name="second")
    target = Target(dynamic=True, capabilities=TOPIC)
    maker.session.attach_sender("third", Source(), target)
    rig.settle()
    (detached,) = maker.detached
    assert detached.error is not None and str(detached.error.condition) == "amqp:resource-limit-exceeded"
    assert len(topics(hub)) == 2


def test_what_a_slow_subscription_leaves_is_bounded() -> None:
    rig, hub, maker = world()
    _, address = create(maker)
    slow = rig.client(hub)
    slow.receiver(address, credit=0, source={"capabilities": TOPIC})
    rig.settle()
    writer = rig.client(hub)
    link = send(writer, address)
    for at in range(1_200):
        writer.send(link, str(at))
        if at % 100 == 0:
            rig.settle()
    rig.settle()
    (topic,) = topics(hub)
    assert topic.held == 1_000 and topic.dropped_total == 200


def test_in_transactions_and_by_links_without_an_address() -> None:
    rig, hub, maker = world()
    _, address = create(maker)
    reader = rig.client(hub)
    subscribe(reader, address)
    writer = rig.client(hub)
    controller, link = Controller(writer), send(writer, address)
    txn = controller.begin()
    assert controller.send(txn, link, "1") == Accepted()
    assert reader.bodies() == []
    assert controller.commit(txn) == Accepted()
    relay = writer.session.attach_sender("relay", Source(), None)
    rig.settle()
    writer.send(relay, "2", properties=Properties(to=address))
    rig.run(1)
    assert reader.bodies() == ["1", "2"]


def test_patterns_selectors_and_no_local() -> None:
    rig, hub, maker = world()
    _, address = create(maker)
    filters = {
        Symbol("p"): Described(Symbol("apache.org:legacy-amqp-topic-binding:string"), "a.#"),
        Symbol("s"): Described(Symbol("apache.org:selector-filter:string"), "JMSPriority > 4"),
        Symbol("n"): Described(Ulong(0x468C00000003), "NoLocalFilter{}"),
    }
    reader = rig.client(hub)
    link = subscribe(reader, address, filter=filters)
    assert link.remote_attach is not None and link.remote_attach.source.filter == filters  # type: ignore[union-attr]
    for client, who in ((reader, "own"), (rig.client(hub), "other")):
        for subject, priority in (("a.b", 9), ("a.b", 4), ("b", 9)):
            send(
                client, address, f"{who} {subject} {priority}", properties=Properties(subject=subject),
                header=Header(priority=priority),
            )  # fmt: skip
    rig.run(1)
    assert reader.bodies() == ["other a.b 9"]


def test_large_messages() -> None:
    rig, hub, maker = world(limits=LIMITS)
    _, address = create(maker)
    writer = rig.client(hub)
    link = send(writer, address, "x" * LARGE)  # to nobody
    reader = rig.client(hub)
    subscribe(reader, address)
    writer.send(link, "y" * LARGE)
    rig.run(3)
    assert [body[:1] for body in reader.bodies()] == ["y"]
    reader.accept()
    maker.close_transport()
    rig.run(3)
    assert nothing_is_left(hub)
    assert not hub.store._blobs


@pytest.mark.parametrize("why", ["full", "failure"])
def test_a_large_message_that_is_not_on_disk_is_not_accepted(why: str) -> None:
    """No subscription has it any more; a small one, which all have, is accepted."""
    rig, hub, maker = world(limits=LIMITS)
    _, address = create(maker)
    _, small = create(maker, name="small")
    readers, reader_of_small = [rig.client(hub) for _ in range(2)], rig.client(hub)
    for reader in readers:
        subscribe(reader, address)
    subscribe(reader_of_small, small)
    writer, other = rig.client(hub), rig.client(hub)
    links = send(writer, address), send(writer, small)
    assert hub.core is not None
    hub.hold_commits = True
    send(other, "work", "stored")
    writer.send(links[0], "x" * LARGE, context="large")
    writer.send(links[1], "small", context="small")
    rig.settle()
    assert hub.core.turns.in_flight is not None and len(hub.core.work.referred) == 2
    if why == "full":
        hub.refuse = 1
    else:
        undo.take_back_gathered(hub.core, ())
    hub.hold_commits = False
    rig.run(1)
    outcomes = dict(writer.outcomes)
    assert not isinstance(outcomes["large"], Accepted) and isinstance(outcomes["small"], Accepted)
    assert reader_of_small.bodies() == ["small"]
    writer.send(links[0], "y" * LARGE, context="again")
    rig.run(1)
    assert isinstance(dict(writer.outcomes)["again"], Accepted)
    assert [[body[:1] for body in reader.bodies()] for reader in readers] == [["y"]] * 2
    assert len(topics(hub)) == 2


@pytest.mark.parametrize(
    ("source", "condition"),
    [
        ({"durable": 2, "expiry_policy": Symbol("never")}, "amqp:not-allowed"),
        ({"distribution_mode": Symbol("copy")}, "amqp:not-implemented"),
    ],
)
def test_what_it_cannot(source: dict[str, Any], condition: str) -> None:
    rig, hub, maker = world()
    _, address = create(maker)
    reader = rig.client(hub)
    subscribe(reader, address, **source)
    (detached,) = reader.detached
    assert detached.error is not None and str(detached.error.condition) == condition
    assert len(topics(hub)) == 1


def test_a_refused_commit_and_a_crash() -> None:
    rig, hub, maker = world()
    _, address = create(maker)
    reader = rig.client(hub)
    subscribe(reader, address)
    hub.refuse, hub.refuse_all = 1, True
    writer = rig.client(hub)
    send(writer, address, "1")
    send(writer, "work", "stored")
    rig.run(2)
    assert reader.bodies() == ["1"]
    hub.crash()
    hub.start()
    rig.settle()
    assert topics(hub) == [] and nothing_is_left(hub)


def test_other_capabilities_make_a_queue() -> None:
    rig, hub, maker = world()
    target = Target(dynamic=True, capabilities=(Symbol("temporary-queue"),))
    link = maker.session.attach_sender("queue", Source(), target)
    rig.settle()
    address = str(link.remote_attach.target.address)  # type: ignore[union-attr]
    maker.send(link, "1")
    rig.settle()
    reader = rig.client(hub)
    reader.receiver(address)
    rig.settle()
    assert [Message.decode(item.payload).body_bytes() for item in reader.deliveries] == [b"1"] and topics(hub) == []
