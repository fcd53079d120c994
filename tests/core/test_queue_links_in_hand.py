"""What a link between queues has in its hands counts as no delivery to a consumer (docs/links.md)."""

import pytest

from holdfast.amqp.wire.performatives import Modified
from holdfast.settings.queues import QueueConfig
from support.one_node import done, fill
from support.queue_links import copy, linked, links_of, move, numbers
from support.rig import Node, Rig


@pytest.mark.parametrize("modes", [("move",), ("copy",), ("move", "copy")])
def test_a_kill_while_a_link_has_messages_counts_as_no_delivery(modes: tuple[str, ...]) -> None:
    """Nobody was shown them: `deliveries_max` is of deliveries to consumers."""
    links = [move("work", f"to-{mode}", mode=mode) for mode in modes]
    rig, node, client = linked(*links, queues=(QueueConfig(name="work", deliveries_max=1),))
    for name in links_of(node).by_name:
        done(client, "STOP", "link", name)
    fill(rig, client, 5)

    def start_again() -> None:
        node.crash()
        node.start()
        for each in links_of(node).by_name.values():
            each.is_stopped = False  # on the disk it still is

    for _ in range(4):
        start_again()
        for _ in range(20):
            node.end_turn()
            if node.pending is not None and any(each.moving for each in links_of(node).by_name.values()):
                break
            if node.pending is not None:
                node.finish_commit()
        assert node.pending is not None and node.pending.batch.appends
    start_again()
    rig.settle()
    rig.run(1)
    links_of(node)
    assert "$dead-letters" not in node.core.catalog.queues  # type: ignore[union-attr]
    assert all(node.bodies(f"to-{mode}") == numbers(1, 5) for mode in modes)
    assert node.bodies("work") == ([] if "move" in modes else numbers(1, 5))


def test_what_failed_too_often_with_consumers_is_a_dead_letter_beside_a_link_too() -> None:
    rig, node, client = linked(
        move("work", "b", selector="JMSPriority > 4"), copy("work", "c"),
        queues=(QueueConfig(name="work", deliveries_max=2),),
    )  # fmt: skip
    fill(rig, client, 1)
    for _ in range(2):
        held = client.receiver("work", credit=1)
        rig.settle()
        last = client.deliveries[-1].delivery_id
        held.settle(last, last, Modified(delivery_failed=True))
        held.detach()
        client.flush()
        rig.run(1)
    assert node.bodies("$dead-letters") == ["1"] == node.bodies("c") and node.bodies("b") == []
    rig.run(1)
    assert node.bodies("work") == []
    links_of(node)


@pytest.mark.parametrize("onward", ["copy", "another node"])
def test_earlier_deliveries_are_told_by_a_move_within_the_node_alone(onward: str) -> None:
    """A copy is a new message, and so is what goes to another node."""
    rig = Rig()
    second = copy("b", "c") if onward == "copy" else move("b", "c@hub", "onward")
    jfk, hub = rig.pair(jfk={"links": (move("work", "b", "first"), second)})
    client = rig.client(jfk)
    for name in links_of(jfk).by_name:
        done(client, "STOP", "link", str(name))
    fill(rig, client, 1)
    failing = client.receiver("work", credit=1)
    rig.settle()
    failing.settle(client.deliveries[-1].delivery_id, client.deliveries[-1].delivery_id, Modified(delivery_failed=True))
    failing.detach()
    client.flush()
    done(client, "START", "link", "first")
    rig.run(1)

    def failures(node: Node, queue: str) -> list[int]:
        reader = rig.client(node)
        reader.reader(queue, 1)
        rig.settle()
        return [message.header.delivery_count or 0 for message in reader.messages() if message.header is not None]

    assert failures(jfk, "b") == [1]
    for name in links_of(jfk).by_name:
        done(client, "START", "link", str(name))
    rig.run(2)
    assert failures(*((jfk, "c") if onward == "copy" else (hub, "c"))) == [0]
