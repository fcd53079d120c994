"""`$management` as AMQP Management has it: entities by type, their attributes and operations, rows; queues that are
changed while they are in use, and connections that are closed by hand (ADR 0062)."""

from dataclasses import replace
from typing import Any

import pytest

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Accepted, Header, Properties, Rejected
from holdfast.broker.stored import records
from holdfast.management.operations.answers import DESCRIPTION_MAX
from holdfast.management.operations.entities import ATTRIBUTES, ROWS_MAX
from holdfast.management.status.queues import QUEUE_ATTRIBUTES
from holdfast.settings.queues import QueueConfig
from support.one_node import done, fill, world
from support.rig import Client, Rig

SELF = "org.amqp.management"


def ask(client: Client, operation: str, body: Any = None, **told: Any) -> tuple[int, Any, dict[str, Any]]:
    """(statusCode, body, application properties) of a request to the management node itself."""
    if client._management is None:
        client.manage("QUERY", "queue")
    assert client._management is not None
    client._requests += 1
    request = Message(
        properties=Properties(message_id=f"m{client._requests}", reply_to="replies"),
        application_properties={"operation": operation, "type": SELF, "name": "self", **told},
        value=body,
    )
    client._management[0].send(request.encode(), context=None, settled=True)
    client.rig.settle()
    found = [item for item in client.deliveries if item.link.name == "replies"]
    client.deliveries = [item for item in client.deliveries if item.link.name != "replies"]
    answer = Message.decode(found[-1].payload)
    told_back = answer.application_properties or {}
    return int(told_back["statusCode"]), answer.value, told_back


def rows(client: Client, kind: str, body: Any = None, **told: Any) -> list[dict[str, Any]]:
    status, answer, told_back = ask(client, "QUERY", body, entityType=f"holdfast:{kind}", **told)
    assert status == 200 and told_back["count"] == len(answer["results"]) <= ROWS_MAX
    assert all(len(row) == len(answer["attributeNames"]) for row in answer["results"])
    return [dict(zip(answer["attributeNames"], row, strict=True)) for row in answer["results"]]


# ------------------------------------------------------------------------------------------------ what there is


def test_types_attributes_and_operations() -> None:
    _, _, client = world()
    status, types, _ = ask(client, "GET-TYPES")
    known = {"holdfast:node", "holdfast:queue", "holdfast:subscription", "holdfast:connection", "holdfast:attachment"}
    known |= {"holdfast:link", "holdfast:federation", "holdfast:service"}
    known |= {"holdfast:session", "holdfast:transaction"}
    assert status == 200 and set(types) == known and all(base == [] for base in types.values())
    status, attributes, _ = ask(client, "GET-ATTRIBUTES", entityType="holdfast:queue")
    assert (status, attributes) == (200, {"holdfast:queue": [*ATTRIBUTES, *QUEUE_ATTRIBUTES]})
    status, operations, _ = ask(client, "GET-OPERATIONS")
    assert set(operations) == known | {"holdfast:entry"}
    live = ["bytes_max", "messages_max", "when_full", "deliveries_max", "room_low", "room_normal", "room_quiet_s"]
    assert operations["holdfast:queue"]["UPDATE"] == live
    assert operations["holdfast:connection"] == {"CLOSE": []}

    assert ask(client, "GET-MGMT-NODES")[1] == []
    assert ask(client, "GET-TYPES", entityType="holdfast:nosuch")[0] == 404


@pytest.mark.parametrize("kind", ["node", "queue", "subscription", "connection", "attachment"])
def test_each_row_has_each_attribute_that_its_type_says(kind: str) -> None:
    _, _, client = world(QueueConfig(name="work"))
    done(client, "OPEN", "subscription", "sub", queue="work")
    said = ask(client, "GET-ATTRIBUTES", entityType=f"holdfast:{kind}")[1][f"holdfast:{kind}"]
    found = rows(client, kind)
    assert found and all(list(row) == said for row in found)
    assert all(row["type"] == f"holdfast:{kind}" and row["identity"] and row["name"] for row in found)
    assert len({row["identity"] for row in found}) == len(found)


def test_rows_by_name_offset_and_count() -> None:
    _, _, client = world(*(QueueConfig(name=f"q{number:03d}") for number in range(ROWS_MAX + 20)))
    names = ["name", "messages", "nosuch"]
    first = rows(client, "queue", {"attributeNames": names})
    assert len(first) == ROWS_MAX and first[0] == {"name": "q000", "messages": 0, "nosuch": None}
    rest = rows(client, "queue", {"attributeNames": names}, after=first[-1]["name"])
    assert [row["name"] for row in first + rest] == [f"q{number:03d}" for number in range(ROWS_MAX + 20)]
    some = rows(client, "queue", {"attributeNames": ["name"]}, offset=5, count=2)
    assert [row["name"] for row in some] == ["q005", "q006"]
    assert rows(client, "queue", offset=2**62) == [] == rows(client, "queue", count=0)
    _, answer, _ = ask(client, "QUERY", {"attributeNames": ["type", "name"]}, offset=1, count=1)
    assert answer["results"] == [["holdfast:queue", "q000"]]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"attributeNames": "name"}, {}),
        ({"attributeNames": [1]}, {}),
        ({"attributeNames": ["x"] * 101}, {}),
        (None, {"offset": -1}),
        (None, {"count": "many"}),
        (None, {"count": 1.5}),
        (None, {"after": "q"}),
        (None, {"entityType": 7}),
        (None, {"entityType": "holdfast:connection", "after": "x"}),
        (None, {"entityType": "holdfast:attachment", "after": "1/2"}),
        (None, {"entityType": "holdfast:connection", "after": "9" * 30}),
    ],
)
def test_what_cannot_be_asked(body: Any, told: dict[str, Any]) -> None:
    _, _, client = world()
    assert ask(client, "QUERY", body, **told)[0] == 400


@pytest.mark.parametrize(("operation", "kind"), [("NOSUCH", "queue"), ("CREATE", "connection"), ("QUERY", "nosuch")])
def test_what_is_no_operation_is_not_implemented(operation: str, kind: str) -> None:
    _, _, client = world()
    assert client.manage(operation, kind, "work")[0] == 501


# ------------------------------------------------------------------------------------------------ queues changed


def test_a_queue_below_its_contents_keeps_all_and_blocks() -> None:
    rig, node, client = world(QueueConfig(name="work"))
    fill(rig, client, 10)
    answer = done(client, "UPDATE", "queue", "work", messages_max=4)
    assert answer["changed"] and answer["messages_max"] == 4 and answer["messages"] == 10
    late = rig.client(node)
    link = late.sender("work")
    rig.settle()
    assert link.credit == 0
    consumer = rig.client(node)
    receiver = consumer.receiver("work", credit=7)
    rig.settle()
    assert consumer.accept() == [str(number) for number in range(1, 8)]
    rig.run(1)
    assert 0 < link.credit <= 1 and node.queue("work").messages == 3
    receiver.detach(closed=True)
    done(client, "UPDATE", "queue", "work", messages_max=None)
    rig.settle()
    assert link.credit > 100


def test_a_wider_bound_takes_what_waits_and_refuse_refuses_it() -> None:
    rig, node, client = world(QueueConfig(name="work", messages_max=3))
    link = client.sender("work")
    rig.settle()
    for number in range(3):
        client.send(link, str(number))
    rig.settle()
    operator = rig.client(node)
    done(operator, "UPDATE", "queue", "work", messages_max=5)
    rig.settle()
    assert link.credit == 2
    client.send(link, "3")
    client.send(link, "4")
    rig.settle()
    assert node.queue("work").messages == 5 and link.credit == 0
    done(operator, "UPDATE", "queue", "work", when_full="refuse")
    rig.settle()
    client.send(link, "5")
    rig.settle()
    assert isinstance(client.outcomes[-1][1], Rejected) and node.queue("work").messages == 5


def test_a_message_that_another_node_waits_to_hand_over_comes_with_the_wider_bound() -> None:
    rig = Rig()
    jfk, hub = rig.pair(queues=(QueueConfig(name="work", messages_max=2),))
    rig.run(3)
    client = rig.client(jfk)
    link = client.sender("work@hub")
    rig.settle()
    for number in range(5):
        client.send(link, str(number))
    rig.run(5)
    assert hub.bodies("work") == ["0", "1"]
    done(rig.client(hub), "UPDATE", "queue", "work", messages_max=10)
    rig.run(15)
    assert hub.bodies("work") == ["0", "1", "2", "3", "4"]


def test_what_was_changed_is_so_after_a_restart_until_the_file_says_something_new() -> None:
    rig, node, client = world(QueueConfig(name="work", messages_max=5), QueueConfig(name="other"))
    done(client, "CREATE", "queue", "made", messages_max=7)
    for name in ("work", "made"):
        done(client, "UPDATE", "queue", name, messages_max=9, when_full="refuse")

    def restart(*queues: QueueConfig) -> None:
        node.crash()
        node.config = replace(node.config, queues=queues)
        node.start()
        rig.settle()

    def settings(name: str) -> tuple[Any, ...]:
        config = node.queue(name).config
        return config.messages_max, config.when_full

    for _ in range(2):
        restart(QueueConfig(name="work", messages_max=5), QueueConfig(name="other"))
        assert settings("work") == settings("made") == (9, "refuse")
    restart(QueueConfig(name="work", messages_max=6), QueueConfig(name="other"))
    assert settings("work") == (6, "block") and settings("made") == (9, "refuse")
    restart(QueueConfig(name="work", messages_max=5), QueueConfig(name="other"))
    assert settings("work") == (5, "block"), "what was changed by hand before the file did is gone"


@pytest.mark.parametrize(
    ("name", "arguments", "status"),
    [
        ("work", {"order": "strict"}, 400),
        ("work", {"messages_max": -1}, 400),
        ("work", {"messages_max": 0}, 400),
        ("work", {"when_full": "explode"}, 400),
        ("nosuch", {"messages_max": 1}, 404),
        ("$dead-letters", {"messages_max": 1}, 409),
        ("@jfk", {"messages_max": 1}, 409),
    ],
)
def test_what_cannot_be_changed(name: str, arguments: dict[str, Any], status: int) -> None:
    rig = Rig()
    jfk, hub = rig.pair(queues=(QueueConfig(name="work"),))
    rig.run(3)
    sender = rig.client(jfk)
    link = sender.sender("x@hub")
    rig.settle()
    sender.send(link, "x")
    rig.settle()
    client = rig.client(hub)
    if name == "@jfk":
        link = client.sender("x@jfk")
        rig.settle()
    if name == "$dead-letters":
        client.receiver(name)
        rig.settle()
    assert client.manage("UPDATE", "queue", name, **arguments)[0] == status


def test_a_refused_commit_stores_the_change_with_the_next() -> None:
    rig, node, client = world(QueueConfig(name="work"))
    done(client, "READ", "queue", "work")
    node.refuse, node.refuse_all = 1, True
    with pytest.raises(IndexError):  # answered once it is stored
        client.manage("UPDATE", "queue", "work", messages_max=2)
    rig.run(2)
    assert not node.refuse and node.queue("work").config.messages_max == 2
    stored = {key: records.unpack_map(data) for key, data in node.store.table("queues")}
    assert stored[b"work"]["messages_max"] == 2


# ------------------------------------------------------------------------------------------------ connections


def test_a_connection_is_closed_by_hand() -> None:
    rig, node, client = world(QueueConfig(name="work"))
    fill(rig, client, 1)
    user = rig.client(node)
    user.receiver("work", name="mine")
    rig.settle()
    (link,) = [row for row in rows(client, "attachment") if row["name"] == "mine"]
    assert (link["direction"], link["address"]) == ("out", "work")
    (row,) = [row for row in rows(client, "connection") if row["identity"] == link["connection"]]
    assert row["kind"] == "client" and row["links"] == 1
    assert client.manage("CLOSE", "connection", row["identity"])[0] == 200
    rig.settle()
    assert not user.amqp.usable
    assert [each for each in rows(client, "connection") if each["identity"] == row["identity"]] == []
    other = rig.client(node)
    other.receiver("work")
    rig.settle()
    assert other.accept() == ["1"], "what it held is offered again"
    for name in (row["identity"], "nosuch", "", "-1", "9" * 30):
        assert client.manage("CLOSE", "connection", name)[0] == 404


def test_a_neighbour_that_was_closed_by_hand_comes_back() -> None:
    rig = Rig()
    jfk, hub = rig.pair(queues=(QueueConfig(name="work"),))
    rig.run(3)
    client = rig.client(hub)
    (row,) = [row for row in rows(client, "connection") if row["kind"] == "neighbour"]
    assert client.manage("CLOSE", "connection", row["identity"])[0] == 200
    sender = rig.client(jfk)
    link = sender.sender("work@hub")
    rig.settle()
    sender.send(link, "x", header=Header(durable=True))
    rig.run(30)
    assert hub.bodies("work") == ["x"] and isinstance(sender.outcomes[-1][1], Accepted)
    (again,) = [row for row in rows(client, "connection") if row["kind"] == "neighbour"]
    assert again["identity"] != row["identity"]


def test_an_error_is_short_whatever_the_request_has() -> None:
    _, _, client = world(QueueConfig(name="work"))
    status, _, text = client.manage("UPDATE", "queue", "work", messages_max="x" * 20_000)
    assert status == 400 and len(text) == DESCRIPTION_MAX
    assert text.startswith("invalid value 'xxx") and " … " in text
    _, _, text = client.manage("CREATE", "link", "l", **{"k" * 30_000: 1})
    assert len(text) == DESCRIPTION_MAX and text.endswith("expected one of from, to, selector, mode, steps, start")
