"""Links between queues, over AMQP and at two nodes (docs/links.md; docs/adr/0065)."""

from typing import Any

import pytest

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Accepted, Header, Properties
from holdfast.core.undo import take_back_gathered
from holdfast.errors import ConfigError
from holdfast.queue_links.links import QueueLinks
from holdfast.settings import LinkConfig, Limits, QueueConfig
from support.one_node import done, fill, world
from support.rig import Client, Node, Rig


def linked(*links: LinkConfig, queues: tuple[QueueConfig, ...] = (), **fields: Any) -> tuple[Rig, Node, Client]:
    return world(*queues, links=links, **fields)


def move(source: str, target: str, name: str = "", **fields: Any) -> LinkConfig:
    return LinkConfig(name=name or f"{source}-{target}", source=source, target=target, **fields)


def copy(source: str, target: str, name: str = "", **fields: Any) -> LinkConfig:
    return move(source, target, name, mode="copy", **fields)


def links_of(node: Node) -> QueueLinks:
    assert node.core is not None
    node.core.validate()
    return node.core.queue_links


def numbers(first: int, last: int) -> list[str]:
    return [str(number) for number in range(first, last + 1)]


# ------------------------------------------------------------------------------------------------ move and copy


def test_a_move_takes_all_in_order() -> None:
    rig, node, client = linked(move("work", "next"))
    fill(rig, client, 600)
    assert node.bodies("work") == [] and node.bodies("next") == numbers(1, 600)
    assert links_of(node).by_name["work-next"].moved_total == 600


def test_what_was_there_before_the_link_is_moved_too() -> None:
    rig, node, client = world()
    fill(rig, client, 3)
    done(client, "CREATE", "link", "l", **{"from": "work", "to": "next"})
    rig.settle()
    assert node.bodies("next") == numbers(1, 3)


def test_a_copy_leaves_the_messages_to_consumers() -> None:
    rig, node, client = linked(copy("work", "next"))
    fill(rig, client, 300)
    assert node.bodies("work") == node.bodies("next") == numbers(1, 300)
    held = client.receiver("work", credit=300)
    rig.settle()
    held.settle(client.deliveries[0].delivery_id, client.deliveries[-1].delivery_id, Accepted())
    rig.settle()
    assert node.bodies("work") == [] and node.bodies("next") == numbers(1, 300)
    links_of(node)


def test_a_chain_and_a_fan_in() -> None:
    rig, node, client = linked(move("work", "b"), move("b", "c"), move("other", "c"))
    fill(rig, client, 300)
    fill(rig, client, 5, "other", 301)
    assert sorted(node.bodies("c"), key=int) == numbers(1, 305)
    links_of(node)


def test_a_move_beside_a_copy_ties_what_others_read_too() -> None:
    rig, node, client = linked(move("work", "b"), copy("work", "c"))
    fill(rig, client, 300)
    assert node.bodies("work") == [] and node.bodies("b") == node.bodies("c") == numbers(1, 300)
    links_of(node)
