"""Single messages listed, read, deleted, moved, copied and requeued by hand: exactly what was looked at, once, also
where a turn is refused (ADR 0062)."""

from typing import Any

import pytest

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Accepted, Header, Properties, Rejected, Released
from holdfast.amqp.wire.types import Symbol
from holdfast.management.operations.entries import READ_MAX, ROWS_MAX
from holdfast.settings.queues import QueueConfig
from support.one_node import done, fill, world
from support.rig import Client, Node, Rig
from support.streams import LARGE, LIMITS, body, is_clean

DEAD = "$dead-letters"


def entries(client: Client, queue: str, **arguments: Any) -> list[dict[str, Any]]:
    return list(done(client, "QUERY", "entry", queue, **arguments)["entries"])


def named(client: Client, queue: str, sequence: int) -> dict[str, Any]:
    """What names that message in a request to change it."""
    answer = done(client, "QUERY", "entry", queue, after=sequence - 1, count=1)
    (row,) = answer["entries"]
    assert row["sequence"] == sequence
    return {"queue_uuid": answer["queue_uuid"], "sequence": sequence, "delivery_count": row["delivery_count"]}


def change(client: Client, operation: str, queue: str, sequence: int, **more: Any) -> dict[str, Any]:
    return done(client, operation, "entry", queue, **named(client, queue, sequence), **more)


def taken(rig: Rig, node: Node, queue: str) -> list[str]:
    consumer = rig.client(node)
    consumer.receiver(queue)
    rig.settle()
    found = consumer.accept()
    rig.settle()
    consumer.close_transport()
    rig.settle()
    return found


def die(rig: Rig, node: Node, count: int = 1) -> None:
    """A consumer rejects all that is in `work`."""
    consumer = rig.client(node)
    consumer.receiver("work")
    rig.settle()
    assert len(consumer.accept(Rejected())) == count
    rig.settle()
    consumer.close_transport()
    rig.settle()


# ------------------------------------------------------------------------------------------------ told


def test_rows_say_where_each_message_stands() -> None:
    rig, node, client = world(QueueConfig(name="work"))
    link = client.sender("work")
    rig.settle()
    client.send(link, "a", properties=Properties(message_id="first"), header=Header(durable=True, priority=7))
    client.send(link, "b", header=Header(ttl=60_000))
    client.send(link, "c")
    rig.settle()
    consumer = rig.client(node)
    receiver = consumer.receiver("work", credit=1)
    rig.settle()
    rows = entries(client, "work")
    assert [row["state"] for row in rows] == ["acquired", "ready", "ready"]
    assert [row["sequence"] for row in rows] == [1, 2, 3] and [row["delivery_count"] for row in rows] == [0, 0, 0]
    assert rows[0]["message_id"] == "first" and rows[0]["priority"] == 7 and rows[0]["durable"]
    assert 0 < rows[1]["expires_in_s"] <= 60 and rows[0]["expires_in_s"] is None
    receiver.detach(closed=True)
    consumer.close_transport()
    rig.settle()
    row = entries(client, "work")[0]
    assert (row["state"], row["delivery_count"]) == ("ready", 1)


def test_pages_of_a_deep_queue() -> None:
    rig, _, client = world(QueueConfig(name="work"))
    fill(rig, client, ROWS_MAX + 50)
    first = done(client, "QUERY", "entry", "work")
    second = done(client, "QUERY", "entry", "work", after=first["after"])
    assert (len(first["entries"]), first["more"], len(second["entries"]), second["more"]) == (ROWS_MAX, True, 50, False)
    assert len(entries(client, "work", count=3)) == 3
    assert client.manage("QUERY", "entry", "nosuch")[0] == 404
    assert client.manage("QUERY", "entry", "work", after="x")[0] == 400


def test_a_message_is_read_whole_and_stays() -> None:
    rig, node, client = world(QueueConfig(name="work"), limits=LIMITS)
    link = client.sender("work")
    rig.settle()
    client.send(link, "a", properties=Properties(subject="s"), message_annotations={Symbol("x-opt-n"): 5})
    client.send(link, body(LARGE))
    rig.settle()
    told = done(client, "READ", "entry", "work", **named(client, "work", 1))
    message = Message.decode(told["message"])
    assert told["whole"] and message.body_bytes() == b"a" and message.properties is not None
    assert message.properties.subject == "s" and message.message_annotations is not None
    assert message.message_annotations[Symbol("x-opt-n")] == 5
    large = done(client, "READ", "entry", "work", **named(client, "work", 2))
    assert not large["whole"] and 0 < len(large["message"]) <= READ_MAX and large["bytes"] > LARGE
    assert taken(rig, node, "work") == ["a", body(LARGE)]


# ------------------------------------------------------------------------------------------------ changed


@pytest.mark.parametrize("place", [1, 5, 10])
@pytest.mark.parametrize("seen", [False, True])
def test_a_message_is_deleted_from_whatever_place(place: int, seen: bool) -> None:
    """Also where a consumer gave it back, or the shared cursor has read ahead of it."""
    rig, node, client = world(QueueConfig(name="work"))
    fill(rig, client, 10)
    if seen:
        consumer = rig.client(node)
        consumer.receiver("work")
        rig.settle()
        consumer.accept(Released())
        rig.settle()
        consumer.close_transport()
        rig.settle()
    assert change(client, "DELETE", "work", place) == {"deleted": place}
    assert [row["sequence"] for row in entries(client, "work")] == [at for at in range(1, 11) if at != place]
    assert node.queue("work").messages == 9
    assert taken(rig, node, "work") == [str(at) for at in range(1, 11) if at != place]
    rig.run(1)
    assert node.queue("work").bytes_held == 0 and not node.queue("work").hidden


@pytest.mark.parametrize("size", [5, LARGE])
def test_a_message_is_moved_and_a_consumer_gets_it_there_once(size: int) -> None:
    rig, node, client = world(QueueConfig(name="work"), QueueConfig(name="other"), limits=LIMITS)
    link = client.sender("work")
    rig.settle()
    for text in ("a", body(size, "b"), "c"):
        client.send(link, text)
    rig.settle()
    answer = change(client, "MOVE", "work", 2, to="other")
    assert answer == {"to": "other", "sequence": 1}
    assert taken(rig, node, "work") == ["a", "c"] and taken(rig, node, "other") == [body(size, "b")]
    rig.run(5)
    assert is_clean(node)


def test_a_copy_leaves_the_original() -> None:
    rig, node, client = world(QueueConfig(name="work"), QueueConfig(name="other"), limits=LIMITS)
    fill(rig, client, 2)
    assert change(client, "COPY", "work", 2, to="other")["sequence"] == 1
    assert taken(rig, node, "work") == ["1", "2"] and taken(rig, node, "other") == ["2"]
    link = client.sender("work")
    rig.settle()
    client.send(link, body(LARGE))
    rig.settle()
    status, _, text = client.manage("COPY", "entry", "work", **named(client, "work", 3), to="other")
    assert status == 409 and "large" in text


def test_a_dead_letter_goes_back_to_its_queue() -> None:
    rig, node, client = world(QueueConfig(name="work"))
    fill(rig, client, 2)
    die(rig, node, 2)
    rows = entries(client, DEAD)
    assert [row["from"] for row in rows] == ["work", "work"]
    assert change(client, "REQUEUE", DEAD, 2)["to"] == "work"
    assert taken(rig, node, "work") == ["2"] and [row["sequence"] for row in entries(client, DEAD)] == [1]
    fill(rig, client, 1)
    status, _, text = client.manage("REQUEUE", "entry", "work", **named(client, "work", 4))
    assert status == 409 and "no dead letter" in text


def test_a_message_is_moved_to_another_node_as_a_new_one() -> None:
    rig = Rig()
    jfk, hub = rig.pair(queues=(QueueConfig(name="work", order="strict"),))
    rig.run(3)
    client = rig.client(jfk)
    done(client, "CREATE", "queue", "here")
    fill(rig, client, 3, "here")
    assert change(client, "MOVE", "here", 2, to="work@hub")["to"] == "work@hub"
    rig.run(5)
    assert hub.bodies("work") == ["2"] and jfk.queue("@hub").messages == 0
    assert taken(rig, jfk, "here") == ["1", "3"]


def test_nothing_else_is_changed_than_what_was_looked_at() -> None:
    rig, node, client = world(QueueConfig(name="work"), QueueConfig(name="other"))
    producer = rig.client(node)
    fill(rig, producer, 3)
    producer.close_transport()
    asked = named(client, "work", 1)
    consumer = rig.client(node)
    consumer.receiver("work", credit=1)
    rig.settle()
    for operation, more in (("DELETE", {}), ("MOVE", {"to": "other"}), ("COPY", {"to": "other"})):
        assert client.manage(operation, "entry", "work", **asked, **more)[0] == 409
    consumer.close_transport()
    rig.settle()
    status, _, text = client.manage("DELETE", "entry", "work", **asked)
    assert status == 409 and "1 deliveries" in text
    assert taken(rig, node, "work") == ["1", "2", "3"]
    assert client.manage("DELETE", "entry", "work", **asked)[0] == 404
    done(client, "DELETE", "queue", "work")
    done(client, "CREATE", "queue", "work")
    fill(rig, client, 3)
    assert client.manage("DELETE", "entry", "work", **asked)[0] == 412
    assert node.queue("work").messages == 3 and node.queue("other").messages == 0


@pytest.mark.parametrize(
    ("queue", "to", "status"),
    [
        ("work", "work", 409),
        ("work", "nosuch", 404),
        ("work", "x@nowhere", 404),
        ("work", "full", 409),
        ("work", "memory", 409),
        ("work", DEAD, 409),
        ("work", "$cbs", 404),
        ("work", 7, 400),
        ("memory", "other", 409),
        ("read", "other", 409),
    ],
)
def test_what_cannot_be_moved(queue: str, to: Any, status: int) -> None:
    rig, node, client = world(
        *(QueueConfig(name=name) for name in ("work", "other", "read")),
        QueueConfig(name="full", messages_max=1),
        QueueConfig(name="memory", durable=False),
        create_queues=False,
    )
    node.unwatched.add("memory")
    for name in ("work", "full", "memory", "read"):
        fill(rig, client, 1, name)
    done(client, "OPEN", "subscription", "sub", queue="read", mode="copy", start="first")
    asked = named(client, queue, 1)
    assert client.manage("MOVE", "entry", queue, **asked, to=to)[0] == status
    assert node.queue(queue).messages == 1


def test_a_refusal_says_whether_the_fault_is_the_message_s_own() -> None:
    """A client goes on with the next message, or not."""
    rig, _, client = world(
        QueueConfig(name="work"), QueueConfig(name="full", messages_max=1), QueueConfig(name="small", bytes_max=1_000)
    )
    fill(rig, client, 2)
    fill(rig, client, 1, "full")
    sender = client.sender("work")
    rig.settle()
    for _ in range(2):
        client.send(sender, body(2_000))
    rig.settle()
    large, next_large = named(client, "work", 3), named(client, "work", 4)
    change(client, "COPY", "work", 1, to="small")
    assert client.manage("MOVE", "entry", "work", **large, to="full")[:2] == (409, {})
    status, told, text = client.manage("MOVE", "entry", "work", **large, to="small")
    assert (status, told) == (409, {"sequence": 3})
    assert text.startswith("message 3 of queue 'work' has ") and "takes more than 1000 only while it is empty" in text
    done(client, "PURGE", "queue", "small")
    assert change(client, "MOVE", "work", 3, to="small")["sequence"] == 2
    for refused in (named(client, "work", 2), next_large):  # no message fits
        assert client.manage("MOVE", "entry", "work", **refused, to="small")[:2] == (409, {})
    assert client.manage("DELETE", "entry", "work", **large)[:2] == (404, {"sequence": 3})


@pytest.mark.parametrize("operation", ["DELETE", "MOVE", "REQUEUE"])
@pytest.mark.parametrize("beside", [False, True])
def test_a_refused_commit_has_it_where_it_was(operation: str, beside: bool) -> None:
    """`beside`: a consumer takes what is there meanwhile."""
    rig, node, client = world(QueueConfig(name="work"), QueueConfig(name="other"))
    fill(rig, client, 3)
    queue = "work"
    if operation == "REQUEUE":
        die(rig, node, 3)
        queue = DEAD
    asked = named(client, queue, 2)
    before = node.queue(queue).bytes_held
    consumer = rig.client(node)
    node.hold_commits = True
    more = {"to": "other"} if operation == "MOVE" else {}
    with pytest.raises(IndexError):  # it is answered once that is decided
        client.manage(operation, "entry", queue, **asked, **more)
    assert node.queue(queue).messages == 2
    if beside:
        consumer.receiver(queue)
        rig.settle()
        assert "2" not in consumer.bodies()
    node.refuse, node.refuse_all = 1, True
    node.hold_commits = False
    rig.settle()
    core = node.core
    assert core is not None and not node.refuse
    core.room.bytes = 10**9
    (answer,) = [item for item in client.deliveries if item.link.name == "replies"] if operation != "DELETE" else [None]
    if answer is not None:
        assert (Message.decode(answer.payload).application_properties or {})["statusCode"] == 503
    if operation == "DELETE":
        rig.run(2)
        assert node.queue(queue).messages == 2, "what leaves, leaves with the next commit"
        return
    assert (node.queue(queue).messages, node.queue(queue).bytes_held) == (3, before)
    assert node.queue("other").messages == 0 and not node.queue(queue).hidden
    core.validate()
    if not beside:
        consumer.receiver(queue)
    rig.settle()
    assert sorted(consumer.accept()) == ["1", "2", "3"]


def test_at_the_bounds_of_the_disk_nothing_is_changed() -> None:
    rig, node, client = world(QueueConfig(name="work"), QueueConfig(name="other"))
    fill(rig, client, 1)
    asked = named(client, "work", 1)
    core = node.core
    assert core is not None
    core.room.bytes = 0
    assert client.manage("MOVE", "entry", "work", **asked, to="other")[0] == 503
    core.room.bytes = 10**9
    assert client.manage("MOVE", "entry", "work", **asked, to="other")[0] == 200
    assert isinstance(client.outcomes[-1][1], Accepted)
