"""A root that shares a small rate among clients, in a share of the seeds, and control messages of pacing that are
lost, late or doubled (docs/pacing.md).

Rules of this file: drawn last, from a stream of its own, so that nothing else of a seed changes (docs/adr/0053). The
rate lets all that is sent to the root come in time, and no less.
"""

from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any, Final

from holdfast.pacing.choosing import NAMES
from holdfast.pacing.settings import PacingConfig
from holdfast_lab.base.seed_tree import SeedTree
from holdfast_lab.draws.drawn_clients import fails
from holdfast_lab.draws.drawn_scenes import gone_back, in_time, renewed_in, takes_from
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.plan import Plan

SHARE: Final = 0.12
QUEUE: Final = "paced"
RATES: Final = (5_000, 20_000, 100_000)
"""Bytes a second, at least; more where more is sent to the root."""
WITHIN_S: Final = 40.0
"""What is sent to a root passes within so long, at an equal share of the rate."""
UNSTEADY_SHARE: Final = 0.6
"""Of the seeds with a root, those in which control messages do not all arrive once and in time."""
LARGE_BYTES: Final = 20_000
"""As which a workload's messages count whose sizes are not told: some are larger than others."""


def with_pacing(plan: Plan, seed: int) -> Plan:
    """The plan, in a share of the seeds with a root, its clients, and what they send."""
    random = SeedTree(seed).child("swarm").stream("paced and its clients")
    topology = plan.topology
    if random.random() >= SHARE or topology.takes or topology.routing is not None:
        return plan
    nodes = [name for name in topology.nodes if not fails(plan, name) and name not in renewed_in(plan)]
    if len(nodes) < 2:
        return plan
    root, *clients = random.sample(nodes, random.randint(2, len(nodes)))
    told = [_sends(random, plan, root, client) for client in clients]
    rate = max(random.choice(RATES), rate_needed(root, len(clients), (*plan.workloads, *told)))
    policy = random.choice(NAMES)
    shares = ((clients[0], 2.0),) if random.random() < 0.5 else ()
    pacing = {
        root: PacingConfig(
            rate=rate,
            policy=policy,
            period_s=random.choice((0.5, 2.0)),
            lend=random.choice((0.0, 1.0)) if policy == "level" else 0.0,
            shares=shares,
        )
    }
    for client in clients:
        pacing[client] = PacingConfig(roots=(root,), capacity_bytes=random.choice((None, 20_000, 1_000_000)))
    faults = sorted((*plan.faults, *_faults(random, plan, root, clients)), key=lambda fault: fault.at)
    workloads = (*plan.workloads, *told, takes_from(root, QUEUE))
    return replace(plan, topology=replace(topology, pacing=pacing), workloads=workloads, faults=tuple(faults))


def rate_needed(root: str, clients: int, workloads: Iterable[dict[str, Any]]) -> int:
    """Bytes a second at which all that is sent to the root passes in time."""
    total = sum(_bytes(item) for item in workloads if str(item.get("address", "")).endswith(f"@{root}"))
    return int(total * clients / WITHIN_S)


def _bytes(told: dict[str, Any]) -> int:
    return int(told.get("messages", 100)) * (int(told.get("size", LARGE_BYTES)) + 100)


def _sends(random: Random, plan: Plan, root: str, client: str) -> dict[str, Any]:
    """A producer that offers more than the rate for a while."""
    return {
        "kind": "publish",
        "node": client,
        "address": f"{QUEUE}@{root}",
        "messages": in_time(plan, random.choice((40, 150))),
        "size": random.choice((200, 1_200, 6_000)),
        "producers": 1,
        "rate": random.choice((0.0, 20.0)),
        "in_doubt": 200,
        "name": f"{QUEUE}-{client}",
    }


def _faults(random: Random, plan: Plan, root: str, clients: list[str]) -> list[Fault]:
    """Links that break, so that rates and reports are lost, and lives of the root and of clients that end."""
    found = []
    # Who went back to an older store does not die before it is told.
    goes_back = gone_back(plan)
    for _ in range(random.choice((0, 2, 6))):
        node = random.choice([root, *clients])
        at = round(random.uniform(0.2, plan.safety_s), 6)
        other = random.choice(plan.topology.neighbours(node))
        kind = random.choice(("partition", "cut", "silent-cut", "crash", "stop"))
        if kind in ("crash", "stop"):
            if node not in goes_back:
                found.append(Fault(kind=kind, at=at, node=node, seconds=random.choice((0.2, 2.0))))
        else:
            found.append(Fault(kind=kind, at=at, link=(node, other), seconds=random.choice((0.5, 8.0))))
    return found


def with_unsteady_pacing(plan: Plan, seed: int) -> Plan:
    """In a share of the seeds with a root, of control messages that some nodes send, or pass on, some are lost, late or
    doubled."""
    random = SeedTree(seed).child("swarm").stream("unsteady pacing")
    if not plan.topology.pacing or random.random() >= UNSTEADY_SHARE:
        return plan
    nodes = list(plan.topology.nodes)
    faults = [
        Fault(
            kind="unsteady-pacing", at=round(random.uniform(0.0, plan.safety_s / 2), 6), node=node,
            seconds=random.choice((5.0, 20.0)), amount=random.choice((0.2, 0.5, 0.9)),
        )
        for node in random.sample(nodes, random.randint(1, len(nodes)))
    ]  # fmt: skip
    return replace(plan, faults=tuple(sorted((*plan.faults, *faults), key=lambda fault: fault.at)))
