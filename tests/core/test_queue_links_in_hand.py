"""What a link between queues has in its hands, for the bounds of its queues (docs/links.md): it counts as no delivery,
and for its target in memory as if it were there."""

import pytest

from holdfast.amqp.wire.performatives import Accepted, Modified
from holdfast.queue_links.links import QueueLinks
from holdfast.settings import LinkConfig, QueueConfig
from support.one_node import done, fill, world
from support.rig import Client, Node, Rig


def linked(*links: LinkConfig, queues: tuple[QueueConfig, ...]) -> tuple[Rig, Node, Client]:
    return world(*queues, links=links)


def link(source: str, target: str, mode: str = "move", selector: str = "") -> LinkConfig:
    return LinkConfig(name=f"{source}-{target}", source=source, target=target, mode=mode, selector=selector)


def links_of(node: Node) -> QueueLinks:
    assert node.core is not None
    node.core.validate()
    return node.core.queue_links


def numbers(first: int, last: int) -> list[str]:
    return [str(number) for number in range(first, last + 1)]


@pytest.mark.parametrize("modes", [("move",), ("copy",), ("move", "copy")])
def test_a_kill_while_a_link_has_messages_counts_as_no_delivery(modes: tuple[str, ...]) -> None:
    """Nobody was shown them: `deliveries_max` is of deliveries to consumers."""
    links = [link("work", f"to-{mode}", mode) for mode in modes]
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
        link("work", "b", selector="JMSPriority > 4"), link("work", "c", "copy"),
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


@pytest.mark.parametrize("bound", [{"messages_max": 5}, {"bytes_max": 5}])
def test_the_bounds_of_a_target_in_memory_hold_for_what_several_links_bring(bound: dict[str, int]) -> None:
    sources = [f"s{number}" for number in range(4)]
    queues = tuple(QueueConfig(name=name, durable=False) for name in sources)
    target = QueueConfig(name="next", durable=False, **bound)
    rig, node, client = linked(*(link(name, "next") for name in sources), queues=(*queues, target))
    node.unwatched |= {*sources, "next"}
    links = links_of(node)
    for each in links.by_name.values():
        links.stop(each, is_stopped=True)
    for name in sources:
        fill(rig, client, 3, name)
    for each in links.by_name.values():
        links.stop(each, is_stopped=False)
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
