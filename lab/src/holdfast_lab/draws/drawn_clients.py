"""Clients of the protocol alone, which do what the client library has no words for, in a share of the seeds.

Rules of this file: drawn last, each scene from a stream of its own, so that nothing else of a seed changes
(docs/adr/0057). A scene stays off nodes whose own functions raise: what a turn had of a peer that ends by it may stay.
"""

from collections.abc import Callable
from random import Random
from typing import Any, Final

from holdfast.settings.queues import QueueConfig
from holdfast_lab.base.fences import QUEUES
from holdfast_lab.base.seed_tree import SeedTree
from holdfast_lab.draws.drawn_scenes import Scene, gone_back, in_time, poor_disk, takes_from, with_scenes
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.plan import Plan

LARGE_BYTES: Final = 5_000
"""A message of twice such `stream_bytes` comes in parts."""


def presettled(random: Random, node: str, plan: Plan) -> Scene:
    """A producer that settles what it sends, to a queue that is full now and then, here or at the next node."""
    if fails(plan, node):
        return Scene()
    where = random.choice([node, node, *peers(plan, node)])
    small = QueueConfig(name="presettled", messages_max=random.choice((8, 30)), when_full="block")
    messages = in_time(plan, 80) if where != node else 80
    told = {"messages": messages, "rate": random.choice((0.0, 0.0, round(messages / plan.safety_s, 3)))}
    told |= {"size": random.choice((12, 200, 6_000) if where == node else (12, 200))}
    told |= {"life_s": random.choice((0.1, 1.0)), "producers": random.choice((3, 5))}
    sends = {"kind": "presettled", "node": node, "address": f"presettled@{where}", "name": "presettled", **told}
    takes = takes_from(where, "presettled", think_s=random.choice((0.0, 0.01)))
    return Scene([sends, takes], poor_disk(random, node, min(8.0, plan.safety_s)), [(where, small)])


def addressed(random: Random, node: str, plan: Plan) -> Scene:
    """A program with one link for all addresses, one of them a queue that is full now and then."""
    return _addressed(random, node, plan, "addressed", random.choice((12, 200, 3_000)))


def in_parts(random: Random, node: str, plan: Plan) -> Scene:
    """The same with large messages alone, in seeds in which a few kilobytes are one."""
    parts_bytes = plan.topology.limits.stream_bytes
    return _addressed(random, node, plan, "in-parts", 2 * parts_bytes) if parts_bytes < LARGE_BYTES else Scene()


def _addressed(random: Random, node: str, plan: Plan, name: str, size: int) -> Scene:
    if fails(plan, node):
        return Scene()
    places = [(f"{name}-0", node), (f"{name}-1", node)]
    if size < LARGE_BYTES:
        places += [(f"{name}-2", other) for other in peers(plan, node)[:1]]
    small = QueueConfig(name=f"{name}-1", messages_max=random.choice((5, 1_000)), when_full="block", order="none")
    told: dict[str, Any] = {"messages": in_time(plan, 200), "size": size, "life_s": random.choice((0.5, 3.0))}
    told["rate"] = random.choice((0.0, round(200 / plan.safety_s, 3)))
    addresses = [f"{queue}@{at}" for queue, at in places]
    sends = {"kind": "addressed", "node": node, "addresses": addresses, "name": name, **told}
    takes = [takes_from(at, queue, think_s=random.choice((0.0, 0.01))) for queue, at in places]
    return Scene([sends, *takes], poor_disk(random, node, min(8.0, plan.safety_s)), [(node, small)])


def dynamic(random: Random, node: str, plan: Plan) -> Scene:
    """Dynamic nodes that are made, used and left, while connections break and their node ends."""
    if fails(plan, node):
        return Scene()
    told = {"rounds": random.choice((20, 40)), "size": random.choice((12, 200, 3_000)), "name": "dynamic"}
    told |= {"messages": random.choice((5, 30)), "credit": random.choice((10, 30))}
    # Who went back to an older store does not die before it is told.
    lives_on = node in gone_back(plan)
    faults = []
    for _ in range(random.choice((0, 3, 6))):
        kind = random.choice(("cut-clients", "cut-clients", "cut-clients" if lives_on else "crash"))
        seconds = 0.1 if kind == "crash" else 0.0
        at = round(random.uniform(0.2, plan.safety_s), 6)
        faults.append(Fault(kind=kind, at=at, node=node, seconds=seconds))
    return Scene([{"kind": "dynamic", "node": node, **told}], faults)


def guarded(random: Random, node: str, plan: Plan) -> Scene:
    """Clients who may use a queue at times only, while their connections break and commits are refused."""
    if fails(plan, node):
        return Scene()
    told = {"messages": 150, "size": random.choice((12, 200, 3_000)), "life_s": random.choice((0.5, 3.0))}
    told |= {"rate": random.choice((0.0, round(150 / plan.safety_s, 3))), "stays": random.choice((1, 20))}
    faults = poor_disk(random, node, min(8.0, plan.safety_s))
    for _ in range(random.choice((3, 8))):
        at = round(random.uniform(0.0, min(8.0, plan.safety_s)), 6)
        faults.append(Fault(kind="forbid", at=at, node=node, seconds=random.choice((0.05, 0.5, 2.0))))
    for _ in range(random.choice((0, 3))):
        faults.append(Fault(kind="cut-clients", at=round(random.uniform(0.2, plan.safety_s), 6), node=node))
    return Scene([{"kind": "guarded", "node": node, "name": "guarded", **told}], faults)


def fenced(random: Random, node: str, plan: Plan) -> Scene:
    """Users of whom each may do something else with the same queues, while connections break and commits are
    refused."""
    if fails(plan, node):
        return Scene()
    told = {"messages": 150, "size": random.choice((12, 200, 3_000)), "life_s": random.choice((0.5, 3.0))}
    told |= {"rate": random.choice((0.0, round(150 / plan.safety_s, 3)))}
    faults = poor_disk(random, node, min(8.0, plan.safety_s))
    for _ in range(random.choice((0, 3))):
        faults.append(Fault(kind="cut-clients", at=round(random.uniform(0.2, plan.safety_s), 6), node=node))
    queues = [(node, QueueConfig(name=name)) for name in QUEUES]
    return Scene([{"kind": "fenced", "node": node, "name": "fenced", **told}], faults, queues)


def fails(plan: Plan, node: str) -> bool:
    """Whether its own functions raise there: what a turn had of a peer that ends by it stays, or does not."""
    return any(fault.kind == "defect" and fault.node == node for fault in plan.faults)


def is_guessed_at(plan: Plan, node: str) -> bool:
    """Whether strangers guess passwords there: a node that starts again has forgotten who failed."""
    return any(told["kind"] == "guessing" and told["node"] == node for told in plan.workloads)


def peers(plan: Plan, node: str) -> list[str]:
    """The next nodes, where all there is to know of the way is known: whatever is sent there comes."""
    if plan.topology.takes or plan.topology.routing is not None:
        return []
    return [name for name in plan.topology.neighbours(node) if not fails(plan, name)]


CLIENTS: Final[dict[str, tuple[float, Callable[[Random, str, Plan], Scene]]]] = {
    "presettled": (0.1, presettled),
    "addressed": (0.1, addressed),
    "in parts": (1.0, in_parts),
    "dynamic": (0.1, dynamic),
    "rights that change": (0.06, guarded),
    "users who may not": (0.06, fenced),
}
"""As LATER of `drawn_scenes.py`."""


def with_clients(plan: Plan, seed: int) -> Plan:
    """The plan with those scenes that the seed has."""
    return with_scenes(plan, CLIENTS, SeedTree(seed).child("swarm").child("clients"))
