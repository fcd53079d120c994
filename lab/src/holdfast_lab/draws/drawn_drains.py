"""Nodes that are drained for a while: their clients are refused, and others go round them.

Rules of this file: drawn after all else, from a stream of its own, so that nothing else of a seed changes
(docs/adr/0053).
"""

from dataclasses import replace
from typing import Final

from holdfast_lab.base.seed_tree import SeedTree
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.moments import MOMENTS
from holdfast_lab.plan.plan import Plan

DRAINS_SHARE: Final = 0.15
DRAINS_MAX: Final = 3
DRAINED_S: Final = (0.5, 10.0)


def with_drains(plan: Plan, seed: int) -> Plan:
    """The plan with drains, for a share of seeds."""
    random = SeedTree(seed).child("swarm").stream("drains")
    if random.random() >= DRAINS_SHARE:
        return plan
    faults = list(plan.faults)
    for _ in range(random.randint(1, DRAINS_MAX)):
        faults.append(
            Fault(
                kind="drain",
                at=round(random.uniform(0.0, plan.safety_s), 6),
                node=random.choice(plan.topology.nodes),
                seconds=round(random.uniform(*DRAINED_S), 3),
                when=random.choice(("", *MOMENTS)),
            )
        )
    return replace(plan, faults=tuple(sorted(faults, key=lambda fault: fault.at)))
