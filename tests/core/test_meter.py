"""Telemetry of queues: each interval tells of every queue once, as long as they are few
(management/status/meter.py)."""

from holdfast.settings.queues import QueueConfig
from support.one_node import fill, world
from support.rig import Node

NAMES = [f"q{number}" for number in range(5)]
QUEUES = [QueueConfig(name=name) for name in NAMES]
INTERVAL_S = 2.0


def told(node: Node) -> list[str]:
    found = [str(fields["name"]) for kind, fields in node.records if kind == "queue" and fields["name"] in NAMES]
    node.records.clear()
    return found


def test_each_queue_with_messages_is_told_of_once_in_each_interval() -> None:
    rig, node, client = world(*QUEUES, telemetry_interval_s=INTERVAL_S)
    for name in NAMES:
        fill(rig, client, 1, name)
    rig.run(INTERVAL_S)
    told(node)
    for _ in range(3):
        rig.run(INTERVAL_S)
        assert told(node) == NAMES


def test_an_empty_queue_is_told_of_once_more_after_its_last_change() -> None:
    rig, node, client = world(*QUEUES, telemetry_interval_s=INTERVAL_S)
    fill(rig, client, 1, "q1")
    rig.run(2 * INTERVAL_S)
    told(node)
    client.receiver("q1")
    rig.run(INTERVAL_S)
    client.accept()
    rig.run(INTERVAL_S)
    assert told(node) == ["q1", "q1"]
    rig.run(3 * INTERVAL_S)
    assert told(node) == []
