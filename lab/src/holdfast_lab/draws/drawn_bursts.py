"""All at once, in a share of the seeds: a queue with room by priority that more is sent to than is taken, and roots
whose clients bound what waits for them, lie about their weights or ignore their rates (docs/adr/0077).

Rules of this file: drawn last, from a stream of its own, so that nothing else of a seed changes (docs/adr/0053).
"""

import json
from dataclasses import replace
from random import Random
from typing import Any, Final

from holdfast.pacing.policy import Thresholds
from holdfast.settings.queues import QueueConfig
from holdfast_lab.base.seed_tree import SeedTree
from holdfast_lab.draws.drawn_clients import fails
from holdfast_lab.draws.drawn_pacing import QUEUE, RATES, rate_needed
from holdfast_lab.draws.drawn_scenes import gone_back, in_time, renewed_in, takes_from
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.plan import Plan

SHARE: Final = 0.1
"""Of the seeds, those with such a queue."""
PACED: Final = 0.6
"""Of the seeds with a root, those with clients that bound what waits for it."""
NAME: Final = "urgent"
LIAR: Final = ((0.0, Thresholds.WEIGHT_MAX),)
"""The weights of a client that always says it is fuller than all others."""
LIAR_BY_WEIGHT: Final = ((0.0, 50),)
"""The same where the root shares by weights alone: the others, with 9, get a share with which a run ends in time."""

MUCH: Final[dict[str, Any]] = {"messages": 400, "size": 1_200, "rate": 60.0, "in_doubt": 400}
"""What a client sends that ignores its rate: enough to do so for longer than a root looks on."""
LINK_BYTES_PER_S: Final = 100_000


def with_bursts(plan: Plan, seed: int) -> Plan:
    random = SeedTree(seed).child("swarm").stream("all at once")
    has_queue, is_paced = random.random() < SHARE, random.random() < PACED
    if has_queue:
        plan = _with_queue(plan, random)
    return _with_roots(plan, random) if is_paced and plan.topology.pacing else plan


def _with_queue(plan: Plan, random: Random) -> Plan:
    topology = plan.topology
    nodes = [name for name in topology.nodes if not fails(plan, name) and name not in renewed_in(plan)]
    if not nodes:
        return plan
    node = random.choice(nodes)
    queue = QueueConfig(
        name=NAME, messages_max=random.choice((8, 20)), when_full=random.choice(("block", "refuse", "refuse")),
        room_low=random.choice((0.5, 0.7)), room_normal=random.choice((0.75, 0.9)),
        room_quiet_s=random.choice((600.0, 600.0, 1.0)), priorities=random.random() < 0.3, order="none",
    )  # fmt: skip
    sends = [
        _sends(node, f"{NAME}-{which}", priorities, in_time(plan, random.choice((40, 80))), random)
        for which, priorities in (("low", [0, 3]), ("normal", [4]), ("high", [9, 5]))
    ]
    takes = takes_from(
        node, NAME, credit=random.choice((1, 5)), think_s=random.choice((0.0, 0.02)), sorts=queue.priorities
    )
    faults = _ends(random, plan, node)
    queues = dict(topology.queues)
    queues[node] = (*queues.get(node, ()), queue)
    return replace(
        plan, topology=replace(topology, queues=queues), workloads=(*plan.workloads, *sends, takes),
        faults=tuple(sorted((*plan.faults, *faults), key=lambda fault: fault.at)),
    )  # fmt: skip


def _sends(node: str, name: str, priorities: list[int], messages: int, random: Random) -> dict[str, Any]:
    return {
        "kind": "publish", "node": node, "address": f"{NAME}@{node}", "messages": messages, "producers": 1,
        "size": random.choice((12, 200)), "rate": random.choice((0.0, 0.0, 20.0)), "in_doubt": 200, "name": name,
        "priorities": priorities,
    }  # fmt: skip


def _ends(random: Random, plan: Plan, node: str) -> list[Fault]:
    """Clocks that are set, lives that end, and a disk that refuses."""
    found = []
    goes_back = gone_back(plan)
    for _ in range(random.choice((0, 1, 3))):
        at = round(random.uniform(0.1, plan.safety_s), 6)
        kind = random.choice(("clock-step", "clock-step", "crash", "refusing-disk"))
        amount = random.choice((-3_600.0, -2.0, 2.0, 3_600.0)) if kind == "clock-step" else 0.0
        if kind == "crash" and node in goes_back:
            continue
        found.append(Fault(kind=kind, at=at, node=node, amount=amount, seconds=0.0 if amount else 0.2))
    return found


def _carries(plan: Plan, one: str, other: str) -> bool:
    """Whether the link between them carries what a client sends that ignores its rate."""
    shapes = [shape for link in plan.topology.links if {link.one, link.other} == {one, other} for shape in link.shapes]
    return all(shape.rate is None or shape.rate >= LINK_BYTES_PER_S for shape in shapes)


def _with_roots(plan: Plan, random: Random) -> Plan:
    """The clients of the root bound what waits for it; one of them may say that it is fuller than all others, another
    ignore its rate for a while; the root's queue is small."""
    pacing = dict(plan.topology.pacing)
    [root] = [name for name, told in pacing.items() if told.rate is not None]
    clients = [name for name in pacing if name != root]
    # What is refused goes again from `publish`; of others nothing is known.
    others = [told for told in plan.workloads if told.get("kind") != "publish" and f"@{root}" in json.dumps(told)]
    when_full = random.choice(("block", "refuse"))
    capacity = random.choice((8_000, 40_000))
    for client in clients if not others else []:
        pacing[client] = replace(pacing[client], when_full=when_full, capacity_bytes=capacity)
    near = [name for name in plan.topology.neighbours(root) if name in clients and _carries(plan, root, name)]
    liar, deaf = random.choice(clients), random.choice(near or clients)
    if random.random() < 0.5:
        pacing[liar] = replace(pacing[liar], weights=LIAR_BY_WEIGHT if pacing[root].policy == "weights" else LIAR)
    faults = list(plan.faults)
    is_deaf = random.random() < 0.7
    if is_deaf:
        at = round(random.uniform(0.1, 2.0), 6)
        faults.append(Fault(kind="ignores-rate", at=at, node=deaf, seconds=random.choice((10.0, 20.0))))
    for _ in range(random.choice((0, 0, 2))):
        step = random.choice((-3_600.0, -2.0, 2.0, 3_600.0))
        node, at = random.choice(list(pacing)), round(random.uniform(0.1, plan.safety_s), 6)
        faults.append(Fault(kind="clock-step", at=at, node=node, amount=step))
    workloads = []
    for told in plan.workloads:
        if str(told.get("name", "")).startswith(f"{QUEUE}-") and told.get("kind") == "publish":
            told = told | {"priorities": random.choice(([0], [4], [9], [1, 4, 8]))}
            if is_deaf and near and told["node"] == deaf:
                told |= MUCH
        workloads.append(told)
    if is_deaf and near:
        pacing[deaf] = replace(pacing[deaf], when_full=None)
        rate = max(RATES[0], rate_needed(root, len(clients), workloads))
        pacing[root] = replace(pacing[root], rate=rate, period_s=0.5)
    return replace(
        plan, topology=replace(plan.topology, pacing=pacing), workloads=tuple(workloads),
        faults=tuple(sorted(faults, key=lambda fault: fault.at)),
    )  # fmt: skip
