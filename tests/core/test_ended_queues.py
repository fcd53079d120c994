"""A queue that has ended, a dynamic node or one that an operator deleted, is asked for nothing any more, and is freed
by reference counts alone (endpoints/addresses/dynamic_nodes.py, state/catalog.py; ADR 0005)."""

from typing import Any

import pytest

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Modified, Properties, Rejected, Source, Target
from holdfast.amqp.wire.types import Symbol
from holdfast.custody import returns
from holdfast.endpoints import settlements
from holdfast.settings.queues import QueueConfig
from support.garbage import collected
from support.hops import STRICT, reroute, send
from support.one_node import done, fill, world
from support.rig import Client, Node, Rig


def dynamic(rig: Rig, node: Node, client: Client) -> tuple[Any, str]:
    """A link that made a dynamic node, without credit, and the node's address."""
    link = client.session.attach_receiver(f"d{len(client.session.links)}", Source(dynamic=True), Target("here"))
    rig.settle()
    assert link.remote_attach is not None and link.remote_attach.source is not None
    address = str(link.remote_attach.source.address)
    node.unwatched.update(("None", address))  # what it takes is not stored
    return link, address


def has(node: Node, name: str) -> bool:
    assert node.core is not None
    return name in node.core.catalog.queues


def answered(rig: Rig, node: Node, answer: str) -> None:
    """The disk answers the commit under way, and all that follow."""
    assert node.pending is not None
    node.refuse = answer == "refused"
    node.hold_commits = False
    rig.settle()
    rig.run(3)
    assert node.core is not None
    node.core.validate()


@pytest.mark.parametrize("answer", ["stored", "refused"])
@pytest.mark.parametrize("way", ["detached", "lost", "a message comes", "outcomes come", "a relay knows it"])
def test_a_dynamic_node_that_ends_while_a_commit_is_under_way_is_freed(way: str, answer: str) -> None:
    """What it took counts with the commit, and with the turn behind it."""
    rig, node, client = world()
    other, third = rig.client(node), rig.client(node)
    stored = other.sender("stored")
    with collected() as left:
        link, address = dynamic(rig, node, client)
        sender, consumer = other.sender(address), third.receiver(address, credit=8)
        relay = other.session.attach_sender("relay", Source(), Target())
        rig.settle()

        def by_relay(body: str) -> None:
            relay.send(Message(properties=Properties(to=address), data=[body.encode()]).encode(), context=body)

        for body in "abcdef":
            other.send(sender, body)
        rig.settle()
        node.hold_commits = True
        by_relay("g")
        other.send(sender, "h")
        other.send(stored, "1")
        rig.settle()
        other.send(sender, "i")
        other.send(stored, "2")
        rig.settle()
        assert node.pending is not None
        if way == "a message comes":
            other.send(sender, "at the end")
        elif way == "outcomes come":
            third.accept(Rejected(), count=2, link=consumer)
            third.accept(Modified(delivery_failed=True), link=consumer)
        if way == "lost":
            client.close_transport()
        else:
            link.detach(closed=True)
        rig.settle()
        assert not has(node, address)
        if way == "a relay knows it":
            by_relay("too late")
            rig.settle()
        answered(rig, node, answer)
        for each in (client, other, third):
            each.close_transport()
        rig.run(1)
    assert not left


def test_what_a_link_held_of_a_node_that_ends_before_it_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a turn gives back: the rest is looked at in the turns after the end."""
    monkeypatch.setattr(returns, "GIVEN_BACK_MAX", 2)
    rig, node, client = world()
    other, third = rig.client(node), rig.client(node)
    with collected() as left:
        link, address = dynamic(rig, node, client)
        third.receiver(address)
        fill(rig, other, 9, address)
        assert len(node.queue(address).shared.acquired) == 9
        third.close_transport()
        link.detach(closed=True)
        rig.run(1)
        assert not has(node, address)
    assert not left
    assert node.core is not None and not node.core.jobs.returns.waiting


@pytest.mark.parametrize("way", ["returns", "settlements"])
def test_a_node_that_stops_passes_over_what_waits_of_a_deleted_queue(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(returns, "GIVEN_BACK_MAX", 0)
    monkeypatch.setattr(settlements, "SETTLED_BYTES_MAX", 1)
    rig, node, client = world()
    core = node.core
    assert core is not None
    waiting: Any = getattr(core.jobs, way)
    other, third = rig.client(node), rig.client(node)
    link, address = dynamic(rig, node, client)
    consumer = third.receiver(address)
    fill(rig, other, 50, address)
    queue = node.queue(address)
    assert len(queue.shared.acquired) == 50
    node.hold_commits = True  # until dead letters are on disk no more are made
    if way == "settlements":
        third.accept(Rejected(), link=consumer)
        rig.settle()
    third.close_transport()
    link.detach(closed=True)
    while has(node, address):
        assert rig.move()
    assert waiting.waiting
    core.work.dirty_queues.clear()
    waiting.stop()
    assert queue not in core.work.dirty_queues and not waiting.waiting
    assert core.jobs.settlements.account.held == 0


@pytest.mark.parametrize("answer", ["stored", "refused"])
@pytest.mark.parametrize("durable", [True, False])
def test_a_queue_that_an_operator_deletes_is_freed(durable: bool, answer: str) -> None:
    """Also while a commit is under way that appends to it, shows of it and puts entries of it anew."""
    rig, node, client = world(QueueConfig(name="work", durable=durable))
    node.unwatched.add("work")
    operator = rig.client(node)
    operator.manage("STATUS", "node")
    with collected() as left:
        sender, other = client.sender("work"), client.sender("other")
        rig.settle()
        for number in range(5):
            client.send(sender, str(number))
        named = {"durable": 2, "expiry_policy": Symbol("never")}
        links = [client.receiver("work", credit=3), client.receiver("work", name="sub", credit=2, source=named)]
        rig.settle()
        node.hold_commits = True
        client.send(sender, "6")
        client.send(other, "so that there is a commit")
        client.accept(Modified(delivery_failed=True, message_annotations={Symbol("x-opt-a"): 1}), link=links[0])
        rig.settle()
        assert node.pending is not None
        for link in (*links, sender):
            link.detach(closed=True)
        rig.settle()
        for operation, kind, name, told in (
            ("DELETE", "subscription", "sub", {"queue": "work"}),
            ("DELETE", "queue", "work", {}),
        ):
            with pytest.raises(IndexError):  # its answer waits for the disk
                done(operator, operation, kind, name, **told)
        assert not has(node, "work")
        answered(rig, node, answer)
        client.close_transport()
        rig.run(1)
    assert not left


@pytest.mark.parametrize("sent", [False, True])
def test_the_queue_for_a_node_that_left_is_freed_and_its_link_asks_it_for_nothing(sent: bool) -> None:
    """Its custody link may be attached still, and what was sent on it be answered later, or never."""
    rig = Rig()
    nodes = rig.graph("a-b", "b-c", routes={"a": {"c": "b"}, "b": {"a": "a"}, "c": {"a": "b"}}, c=STRICT)
    rig.run(2)
    a, b, _ = nodes
    with collected() as left:
        send(rig, a, "1", to="c")
        rig.run(2)
        core = a.core
        assert core is not None
        (custody,) = [sender for hop in core.next_hops.values() for sender in hop.senders.values()]
        assert custody.link is not None
        operator = rig.client(a)
        operator.manage("STATUS", "node")
        if sent:
            b.hold_commits = True
            send(rig, a, "2", to="c")
            assert custody.in_doubt
        reroute(rig, a)
        assert operator.manage("DELETE", "queue", "@c", tombstones=True)[0] == 200
        assert not has(a, "@c")
        b.hold_commits = False
        rig.run(3)
        for wire in rig.between("a", "b"):
            wire.cut()
        rig.run(3)
        del custody
    assert not {"Queue", "Cursor", "CustodySender"} & left.keys()
    assert not [line for line in a.logs if "defect" in line]


@pytest.mark.parametrize("queue_ends", [True, False])
def test_a_link_that_goes_on_with_what_it_held_and_ends_in_the_same_turn_leaves_nothing(queue_ends: bool) -> None:
    """It was to go on once its queue is offered, which that is no more."""
    rig, node, client = world()
    operator, first = rig.client(node), rig.client(node)
    operator.manage("STATUS", "node")
    core = node.core
    assert core is not None
    sender = client.sender("work")
    first.receiver("work", name="r", source={"timeout": 60}, unsettled={}, credit=5)
    rig.settle()
    for number in range(5):
        client.send(sender, str(number))
    rig.settle()
    tags = [item.tag for item in first.deliveries]
    assert len(tags) == 5
    sender.detach(closed=True)
    first.close_transport()
    rig.settle()
    with collected() as left:
        again = rig.client(node)
        rig.settle()
        link = again.receiver("work", name="r", source={"timeout": 60}, unsettled=dict.fromkeys(tags))
        arrive(again)
        (consumer,) = node.queue("work").shared.consumers
        assert consumer.steps and core.resume.going_on
        link.detach(closed=True)
        arrive(again)
        assert not consumer.steps and not core.resume.going_on
        del consumer
        if queue_ends:
            assert done(operator, "DELETE", "queue", "work")["purged"] == 5
        rig.settle()
        assert has(node, "work") != queue_ends and not core.resume.going_on
        again.close_transport()
        rig.run(1)
    assert not left


def arrive(client: Client) -> None:
    """What the client says is read, and the turn goes on."""
    client.flush()
    assert client.end is not None
    end = client.end.wire.other(client.end)
    data = bytes(end.inbox)
    end.inbox.clear()
    end.receive(data)
