"""Strangers who guess passwords, where neighbours log in.

Rules of this file: drawn after all else, from a stream of its own, so that nothing else of a seed changes but that its
neighbours log in (docs/adr/0053). At a node without faults of its own: one that starts again has forgotten who failed.
"""

from dataclasses import replace
from typing import Any, Final

from holdfast_lab.base.seed_tree import SeedTree
from holdfast_lab.draws.drawn_logins import LINKS_MAX
from holdfast_lab.plan.plan import Plan

SHARE: Final = 0.25
"""Of the seeds with few links and a node without faults."""
UNTIL: Final = 0.9
"""They are gone after this share of the time in which faults strike."""


def with_guesses(plan: Plan, seed: int) -> Plan:
    """The plan with guessers, and logins to guess, for a share of seeds."""
    random = SeedTree(seed).child("swarm").stream("guesses")
    topology = plan.topology
    faulty = {fault.node for fault in plan.faults}
    nodes = [node for node in topology.nodes if node not in faulty and topology.neighbours(node)]
    if random.random() >= SHARE or not nodes or len(topology.links) > LINKS_MAX:
        return plan
    node = random.choice(nodes)
    told: dict[str, Any] = {
        "kind": "guessing",
        "node": node,
        "users": [topology.login_of(node, other) for other in topology.neighbours(node)],
        "clients": random.choice((1, 2)),
        "tries": random.choice((40, 120)),
        "seconds": round(plan.safety_s * UNTIL, 3),
        "pause_s": random.choice((0.01, 0.1)),
        "failures_max": topology.limits.login_failures_max,
        "retry_s": topology.limits.login_retry_s,
        "name": "guessing",
    }
    return replace(plan, topology=replace(topology, logins=True), workloads=(*plan.workloads, told))
