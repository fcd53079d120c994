"""Configurations that change while a node runs: the rules of who may do what, and a neighbour that leaves and comes
back, for which mail waits meanwhile.

Rules of this file: drawn after all else, each from a stream of its own, so that nothing else of a seed changes
(docs/adr/0053). Neighbours leave only where routes are given; with a topology `drawn_topologies.py` changes links.
"""

from dataclasses import replace
from random import Random
from typing import Any, Final

from holdfast.settings.queues import QueueConfig
from holdfast_lab.base.seed_tree import SeedTree
from holdfast_lab.draws.drawn_clients import fails, is_guessed_at
from holdfast_lab.draws.drawn_congestion import QUIET
from holdfast_lab.draws.drawn_scenes import in_time, node_ends, poor_disk, renewed_in, takes_from
from holdfast_lab.draws.drawn_static import NODE_NAMES
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.networks import Link, LinkShape
from holdfast_lab.plan.plan import Plan

RULES_SHARE: Final = 0.8
"""Of the seeds with a node that has rules of its own."""
LEAVES_SHARE: Final = 0.1
QUEUE: Final = "departed"


def with_changed_rules(plan: Plan, seed: int) -> Plan:
    random = SeedTree(seed).child("swarm").stream("changed rules")
    if random.random() >= RULES_SHARE:
        return plan
    faults = [*plan.faults]
    for node in plan.topology.access:
        for _ in range(random.choice((1, 3, 6))):
            faults.append(Fault(kind="change-rules", at=round(random.uniform(0.2, plan.safety_s), 6), node=node))
    return replace(plan, faults=_sorted(faults))


def with_departures(plan: Plan, seed: int) -> Plan:
    """A node is added whose one neighbour does not know it for a while, again and again; mail for it is ended there."""
    random = SeedTree(seed).child("swarm").stream("departures")
    topology = plan.topology
    timed = any(str(told.get("name", "")).startswith(QUIET) for told in plan.workloads)  # more load would delay it
    if random.random() >= LEAVES_SHARE or topology.routing is not None or topology.takes or timed:
        return plan
    renewed = renewed_in(plan)
    nodes = [name for name in topology.nodes if not (name in renewed or fails(plan, name) or is_guessed_at(plan, name))]
    if not nodes or topology.crossing or topology.access or topology.pacing:
        return plan
    node, gone = random.choice(nodes), next(name for name in NODE_NAMES if name not in topology.nodes)
    shape = LinkShape(delay_s=random.choice((0.000_5, 0.02)))
    ends = (node, gone) if random.random() < 0.5 else (gone, node)
    link = Link(one=ends[0], other=ends[1], there=shape)
    near = [name for name in topology.neighbours(node) if name not in renewed and not fails(plan, name)]
    queue = QueueConfig(name=QUEUE, order=random.choice(("strict", "strict", "bounded")), order_wait_s=5.0)
    nodes_now, links = (*topology.nodes, gone), (*topology.links, link)
    made = replace(topology, nodes=nodes_now, links=links, queues={**topology.queues, gone: (queue,)})
    workloads = [*plan.workloads, takes_from(gone, QUEUE)]
    for sender in {node: None, random.choice([node, *near]): None}:
        workloads.append(_sends(random, plan, sender, f"{QUEUE}@{gone}"))
    workloads.append({
        "kind": "departed", "node": node, "gone": gone, "name": "departing", "pause_s": random.choice((0.1, 0.5)),
    })  # fmt: skip
    faults = [*plan.faults, *_trouble(random, plan, node, gone)]
    return replace(plan, topology=made, workloads=tuple(workloads), faults=_sorted(faults))


def _sends(random: Random, plan: Plan, node: str, address: str) -> dict[str, Any]:
    messages = in_time(plan, 100)
    sends: dict[str, Any] = {"kind": "publish", "node": node, "address": address, "messages": messages}
    sends |= {"rate": round(messages / plan.safety_s, 3), "producers": 1, "size": random.choice((12, 200))}
    return {**sends, "name": f"{QUEUE}-{node}-in"}


def _trouble(random: Random, plan: Plan, node: str, gone: str) -> list[Fault]:
    """The line is down for a while before the neighbour leaves, so that mail waits for it then."""
    faults = node_ends(random, node, plan, random.choice((0, 0, 2)))
    faults += poor_disk(random, node, min(8.0, plan.safety_s)) if random.random() < 0.5 else []
    for _ in range(random.choice((1, 3))):
        at, away_s = random.uniform(0.5, plan.safety_s), random.choice((0.5, 3.0))
        down = Fault(kind="partition", at=round(max(0.0, at - 0.5), 6), link=(node, gone), seconds=0.5 + away_s)
        faults += [down, Fault(kind="depart", at=round(at, 6), link=(node, gone), seconds=away_s)]
    return faults


def _sorted(faults: list[Fault]) -> tuple[Fault, ...]:
    return tuple(sorted(faults, key=lambda fault: fault.at))
