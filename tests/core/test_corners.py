"""Corners where two things meet in one turn, or over a restart, that once went wrong."""

from typing import Any

import pytest

from holdfast.amqp.wire.performatives import Accepted, Header, Modified, Rejected
from holdfast.amqp.wire.types import Symbol, Ulong
from holdfast.engine import events
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from holdfast.storage.memory import MemoryStore
from support.hops import names
from support.rig import Client, Node, Rig


def alone(*bodies: str) -> tuple[Rig, Node, Client]:
    rig = Rig()
    hub = rig.node("hub", queues=(QueueConfig(name="work"),))
    client = rig.client(hub)
    send(rig, client, *bodies)
    return rig, hub, client


def send(rig: Rig, client: Client, *bodies: str, address: str = "work", **parts: object) -> None:
    link = client.sender(address)
    rig.settle()
    for body in bodies:
        client.send(link, body, **parts)
    rig.settle()


def together(**hub: object) -> tuple[Rig, Node, Node]:
    rig = Rig()
    jfk, node = rig.pair(queues=(QueueConfig(name="work", order="strict"),), **hub)
    rig.run(8)
    return rig, jfk, node


def stored(node: Node) -> list[int]:
    queue = node.queue("work")
    return [sequence for sequence, _ in queue.reader.read(queue.queue_id, 0, count_max=99, bytes_max=9999)]


def test_a_rejection_and_a_new_subscription_in_one_turn() -> None:
    rig, hub, client = alone("1")
    client.receiver("work")
    rig.settle()
    client.manage("STATUS", "node")  # the reply link is there: what follows is one flight
    client.accept(Rejected())
    assert client.manage("OPEN", "subscription", "s", queue="work", mode="copy")[0] == 201
    rig.run(1)
    assert hub.queue("work").messages == 0 and hub.bodies("$dead-letters") == ["1"]


def test_annotated_and_purged_in_one_turn_does_not_come_back() -> None:
    rig, hub, client = alone("1")
    client.receiver("work", credit=1)
    rig.settle()
    client.manage("STATUS", "node")
    client.accept(Modified(message_annotations={Symbol("x-opt-a"): "b" * 20}, undeliverable_here=True))
    status, body, _ = client.manage("PURGE", "queue", "work")
    rig.run(1)
    assert (status, body["purged"], stored(hub)) == (200, 1, [])
    assert (hub.queue("work").messages, hub.queue("work").bytes_held) == (0, 0)


def test_the_nodes_own_queues_have_no_subscriptions() -> None:
    rig, jfk, hub = together()
    client = rig.client(jfk)
    send(rig, client, "1", address="work@hub")
    assert client.manage("OPEN", "subscription", "s", queue="@hub", mode="copy")[0] == 409
    assert rig.client(hub).manage("OPEN", "subscription", "s", queue="$waiting", mode="take")[0] == 409


def test_what_was_finished_beside_a_subscription_stays_finished_when_that_goes() -> None:
    rig, hub, client = alone(*names(1, 8))
    client.manage("OPEN", "subscription", "s", queue="work", mode="copy")
    client.receiver("work")
    rig.settle()
    for delivery in client.deliveries[2:6]:
        delivery.link.settle(delivery.delivery_id, delivery.delivery_id, Accepted())
    rig.run(1)
    hub.crash()
    hub.start()
    client = rig.client(hub)
    link = client.receiver("work", credit=1)
    rig.settle()
    assert client.manage("DELETE", "subscription", "s", queue="work")[0] == 200
    rig.run(1)
    got = []
    for _ in range(8):
        got += client.accept(link=link)
        link.grant(1)
        rig.run(0.2)
    assert got == ["1", "2", "7", "8"] and hub.queue("work").messages == 0


def test_a_message_too_large_for_one_of_three_consumers() -> None:
    rig, hub, _ = alone()
    for _ in range(3):
        rig.client(hub).receiver("work", max_message_size=50)
        rig.settle()
    send(rig, rig.client(hub), "x" * 200)
    assert hub.core is not None and hub.queue("work").messages == 1


def test_a_redelivery_is_marked_after_a_proper_stop_and_a_kill() -> None:
    rig, hub, client = alone("1")
    client.receiver("work", credit=1)
    rig.settle()
    client.accept(Modified(delivery_failed=True))
    rig.settle()
    hub.handle(events.Stopping())
    hub.end_turn()
    rig.run(2)
    for _ in range(2):
        hub.crash()
        hub.start()
        rig.run(1)
    client = rig.client(hub)
    link = client.receiver("work")
    rig.settle()
    header = client.messages(link)[0].header
    assert header is not None and not header.first_acquirer and header.delivery_count >= 1


def test_a_dead_origins_gap_closes_though_the_node_restarts_meanwhile() -> None:
    rig, jfk, hub = together()
    jfk.core.catalog.ledger.identities["hub"] = 2  # 1 was on the disk that dies
    send(rig, rig.client(jfk), "2", "3", address="work@hub")
    rig.run(1)
    jfk.crash()
    jfk.store = MemoryStore(mint_from=rig.uuid)
    jfk.start()
    rig.run(10)
    hub.crash()
    hub.start()
    rig.run(70)
    assert hub.bodies("work") == ["2", "3"]


def test_an_expired_message_at_the_head_holds_nothing_up() -> None:
    rig, jfk, hub = together(limits=Limits(ranges_max=1))
    for wire in rig.between("jfk", "hub"):
        wire.cut()
    rig.refuse_dials = True
    rig.run(1)
    client = rig.client(jfk)
    send(rig, client, "gone", address="work@hub", header=Header(ttl=500))
    send(rig, client, *names(2, 30), address="work@hub")
    rig.run(2)
    rig.refuse_dials = False
    rig.run(30)
    assert hub.bodies("work") == names(2, 30) and jfk.queue("@hub").messages == 0


@pytest.mark.parametrize(("kind", "operation", "key", "value"), [
    ("queue", "CREATE", "bytes_max", True), ("queue", "CREATE", "messages_max", True),
    ("queue", "CREATE", "messages_max", False), ("queue", "CREATE", "order_wait_s", True),
    ("queue", "CREATE", "order_wait_s", float("nan")), ("queue", "CREATE", "bytes_max", Ulong(2**63)),
    ("queue", "CREATE", "bytes_max", 1.0), ("queue", "CREATE", "durable", 1), ("queue", "CREATE", "when_full", 1),
    ("node", "WHERE", "limit_s", True),
])  # fmt: skip
def test_true_and_false_are_no_numbers_in_a_request(kind: str, operation: str, key: str, value: Any) -> None:
    _, hub, client = alone()
    arguments = {key: value} | ({"message_id": "m"} if kind == "node" else {})
    status, _, text = client.manage(operation, kind, "fresh", **arguments)
    assert status == 400 and text.startswith(f"invalid value {value!r} for {key}; expected "), text
    assert "fresh" not in hub.core.catalog.queues


def test_nothing_is_kept_of_a_deleted_queue() -> None:
    _, hub, client = alone()
    before = len(hub.core.links.producers), len(hub.core.links.readers)
    for number in range(20):
        client.manage("CREATE", "queue", f"t{number}")
        client.manage("DELETE", "queue", f"t{number}")
    assert (len(hub.core.links.producers), len(hub.core.links.readers)) == before


def test_a_queue_in_memory_takes_nothing_from_other_nodes() -> None:
    rig = Rig()
    jfk, hub = rig.pair(queues=(QueueConfig(name="work", durable=False),))
    rig.run(8)
    send(rig, rig.client(jfk), "1", address="work@hub")
    rig.run(1)
    assert hub.bodies("$dead-letters") == ["1"] and hub.queue("work").messages == 0
    assert jfk.queue("@hub").messages == 0


def test_a_time_to_live_counts_from_the_arrival_not_from_the_last_turn() -> None:
    rig = Rig()
    node = rig.node("n")
    client = rig.client(node)
    link = client.sender("q")
    rig.settle()
    rig.pass_time(0.9)  # idle: no turn tells the node how late it is
    client.send(link, "fresh", header=Header(ttl=500))
    rig.settle()
    reader = rig.client(node)
    reader.receiver("q")
    rig.settle()
    assert reader.bodies() == ["fresh"]


def test_a_stop_while_a_mark_is_on_its_way_to_the_disk_takes_it_back() -> None:
    rig, hub, _ = alone("1", "2")
    hub.hold_commits = True
    rig.client(hub).receiver("work", credit=1)
    rig.settle()
    cursor = hub.queue("work").shared
    assert hub.pending is not None and cursor.watermark > cursor.watermark_stored
    hub.handle(events.Stopping())
    hub.end_turn()
    hub.hold_commits = False
    rig.settle()
    assert cursor.watermark_stored == cursor.watermark == 0
