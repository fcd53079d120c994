"""Nodes that refuse links to clients who have just lost theirs, for a share of the seeds.

Rules of this file: from a stream of its own, so that nothing else of a seed changes. What a client was not told of
before the cut is still in doubt while it is refused; the link that it gets at last goes on with that. Producers without
a name come first: nothing but their links' maps tells what is stored.
"""

from dataclasses import replace
from typing import Final

from holdfast_lab.base.seed_tree import SeedTree
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.plan import Plan

SHARE: Final = 0.15
"""Of the swarm's seeds, those with nodes that refuse links."""
STRIKES_MAX: Final = 3
FIRST_S: Final = 0.1
"""By then clients have begun to send."""
LAST_S: Final = 3.0
"""Most are done by then."""
AIMED_SHARE: Final = 0.5
"""Of the cuts, those that meet a commit: the outcomes of what it stores do not arrive."""
CUT_S: Final = 0.001
"""So long after a node begins to refuse, its clients lose their links."""


def with_refused_links(plan: Plan, seed: int) -> Plan:
    """The plan; in a share of the seeds a node that refuses links for some seconds, and cuts its clients then."""
    random = SeedTree(seed).child("swarm").stream("refused links")
    used = {told["node"]: None for told in plan.workloads if "node" in told}
    nameless = {told["node"]: None for told in plan.workloads if not told.get("named", True)}
    if random.random() >= SHARE or not used:
        return plan
    faults = [*plan.faults]
    for _ in range(random.randint(1, STRIKES_MAX)):
        node = random.choice(list(nameless or used))
        at = round(random.uniform(FIRST_S, LAST_S), 6)
        faults.append(Fault(kind="refusing-links", at=at, node=node, seconds=random.choice((0.05, 0.5, 2.0))))
        when = "a commit is under way" if random.random() < AIMED_SHARE else ""
        faults.append(Fault(kind="cut-clients", at=round(at + CUT_S, 6), node=node, when=when))
    return replace(plan, faults=tuple(sorted(faults, key=lambda fault: fault.at)))
