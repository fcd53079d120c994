"""Entries that modified annotates (AMQP 1.0 §3.4.5): what counts them and what is given follow, stored or not yet."""

from typing import Any

import pytest

from holdfast.accounts import Account
from holdfast.amqp.performatives import Accepted, Modified
from holdfast.amqp.types import Symbol
from holdfast.broker import rewriting
from holdfast.core import undo
from holdfast.core.config import Limits, QueueConfig
from holdfast.core.endings import annotate_entries
from holdfast.core.pressure import REWRITTEN_BYTES_MAX
from holdfast.units import KIB
from support.rig import Client, Node, Rig

WHY = Symbol("x-opt-why")


class Defect(Exception):
    """Raised where nothing is wrong."""


def broken(*args: object) -> None:
    raise Defect


def shown(cache_bytes: int) -> tuple[Rig, Node, Client, Any]:
    """A consumer with one message in its hands."""
    rig = Rig()
    node = rig.node("hub", limits=Limits(cache_bytes=cache_bytes))
    client = rig.client(node)
    link = client.sender("work")
    rig.settle()
    client.send(link, "m")
    receiver = client.receiver("work", credit=1)
    rig.settle()
    return rig, node, client, receiver


def annotate(client: Client, receiver: Any, note: str) -> None:
    """The delivery goes back with that annotation, and there is credit for the next."""
    (delivery,) = client.deliveries
    client.deliveries.clear()
    receiver.settle(delivery.delivery_id, delivery.delivery_id, Modified(message_annotations={WHY: note}))
    receiver.grant(1)


def notes(client: Client) -> list[object]:
    return [(message.message_annotations or {}).get(WHY) for message in client.messages()]


@pytest.mark.parametrize("cache_bytes", [0, 10_000])
def test_the_next_delivery_has_the_annotation_though_it_is_not_on_disk_yet(cache_bytes: int) -> None:
    rig, node, client, receiver = shown(cache_bytes)
    for note in ("once", "a second time"):
        annotate(client, receiver, note)
        rig.settle()
        assert notes(client) == [note]
    client.accept(Accepted())
    rig.run(1)
    assert (node.queue("work").messages, node.queue("work").bytes_held) == (0, 0)


def test_a_full_disk_leaves_it_as_it_was_however_often_it_was_annotated() -> None:
    rig, node, client, receiver = shown(0)
    queue = node.queue("work")
    before = queue.bytes_held
    node.refuse = 2
    for note in ("once", "a second time"):
        annotate(client, receiver, note)
        rig.settle()
    rig.run(1)
    assert queue.bytes_held == before and not queue.work.rewritten
    client.accept(Accepted())
    rig.run(1)
    assert (queue.messages, queue.bytes_held) == (0, 0)


def test_another_reader_is_given_it_with_the_size_that_it_has_now() -> None:
    """What a consumer annotates beside a subscription leaves, once that is gone, with the size that it has then."""
    rig, node, client, receiver = shown(0)
    other = rig.client(node)
    assert other.manage("OPEN", "subscription", "s", queue="work", mode="copy")[0] == 201
    annotate(client, receiver, "once")
    rig.settle()
    assert notes(client) == ["once"]
    assert other.manage("DELETE", "subscription", "s", queue="work")[0] == 200
    client.accept(Accepted())
    rig.run(1)
    assert (node.queue("work").messages, node.queue("work").bytes_held) == (0, 0)


@pytest.mark.parametrize("leaves", [False, True])
def test_a_turn_that_is_undone_leaves_the_sum_right(leaves: bool) -> None:
    """Annotated twice in the turn; what left after that has left all the same."""
    _, node, _, _ = shown(0)
    core = node.core
    assert core is not None
    queue = node.queue("work")
    before = queue.bytes_held
    (sequence,) = queue.shared.shown
    (peer,) = core.connections.values()
    for note in ("once", "a second time"):
        annotate_entries(core, peer, queue, [sequence], {WHY: note})
    if leaves:
        queue.shared.finish([sequence])
    undo.take_back_gathered(core, ())
    assert queue.bytes_held == (0 if leaves else before) and not queue.work.rewritten
    assert leaves or queue.shared.shown[sequence].size == before


# ------------------------------------------------------------------------------------------------ bounds


def held(count: int, size: int, **fields: Any) -> tuple[Rig, Node, Client, Any]:
    """A consumer with so many messages of that size in its hands."""
    rig = Rig()
    node = rig.node("hub", **fields)
    node.unwatched.add("work")
    client = rig.client(node)
    link = client.sender("work")
    rig.settle()
    for number in range(count):
        client.send(link, f"{number:04}".ljust(size))
    receiver = client.receiver("work", credit=count)
    rig.settle()
    assert len(client.deliveries) == count
    return rig, node, client, receiver


def told(node: Node) -> list[str]:
    return [line for line in node.logs if "are left out" in line]


@pytest.mark.parametrize("bound", ["queue", "memory"])
def test_annotations_keep_within_the_bound_of_their_queue(bound: str) -> None:
    """What does not fit is left out, which the log is told; nothing is lost, and what fits stays."""
    room = 100 * KIB
    queue = QueueConfig(name="work", durable=bound == "queue", bytes_max=room if bound == "queue" else None)
    rig, node, client, receiver = held(50, 100, queues=[queue], limits=Limits(memory_queue_bytes_max=room))
    work = node.queue("work")
    most = 0
    for size in (1_000, 4_000, 16_000, 60_000):
        client.accept(Modified(message_annotations={WHY: "x" * size}))
        rig.settle()
        most = max(most, work.bytes_held, node.core.memory.queues.held)  # type: ignore[union-attr]
        receiver.grant(50)
        rig.settle()
        assert len(client.deliveries) == 50
    assert 80 * KIB < most <= room
    assert any(note is not None for note in notes(client))
    assert told(node) and all("has no room" in line for line in told(node))
    client.accept(Accepted())
    rig.run(1)
    assert (work.messages, work.bytes_held, node.core.memory.queues.held) == (0, 0, 0)  # type: ignore[union-attr]


def test_a_message_has_at_most_annotation_bytes_max() -> None:
    rig, node, client, receiver = held(1, 100, limits=Limits(annotation_bytes_max=1_024))
    work = node.queue("work")
    for number in range(10):
        client.accept(Modified(message_annotations={Symbol(f"x-opt-{number}"): "x" * 300}))
        rig.settle()
        receiver.grant(1)
        rig.settle()
    assert len(client.messages()[0].message_annotations or {}) == 3 + 2 and work.bytes_held < 2_000
    assert len(told(node)) == 7 and "at most 1024 bytes" in told(node)[0]


def test_what_one_connection_has_annotated_in_one_turn_is_bounded() -> None:
    """However small the annotation: the whole message is put anew. Another one's is, beside it."""
    size = 256 * KIB
    rig, node, client, receiver = held(60, size)
    core = node.core
    assert core is not None
    other = rig.client(node)
    link = other.sender("small")
    rig.settle()
    other.send(link, "m")
    theirs = other.receiver("small")
    rig.settle()
    node.hold_commits = True
    before = core.work.batch.bytes_appended
    client.accept(Modified(message_annotations={WHY: "x"}))
    rig.settle()
    annotate(other, theirs, "mine")
    rig.settle()
    appended = core.work.batch.bytes_appended - before
    if core.in_flight is not None:
        appended += core.in_flight.batch.bytes_appended
    assert REWRITTEN_BYTES_MAX - size <= appended <= REWRITTEN_BYTES_MAX + 2 * size
    assert core.memory.unstored.held >= appended
    assert len(told(node)) >= 1 and "not on disk yet" in told(node)[0]
    node.hold_commits = False
    receiver.grant(60)
    rig.run(1)
    assert [(message.message_annotations or {})[WHY] for message in other.messages()] == ["mine"]
    assert len(client.deliveries) == 60 and sum(note is not None for note in notes(client)) <= 17


def test_nothing_is_changed_before_the_last_call_that_could_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    _, node, _, _ = shown(0)
    queue = node.queue("work")
    before = queue.bytes_held
    value = queue.value(1)
    monkeypatch.setattr(type(queue), "touch_counters", broken)
    with pytest.raises(Defect):
        rewriting.replace(queue, 1, value, value + b"more")
    assert queue.bytes_held == before


@pytest.mark.parametrize("cache_bytes", [0, 10_000])
def test_two_subscriptions_hold_it_with_one_size(cache_bytes: int) -> None:
    """What one of them annotates the other has in its hands too; a contained failure finds nothing that contradicts
    itself, and what both accept leaves with the size that it has."""
    rig = Rig()
    node = rig.node("hub", limits=Limits(cache_bytes=cache_bytes))
    clients = [rig.client(node, container_id=name) for name in ("a", "b")]
    fields: dict[str, Any] = {"durable": 2, "expiry_policy": Symbol("never")}
    names = ("s", "t")
    links = [
        client.receiver("work", name=name, source=dict(fields), credit=1)
        for client, name in zip(clients, names, strict=True)
    ]
    rig.settle()
    sender = rig.client(node)
    link = sender.sender("work")
    rig.settle()
    sender.send(link, "m")
    rig.settle()
    annotate(clients[0], links[0], "once")
    rig.settle()
    queue = node.queue("work")
    assert {cursor.shown[1].size for cursor in queue.named.values()} == {queue.bytes_held}
    assert node.core is not None
    node.core.validate()
    sender.receiver("work")
    rig.settle()
    for client in (*clients, sender):
        client.accept(Accepted())
    rig.run(1)
    assert (queue.messages, queue.bytes_held) == (0, 0)


@pytest.mark.parametrize("durable", [True, False])
def test_a_failure_behind_the_change_leaves_the_sum_right(monkeypatch: pytest.MonkeyPatch, durable: bool) -> None:
    """The value and its count are one step: whatever fails after it, the turn that is undone knows of both."""
    rig = Rig()
    node = rig.node("hub", limits=Limits(cache_bytes=10_000), queues=[QueueConfig(name="work", durable=durable)])
    node.unwatched.add("work")
    client = rig.client(node)
    link = client.sender("work")
    rig.settle()
    client.send(link, "m")
    receiver = client.receiver("work", credit=1)
    rig.settle()
    core = node.core
    assert core is not None
    with monkeypatch.context() as patch:
        patch.setattr(Account, "charge", broken)
        annotate(client, receiver, "once")
        rig.settle()
    core.validate()
    assert core.containment.peers_ended == int(durable)
