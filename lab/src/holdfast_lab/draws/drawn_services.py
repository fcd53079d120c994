"""Names of services that are changed while others send to them, and links that copy from a given place on, in a share
of the seeds.

Rules of this file: drawn after all else, each scene from a stream of its own, so that nothing else of a seed changes
(docs/adr/0053).
"""

from collections.abc import Callable
from random import Random
from typing import Any, Final

from holdfast.settings.queues import QueueConfig
from holdfast_lab.base.seed_tree import SeedTree
from holdfast_lab.draws.drawn_clients import fails, is_guessed_at, peers
from holdfast_lab.draws.drawn_congestion import QUIET
from holdfast_lab.draws.drawn_scenes import Scene, in_time, node_ends, poor_disk, renewed_in, with_scenes
from holdfast_lab.plan.plan import Plan


def _has_no_place(node: str, plan: Plan) -> bool:
    timed = any(str(told.get("name", "")).startswith(QUIET) for told in plan.workloads)  # more load would delay it
    return timed or fails(plan, node) or bool(renewed_in(plan))


def services(random: Random, node: str, plan: Plan) -> Scene:
    """A name that means this queue now and that queue then, here or at the next node, or nothing."""
    if _has_no_place(node, plan):
        return Scene()
    messages = in_time(plan, 120)
    addresses = ["service-0", "service-1", *(f"service-2@{name}" for name in peers(plan, node)[:1])]
    told: dict[str, Any] = {"kind": "services", "node": node, "addresses": addresses, "messages": messages}
    told |= {"rate": round(messages / plan.safety_s, 3), "size": random.choice((12, 200, 3_000))}
    told |= {
        "changes": random.choice((8, 20)),
        "pause_s": random.choice((0.1, 0.5)),
        "life_s": random.choice((0.3, 2.0)),
    }
    return Scene([told], _trouble(random, node, plan))


def copied(random: Random, node: str, plan: Plan) -> Scene:
    """Links that copy a queue from its first message, the next one or a sequence on, and are stopped meanwhile."""
    if _has_no_place(node, plan):
        return Scene()
    messages = in_time(plan, 100)
    sends: dict[str, Any] = {"kind": "publish", "node": node, "address": f"copied@{node}", "messages": messages}
    sends |= {"rate": round(messages / plan.safety_s, 3), "producers": 1, "name": "copied-in"}
    sends |= {"size": random.choice((12, 200, 3_000))}
    copies: dict[str, Any] = {"kind": "copied", "node": node, "queue": "copied", "name": "copied-to"}
    copies |= {"rounds": random.choice((2, 4)), "pause_s": random.choice((0.2, 1.0)), "credit": random.choice((1, 20))}
    return Scene([sends, copies], _trouble(random, node, plan))


def _trouble(random: Random, node: str, plan: Plan) -> list[Any]:
    """Ends of the node, a poor disk, or both."""
    faults = node_ends(random, node, plan, random.choice((0, 2, 4)))
    return faults + (poor_disk(random, node, min(8.0, plan.safety_s)) if random.random() < 0.6 else [])


SERVICES: Final[dict[str, tuple[float, Callable[[Random, str, Plan], Scene]]]] = {
    "services": (0.1, services),
    "copied from a place on": (0.1, copied),
}
"""As LATER of `drawn_scenes.py`."""


def with_services(plan: Plan, seed: int) -> Plan:
    """The plan with those scenes that the seed has."""
    return with_scenes(plan, SERVICES, SeedTree(seed).child("swarm").child("services"))


def services_apart(random: Random, node: str, plan: Plan) -> Scene:
    """One name in two virtual hosts of a node, which means one thing here and another there. Not where a node has
    rules: all its users are in the default host, and may enter no other."""
    topology = plan.topology
    if _has_no_place(node, plan) or is_guessed_at(plan, node) or topology.hosts(node) or node in topology.access:
        return Scene()
    scene = Scene([], _trouble(random, node, plan))
    for host in ("", "acme"):
        messages = in_time(plan, 60)
        told: dict[str, Any] = {"kind": "services", "node": node, "vhost": host, "called": "either"}
        told |= {"addresses": ["either-0", "either-1"], "name": f"{host or 'default'}-either", "messages": messages}
        told |= {"rate": round(messages / plan.safety_s, 3), "size": random.choice((12, 200)), "changes": 8}
        told |= {"pause_s": random.choice((0.1, 0.5)), "life_s": random.choice((0.3, 2.0))}
        scene.workloads.append(told)
        scene.queues += [(node, QueueConfig(name=name, vhost=host, order="none")) for name in told["addresses"]]
    return scene


APART: Final[dict[str, tuple[float, Callable[[Random, str, Plan], Scene]]]] = {"services apart": (0.08, services_apart)}
"""As SERVICES."""


def with_services_apart(plan: Plan, seed: int) -> Plan:
    """The plan with those scenes that the seed has."""
    return with_scenes(plan, APART, SeedTree(seed).child("swarm").child("services apart"))
