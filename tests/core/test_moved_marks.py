"""What goes to another queue tells its consumers of earlier deliveries what the next consumer of the first queue would
have been told, whoever moves it; `deliveries_max` counts in each queue anew (ADR 0066)."""

from typing import Any

import pytest

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Header, Modified, Rejected, Released
from holdfast.broker.entries import annotate, entry, packed
from holdfast.settings.queues import QueueConfig
from support.one_node import done, fill, world
from support.rig import Client, Node, Rig
from support.streams import LARGE, LIMITS, body
from support.transactions import Controller

FAILED = Modified(delivery_failed=True)
DEAD = "$dead-letters"
TWO = (QueueConfig(name="work"), QueueConfig(name="other"))

BEFORE: list[tuple[tuple[Any, ...], tuple[bool, int]]] = [
    ((), (True, 0)),
    ((Released(),), (False, 0)),
    ((FAILED,), (False, 1)),
    ((FAILED, Released(), FAILED), (False, 2)),
]
"""What consumers did with the message, and what the next one is told: first-acquirer and delivery-count."""


def told(client: Client) -> list[tuple[bool | None, int | None]]:
    """Of what the client holds."""
    headers = [message.header or Header() for message in client.messages()]
    return [(header.first_acquirer, header.delivery_count) for header in headers]


def taker(rig: Rig, node: Node, address: str, **options: Any) -> Client:
    consumer = rig.client(node)
    consumer.receiver(address, **options)
    rig.settle()
    return consumer


def answer(rig: Rig, node: Node, *outcomes: Any, address: str = "work") -> None:
    """One consumer after the other takes one message, and answers with that outcome."""
    for outcome in outcomes:
        consumer = taker(rig, node, address, credit=1)
        assert len(consumer.accept(outcome)) == 1
        rig.run(0.1)
        consumer.close_transport()
        rig.settle()


def change(rig: Rig, client: Client, operation: str, queue: str, **more: Any) -> None:
    """Of the only message of that queue."""
    rows = done(client, "QUERY", "entry", queue)
    (row,) = rows["entries"]
    named = {name: row[name] for name in ("sequence", "delivery_count")}
    done(client, operation, "entry", queue, queue_uuid=rows["queue_uuid"], **named, **more)
    rig.run(0.1)


def link(rig: Rig, client: Client, target: str, **more: Any) -> None:
    done(client, "CREATE", "link", "on", **{"from": "work", "to": target, **more})
    rig.run(0.5)


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("way", ["MOVE", "link", "steps"])
@pytest.mark.parametrize(("outcomes", "expected"), BEFORE)
def test_what_is_moved_tells_what_the_next_consumer_would_have_been_told(
    outcomes: tuple[Any, ...], expected: tuple[bool, int], way: str, crash: bool
) -> None:
    rig, node, client = world(*TWO)
    fill(rig, client, 1)
    answer(rig, node, *outcomes)
    if way == "MOVE":
        change(rig, client, way, "work", to="other")
    else:
        link(rig, client, "other", steps=[{"properties": {"add": {"site": "jfk"}}}] if way == "steps" else [])
    assert not node.bodies("work")
    if crash:
        node.crash()
        node.start()
        rig.settle()
    assert told(taker(rig, node, "other")) == [expected]


def test_what_was_moved_counts_on_and_moves_on() -> None:
    rig, node, client = world(*TWO, QueueConfig(name="third"))
    fill(rig, client, 1)
    answer(rig, node, FAILED)
    change(rig, client, "MOVE", "work", to="other")
    answer(rig, node, FAILED, address="other")
    assert told(taker(rig, node, "other", source={"distribution_mode": "copy"})) == [(False, 1)]
    change(rig, client, "MOVE", "other", to="third")
    assert told(taker(rig, node, "third")) == [(False, 2)]


@pytest.mark.parametrize("way", ["COPY", "link"])
def test_a_copy_is_a_message_that_nobody_was_shown(way: str) -> None:
    rig, node, client = world(*TWO, QueueConfig(name="third"))
    fill(rig, client, 1, address="third")
    answer(rig, node, FAILED, address="third")
    change(rig, client, "MOVE", "third", to="work")
    if way == "COPY":
        change(rig, client, way, "work", to="other")
    else:
        link(rig, client, "other", mode="copy")
    assert told(taker(rig, node, "other")) == [(True, 0)]
    assert told(taker(rig, node, "work")) == [(False, 1)]


def test_a_topic_tells_what_a_link_brings() -> None:
    rig, node, client = world(QueueConfig(name="work"), QueueConfig(name="topic/news"))
    fill(rig, client, 2)
    answer(rig, node, FAILED)
    listener = taker(rig, node, "topic/news")
    link(rig, client, "topic/news")
    assert told(listener) == [(False, 1), (True, 0)]


@pytest.mark.parametrize("in_transaction", [False, True])
@pytest.mark.parametrize(("outcomes", "expected"), BEFORE)
def test_a_dead_letter_and_what_is_requeued_tell_it_too(
    outcomes: tuple[Any, ...], expected: tuple[bool, int], in_transaction: bool
) -> None:
    rig, node, client = world(QueueConfig(name="work"))
    fill(rig, client, 1)
    answer(rig, node, *outcomes)
    if in_transaction:
        consumer = taker(rig, node, "work", credit=1)
        controller = Controller(consumer)
        txn_id = controller.begin()
        controller.take(txn_id, Rejected())
        controller.commit(txn_id)
        rig.run(0.1)
    else:
        answer(rig, node, Rejected())
    expected = False, expected[1]  # who rejected it was shown it
    browser = taker(rig, node, DEAD, source={"distribution_mode": "copy"})
    assert told(browser) == [expected]
    browser.close_transport()
    change(rig, client, "REQUEUE", DEAD)
    assert told(taker(rig, node, "work")) == [expected]


def test_deliveries_max_counts_in_each_queue_anew() -> None:
    rig, node, client = world(QueueConfig(name="work", deliveries_max=2))
    fill(rig, client, 1)
    for count in (0, 2, 4):
        for failed in (count, count + 1):
            consumer = taker(rig, node, "work", credit=1)
            assert told(consumer) == [(failed == 0, failed)]
            consumer.accept(FAILED)
            rig.run(0.5)
            consumer.close_transport()
            rig.settle()
        browser = taker(rig, node, DEAD, source={"distribution_mode": "copy"})
        assert told(browser) == [(False, count + 2)]
        notes = browser.messages()[0].message_annotations or {}
        assert notes["x-opt-dead-letter-deliveries"] == 2
        browser.close_transport()
        change(rig, client, "REQUEUE", DEAD)


def test_what_nobody_was_shown_stays_so_where_it_becomes_a_dead_letter() -> None:
    rig, node, client = world(QueueConfig(name="work", messages_max=1, when_full="dead-letter"))
    fill(rig, client, 2)
    assert told(taker(rig, node, DEAD)) == [(True, 0)]


def test_a_large_message_and_annotations_go_with_the_mark() -> None:
    rig, node, client = world(*TWO, limits=LIMITS)
    fill_link, text = client.sender("work"), body(LARGE)
    rig.settle()
    client.send(fill_link, text, message_annotations={"x-opt-a": 1})
    rig.settle()
    answer(rig, node, FAILED)
    size = node.queue("work").bytes_held
    change(rig, client, "MOVE", "work", to="other")
    assert node.queue("other").bytes_held == size
    consumer = taker(rig, node, "other")
    rig.run(1)
    assert told(consumer) == [(False, 1)] and consumer.bodies() == [text]
    assert (consumer.messages()[0].message_annotations or {})["x-opt-a"] == 1


def test_a_delayed_message_keeps_the_mark() -> None:
    rig, node, client = world(*TWO, QueueConfig(name="third", when_full="refuse"))
    sender = client.sender("work")
    rig.settle()
    client.send(sender, "1")
    rig.settle()
    answer(rig, node, Modified(delivery_failed=True, message_annotations={"x-opt-delivery-delay": 2_000}))
    change(rig, client, "MOVE", "work", to="other")
    consumer = taker(rig, node, "other")
    assert not consumer.deliveries
    rig.run(3)
    assert told(consumer) == [(False, 1)]


def test_what_goes_to_another_node_is_new_there() -> None:
    rig = Rig()
    jfk, hub = rig.pair(jfk={"queues": (QueueConfig(name="work"),)}, queues=(QueueConfig(name="far"),))
    client = rig.client(jfk)
    fill(rig, client, 1)
    answer(rig, jfk, FAILED)
    change(rig, client, "MOVE", "work", to="far@hub")
    rig.run(2)
    assert told(taker(rig, hub, "far")) == [(True, 0)]


@pytest.mark.parametrize("fields", [{}, {"expires_at_ms": 5}, {"expires_ms": 7, "annotations": b"\xa3\x01a\x43"}])
@pytest.mark.parametrize("earlier", [0, 3, entry.EARLIER_MAX])
def test_an_entry_has_the_mark_beside_all_else(fields: dict[str, Any], earlier: int) -> None:
    fields = {"flags": entry.DURABLE, "enqueued_ms": 1, "bare": Message(data=[b"x"]).encode(), **fields}
    fields["annotation_count"] = 2 if "annotations" in fields else 0
    plain = entry.pack(**fields)
    marked = entry.with_earlier(plain, earlier)
    assert entry.unpack(marked) == entry.unpack(plain)._replace(earlier=earlier)
    assert entry.repack(entry.unpack(marked)) == marked == entry.pack(**fields, earlier=earlier)
    assert packed.size_of(marked) == packed.size_of(plain) == entry.unpack(marked).size
    assert marked[packed.bare_at(marked) :] == plain[packed.bare_at(plain) :]
    assert packed.annotations_of(marked) == packed.annotations_of(plain)
    noted = packed.with_annotations(marked, 2, b"\xa3\x01b\x43")
    assert entry.unpack(noted).earlier == earlier and packed.annotations_of(noted) == (2, b"\xa3\x01b\x43")
    assert entry.unpack(entry.with_earlier(marked, 1)).earlier == min(earlier + 1, entry.EARLIER_MAX)
    assert entry.with_earlier(plain, None) is plain
    assert Message.decode(b"".join(annotate.for_consumer(marked, 1, None, 0))).header.delivery_count == earlier
