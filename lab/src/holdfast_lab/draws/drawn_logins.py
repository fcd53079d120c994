"""Networks whose links lead to other machines, so that neighbours log in by SCRAM at each connect.

Rules of this file: from a stream of its own, so that nothing else of a seed changes (docs/adr/0053). Not where there
are too many connects: each costs some milliseconds of real time.
"""

from dataclasses import replace
from typing import Final

from holdfast_lab.base.seed_tree import SeedTree
from holdfast_lab.plan.plan import Plan

LOGINS_SHARE: Final = 0.045
LINKS_MAX: Final = 6


def with_logins(plan: Plan, seed: int) -> Plan:
    """The plan with logins between neighbours, for a share of seeds."""
    random = SeedTree(seed).child("swarm").stream("links to other machines")
    if random.random() >= LOGINS_SHARE or len(plan.topology.links) > LINKS_MAX:
        return plan
    return replace(plan, topology=replace(plan.topology, logins=True))
