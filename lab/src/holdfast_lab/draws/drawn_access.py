"""Nodes with rules and users of their own, in a share of the seeds: everybody logs in there, and the node itself
decides who may do what. And room for what transactions leave open.

Rules of this file: drawn after all else, from streams of its own, so that nothing else of a seed changes
(docs/adr/0053). Not where clients log in as others, or there are too many connects: each costs some milliseconds of
real time.
"""

from dataclasses import replace
from typing import Any, Final

from holdfast.settings.queues import QueueConfig
from holdfast_lab.base.fences import QUEUES, access_of
from holdfast_lab.base.seed_tree import SeedTree
from holdfast_lab.draws.drawn_clients import peers
from holdfast_lab.draws.drawn_logins import LINKS_MAX
from holdfast_lab.draws.drawn_scenes import in_time, renewed_in
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.plan import Plan

ACCESS_SHARE: Final = 0.1
STRANGERS: Final = frozenset({"hostile", "guessing", "guarded", "fenced", "apart"})
"""Workloads whose clients log in by themselves, or that need rights of their own."""

FRAME_LEAST: Final = 512
"""The smallest frame that AMQP allows."""
GAPS: Final = 64
"""Ranges of a producer's numbers where a transaction that is given up leaves some open: with fewer, all others may have
to wait for just its messages."""


def with_access(plan: Plan, seed: int) -> Plan:
    """The plan with rules at one node, for a share of seeds."""
    random = SeedTree(seed).child("swarm").stream("rules of a node's own")
    if random.random() >= ACCESS_SHARE or len(plan.topology.links) > LINKS_MAX or plan.topology.crossing:
        return plan
    topology = plan.topology
    node = random.choice(topology.nodes)
    away = next(iter(peers(plan, node)), None)
    kinds = {str(told["kind"]) for told in plan.workloads}
    if away is None or renewed_in(plan) or kinds & STRANGERS or topology.hosts(node) or node in topology.takes:
        return plan
    if any(fault.kind == "defect" and fault.node == node for fault in plan.faults):
        return plan
    dialled = {link.other for link in topology.links if link.one == node}
    accounts = [name if name in dialled else topology.login_of(node, name) for name in topology.neighbours(node)]
    access = access_of(random, accounts, away)
    queues = {**topology.queues, node: (*topology.queues.get(node, ()), *(QueueConfig(name=name) for name in QUEUES))}
    messages = in_time(plan, 150)
    told: dict[str, Any] = {"kind": "fenced", "node": node, "name": "fenced", "messages": messages, "away": away}
    told |= {"size": random.choice((12, 200, 3_000)), "life_s": random.choice((0.5, 3.0))}
    told |= {"rate": round(messages / plan.safety_s, 3)}
    faults = [*plan.faults]
    for _ in range(random.choice((0, 3))):
        faults.append(Fault(kind="cut-clients", at=round(random.uniform(0.2, plan.safety_s), 6), node=node))
    made = replace(topology, queues=queues, access={node: access}, logins=True)
    faults.sort(key=lambda fault: fault.at)
    return replace(plan, topology=made, workloads=(*plan.workloads, told), faults=tuple(faults))


def with_room_for_gaps(plan: Plan, seed: int) -> Plan:
    """The plan with enough ranges for its transactions."""
    topology = plan.topology
    if topology.limits.ranges_max >= GAPS or not any(told["kind"] == "transact" for told in plan.workloads):
        return plan
    return replace(plan, topology=replace(topology, limits=replace(topology.limits, ranges_max=GAPS)))


def with_short_names(plan: Plan, seed: int) -> Plan:
    """The plan with attaches of readers by sequence that fit into its frames."""
    if plan.topology.limits.frame_bytes_max > FRAME_LEAST:
        return plan
    workloads = [told | {"short": True} if told["kind"] == "subscription" else told for told in plan.workloads]
    return replace(plan, workloads=tuple(workloads))
