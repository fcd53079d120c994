"""The ends of messages on their way: they stay where they are, and are counted neither as messages nor as dropped."""

from pathlib import Path

import pytest

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Properties
from holdfast.settings.queues import QueueConfig
from holdfast.storage.upkeep.check import check
from support.hops import STRICT, names, send
from support.rig import Node, Rig
from support.stores import Idle, LoneNode


def purge(rig: Rig, node: Node, queue: str) -> int:
    status, body, _ = rig.client(node).manage("PURGE", "queue", queue)
    assert status == 200
    return int(body["purged"])


def status_of(rig: Rig, node: Node, queue: str) -> tuple[int, int]:
    """Its messages and its tombstones."""
    _, body, _ = rig.client(node).manage("READ", "queue", queue)
    return int(body["messages"]), int(body["tombstones"])


def test_a_second_purge_leaves_the_tombstones_of_the_first() -> None:
    rig = Rig()
    jfk, hub = rig.pair(queues=(QueueConfig(name="work", order="strict"),))
    rig.refuse_dials = True
    send(rig, jfk, *names(1, 3), to="hub")
    assert purge(rig, jfk, "@hub") == 3 and status_of(rig, jfk, "@hub") == (0, 3)
    send(rig, jfk, "4", to="hub")
    assert purge(rig, jfk, "@hub") == 1 and purge(rig, jfk, "@hub") == 0
    assert status_of(rig, jfk, "@hub") == (0, 4)
    send(rig, jfk, "5", to="hub")
    assert status_of(rig, jfk, "@hub") == (1, 4)
    rig.refuse_dials = False
    rig.run(40)
    assert hub.bodies("work") == ["5"] and status_of(rig, jfk, "@hub") == (0, 0)
    assert hub.core is not None and not hub.core.losses and hub.core.catalog.ledger.origins[jfk.store.uuid].mark == 5


def test_a_purge_at_a_node_in_between_leaves_the_tombstones_of_the_origin() -> None:
    rig = Rig()
    a, b, c = rig.line("a", "b", "c", c=STRICT)
    rig.refuse_dials = True
    send(rig, a, *names(1, 3), to="c")
    purge(rig, a, "@c")
    send(rig, a, "4", to="c")
    c.crash()
    rig.refuse_dials = False
    rig.run(40)
    assert status_of(rig, b, "@c") == (1, 3)
    assert purge(rig, b, "@c") == 1 and status_of(rig, b, "@c") == (0, 4)
    send(rig, a, "5", to="c")
    c.start()
    rig.run(40)
    assert c.bodies("work") == ["5"]


def test_what_tombstones_there_are_is_known_after_a_restart_and_a_full_disk() -> None:
    rig = Rig()
    jfk, hub = rig.pair(queues=(QueueConfig(name="work", order="strict"),))
    rig.refuse_dials = True
    send(rig, jfk, *names(1, 3), to="hub")
    jfk.refuse = 1
    purge(rig, jfk, "@hub")
    messages, tombstones = status_of(rig, jfk, "@hub")
    assert messages + tombstones == 3
    purge(rig, jfk, "@hub")
    assert status_of(rig, jfk, "@hub") == (0, 3)
    jfk.crash()
    jfk.start()
    rig.settle()
    assert status_of(rig, jfk, "@hub") == (0, 3)
    rig.refuse_dials = False
    rig.run(40)
    assert status_of(rig, jfk, "@hub") == (0, 0)
    jfk.crash()
    jfk.start()
    rig.run(10)
    assert status_of(rig, jfk, "@hub") == (0, 0)
    send(rig, jfk, "4", to="hub")
    assert hub.bodies("work") == ["4"]


@pytest.mark.parametrize("restart", [False, True])
def test_a_deep_queue_purged_twice_hands_out_every_tombstone_and_what_came_meanwhile(
    tmp_path: Path, restart: bool
) -> None:
    node = LoneNode(tmp_path)
    node.fill("@hub", 5_000)
    queue = node.queue("@hub")
    for _ in range(2):
        node.core.jobs.purge(queue, lambda gone: None)
        node.turn()
        node.fill("@hub", 1)
        node.settle()
    assert (queue.messages, queue.tombstones) == (5_002, 5_001)
    if restart:
        node.crash()
        node = LoneNode(tmp_path)
        queue = node.queue("@hub")
        assert queue.tombstones == 5_001
    consumer = Idle(10_000)
    queue.shared.attach(consumer)
    node.settle()
    assert len(consumer.taken) == len(set(consumer.taken)) == 5_002
    queue.shared.finish(consumer.taken)
    node.settle()
    assert (queue.messages, queue.tombstones) == (0, 0)
    node.stop()
    assert check(tmp_path).findings == []


def test_a_purge_that_a_full_disk_refuses_says_so_and_doubles_nothing() -> None:
    rig = Rig()
    jfk, hub = rig.pair(queues=(QueueConfig(name="work", order="strict"),))
    rig.refuse_dials = True
    send(rig, jfk, *names(1, 3), to="hub")
    shared = jfk.queue("@hub").shared
    for _ in range(2):
        jfk.refuse = 1
        assert purge(rig, jfk, "@hub") == 0 and not jfk.refuse
        assert shared.position == 0 and not shared.requeued and not shared.counts
    rig.refuse_dials = False
    rig.run(40)
    assert hub.bodies("work") == names(1, 3) and not jfk.queue("@hub").messages
    assert hub.core is not None and not hub.core.duplicates.suppressed


def test_what_a_purge_took_is_not_offered_before_it_is_gone() -> None:
    rig = Rig()
    jfk, hub = rig.pair(queues=(QueueConfig(name="work", order="strict"),))
    rig.refuse_dials = True
    send(rig, jfk, *names(1, 3), to="hub")
    client = rig.client(jfk)
    assert client.manage("READ", "queue", "@hub")[0] == 200
    jfk.hold_commits = True
    assert client._management is not None
    requests = client._management[0]
    request = Message(
        properties=Properties(message_id="p", reply_to="replies"),
        application_properties={"operation": "PURGE", "type": "holdfast:queue", "name": "@hub"},
        value={},
    )
    requests.send(request.encode(), context=None, settled=True)
    rig.settle()
    rig.refuse_dials = False
    rig.run(5)
    assert jfk.queue("@hub").stopped and hub.bodies("work") == []
    jfk.hold_commits = False
    rig.run(40)
    assert hub.bodies("work") == [] and not jfk.queue("@hub").messages
