"""Histories of the broker's model that must end well and that no other test shows by itself: a new selector beside old
ones, the last subscription of a topic that goes while the disk is busy, a reader of a shared one that is lost."""

from typing import Any

import pytest

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Accepted, Properties
from holdfast.amqp.wire.types import Described, Symbol
from holdfast.endpoints.attaching import filters
from support.one_node import world
from support.rig import Client, Rig
from support.streams import LARGE, LIMITS

SELECTOR = Symbol("apache.org:selector-filter:string")
DURABLE = {"durable": 2, "expiry_policy": Symbol("never")}
UNWANTED = 2_000


def wanting(kind: str) -> dict[str, Any]:
    return {"filter": {Symbol("s"): Described(SELECTOR, f"kind = '{kind}'")}}


def test_a_new_selector_looks_once_at_what_nobody_wants_and_the_others_never_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: dict[str, int] = {}
    original = filters.EntrySelector.matches

    def matches(selector: filters.EntrySelector, value: bytes) -> bool:
        asked[selector.text] = asked.get(selector.text, 0) + 1
        return original(selector, value)

    monkeypatch.setattr(filters.EntrySelector, "matches", matches)
    monkeypatch.setattr(filters.EntrySelector, "each", lambda self, values: map(self.matches, values))
    rig, node, client = world()
    node.checks = False  # invariants ask selectors too
    sender = client.sender("work")
    rig.settle()
    for number in range(UNWANTED):
        client.send(sender, str(number), application_properties={"kind": "none"})
        if number % 500 == 499:
            rig.settle()
    for kind in ("a", "b"):
        before = dict(asked)
        one = rig.client(node)
        one.receiver("work", source=wanting(kind))
        rig.run(5)
        assert {name: count for name, count in asked.items() if name not in before} == {f"\0kind = '{kind}'": UNWANTED}
        assert all(asked[name] == count for name, count in before.items())
        client.send(sender, "x", application_properties={"kind": kind})
        rig.run(1)
        assert one.bodies() == ["x"]
        one.accept()
        rig.run(1)


@pytest.mark.parametrize("refused", [False, True])
def test_the_last_subscription_goes_while_the_disk_is_busy_and_all_of_it_leaves(refused: bool) -> None:
    """The log of its topic and the bodies of large messages, also where the commit under way is refused."""
    rig = Rig()
    node = rig.node("hub", limits=LIMITS)
    reader, client, other = rig.client(node), rig.client(node), rig.client(node)
    link = reader.receiver("topic/news", name="s", credit=0, source=DURABLE)
    rig.settle()
    link.detach(closed=False)
    sender = client.sender("topic/news")
    rig.settle()
    for body in ("small", "large".ljust(LARGE)):
        client.send(sender, body)
    rig.run(2)
    assert node.core is not None
    assert node.queue("topic/news").messages == 2 and node.core.blobs.by_number
    other.manage("QUERY", "subscription")
    node.hold_commits = True
    client.send(sender, "last")
    client.send(sender, "last".ljust(LARGE))
    rig.settle()
    assert node.pending is not None
    told = {"operation": "DELETE", "type": "holdfast:subscription", "name": "s"}
    request = Message(
        properties=Properties(message_id="m", reply_to="replies"), application_properties=told,
        value={"queue": "topic/news"},
    )  # fmt: skip
    assert other._management is not None  # it is answered when it is stored
    other._management[0].send(request.encode(), context=None, settled=True)
    rig.settle()
    assert node.pending is not None and not other.deliveries
    node.refuse = int(refused)
    node.hold_commits = False
    for _ in range(10):
        rig.run(1)
    (answer,) = other.messages()
    assert (answer.application_properties or {})["statusCode"] == 200
    assert node.queue("topic/news").messages == 0 and not node.core.blobs.by_number
    assert not any(queue.order for queue in node.store._queues.values()) and not node.store._blobs


def test_what_a_lost_reader_of_a_shared_subscription_had_goes_to_the_others_and_counts() -> None:
    rig, node, client = world()
    shared = {**DURABLE, "capabilities": (Symbol("shared"), Symbol("global"))}
    readers = [rig.client(node) for _ in range(3)]
    for number, reader in enumerate(readers):
        reader.receiver("topic/news", name=f"s|{number}", source=shared)
    sender = client.sender("topic/news")
    rig.settle()
    for number in range(6):
        client.send(sender, str(number), properties=Properties(subject="a"))
    rig.settle()
    lost, *others = readers
    had = lost.bodies()
    assert len(had) == 2
    lost.close_transport()
    rig.run(1)
    counts = {body: count for reader in others for body, count in delivered(reader)}
    assert sorted(counts) == [str(number) for number in range(6)]
    assert counts == {body: int(body in had) for body in counts}
    for reader in others:
        reader.accept(Accepted())
    rig.run(2)
    assert node.queue("topic/news").messages == 0


def delivered(reader: Client) -> list[tuple[str, int]]:
    """Bodies, and how often their delivery had failed."""
    return [
        (message.body_bytes().decode(), message.header.delivery_count or 0 if message.header is not None else 0)
        for message in reader.messages()
    ]
