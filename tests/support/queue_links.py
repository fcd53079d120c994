"""Nodes with links between their queues, for tests."""

from typing import Any

from holdfast.queue_links.links import QueueLinks
from holdfast.settings.queues import LinkConfig, QueueConfig
from support.one_node import world
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
