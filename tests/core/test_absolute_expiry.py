"""Messages expire at the wall time that their absolute-expiry-time says, or at the end of their time to live, whichever
is sooner: here, on the way, large ones, and after somebody has set the clock (ADR 0061)."""

from typing import Any

import pytest

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Accepted, Header, Properties, Rejected
from holdfast.amqp.wire.types import Symbol, Timestamp
from holdfast.broker.entries import entry
from holdfast.custody import expiry
from holdfast.settings.queues import QueueConfig
from support.one_node import world
from support.rig import Client, Node, Rig
from support.streams import LARGE, LIMITS, body, is_clean

WITHIN_S = 3.0
NOTES = {Symbol("x-opt-note"): "kept"}


def send(
    rig: Rig,
    client: Client,
    text: str,
    in_s: float,
    ttl_s: float | None = None,
    address: str = "work",
    notes: dict[Any, Any] | None = None,
) -> None:
    """A message that expires in so many seconds by the wall clock of the rig."""
    link = client.sender(address)
    rig.settle()
    send_on(client, link, text, rig.wall_ms + int(in_s * 1000), ttl_s, message_annotations=notes)
    rig.settle()


def send_on(client: Client, link: Any, text: str, at_ms: int, ttl_s: float | None = None, **parts: Any) -> None:
    properties = Properties(message_id=text[:9], absolute_expiry_time=Timestamp(at_ms), creation_time=Timestamp(1))
    header = None if ttl_s is None else Header(ttl=int(ttl_s * 1000))
    client.send(link, text, properties=properties, header=header, **parts)


def depth(node: Node, name: str = "work") -> int:
    queue = node.queue(name)
    assert queue.messages == len(queue.read(0, count_max=10**6, bytes_max=2**40))
    return int(queue.messages - queue.tombstones)


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize(("at_s", "ttl_s"), [(1.0, None), (1.0, 60.0), (60.0, 1.0)])
def test_the_sooner_counts(durable: bool, at_s: float, ttl_s: float | None) -> None:
    rig, node, client = world(QueueConfig(name="work", durable=durable))
    node.unwatched.add("work")
    send(rig, client, "a", at_s, ttl_s)
    send(rig, client, "b", at_s, ttl_s, notes=NOTES)
    assert depth(node) == 2
    rig.run(0.9)
    assert depth(node) == 2
    rig.run(WITHIN_S)
    assert depth(node) == 0 and node.queue("work").expired_total == 2
    assert node.queue("work").bytes_held == 0


@pytest.mark.parametrize("at_ms", [-(2**63), -1, 0, 1, 1_600_000_000_000])
def test_what_has_expired_already_is_taken_and_leaves(at_ms: int) -> None:
    rig, node, client = world()
    link = client.sender("work")
    rig.settle()
    send_on(client, link, "past", at_ms)
    client.send(link, "stays")
    rig.settle()
    assert all(isinstance(outcome, Accepted) for _, outcome in client.outcomes) and len(client.outcomes) == 2
    consumer = rig.client(node)
    consumer.receiver("work")
    rig.run(WITHIN_S)
    assert consumer.accept() == ["stays"] and node.queue("work").expired_total == 1


@pytest.mark.parametrize("restart", [False, True])
def test_a_time_that_never_comes_is_safe(restart: bool) -> None:
    rig, node, client = world()
    link = client.sender("work")
    rig.settle()
    send_on(client, link, "late", 2**63 - 1)
    send_on(client, link, "later", 2**63 - 1, 2**32 / 1000 - 1)
    rig.settle()
    if restart:
        node.crash()
        node.start()
    rig.run(4_000)  # longer than any period of a node
    consumer = rig.client(node)
    consumer.receiver("work")
    rig.settle()
    assert consumer.accept() == ["late", "later"]


def test_what_a_consumer_gets_is_as_it_came() -> None:
    rig, node, client = world()
    send(rig, client, "a", 60.0, 30.0, notes=NOTES)
    send(rig, client, "b", 60.0)
    rig.run(1)
    consumer = rig.client(node)
    consumer.receiver("work")
    rig.settle()
    first, second = (Message.decode(delivery.payload) for delivery in consumer.deliveries)
    assert first.message_annotations is not None and first.message_annotations[Symbol("x-opt-note")] == "kept"
    assert first.header is not None and first.header.ttl is not None and first.header.ttl <= 29_000
    assert second.header is not None and second.header.ttl is None
    assert second.properties is not None and second.properties.absolute_expiry_time == rig.wall_ms - 1_000 + 60_000


@pytest.mark.parametrize(("durable", "restart"), [(True, False), (True, True), (False, False)])
def test_a_clock_that_is_set_is_followed(durable: bool, restart: bool) -> None:
    """Forward: they expire soon, not hours later. Back: they stay as much longer."""
    rig, node, client = world(QueueConfig(name="work", durable=durable))
    if not durable:
        node.unwatched.add("work")
    link = client.sender("work")
    rig.settle()
    for number in range(600):
        send_on(client, link, str(number), rig.wall_ms + 3_600_000 + number)
    client.send(link, "stays")
    rig.settle()
    if restart:
        node.crash()
        node.start()
    rig.run(5)
    node.clock_error_ms -= 3_600_000
    rig.run(3_700)
    assert depth(node) == 601
    node.clock_error_ms += 3_600_000
    rig.run(expiry.WALL_S + WITHIN_S)
    assert depth(node) == 1 and node.queue("work").expired_total == 600


def test_a_clock_that_nothing_expires_by_wakes_nobody() -> None:
    rig, node, _ = world()
    rig.run(60)
    before = node.turns
    rig.run(600)
    without = node.turns - before
    send(rig, rig.client(node), "a", 10_000.0)
    before = node.turns
    rig.run(600)
    assert without < node.turns - before <= without + 600 / expiry.WALL_S + 10


@pytest.mark.parametrize("size", [20, LARGE])
@pytest.mark.parametrize("away", [False, True])
def test_on_its_way_it_ends_and_the_next_node_knows_its_end(size: int, away: bool) -> None:
    rig = Rig()
    jfk, hub = rig.pair(queues=(QueueConfig(name="work", order="strict"),), limits=LIMITS)
    rig.run(3)
    if away:
        hub.crash()
        rig.settle()
    client = rig.client(jfk)
    send(rig, client, body(size, "x"), 5.0, address="work@hub")
    send(rig, client, "stays", 1_000.0, address="work@hub")
    rig.run(1)
    if not away:
        assert depth(hub) == 2 and depth(jfk, "@hub") == 0
        found = hub.queue("work").read(0, count_max=10, bytes_max=2**30)
        assert all(entry.unpack(value).expires_at_ms for _, value in found)
    rig.run(4 + WITHIN_S)
    if away:
        assert depth(jfk, "@hub") == 1 and jfk.queue("@hub").expired_total == 1
        hub.start()
        rig.run(10)
    else:
        assert hub.queue("work").expired_total == 1
    assert hub.bodies("work") == ["stays"] and is_clean(jfk, hub)


@pytest.mark.parametrize("first", [1, 7, 1_000, 10_000])
def test_of_a_large_message_the_first_pieces_say_it(first: int) -> None:
    """However its properties are cut by the frames."""
    rig = Rig()
    node = rig.node("hub", limits=LIMITS)
    client = rig.client(node)
    link = client.sender("work")
    rig.settle()
    properties = Properties(
        message_id="m" * 3_000, absolute_expiry_time=Timestamp(rig.wall_ms + 2_000), creation_time=Timestamp(1)
    )
    payload = Message(properties=properties, data=[body(LARGE).encode()]).encode()
    outgoing = link.begin(payload[:first], len(payload), context="large")
    at = first
    for size in (1, 1, 13, 900, 1_100, len(payload)):
        outgoing.feed(payload[at : at + size])
        outgoing.flush(len(payload))
        rig.settle()
        at += size
    rig.settle()
    assert depth(node) == 1
    rig.run(2 + WITHIN_S)
    assert depth(node) == 0 and node.queue("work").expired_total == 1 and is_clean(node)


def test_a_dead_letter_does_not_expire() -> None:
    rig, node, client = world()
    send(rig, client, "a", 5.0)
    consumer = rig.client(node)
    consumer.receiver("work")
    rig.settle()
    consumer.accept(Rejected())
    rig.run(60)
    assert node.bodies("$dead-letters") == ["a"]
