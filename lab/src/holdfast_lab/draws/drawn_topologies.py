"""Topology files that change while nodes run: a link is taken out for a while, or costs something else.

Rules of this file: drawn after all else, from a stream of its own, so that nothing else of a seed changes
(docs/adr/0053). Only where nodes compute their own routes; `drawn_reloads.py` is for the others.
"""

from dataclasses import replace
from typing import Final

from holdfast_lab.base.seed_tree import SeedTree
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.moments import MOMENTS
from holdfast_lab.plan.plan import Plan

CHANGES_SHARE: Final = 0.5
"""Of the seeds whose nodes compute their own routes."""
CHANGES_MAX: Final = 6
CHANGED_S: Final = (0.2, 10.0)
COSTS: Final = (0.0, 0.0, 0.25, 4.0)
"""Times its cost; 0: the file has the link no more."""


def with_topologies(plan: Plan, seed: int) -> Plan:
    """The plan with changes of topology files, for a share of seeds."""
    random = SeedTree(seed).child("swarm").stream("topologies")
    if random.random() >= CHANGES_SHARE or plan.topology.routing is None:
        return plan
    faults = list(plan.faults)
    for _ in range(random.randint(1, CHANGES_MAX)):
        link = random.choice(plan.topology.links)
        faults.append(
            Fault(
                kind="change-topology",
                at=round(random.uniform(0.0, plan.safety_s), 6),
                link=random.choice(((link.one, link.other), (link.other, link.one))),
                seconds=round(random.uniform(*CHANGED_S), 3),
                amount=random.choice(COSTS),
                when=random.choice(("", "", *MOMENTS)),
            )
        )
    return replace(plan, faults=tuple(sorted(faults, key=lambda fault: fault.at)))
