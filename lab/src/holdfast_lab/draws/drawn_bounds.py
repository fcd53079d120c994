"""Durable subscriptions of topics that have bounds of their own.

Rules of this file: each function `with_…` draws after all that came before it, from a stream of its own, so that
nothing else of a seed changes (docs/adr/0053).
"""

from collections.abc import Callable
from random import Random
from typing import Any, Final

from holdfast_lab.base.seed_tree import SeedTree
from holdfast_lab.draws.drawn_clients import fails, is_guessed_at
from holdfast_lab.draws.drawn_congestion import QUIET
from holdfast_lab.draws.drawn_scenes import Scene, in_time, node_ends, poor_disk, renewed_in, with_scenes
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.plan import Plan


def bounded_subscription(random: Random, node: str, plan: Plan) -> Scene:
    """One that drops its oldest, or ends; half of them at a node that ends now and then, or has a poor disk."""
    timed = any(str(told.get("name", "")).startswith(QUIET) for told in plan.workloads)  # more load would delay it
    if timed or fails(plan, node) or node in renewed_in(plan):
        return Scene()
    told: dict[str, Any] = {"kind": "bounded", "node": node, "queue": "topic/bounded", "name": "bounded"}
    told |= {"bound": random.choice((1, 3, 10)), "messages": in_time(plan, random.choice((12, 40)))}
    told |= {"rounds": random.choice((2, 4)), "ends": random.random() < 0.3, "credit": random.choice((1, 5, 50))}
    faults = random.choice(([], node_ends(random, node, plan, 2), poor_disk(random, node, 5.0)))
    return Scene([told], faults)


BOUNDS: Final[dict[str, tuple[float, Callable[[Random, str, Plan], Scene]]]] = {
    "bounded subscription": (0.12, bounded_subscription),
}
"""As LATER of `drawn_scenes.py`."""


def with_bounds(plan: Plan, seed: int) -> Plan:
    """The plan with those scenes that the seed has."""
    return with_scenes(plan, BOUNDS, SeedTree(seed).child("swarm").child("bounds"))


def overflowing_subscription(random: Random, node: str, plan: Plan) -> Scene:
    """One that has dead letters, or a bound of bytes, or both, at a node that ends now and then or has a poor
    disk."""
    timed = any(str(told.get("name", "")).startswith(QUIET) for told in plan.workloads)
    if timed or fails(plan, node) or node in renewed_in(plan):
        return Scene()
    told: dict[str, Any] = {"kind": "bounded", "node": node, "queue": "topic/overflowing", "name": "overflowing"}
    told |= {"bound": random.choice((1, 3, 10)), "messages": in_time(plan, random.choice((12, 40)))}
    told |= {"rounds": random.choice((2, 4)), "credit": random.choice((1, 5, 50))}
    told |= {"dies": random.random() < 0.7, "bytes_max": random.choice((0, 1_000, 3_000))}
    told |= {"size": random.choice((100, 400))}
    faults = random.choice((node_ends(random, node, plan, 2), poor_disk(random, node, 5.0), _refusals(random, node)))
    return Scene([told], faults)


def _refusals(random: Random, node: str) -> list[Fault]:
    """The disk refuses every few commits of the first rounds, those that have dead letters among them."""
    moments = sorted(round(random.uniform(0.05, 12.0), 6) for _ in range(40))
    return [Fault(kind="refusing-disk", at=at, node=node, seconds=0.05) for at in moments]


OVERFLOWS: Final[dict[str, tuple[float, Callable[[Random, str, Plan], Scene]]]] = {
    "overflowing subscription": (0.12, overflowing_subscription),
}
"""As BOUNDS."""


def with_overflows(plan: Plan, seed: int) -> Plan:
    """The plan with those scenes that the seed has."""
    return with_scenes(plan, OVERFLOWS, SeedTree(seed).child("swarm").child("overflows"))


def idle_subscription(random: Random, node: str, plan: Plan) -> Scene:
    """One that ends a time after its last link, at a node that ends or cuts its clients now and then, or has a poor
    disk."""
    timed = any(str(told.get("name", "")).startswith(QUIET) for told in plan.workloads)
    if timed or is_guessed_at(plan, node) or fails(plan, node) or node in renewed_in(plan):
        return Scene()
    told: dict[str, Any] = {"kind": "idle", "node": node, "queue": "topic/idle", "name": "idle"}
    told |= {"idle_s": random.choice((2, 4)), "rounds": random.choice((2, 3)), "visits": random.choice((2, 5))}
    told |= {"messages": in_time(plan, random.choice((1, 6))), "credit": random.choice((1, 10))}
    faults = random.choice(([], node_ends(random, node, plan, 2), poor_disk(random, node, 5.0)))
    return Scene([told], faults)


IDLE: Final[dict[str, tuple[float, Callable[[Random, str, Plan], Scene]]]] = {
    "idle subscription": (0.1, idle_subscription),
}
"""As BOUNDS."""


def with_idle(plan: Plan, seed: int) -> Plan:
    """The plan with those scenes that the seed has."""
    return with_scenes(plan, IDLE, SeedTree(seed).child("swarm").child("idle"))
