"""Queues and producers that go while a commit is under way which then is refused: nothing brings them back."""

from typing import Any

import pytest

from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.extensions import PRODUCER
from holdfast.amqp.wire.performatives import Accepted, Modified, Rejected
from holdfast.amqp.wire.types import Symbol
from holdfast.broker.stored import records
from holdfast.core import undo
from holdfast.settings.limits import Limits
from support.one_node import fill, world
from support.rig import Client, Node, Rig


def settled(rig: Rig, client: Client) -> None:
    """With the management links attached, so that a request needs no commit of its own first."""
    client.manage("STATUS", "node")
    rig.run(1)


def ask(rig: Rig, client: Client, operation: str, name: str) -> None:
    """A request whose answer waits for a commit that does not end."""
    client.request(operation, "queue", name)
    client.rig.settle()
    assert not any(item.link.name == "replies" for item in client.deliveries)


def rows(node: Node, table: str) -> set[bytes]:
    return {key for key, _ in node.store.table(table)}


def entries(node: Node, queue_id: int) -> int:
    return len(node.store.read(queue_id, 0, count_max=100, bytes_max=1 << 30))


def producer(rig: Rig, client: Client, address: str) -> Any:
    link = client.sender(address, properties={PRODUCER: "p"})
    rig.settle()
    return link


def refused(node: Node, rig: Rig) -> None:
    """The commit under way finds no room."""
    node.refuse = 1
    node.hold_commits = False
    rig.settle()
    rig.run(3)
    assert not node.refuse


@pytest.mark.parametrize("goes", ["deleted", "forgotten", "undone"])
def test_a_producer_that_was_forgotten_meanwhile_stays_so(goes: str) -> None:
    """Else its numbers would be taken for those of the producer that begins anew under its name."""
    rig, node, client = world(limits=Limits(producers_max=1))
    link = producer(rig, client, "work")
    for number in range(1, 4):
        client.send(link, f"first {number}", number=number)
    rig.settle()
    settled(rig, client)
    node.hold_commits = True
    client.send(link, "first 4", number=4)
    rig.settle()
    client.send(link, "first 5", number=5)  # with the turn that is gathered meanwhile
    rig.settle()
    link.detach(closed=True)
    rig.settle()
    assert node.core is not None
    if goes == "forgotten":
        producer(rig, rig.client(node), "other")
    else:
        ask(rig, client, "DELETE", "work")
    if goes == "undone":
        undo.take_back_gathered(node.core, ())
        node.hold_commits = False
        rig.run(3)
    else:
        refused(node, rig)
    assert not any(key.startswith(b"p\0work") for key in (*rows(node, "producers"), *node.core.catalog.producers))
    held = sum(each.counted_bytes for each in node.core.catalog.producers.values())
    assert node.core.memory.ranges.held == held
    node.crash()
    node.start()
    client = rig.client(node)
    link = producer(rig, client, "work")
    for number in range(1, 4):
        client.send(link, f"second {number}", number=number)
    rig.run(1)
    assert [body for body in node.bodies("work") if body.startswith("second")] == [f"second {n}" for n in (1, 2, 3)]


def rejected(rig: Rig, node: Node, client: Client, count: int) -> None:
    """So many messages are in the commit under way as dead letters, and nobody consumes any more."""
    fill(rig, client, count)
    consumer = rig.client(node)
    receiver = consumer.receiver("work", credit=count)
    rig.run(1)
    settled(rig, client)
    node.hold_commits = True
    consumer.accept(Rejected(), link=receiver)
    rig.settle()
    assert (
        node.core is not None
        and node.core.turns.in_flight is not None
        and len(node.core.turns.in_flight.moves) == count
    )
    consumer.close_transport()
    for link in list(node.core.links.producers_of(node.queue("work"))):
        link.detach_with("the test wants the queue alone", conditions.RESOURCE_DELETED)
    rig.settle()


@pytest.mark.parametrize("again", [False, True])
def test_what_was_on_its_way_out_of_a_queue_that_was_deleted_leaves_the_disk(again: bool) -> None:
    """`again`: the queue is made anew at once, and has an id of its own."""
    rig, node, client = world()
    rejected(rig, node, client, 3)
    queue_id = node.queue("work").queue_id
    ask(rig, client, "DELETE", "work")
    if again:
        ask(rig, client, "CREATE", "work")
    assert entries(node, queue_id) == 3
    refused(node, rig)
    assert entries(node, queue_id) == 0 and node.core is not None and not node.core.catalog.leaving
    assert ("work" in node.core.catalog.queues) == again
    node.core.validate()


def test_what_was_on_its_way_out_in_a_turn_that_is_undone_leaves_too() -> None:
    """The queue is deleted in the same turn: another commit is under way all the while."""
    rig, node, client = world()
    fill(rig, client, 3)
    consumer = rig.client(node)
    receiver = consumer.receiver("work", credit=3)
    other = client.sender("other")
    rig.run(1)
    settled(rig, client)
    node.hold_commits = True
    client.send(other, "1")
    rig.settle()
    consumer.accept(Rejected(), link=receiver)
    rig.settle()
    core, queue_id = node.core, node.queue("work").queue_id
    assert core is not None and core.turns.in_flight is not None and len(core.turns.gathered.moves) == 3
    consumer.close_transport()
    for link in list(core.links.producers_of(node.queue("work"))):
        link.detach_with("the test wants the queue alone", conditions.RESOURCE_DELETED)
    ask(rig, client, "DELETE", "work")
    undo.take_back_gathered(core, ())
    node.hold_commits = False
    rig.run(3)
    assert entries(node, queue_id) == 0 and "work" not in core.catalog.queues


@pytest.mark.parametrize("way", ["sent", "accepted", "rejected", "subscribed", "annotated"])
def test_no_row_is_written_of_a_queue_that_was_deleted(way: str) -> None:
    rig, node, client = world()
    fill(rig, client, 3)
    consumer = rig.client(node)
    receiver = consumer.receiver("work", credit=10)  # it waits for a mark
    link = client.sender("work")
    rig.run(1)
    settled(rig, client)
    queue_id = node.queue("work").queue_id
    node.hold_commits = True
    if way == "subscribed":  # its record, and a cursor that waits for its mark
        reader = client.receiver("work", name="sub", source={"durable": 2, "expiry_policy": Symbol("never")})
    client.send(link, "4")
    outcome = {
        "accepted": Accepted(),
        "rejected": Rejected(),
        "annotated": Modified(message_annotations={Symbol("x-opt-why"): "so"}),
    }
    if way in outcome:
        consumer.accept(outcome[way], link=receiver)
    rig.settle()
    if way == "subscribed":
        reader.detach(closed=True)
        rig.settle()
    consumer.close_transport()
    core = node.core
    assert core is not None and core.turns.in_flight is not None
    for each in list(core.links.producers_of(node.queue("work"))):
        each.detach_with("the test wants the queue alone", conditions.RESOURCE_DELETED)
    rig.settle()
    if way == "subscribed":
        with pytest.raises(IndexError):
            client.manage("DELETE", "subscription", "sub", queue="work")
    ask(rig, client, "DELETE", "work")
    assert "work" not in core.catalog.queues
    refused(node, rig)
    key = records.cursor_key(queue_id, "")
    assert not [row for table in ("node", "subscriptions", "queues") for row in rows(node, table) if key in row]
    assert entries(node, queue_id) == 0
    assert b"work" not in rows(node, "queues")
    core.validate()


def test_what_is_given_back_is_looked_through_once_however_much_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Moves that are undone go back among what others gave back: not one search of it for each."""
    rig, node, client = world()
    rejected(rig, node, client, 20)
    queue = node.queue("work")
    compared = 0

    class Number(int):
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return int(self) == other

        __hash__ = int.__hash__

    many = 2_000
    node.checks = False
    queue.shared.requeued = [Number(number) for number in range(1_000, 1_000 + many)]
    queue.shared.position = 1_000 + many
    node.refuse = 1
    node.finish_commit()
    assert sorted(queue.shared.requeued) == [*range(1, 21), *range(1_000, 1_000 + many)]
    assert compared <= 2 * many
