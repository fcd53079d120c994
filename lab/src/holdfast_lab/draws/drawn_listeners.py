"""Listeners of a federated topic, in a share of the seeds: large messages that nobody else wants at their nodes, links
between queues that lead into the topic, and queues for other nodes that are full meanwhile.

Rules of this file: drawn last, from a stream of its own, so that nothing else of a seed changes (docs/adr/0053).
"""

from dataclasses import replace
from random import Random
from typing import Any, Final

from holdfast.pacing.settings import PacingConfig
from holdfast_lab.base.seed_tree import SeedTree
from holdfast_lab.draws.drawn_corners import LISTENERS_BOUND, SMALL_BYTES
from holdfast_lab.draws.drawn_federation import may_have_one
from holdfast_lab.draws.drawn_relays import THIN, TRANSACTIONS
from holdfast_lab.draws.drawn_scenes import in_time
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.knobs import BOUNDS
from holdfast_lab.plan.plan import Plan
from holdfast_lab.workloads.federated import PATTERNS

SHARE: Final = 0.9
"""Of the seeds in which there can be one."""

NODES_MAX: Final = 8

REFUSALS: Final = 6, 12
"""How often the disks of listeners' nodes refuse commits."""

FEW_BYTES: Final = 1_500, 4_000
"""What the queue for another node holds, where it is bounded."""


def with_listeners(plan: Plan, seed: int) -> Plan:
    random = SeedTree(seed).child("swarm").stream("listeners of a federated topic")
    if random.random() >= SHARE or not may_have_one(plan) or len(plan.topology.nodes) > NODES_MAX:
        return plan
    if any(told["kind"] == "temporary-topic" for told in plan.workloads):
        return plan  # its listeners must get everything
    rate = min([shape.rate for link in plan.topology.links for shape in link.shapes if shape.rate is not None] or [1e9])
    nodes, topology = list(plan.topology.nodes), plan.topology
    random.shuffle(nodes)
    here, far = nodes[0], nodes[1:]
    draw = random.choice((_small, _large if rate >= THIN[0] else _small, _linked))
    told, faults = draw(random, plan, here, far)
    if draw is _large:
        topology = replace(topology, limits=replace(topology.limits, stream_bytes=500, frame_bytes_max=512))
    elif draw is _linked and not (topology.pacing or any(told["kind"] in TRANSACTIONS for told in plan.workloads)):
        bound = PacingConfig(roots=tuple(far), capacity_bytes=random.choice(FEW_BYTES), when_full="block")
        topology = replace(topology, pacing={here: bound})
    return replace(
        plan, topology=topology, workloads=(*plan.workloads, told),
        faults=tuple(sorted((*plan.faults, *faults), key=lambda fault: fault.at)),
        knobs={**plan.knobs, LISTENERS_BOUND: random.choice(BOUNDS[LISTENERS_BOUND])},
    )  # fmt: skip


def _small(random: Random, plan: Plan, here: str, far: list[str]) -> tuple[dict[str, Any], list[Fault]]:
    """Short messages, of which others want some, for listeners at nodes whose disks refuse commits."""
    listeners = [random.choice([here, *far, *far]) for _ in range(random.choice((2, 3)))]
    told = _told(random, plan, here, far, listeners, size=random.choice((12, 200)))
    return told, _refusals(random, plan, listeners)


def _large(random: Random, plan: Plan, here: str, far: list[str]) -> tuple[dict[str, Any], list[Fault]]:
    """Large messages, more at once than a listener may have, at nodes whose disks are slow and refuse commits."""
    listeners = [random.choice([here, here, *far]) for _ in range(2)]
    told = _told(random, plan, here, far, listeners, size=SMALL_BYTES)
    told |= {"rate": 0.0, "listener_credit": 1, "through": random.random() < 0.3}
    span_s = min(6.0, plan.safety_s)
    slow = [
        Fault(kind="slow-disk", at=0.0, node=node, seconds=span_s, amount=50.0) for node in dict.fromkeys(listeners)
    ]
    return told, slow + _refusals(random, plan, listeners)


def _linked(random: Random, plan: Plan, here: str, far: list[str]) -> tuple[dict[str, Any], list[Fault]]:
    """A link into the topic, while a node that wants its messages is away."""
    told = _told(random, plan, here, far, [here], size=200) | {"through": True}
    span_s, away = min(6.0, plan.safety_s), told["subscriptions"][0]["node"]
    return told, [
        Fault(kind="crash", at=round(random.uniform(0.5, span_s), 6), node=away, seconds=random.choice((1.0, 3.0)))
        for _ in range(random.choice((1, 2)))
    ]


def _told(random: Random, plan: Plan, here: str, far: list[str], listeners: list[str], *, size: int) -> dict[str, Any]:
    """The workload, published at `here`."""
    entries = [way for link in plan.topology.links for way in ([link.one, link.other], [link.other, link.one])]
    subscriptions = [
        {"node": node, "pattern": random.choice([*PATTERNS]), "selector": "", "from_s": 0.0, "for_s": 0.0}
        for node in random.sample(far, min(len(far), random.choice((1, 1, 2))))
    ]
    messages = in_time(plan, 40)
    told: dict[str, Any] = {"kind": "listened", "topic": "heard", "entries": entries, "publishers": [here]}
    told |= {"subscriptions": subscriptions, "listeners": listeners, "listener_credit": random.choice((1, 5, 50))}
    told |= {"messages": messages, "rate": round(messages / min(6.0, plan.safety_s), 3), "size": size}
    told |= {"confirm_s": random.choice((0.0, 2.0)), "after_s": random.choice((0.0, 1.0))}
    return told


def _refusals(random: Random, plan: Plan, nodes: list[str]) -> list[Fault]:
    faults = []
    for node in dict.fromkeys(nodes):
        for _ in range(random.choice(REFUSALS)):
            at, seconds = round(random.uniform(0.1, min(8.0, plan.safety_s)), 6), random.choice((0.05, 0.3, 1.5))
            when = random.choice(("", "a commit is under way"))
            faults.append(Fault(kind="refusing-disk", at=at, node=node, seconds=seconds, when=when))
    return faults
