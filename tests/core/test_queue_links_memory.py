"""Links between queues that are in memory keep to the bounds of their targets (docs/links.md)."""

import pytest

from holdfast.amqp.wire.performatives import Accepted
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from support.one_node import fill
from support.queue_links import linked, links_of, move


def test_a_target_in_memory_waits_for_what_others_hold() -> None:
    queues = tuple(QueueConfig(name=name, durable=False) for name in ("work", "m", "other"))
    limits = Limits(memory_queue_bytes_max=100_000)
    rig, node, client = linked(move("work", "m"), queues=queues, limits=limits)
    node.unwatched |= {"work", "other"}
    links = links_of(node)
    links.stop(links.by_name["work-m"], is_stopped=True)
    for name, size in (("work", 30_000), ("other", 60_000)):
        link = client.sender(name)
        rig.settle()
        client.send(link, "x" * size)
        rig.settle()
    links.stop(links.by_name["work-m"], is_stopped=False)
    rig.run(1)
    assert node.bodies("m") == [] and len(node.bodies("work")) == 1
    receiver = client.receiver("other")
    rig.settle()
    receiver.settle(client.deliveries[-1].delivery_id, client.deliveries[-1].delivery_id, Accepted())
    client.flush()
    rig.run(2)
    assert len(node.bodies("m")) == 1 and node.bodies("work") == []
    links_of(node)


@pytest.mark.parametrize("bound", [{"messages_max": 5}, {"bytes_max": 5}])
def test_the_bounds_of_a_target_in_memory_hold_for_what_several_links_bring(bound: dict[str, int]) -> None:
    sources = [f"s{number}" for number in range(4)]
    queues = tuple(QueueConfig(name=name, durable=False) for name in sources)
    target = QueueConfig(name="next", durable=False, **bound)
    rig, node, client = linked(*(move(name, "next") for name in sources), queues=(*queues, target))
    node.unwatched |= {*sources, "next"}
    links = links_of(node)
    for link in links.by_name.values():
        links.stop(link, is_stopped=True)
    for name in sources:
        fill(rig, client, 3, name)
    for link in links.by_name.values():
        links.stop(link, is_stopped=False)
    rig.run(1)
    assert len(node.bodies("next")) == node.queue("next").messages == (5 if "messages_max" in bound else 1)
    receiver, seen = client.receiver("next", credit=20), 0
    rig.settle()
    while len(client.deliveries) > seen:
        seen = len(client.deliveries)
        receiver.settle(client.deliveries[0].delivery_id, client.deliveries[-1].delivery_id, Accepted())
        client.flush()
        rig.run(1)
        links_of(node)
    assert seen == 12 and node.queue("next").reserved == 0
