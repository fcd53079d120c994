"""Room that is kept: for a group of another node, for a transaction in a queue in memory, and by links that rest."""

from typing import Any

import pytest

from holdfast.amqp.connection import Sender
from holdfast.amqp.wire.performatives import Accepted, Discharge, Header, Rejected
from holdfast.broker import topic
from holdfast.queue_links.link import QueueLink
from holdfast.settings.queues import QueueConfig
from support.one_node import fill
from support.queue_links import linked, links_of, move, numbers
from support.rig import Client, Node, Rig
from support.streams import LARGE, LIMITS, is_clean
from support.transactions import FULL, Controller, condition, quiet, request, started

DURABLE = Header(durable=True)


# -------------------------------------------------------------------------------------------------------- groups


def awaited(messages_max: int) -> tuple[Rig, Node, Client, Sender]:
    """The node hub, whose queue `work` is full when a group of two messages of another node is on its way there, and a
    client of hub with the link that has filled the queue."""
    rig = Rig()
    jfk, hub = rig.pair(queues=(QueueConfig(name="work", messages_max=messages_max),))
    rig.run(3)
    local, far = rig.client(hub), rig.client(jfk)
    filler, to_hub = local.sender("work"), far.sender("work@hub")
    rig.settle()
    for number in range(messages_max):
        local.send(filler, f"f{number}", header=DURABLE)
    rig.run(1)
    controller = Controller(far)
    group = controller.begin()
    for body in ("g1", "g2"):
        controller.send(group, to_hub, body, header=DURABLE)
    assert controller.commit(group) == Accepted()
    rig.run(2)
    return rig, hub, local, filler


def test_a_transaction_leaves_a_group_of_another_node_its_room() -> None:
    """It gets credit at the full queue, and would take each place that becomes free."""
    rig, hub, _, _ = awaited(4)
    here, consumer = rig.client(hub), rig.client(hub)
    mine, other = here.sender("work"), Controller(here)
    other.begin()  # so that its links get credit
    consumer.receiver("work", credit=2)
    rig.run(1)
    consumer.accept(count=1)
    rig.run(1)
    queue = hub.queue("work")
    assert (queue.awaited, queue.messages) == (2, 3)
    transaction = other.begin()
    assert condition(other.send(transaction, mine, "t1", header=DURABLE)) == FULL
    assert isinstance(other.commit(transaction), Rejected)
    consumer.accept()
    rig.run(2)
    assert hub.bodies("work") == ["f2", "f3", "g1", "g2"] and queue.awaited == 0


def test_a_transaction_that_takes_and_brings_goes_on_while_a_group_waits() -> None:
    """What it takes leaves it the room that it needs."""
    rig, hub, here, mine = awaited(3)
    other = Controller(here)
    here.receiver("work", credit=1)
    rig.run(1)
    transaction = other.begin()
    other.take(transaction)
    assert other.send(transaction, mine, "new", header=DURABLE) == Accepted()
    assert other.commit(transaction) == Accepted()
    rig.run(1)
    assert hub.bodies("work") == ["f1", "f2", "new"]


# -------------------------------------------------------------------------------------------------------- in memory


def test_a_queue_in_memory_keeps_a_transactions_room_until_its_commit() -> None:
    memory = QueueConfig(name="memory", durable=False, messages_max=3, when_full="refuse")
    rig, node, client, controller = started(memory, QueueConfig(name="disk"))
    node.unwatched.add("memory")
    other = rig.client(node)
    in_memory, on_disk, theirs = client.sender("memory"), client.sender("disk"), other.sender("memory")
    rig.settle()
    transaction = controller.begin()
    for body in numbers(1, 3):
        controller.send(transaction, in_memory, body)
    controller.send(transaction, on_disk, "on disk", header=DURABLE)
    node.hold_commits = True
    controller.link.send(request(Discharge(transaction, False)), context="end")
    rig.settle()
    for body in ("a", "b", "c"):
        other.send(theirs, body)
    rig.settle()
    assert node.queue("memory").reserved == 3
    node.hold_commits = False
    rig.run(1)
    assert [type(outcome) for _, outcome in other.outcomes] == [Rejected] * 3
    assert ("end", Accepted()) in client.outcomes
    assert node.bodies("memory") == numbers(1, 3) and quiet(node)


def test_a_refused_commit_frees_a_transactions_room_in_memory() -> None:
    memory = QueueConfig(name="memory", durable=False, messages_max=3, when_full="refuse")
    rig, node, client, controller = started(memory, QueueConfig(name="disk"))
    node.unwatched.add("memory")
    in_memory, on_disk = client.sender("memory"), client.sender("disk")
    rig.settle()
    transaction = controller.begin()
    for body in numbers(1, 3):
        controller.send(transaction, in_memory, body)
    controller.send(transaction, on_disk, "on disk", header=DURABLE)
    node.refuse = 1
    assert isinstance(controller.commit(transaction), Rejected)
    rig.run(3)
    assert quiet(node) and node.bodies("memory") == []


# -------------------------------------------------------------------------------------------------------- links


def test_a_link_that_rests_after_a_failure_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, node, client = linked(move("work", "next"), queues=(QueueConfig(name="work"), QueueConfig(name="next")))
    handing = links_of(node).handing
    new = type(handing)._new
    failures = 0

    def fails(self: Any, link: QueueLink, value: bytes) -> Any:
        nonlocal failures
        failures += 1
        if failures == 1:
            raise ValueError("broken")
        return new(self, link, value)

    monkeypatch.setattr(type(handing), "_new", fails)
    fill(rig, client, 5)
    rig.run(0.2)
    link = links_of(node).by_name["work-next"]
    assert failures == 1 and not link.taken and not link.cursor.acquired
    taker = rig.client(node)
    taker.receiver("work", credit=2)
    rig.run(0.3)
    assert taker.bodies() == numbers(1, 2)
    rig.run(5)
    assert node.bodies("next") == numbers(3, 5)


# -------------------------------------------------------------------------------------------------------- blobs


@pytest.mark.parametrize("refused", range(1, 7))
def test_a_refused_commit_forgets_large_messages_that_came_and_left_in_it(
    monkeypatch: pytest.MonkeyPatch, refused: int
) -> None:
    """A listener with a place for one message was given two in the turn that is refused."""
    monkeypatch.setattr(topic, "LISTENER_MESSAGES_MAX", 1)
    rig, node, client, _ = started(QueueConfig(name="disk"), limits=LIMITS)
    on_disk, published = client.sender("disk"), client.sender("topic/news")
    listener = rig.client(node)
    listener.receiver("topic/news", credit=0)
    rig.settle()
    before = node.tries
    node.refuse_all = True
    for wave in range(8):
        for link, body in ((published, "0" * LARGE), (published, "1" * LARGE), (on_disk, f"{wave}")):
            if link.credit:
                client.send(link, body, header=DURABLE)
        while rig.move():
            node.refuse = int(node.tries == before + refused - 1)
            assert node.core is not None
            node.core.validate()
    rig.run(5)
    assert node.core is not None
    assert not node.core.work.left and node.tries > before + refused


def test_a_large_message_that_came_and_left_in_one_turn_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listener with a place for one message was given several at once."""
    monkeypatch.setattr(topic, "LISTENER_MESSAGES_MAX", 1)
    rig, node, client, _ = started(limits=LIMITS)
    published = client.sender("topic/news")
    listener = rig.client(node)
    listener.receiver("topic/news", credit=0)
    rig.settle()
    for number in range(4):
        client.send(published, f"{number}" * LARGE, header=DURABLE)
    rig.run(2)
    assert node.core is not None
    node.core.validate()
    assert len(client.outcomes) == 4 and len(node.core.blobs.by_number) == 1
    listener.close_transport()
    rig.run(5)
    assert is_clean(node)
