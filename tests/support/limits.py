"""A node with limits of one's choice, and what it tells those who reach them.

Rules of this file: no limit has a value here; who tests one gives it.
"""

from typing import Any

from holdfast.settings.limits import Limits
from support.rig import Node, Rig

RESOURCE = "amqp:resource-limit-exceeded"


def world(**limits: Any) -> tuple[Rig, Node]:
    rig = Rig()
    return rig, rig.node("hub", limits=Limits(**limits))


def conditions(said: list[Any]) -> list[str]:
    """The conditions of all errors among these, by kind."""
    return [f"{type(item).__name__} {item.error.condition}" for item in said if getattr(item, "error", None)]
