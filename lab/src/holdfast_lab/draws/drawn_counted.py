"""Ranges whose bytes the node counts.

Rules of this file: drawn after all else, from a stream of its own, and without faults, so that nothing else of a seed
changes (docs/adr/0053).
"""

from collections.abc import Callable
from random import Random
from typing import Any, Final

from holdfast.settings.queues import QueueConfig
from holdfast_lab.base.seed_tree import SeedTree
from holdfast_lab.draws.drawn_clients import fails
from holdfast_lab.draws.drawn_congestion import QUIET
from holdfast_lab.draws.drawn_scenes import Scene, in_time, renewed_in, with_scenes
from holdfast_lab.plan.plan import Plan


def counted_ranges(random: Random, node: str, plan: Plan) -> Scene:
    """A subscription that reads what fits its bounds of messages and of bytes, while messages come in."""
    timed = any(str(told.get("name", "")).startswith(QUIET) for told in plan.workloads)  # more load would delay it
    if timed or fails(plan, node) or node in renewed_in(plan):
        return Scene()
    name = "counted-ranges"
    sends: dict[str, Any] = {"kind": "publish", "node": node, "address": f"{name}@{node}", "name": name}
    sends |= {"messages": in_time(plan, 150), "producers": 2, "size": random.choice((200, 2_000))}
    reads: dict[str, Any] = {"kind": "subscription", "node": node, "queue": name, "name": f"{name}-read"}
    reads |= {"range_max": random.choice((5, 40)), "bytes_max": random.choice((1, 1_000, 9_000))}
    return Scene([sends, reads], [], [(node, QueueConfig(name=name, order="none"))])


COUNTED: Final[dict[str, tuple[float, Callable[[Random, str, Plan], Scene]]]] = {
    "counted ranges": (0.1, counted_ranges),
}
"""As LATER of `drawn_scenes.py`."""


def with_counted(plan: Plan, seed: int) -> Plan:
    """The plan with those scenes that the seed has."""
    return with_scenes(plan, COUNTED, SeedTree(seed).child("swarm").child("bytes"))
