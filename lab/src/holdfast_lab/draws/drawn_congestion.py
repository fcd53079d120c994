"""Congestion that other draws do not reach: a neighbour of a root that ignores its rate for long, a queue in which
higher priorities fall silent while lower ones fill it (docs/adr/0077-room-by-priority.md), and a root that shares its
rate among virtual hosts.

Rules of this file: drawn last, each from a stream of its own, so that nothing else of a seed changes
(docs/adr/0053). Nothing is drawn for a seed that has a root already.
"""

from dataclasses import replace
from random import Random
from typing import Any, Final

from holdfast.pacing.choosing import NAMES
from holdfast.pacing.settings import PacingConfig
from holdfast.settings.queues import QueueConfig
from holdfast_lab.base.seed_tree import SeedTree
from holdfast_lab.draws.drawn_bursts import LINK_BYTES_PER_S
from holdfast_lab.draws.drawn_clients import fails
from holdfast_lab.draws.drawn_hosts import CROSSED
from holdfast_lab.draws.drawn_pacing import QUEUE, RATES, rate_needed
from holdfast_lab.draws.drawn_scenes import in_time, renewed_in, takes_from
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.plan import Plan

IGNORING_SHARE: Final = 0.4
"""Of the seeds, those with a client that ignores its rate, where the network has a place for it."""
DELAY_MAX_S: Final = 0.1
ROOT_RATE: Final = 30_000
"""Bytes a second, for each client: less than half of what the one sends, and enough for all of it to arrive."""
MESSAGES: Final = 900
PER_S: Final = 60.0
SIZE_BYTES: Final = 1_200
BEGINS_S: Final = 2.0
IGNORED_S: Final = 12.0
"""While it has something to send, and for longer than a root looks on; the run's faults last at least as long."""

QUIET_SHARE: Final = 0.05
"""Of the seeds, those with a queue in which higher priorities fall silent."""
QUIET: Final = "quiet"
QUIET_S: Final = 1.0
TURNS_MAX_S: Final = 3.0
"""Between two messages that its slowest consumer takes: longer than QUIET_S, so that only time can open the queue."""

HOSTS_SHARE: Final = 0.6
"""Of the seeds with messages of virtual hosts that cross between two nodes, those where one of these is a root."""


def with_congestion(plan: Plan, seed: int) -> Plan:
    seeds = SeedTree(seed).child("swarm")
    random = seeds.stream("ignores its rate for long")
    if random.random() < IGNORING_SHARE:
        plan = _with_ignoring(plan, random)
    random = seeds.stream("higher priorities fall silent")
    if random.random() < QUIET_SHARE:
        plan = _with_quiet(plan, random)
    random = seeds.stream("a root of several hosts")
    if random.random() < HOSTS_SHARE:
        plan = _with_hosts(plan, random)
    return plan


def _with_ignoring(plan: Plan, random: Random) -> Plan:
    """A root whose neighbour sends three times its rate; another client keeps to its own. No queue of the root is
    bounded: else its credit alone would bound what comes."""
    topology = plan.topology
    if topology.pacing or topology.takes or topology.routing is not None:
        return plan
    nodes = [name for name in topology.nodes if not fails(plan, name) and name not in renewed_in(plan)]
    bounded = {node for node, queues in topology.queues.items() for queue in queues if queue.bytes_max}
    pairs = [
        (root, near) for root in nodes if root not in bounded for near in topology.neighbours(root)
        if near in nodes and _carries(plan, root, near)
    ]  # fmt: skip
    if not pairs or plan.knobs:
        return plan
    root, near = random.choice(pairs)
    others = [name for name in nodes if name not in (root, near)]
    clients = [near, *([random.choice(others)] if others and random.random() < 0.5 else [])]
    pacing = {root: PacingConfig(rate=len(clients) * ROOT_RATE, policy="fixed", period_s=0.5)}
    pacing |= {client: PacingConfig(roots=(root,)) for client in clients}
    told = [_sends(client, root, much=client == near) for client in clients]
    fault = Fault(kind="ignores-rate", at=round(random.uniform(0.0, BEGINS_S), 6), node=near, seconds=IGNORED_S)
    return replace(
        plan,
        topology=replace(topology, pacing=pacing),
        workloads=(*plan.workloads, *told, takes_from(root, QUEUE)),
        faults=tuple(sorted((*plan.faults, fault), key=lambda fault: fault.at)),
        safety_s=max(plan.safety_s, BEGINS_S + IGNORED_S),
    )


def _carries(plan: Plan, one: str, other: str) -> bool:
    """Whether each link between them carries what the client sends, at once."""
    shapes = [shape for link in plan.topology.links if {link.one, link.other} == {one, other} for shape in link.shapes]
    return all(
        (shape.rate is None or shape.rate >= LINK_BYTES_PER_S) and shape.delay_s <= DELAY_MAX_S and not shape.loss
        for shape in shapes
    )


def _sends(client: str, root: str, *, much: bool) -> dict[str, Any]:
    return {
        "kind": "publish", "node": client, "address": f"{QUEUE}@{root}", "messages": MESSAGES if much else 40,
        "size": SIZE_BYTES, "producers": 1, "rate": PER_S if much else 5.0, "in_doubt": 400,
        "name": f"{QUEUE}-{client}",
    }  # fmt: skip


def _with_quiet(plan: Plan, random: Random) -> Plan:
    """A queue that is full of low messages long after the last high one. Where it blocks, its consumer may be so slow
    that nothing but time opens the rest of the queue."""
    nodes = [name for name in plan.topology.nodes if not fails(plan, name) and name not in renewed_in(plan)]
    if not nodes:
        return plan
    node = random.choice(nodes)
    when_full = random.choice(("refuse", "block"))
    is_slow = when_full == "block" and random.random() < 0.6
    queue = QueueConfig(
        name=QUIET, messages_max=8 if is_slow else 20, when_full=when_full, room_low=0.5, room_normal=0.75,
        room_quiet_s=QUIET_S, order="none",
    )  # fmt: skip
    low = 24 if is_slow else in_time(plan, 150)
    sends = [
        {
            "kind": "publish", "node": node, "address": f"{QUIET}@{node}", "messages": messages, "producers": 1,
            "size": random.choice((12, 200)), "rate": rate, "in_doubt": 200, "name": f"{QUIET}-{which}",
            "priorities": priorities,
        }
        for which, priorities, messages, rate in (("low", [0, 3], low, 0.0), ("high", [9], 3, 2.0))
    ]  # fmt: skip
    takes = takes_from(node, QUIET, credit=1, think_s=TURNS_MAX_S if is_slow else random.choice((0.05, 0.1)))
    queues = {**plan.topology.queues, node: (*plan.topology.queues.get(node, ()), queue)}
    return replace(plan, topology=replace(plan.topology, queues=queues), workloads=(*plan.workloads, *sends, takes))


def _with_hosts(plan: Plan, random: Random) -> Plan:
    """One of the two nodes between which hosts' messages cross gives the other rates, to each host its share. What is
    drawn for them already is what is paced."""
    topology = plan.topology
    if topology.pacing or topology.takes or topology.routing is not None or not topology.crossing:
        return plan
    crossing = [told for told in plan.workloads if told.get("kind") == "publish" and "vhost" in told]
    ways = sorted({(told["node"], str(told["address"]).partition("@")[2]) for told in crossing if _crosses(told)})
    if not ways:
        return plan
    client, root = random.choice(ways)
    hosts = tuple(topology.crossing)
    policy = random.choice(NAMES)
    shares = tuple((host, random.choice((1.0, 3.0))) for host in ("", *hosts)) if random.random() < 0.5 else ()
    # The smallest share is a seventh: 1 of 1, 3 and 3.
    rate = max(RATES[0], 7 * rate_needed(root, 1, plan.workloads))
    pacing = {
        root: PacingConfig(
            rate=rate, policy=policy, period_s=random.choice((0.5, 2.0)), hosts=hosts, host_shares=shares,
            lend=random.choice((0.0, 1.0)) if policy == "level" else 0.0,
        ),
        client: PacingConfig(roots=(root,), hosts=hosts, capacity_bytes=random.choice((None, 20_000))),
    }  # fmt: skip
    return replace(plan, topology=replace(topology, pacing=pacing))


def _crosses(told: dict[str, Any]) -> bool:
    return str(told["address"]).startswith(f"{CROSSED}@")
