"""A broker that is no node, which a node sends messages to and fetches some from, in a share of the seeds.

Rules of this file: drawn after all else, from a stream of its own, so that nothing else of a seed changes
(docs/adr/0053).
"""

from dataclasses import replace
from typing import Any, Final

from holdfast.settings.queues import QueueConfig
from holdfast_lab.base.seed_tree import SeedTree
from holdfast_lab.draws.drawn_clients import fails
from holdfast_lab.draws.drawn_congestion import QUIET
from holdfast_lab.draws.drawn_scenes import node_ends, poor_disk, renewed_in, takes_from
from holdfast_lab.plan.networks import BrokerShape
from holdfast_lab.plan.plan import Plan

SHARE: Final = 0.12
BROKER: Final = "elsewhere"
SENT: Final = ("remote-0", "remote-1")
"""The addresses there."""
FURTHER: Final = "remote-further"
FETCHED: Final = "remote-fetched"
LONG: Final = "remote-" + "long-" * 30
"""An address there that fits the smallest frame, and not twice."""


def with_remotes(plan: Plan, seed: int) -> Plan:
    """The plan with such a broker, if the seed has one."""
    random = SeedTree(seed).child("swarm").stream("remotes")
    lies = {fault.node for fault in plan.faults if fault.kind == "lie"}
    apart = {*plan.topology.takes, *plan.topology.access, *lies}
    nodes = [name for name in plan.topology.nodes if name not in apart and not fails(plan, name)]
    timed = any(str(told.get("name", "")).startswith(QUIET) for told in plan.workloads)  # more load would delay it
    if random.random() >= SHARE or not nodes or timed or renewed_in(plan):
        return plan
    node, messages = random.choice(nodes), random.choice((30, 100))
    shape = BrokerShape(
        name=BROKER, returns=random.choice((0.0, 0.02, 0.1)), rejects=random.choice((0.0, 0.05)),
        cuts=random.choice((0, 5, 20)), lasts_s=random.choice((0.2, 1.0)), credit=random.choice((1, 20)),
        delay_s=random.choice((0.002, 0.05)), offers=random.choice((0, 40)), size=random.choice((12, 200, 3_000)),
        fetched=FETCHED,
    )  # fmt: skip
    rate = random.choice((0.0, round(messages / plan.safety_s, 3)))
    workloads: list[dict[str, Any]] = [
        {
            "kind": "publish", "node": node, "address": f"{address}@{BROKER}", "messages": messages, "producers": 1,
            "size": random.choice((12, 200, 6_000)), "rate": rate, "in_doubt": 50, "name": f"{address}-in",
        }
        for address in SENT
    ]  # fmt: skip
    queues = dict(plan.topology.queues)
    if shape.offers:
        workloads.append(takes_from(node, FETCHED))
        queue = QueueConfig(name=FETCHED, order="none", messages_max=random.choice((None, 5)))
        queues[node] = (*queues.get(node, ()), queue)
    faults = node_ends(random, node, plan, random.choice((0, 2, 4)))
    faults += poor_disk(random, node, min(8.0, plan.safety_s)) if random.random() < 0.6 else []
    corners = SeedTree(seed).child("swarm").stream("remotes/corners")
    if corners.random() < 0.4:
        shape = replace(shape, frame_bytes=512)
        workloads.append(
            {**workloads[0], "address": f"{LONG}@{BROKER}", "messages": 10, "rate": 0.0, "name": "long-in"}
        )
    if corners.random() < 0.4:
        shape = replace(shape, begins=True)
    if corners.random() < 0.5:  # a queue of the node, over its restarts
        told = {"address": f"{BROKER}@{node}", "name": f"{BROKER}-in", "rate": round(messages / plan.safety_s, 3)}
        workloads += [{**workloads[0], **told}, takes_from(node, BROKER, think_s=0.05)]
        faults += node_ends(corners, node, plan, corners.choice((1, 3)))
    places = SeedTree(seed).child("swarm").stream("remotes/places")
    if places.random() < 0.5:
        shape = replace(shape, sessions=places.choice((1, 2, 3)), session_links=places.choice((1, 2, 3)))
    limits = SeedTree(seed).child("swarm").stream("remotes/limits")
    if limits.random() < 0.5:  # it takes less than it says
        shape = replace(shape, excess=limits.choice(("link", "session", "connection")))
        if limits.random() < 0.5:
            shape = replace(shape, links_max=limits.choice((1, 2)), sessions=256, session_links=1_024)
        else:
            shape = replace(shape, sessions_max=limits.choice((1, 2)), sessions=8, session_links=1, begins=False)
        told = {"address": f"{FURTHER}@{BROKER}", "name": f"{FURTHER}-in", "messages": 10, "rate": 0.0}
        workloads.append({**workloads[0], **told})
    topology = replace(plan.topology, brokers={node: (shape,)}, queues=queues)
    found = sorted((*plan.faults, *faults), key=lambda fault: fault.at)
    return replace(plan, topology=topology, workloads=(*plan.workloads, *workloads), faults=tuple(found))
