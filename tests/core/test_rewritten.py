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
    for note in ("once", "a second time"):
        annotate_entries(core, queue, [sequence], {WHY: note})
    if leaves:
        queue.shared.finish([sequence])
    undo.take_back_gathered(core, ())
    assert queue.bytes_held == (0 if leaves else before) and not queue.work.rewritten
    assert leaves or queue.shared.shown[sequence].size == before


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
