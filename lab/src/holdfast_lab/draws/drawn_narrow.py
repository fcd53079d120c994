"""Consumers that accept small messages only, and large messages among those of their queue, in a share of the seeds.

Rules of this file: drawn last, from a stream of its own, so that nothing else of a seed changes (docs/adr/0053).
"""

from collections.abc import Callable
from random import Random
from typing import Any, Final

from holdfast.settings.queues import QueueConfig
from holdfast_lab.base.contents import EVERYTHING
from holdfast_lab.base.seed_tree import SeedTree
from holdfast_lab.draws.drawn_clients import fails, is_guessed_at
from holdfast_lab.draws.drawn_congestion import QUIET
from holdfast_lab.draws.drawn_scenes import Scene, node_ends, poor_disk, renewed_in, takes_from, with_scenes
from holdfast_lab.plan.plan import Plan

QUEUE: Final = "narrowed"
BYTES_MAX: Final = 600
DELIVERIES_MAX: Final = 3
MANY: Final = 20
"""Large ones, of which all but the first few wait for the one consumer that takes them."""
FOR_OTHERS_BOUNDS: Final = ("broker.cursors.matches:HITS_MAX", "broker.cursors.looking:FOR_OTHERS_MAX")
"""Of messages that wait for a consumer that can have them: in other queues, and in those that sort."""
ASIDE_BOUND: Final = "broker.cursors.exclusions:ASIDE_MAX"
"""The same in a queue that does not sort, of what those without selectors cannot have."""
CALM: Final = frozenset({"slow-disk", "refusing-disk", "full-disk", "clock-step", "purge", "ignores-rate"})
"""Faults of a node under which no link of its clients ends."""


def narrow(random: Random, node: str, plan: Plan) -> Scene:
    """Small and large messages for consumers that accept only the small ones; in most seeds no consumer accepts the
    large ones, in some one does, and in some of these it comes and goes. Most of those have selectors, it alone or all
    of them, or a queue that sorts, and a node keeps only one or three large ones apart. Where no link ends but by the
    node's own choice, most queues have a `deliveries_max`; where links end, some do, and of what becomes a dead letter
    there only large ones that nobody accepts are judged."""
    places = [name for name in plan.topology.nodes if _has_a_place(plan, name)]
    calm = [name for name in places if _is_calm(plan, name)] if random.random() < 0.8 else []
    if not places:
        return Scene()
    node = random.choice(calm or ([node] if node in places else places))
    until_s = min(8.0, plan.safety_s)
    faults = poor_disk(random, node, until_s) if random.random() < 0.5 else []
    if not calm and random.random() < 0.7:
        faults += node_ends(random, node, plan, random.choice((1, 3)))
    is_slow = random.random() < 0.5
    sends: list[dict[str, Any]] = []
    for kind, count, size in (
        ("small", random.choice((30, 80)), random.choice((12, 100))),
        ("large", random.choice((2, 6)), random.choice((1_500, 6_000))),
    ):
        told = {"messages": count, "size": size, "rate": round(count / until_s, 3) if is_slow else 0.0}
        sends.append({"kind": "publish", "node": node, "address": f"{QUEUE}@{node}", "name": f"{QUEUE}-{kind}", **told})
    wide = random.random() < 0.3
    takes: dict[str, Any] = {"kind": "narrow", "node": node, "queue": QUEUE, "bytes_max": BYTES_MAX, "name": QUEUE}
    takes |= {"messages": sum(told["messages"] for told in sends), "consumers": random.choice((1, 1, 3))}
    takes |= {
        "credit": random.choice((1, 5, 50)),
        "think_s": random.choice((0.0, 0.05, 0.3)),
        "wide": wide and bool(calm),
    }
    sorts = random.random() < 0.3
    others = [
        takes_from(
            node, QUEUE, credit=random.choice((1, 20)), think_s=random.choice((0.05, 0.2)), name=f"{QUEUE}-wide",
            sorts=sorts,
        )
    ] if wide else []  # fmt: skip
    most = DELIVERIES_MAX if calm and random.random() < 0.8 else None
    if others and random.random() < 0.5:
        others[0]["stays"], takes["wide"], most = random.choice((1, 5)), False, None  # what it holds then has failed
    knobs: dict[str, int] = {}
    if wide and not sorts and random.random() < 0.8:
        others[0]["selectors"] = [EVERYTHING]
        if random.random() < 0.5:
            takes["selector"] = EVERYTHING
    if wide and random.random() < 0.8:
        bound = FOR_OTHERS_BOUNDS[sorts] if sorts or takes.get("selector") else ASIDE_BOUND
        knobs[bound] = random.choice((1, 3))
        sends[1]["messages"] = MANY
        takes["messages"] = sum(told["messages"] for told in sends)
        others[0] |= {"credit": 1, "think_s": 0.2}
    if most is None and random.random() < 0.5:  # then whatever ends a link or the node counts
        most, takes["fails"], takes["alone"] = random.choice((1, DELIVERIES_MAX)), True, not others
    queue = QueueConfig(name=QUEUE, order="none", deliveries_max=most, priorities=sorts)
    return Scene([*sends, takes, *others], faults, [(node, queue)], knobs=knobs)


def _has_a_place(plan: Plan, node: str) -> bool:
    lies = any(fault.kind == "lying-peer" and fault.node == node for fault in plan.faults)
    timed = any(str(told.get("name", "")).startswith(QUIET) for told in plan.workloads)  # more load would delay it
    apart = {*plan.topology.takes, *plan.topology.access, *renewed_in(plan)}
    return not (node in apart or lies or timed or fails(plan, node) or is_guessed_at(plan, node))


def _is_calm(plan: Plan, node: str) -> bool:
    return all(fault.kind in CALM for fault in plan.faults if fault.node == node)


NARROW: Final[dict[str, tuple[float, Callable[[Random, str, Plan], Scene]]]] = {"narrow": (0.12, narrow)}
"""As LATER of `drawn_scenes.py`."""


def with_narrow(plan: Plan, seed: int) -> Plan:
    """The plan with such consumers, if the seed has them."""
    return with_scenes(plan, NARROW, SeedTree(seed).child("swarm").child("narrow"))
