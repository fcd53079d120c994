"""Nodes that take up another configuration while they run.

Rules of this file: drawn after all else, from a stream of its own, so that nothing else of a seed changes
(docs/adr/0053). Only where routes are given: with a topology neighbours wait for a restart.
"""

from dataclasses import replace
from typing import Final

from holdfast_lab.base.seed_tree import SeedTree
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.moments import MOMENTS
from holdfast_lab.plan.plan import Plan

RELOADS_SHARE: Final = 0.15
RELOADS_MAX: Final = 3


def with_reloads(plan: Plan, seed: int) -> Plan:
    """The plan with reloads, for a share of seeds."""
    random = SeedTree(seed).child("swarm").stream("reloads")
    if random.random() >= RELOADS_SHARE or plan.topology.routing is not None:
        return plan
    faults = list(plan.faults)
    for _ in range(random.randint(1, RELOADS_MAX)):
        when = random.choice(("", *MOMENTS))
        node = random.choice(plan.topology.nodes)
        faults.append(Fault(kind="reload", at=round(random.uniform(0.0, plan.safety_s), 6), node=node, when=when))
    return replace(plan, faults=tuple(sorted(faults, key=lambda fault: fault.at)))
