"""The attach of a durable subscription is answered once it is on disk: who has an answer loses nothing to a crash."""

from typing import Any

import pytest

from holdfast.amqp.connection import Receiver
from holdfast.amqp.wire.types import Symbol, Ulong
from holdfast.federation.settings import Entry
from holdfast.settings.neighbours import NeighbourConfig
from support.one_node import world
from support.rig import Client, Node, Rig

LASTING = {"durable": 2, "expiry_policy": Symbol("never")}
CONFIRM = {Symbol("holdfast:confirm"): Ulong(60_000)}
KINDS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "topic": ("topic/news", LASTING, {}),
    "pattern": ("topic/news/a.#", LASTING, {}),
    "shared": ("topic/news", LASTING | {"capabilities": [Symbol("shared")]}, {}),
    "resumable": ("topic/news", LASTING | {"timeout": 60}, {}),
    "confirmed": ("topic/news", LASTING, {"properties": CONFIRM}),
    "queue": ("work", LASTING | {"distribution_mode": Symbol("copy")}, {}),
}


def attach(client: Client, kind: str, name: str = "mine") -> Receiver:
    address, source, more = KINDS[kind]
    return client.receiver(address, name=name, source=source, **more)


def answered(link: Receiver) -> bool:
    return link.attached and not link.detached


def start() -> tuple[Rig, Node, Client]:
    rig, node, client = world(federation=(Entry("news", "far"),), neighbours=(NeighbourConfig(name="far"),))
    for address in ("work", "topic/news"):  # they are there before
        client.sender(address)
    rig.settle()
    node.hold_commits = True
    return rig, node, client


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_answered_when_it_is_on_disk_and_outlives_a_crash(kind: str) -> None:
    rig, node, client = start()
    link = attach(client, kind)
    rig.run(2)
    assert not answered(link)
    node.hold_commits = False
    rig.run(1)
    assert answered(link)
    node.crash()
    node.start()
    assert "mine" in {name.rpartition("|")[2] for name in node.queue(KINDS[kind][0].removesuffix("/a.#")).named}


@pytest.mark.parametrize("kind", KINDS)
def test_a_crash_before_the_answer_leaves_none(kind: str) -> None:
    rig, node, client = start()
    link = attach(client, kind)
    rig.run(2)
    node.crash()
    node.start()
    assert not answered(link) and not node.queue(KINDS[kind][0].removesuffix("/a.#")).named


@pytest.mark.parametrize(
    "kind", sorted(KINDS.keys() - {"confirmed"})
)  # which waits for its own announcement to be stored
def test_what_is_on_disk_is_answered_while_the_disk_stalls(kind: str) -> None:
    """Its reader may be the one that makes room."""
    rig, node, client = start()
    node.hold_commits = False
    first = attach(client, kind)
    rig.settle()
    assert answered(first)
    client.close_transport()
    rig.settle()
    node.hold_commits = True
    again = attach(other := rig.client(node), kind)
    rig.run(2)
    assert answered(again) and not other.closed
    node.hold_commits = False
    node.crash()
    node.start()
    node.hold_commits = True
    again = attach(rig.client(node), kind)
    rig.run(2)
    assert answered(again)


def test_a_newer_link_that_takes_the_subscription_waits_for_the_same_commit() -> None:
    rig, node, client = start()
    first = attach(client, "topic")
    second = attach(other := rig.client(node), "topic")
    rig.run(1)
    assert not answered(first) and not answered(second)
    node.hold_commits = False
    rig.run(1)
    assert answered(second) and not other.closed and not client.closed


def test_a_refused_commit_is_no_answer_and_its_repetition_is_one() -> None:
    rig, node, client = start()
    node.refuse, node.refuse_all = 2, True
    link = attach(client, "topic")
    node.hold_commits = False
    rig.settle()
    tries = node.tries
    assert not answered(link)
    rig.run(10)
    assert node.tries > tries and answered(link)
    node.crash()
    node.start()
    assert list(node.queue("topic/news").named) == ["mine"]


def test_messages_that_come_with_the_same_commit_follow_the_answer() -> None:
    rig, node, client = start()
    link = attach(client, "topic")
    sender = client.sender("topic/news")
    rig.run(1)
    client.send(sender, "1")
    rig.run(1)
    assert not answered(link) and client.bodies() == []
    node.hold_commits = False
    rig.run(1)
    assert answered(link) and client.bodies() == ["1"]


@pytest.mark.parametrize("leaves", ["link", "connection"])
def test_who_leaves_before_the_answer_leaves_the_subscription(leaves: str) -> None:
    """As after the answer: a durable subscription outlives its links, however they end."""
    rig, node, client = start()
    link = attach(client, "topic")
    rig.run(1)
    other = rig.client(node)
    if leaves == "link":
        link.detach(closed=True)
    else:
        client.close_transport()
    rig.run(1)
    node.hold_commits = False
    rig.run(2)
    assert not answered(link)
    assert not other.closed and (leaves == "connection" or not client.closed)
    assert list(node.queue("topic/news").named) == ["mine"]
    again = attach(other, "topic")
    rig.settle()
    assert answered(again)
