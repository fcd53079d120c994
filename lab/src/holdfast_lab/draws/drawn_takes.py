"""Nodes that take smaller messages than their neighbours do, for a share of the seeds (docs/adr/0052).

Rules of this file: from a stream of its own, so that nothing else of a seed changes. A node is chosen at which no
program sends, one to which some do if there is any: what is too large on its way becomes a dead letter, and what a
program sends is rejected, which none expects.
"""

from dataclasses import replace
from random import Random
from typing import Final

from holdfast_lab.base.seed_tree import SeedTree
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.networks import Topology
from holdfast_lab.plan.plan import Plan

TAKES_SHARE: Final = 0.12
TAKES: Final = (40, 150, 400, 1_500)
"""Bytes, beside what custody says: of most messages of a run, or of its larger ones."""
FULL_SHARE: Final = 0.5
"""Of those seeds, the ones in which a neighbour has no room for dead letters for a while."""
MOVED_COUNT: Final = "custody.dead_lettering:MOVED_COUNT"
FEW_SHARE: Final = 0.7
"""And those in which a commit makes few dead letters: the others wait for the next."""
QUIET: Final = frozenset({"consume", "slow-consumer", "subscription", "browse"})
"""Workloads that send nothing."""
REFUSAL_TOLERANT: Final = QUIET | {"hostile", "guessing"}
"""Workloads that send nothing, or accept any refusal."""
TAKES_MOST: Final = 5_000
"""Less than what is to be too large for it (drawn_scenes.py)."""
BESIDE_BYTES: Final = 500
"""More than a message of a program has beside its body (base/contents.py)."""


def with_takes(plan: Plan, seed: int) -> Plan:
    """The plan, in a share of the seeds with a node that takes only small messages."""
    random = SeedTree(seed).child("swarm").stream("takes")
    if random.random() >= TAKES_SHARE:
        return plan
    topology = plan.topology
    sent = {told.get("node") for told in plan.workloads if told["kind"] not in QUIET}
    nodes = [name for name in topology.nodes if name not in sent and topology.neighbours(name)]
    sought = {str(told["address"]).rpartition("@")[2] for told in plan.workloads if "address" in told}
    nodes = [name for name in nodes if name in sought] or nodes
    if not nodes:
        return plan
    node = random.choice(nodes)
    made = replace(topology, takes={node: random.choice(TAKES)})
    faults = sorted((*plan.faults, *_without_room(random, topology, node)), key=lambda fault: fault.at)
    knobs = {**plan.knobs, MOVED_COUNT: 1} if random.random() < FEW_SHARE else plan.knobs
    return replace(plan, topology=made, faults=tuple(faults), knobs=knobs)


def with_takes_for_programs(plan: Plan, seed: int) -> Plan:
    """Raises the size limit of such a node to what workloads added by later draws send there; otherwise they would
    retry for ever."""
    takes = {node: max(size, min(TAKES_MOST, _sent_at(plan, node))) for node, size in plan.topology.takes.items()}
    return replace(plan, topology=replace(plan.topology, takes=takes))


def _sent_at(plan: Plan, node: str) -> int:
    """The bytes of what programs send at that node at most."""
    there = [told for told in plan.workloads if told["kind"] not in REFUSAL_TOLERANT]
    there = [told for told in there if told.get("node") == node or node in told.get("publishers", ())]
    return max((told.get("size", TAKES_MOST) + BESIDE_BYTES for told in there), default=0)


def _without_room(random: Random, topology: Topology, node: str) -> list[Fault]:
    """The disks of its neighbours, full from when something waits for the node until some time after it is back."""
    if random.random() >= FULL_SHARE:
        return []
    at = round(random.uniform(0.0, 1.0), 6)
    faults = [Fault(kind="crash", at=at, node=node, seconds=2.0)]
    for neighbour in topology.neighbours(node):
        full_at = round(at + random.uniform(0.2, 1.5), 6)
        faults.append(Fault(kind="full-disk", at=full_at, node=neighbour, seconds=5.0))
    return faults
