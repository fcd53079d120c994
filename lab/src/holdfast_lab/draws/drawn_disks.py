"""Disks that stall or refuse while a store gets a new UUID, and while what is on its way is purged.

Rules of this file: from streams of its own, so that nothing else of a seed changes. A store that goes back to an older
state forgets what it had sent, and only who has seen more can tell it so (docs/adr/0025, *What is left*): so it is that
of a node which is added to the network, has one neighbour, sends to that one alone, and is on the way of nobody.
Nothing that it sends may wait while later messages go on, as what its neighbour does not take would: behind such a gap
the neighbour cannot tell it which numbers it gives twice.
"""

from dataclasses import replace
from random import Random
from typing import Any, Final

from holdfast.settings.queues import QueueConfig
from holdfast_lab.base.seed_tree import SeedTree
from holdfast_lab.draws.drawn_static import NODE_NAMES, RANGES_LOST
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.networks import Link, LinkShape
from holdfast_lab.plan.plan import Plan

RENEWAL_SHARE: Final = 0.2
"""Of the seeds with tables from outside, those with a store that is put back or copied."""
PURGE_SHARE: Final = 0.2
"""And those in which transmission queues are purged."""
REFUSING_SHARE: Final = 0.3
"""Of the full disks, those that take no commit at all."""
DISKS: Final = ("stalled-disk", "full-disk", "full-disk", "slow-disk")
TROUBLES: Final = (*DISKS, "crash", "power")
"""What comes together with either. No crash where a store went back and does not know it: what a life accepted before
the one that is told, nobody can tell from what the other store had."""
QUEUE: Final = "renewed"


def with_disks(plan: Plan, seed: int) -> Plan:
    """The plan with a store that gets a new UUID, or with purges, for a share of seeds each."""
    seeds = SeedTree(seed).child("swarm")
    return _with_purges(_with_renewal(plan, seeds.stream("renewal")), seeds.stream("purges"))


def with_refusals(plan: Plan, seed: int) -> Plan:
    """The plan with a share of its full disks refusing every commit."""
    random = SeedTree(seed).child("swarm").stream("refusals")
    refused = {fault for fault in plan.faults if fault.kind == "full-disk" and random.random() < REFUSING_SHARE}
    faults = [replace(fault, kind="refusing-disk", amount=0.0) if fault in refused else fault for fault in plan.faults]
    return replace(plan, faults=tuple(faults))


def _with_renewal(plan: Plan, random: Random) -> Plan:
    """The new node accepts messages while it cannot reach its neighbour, under numbers that this one has seen."""
    if random.random() >= RENEWAL_SHARE:
        return plan
    topology = plan.topology
    dead = {fault.node for fault in plan.faults if fault.kind == "replace-disk"}
    near = [name for name in topology.nodes if name not in dead]
    if not near:
        return plan
    hub = random.choice(near)
    leaf = next(name for name in NODE_NAMES if name not in topology.nodes)
    shape = LinkShape(delay_s=random.choice((0.000_5, 0.002, 0.02)))
    link = Link(one=leaf, other=hub, there=shape) if random.random() < 0.5 else Link(one=hub, other=leaf, there=shape)
    messages = random.choice((60, 300, 1_200))
    publish: dict[str, Any] = {
        "kind": "publish", "node": leaf, "address": f"{QUEUE}@{hub}", "messages": messages,
        "producers": random.choice((1, 1, 2)), "size": random.choice((12, 12, 1_000)), "in_doubt": 200,
        "rate": round(messages / plan.safety_s * random.uniform(1.0, 4.0), 3), "name": "renewed-in",
    }  # fmt: skip
    consume: dict[str, Any] = {
        "kind": "consume", "node": hub, "queue": QUEUE, "consumers": 1, "credit": 100, "name": "renewed-out",
    }  # fmt: skip
    queue = QueueConfig(name=QUEUE, order=random.choice(("strict", "bounded", "none")), order_wait_s=5.0)
    return replace(
        plan,
        topology=replace(
            topology,
            nodes=(*topology.nodes, leaf),
            links=(*topology.links, link),
            limits=replace(topology.limits, ranges_max=max(RANGES_LOST, topology.limits.ranges_max)),
            queues={**topology.queues, hub: (*topology.queues.get(hub, ()), queue)},
        ),
        workloads=(*plan.workloads, publish, consume),
        faults=_sorted((*plan.faults, *_renewal(random, leaf, (link.one, link.other), plan.safety_s))),
    )


def _renewal(random: Random, leaf: str, link: tuple[str, str], span_s: float) -> list[Fault]:
    at = random.uniform(0.1, 0.6) * span_s
    apart_s = random.uniform(0.2, 0.4) * span_s
    kind = random.choice(("restore-backup", "restore-backup", "copied-disk"))
    found = [
        Fault(
            kind=kind, at=_s(at), node=leaf, seconds=_s(random.choice((0.0, 0.2))), amount=_s(random.uniform(0.0, at))
        ),
        Fault(kind="partition", at=_s(max(0.0, at - random.choice((0.0, 0.5)))), link=link, seconds=_s(apart_s)),
    ]  # fmt: skip
    kinds = DISKS if kind == "restore-backup" else TROUBLES
    if random.random() < 0.5:
        found += _trouble(random, leaf, at + 0.2, kinds)
    if random.random() < 0.8:  # from before they meet until some time after it: when that is, their dials decide
        found.append(_fault(random, random.choice(kinds), leaf, at + apart_s - random.uniform(0.0, 2.0), 8.0))
    if random.random() < 0.5:
        found += _trouble(random, leaf, at + apart_s, kinds)
    return found


def _with_purges(plan: Plan, random: Random) -> Plan:
    if random.random() >= PURGE_SHARE:
        return plan
    found: list[Fault] = []
    for _ in range(random.choice((1, 2, 4))):
        link = random.choice(plan.topology.links)
        node, at = random.choice((link.one, link.other)), random.uniform(0.0, plan.safety_s)
        found += [
            Fault(kind="purge", at=_s(moment), node=node) for moment in (at, at + 0.5)[: random.choice((1, 1, 2))]
        ]
        apart_s, pair = random.uniform(0.2, 4.0), (link.one, link.other)  # so something lies there
        lasts_s = apart_s + random.uniform(0.0, 2.0)
        found.append(Fault(kind="partition", at=_s(max(0.0, at - apart_s)), link=pair, seconds=_s(lasts_s)))
        if random.random() < 0.8:
            alone = any(fault.kind == "restore-backup" and fault.node == node for fault in plan.faults)
            found += _trouble(random, node, at, DISKS if alone else TROUBLES)
    return replace(plan, faults=_sorted((*plan.faults, *found)))


def _trouble(random: Random, node: str, at: float, kinds: tuple[str, ...]) -> list[Fault]:
    """Of one kind or two, about that moment."""
    found = []
    for kind in random.sample(kinds, random.choice((1, 1, 2))):
        found.append(_fault(random, kind, node, at + random.uniform(-0.5, 1.5), random.choice((0.2, 2.0, 8.0))))
    return found


def _fault(random: Random, kind: str, node: str, at: float, seconds: float) -> Fault:
    amount = {"full-disk": random.choice((0.0, 0.0, 4_096.0, 200_000.0)), "slow-disk": 100.0}.get(kind, 0.0)
    return Fault(kind=kind, at=_s(max(0.0, at)), node=node, seconds=_s(seconds), amount=amount)


def _sorted(faults: tuple[Fault, ...]) -> tuple[Fault, ...]:
    return tuple(sorted(faults, key=lambda fault: fault.at))


def _s(seconds: float) -> float:
    return round(seconds, 6)
