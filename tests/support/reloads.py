"""A configuration that a simulated node takes up while it runs."""

from dataclasses import replace
from typing import Any

from holdfast.engine import events
from support.rig import Node


def read(node: Node, **fields: Any) -> events.ConfigDecided:
    """The driver has read a file that says `fields` of what the first one said; what the core decides."""
    node.handle(events.ConfigRead(config=replace(node.config, **fields)))
    node.rig.settle()
    decided = node.reloading.pop()
    assert isinstance(decided, events.ConfigDecided)
    assert node.core is not None
    node.core.validate()
    return decided


def lines(node: Node) -> list[str]:
    """What the node has logged of reloads."""
    return [line.removeprefix("reload: ") for line in node.logs if line.startswith("reload: ")]
