"""What a queue is for is known by its kind, decided once from its name: rows of the store do not say it."""

from uuid import UUID

import pytest

from core.test_dynamic_nodes import alone, dynamic_source
from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.types import Symbol
from holdfast.broker.entries.kinds import QueueKind
from holdfast.engine.port import Batch
from holdfast.errors import ConfigError
from holdfast.names import DEAD_LETTERS
from holdfast.settings.queues import QueueConfig
from holdfast.state.catalog import WAITING
from support.rig import Rig

KINDS = {
    "work": QueueKind.ORDINARY,
    "@hub": QueueKind.TRANSMISSION,
    WAITING: QueueKind.WAITING,
    DEAD_LETTERS: QueueKind.DEAD_LETTERS,
}

ROW = {
    "id": 0, "uuid": UUID(int=7), "timed": 2, "bytes_max": None, "messages_max": None, "when_full": "block",
    "order": "bounded", "order_wait_s": 30.0, "durable": True, "deliveries_max": None,
    "priorities": False,
}  # fmt: skip
"""A queue's record as it is stored."""


def row(queue_id: int) -> bytes:
    return encode({Symbol(key): value for key, value in {**ROW, "id": queue_id}.items()})


@pytest.mark.parametrize("name", KINDS)
def test_a_stored_queue_has_the_kind_that_its_name_says(name: str) -> None:
    rig = Rig()
    node = rig.node("jfk")
    node.crash()
    node.store.commit(Batch(puts={("queues", name.encode()): row(1)}))
    node.start()
    queue = node.queue(name)
    assert queue.kind is KINDS[name]
    assert queue.in_transit == (name == "@hub")
    assert queue.holds_custody == (name in ("@hub", WAITING))


def test_no_stored_row_says_the_kind() -> None:
    rig = Rig()
    jfk, _ = rig.pair()
    client = rig.client(jfk)
    for target in ("work", "work@hub"):
        client.sender(target)
    client.receiver(DEAD_LETTERS)
    rig.run(1)
    rows = dict(jfk.store.table("queues"))
    assert {b"work", b"@hub", DEAD_LETTERS.encode()} <= rows.keys()
    for name, stored in rows.items():
        queue = jfk.queue(name.decode())
        expected = {**ROW, "id": queue.queue_id, "uuid": queue.uuid}
        assert stored == encode({Symbol(key): value for key, value in expected.items()})
        assert queue.kind is KINDS[name.decode()]


def test_a_dynamic_node_has_its_own_kind() -> None:
    _, node, client = alone()
    _, name = dynamic_source(client)
    assert node.queue(name).kind is QueueKind.DYNAMIC and not node.queue(name).holds_custody


@pytest.mark.parametrize("name", ["topic/flights/late", "topic/", "topic//late", "topic/flights/"])
def test_a_name_that_is_an_address_of_topics_is_refused_for_a_queue(name: str) -> None:
    """By a request, a file and an attach."""
    rig = Rig()
    node = rig.node("jfk")
    client = rig.client(node)
    status, _, text = client.manage("CREATE", "queue", name)
    expected = f"invalid name of queue {name!r}; expected topic/NAME for a topic"
    assert (status, text.partition(", ")[0]) == (400, expected)
    with pytest.raises(ConfigError, match=f"^{expected}"):
        QueueConfig(name=name).validate()
    client.receiver(name)
    rig.settle()
    assert name not in node.core.catalog.queues


def test_a_stored_queue_with_the_name_of_a_topics_subject_opens_with_a_warning() -> None:
    rig = Rig()
    node = rig.node("jfk")
    node.crash()
    node.store.commit(Batch(puts={("queues", b"topic/flights/late"): row(1)}))
    node.start()
    client = rig.client(node)
    link = client.sender("topic/flights/late")
    rig.settle()
    client.send(link, "1")
    rig.run(25)
    advice = "its name is an address of topics; move its messages to another queue, and delete it"
    assert f"queue 'topic/flights/late': {advice}" in node.logs
    assert node.bodies("topic/flights/late") == ["1"]
    assert client.manage("UPDATE", "queue", "topic/flights/late", messages_max=5)[0] == 200
