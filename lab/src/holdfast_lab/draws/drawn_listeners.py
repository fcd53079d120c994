"""Listeners of a federated topic, in a share of the seeds: large messages that nobody else wants at their nodes, links
between queues that lead into the topic, and queues for other nodes that are full meanwhile.

Rules of this file: drawn last, from a stream of its own, so that nothing else of a seed changes (docs/adr/0053).
"""

from dataclasses import replace
from random import Random
from typing import Any, Final

from holdfast.pacing.settings import PacingConfig
from holdfast_lab.base.seed_tree import SeedTree
from holdfast_lab.draws.drawn_clients import is_guessed_at
from holdfast_lab.draws.drawn_corners import LISTENERS_BOUND, SMALL_BYTES
from holdfast_lab.draws.drawn_federation import may_have_one
from holdfast_lab.draws.drawn_relays import THIN, TRANSACTIONS
from holdfast_lab.draws.drawn_scenes import in_time
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.knobs import BOUNDS
from holdfast_lab.plan.plan import Plan
from holdfast_lab.workloads.federated import PATTERNS

SHARE: Final = 0.8
"""Of the seeds in which there can be one."""

NODES_MAX: Final = 6

REFUSALS: Final = 6, 12
"""How often the disks of listeners' nodes refuse commits."""

FEW_BYTES: Final = 4_000, 8_000
"""What the queue for another node holds, where it is bounded."""


def with_listeners(plan: Plan, seed: int) -> Plan:
    random = SeedTree(seed).child("swarm").stream("listeners of a federated topic")
    if random.random() >= SHARE or not may_have_one(plan) or len(plan.topology.nodes) > NODES_MAX:
        return plan
    rate = min([shape.rate for link in plan.topology.links for shape in link.shapes if shape.rate is not None] or [1e9])
    if rate < THIN[0] or any(is_guessed_at(plan, node) for node in plan.topology.nodes):
        return plan
    if any(told["kind"] == "temporary-topic" for told in plan.workloads):
        return plan  # its listeners must get everything
    nodes = list(plan.topology.nodes)
    random.shuffle(nodes)
    here, far = nodes[0], nodes[1:]
    is_bounded = not plan.topology.pacing and not any(told["kind"] in TRANSACTIONS for told in plan.workloads)
    topology = plan.topology
    if is_bounded and random.random() < 0.7:
        bound = PacingConfig(roots=tuple(far), capacity_bytes=random.choice(FEW_BYTES), when_full="block")
        topology = replace(topology, pacing={here: bound})
    is_large = random.random() < 0.7
    if is_large:
        topology = replace(topology, limits=replace(topology.limits, stream_bytes=500, frame_bytes_max=512))
    told, faults = _draw(random, plan, here, far, is_large=is_large)
    return replace(
        plan, topology=topology, workloads=(*plan.workloads, told),
        faults=tuple(sorted((*plan.faults, *faults), key=lambda fault: fault.at)),
        knobs={**plan.knobs, LISTENERS_BOUND: random.choice(BOUNDS[LISTENERS_BOUND])},
    )  # fmt: skip


def _draw(
    random: Random, plan: Plan, here: str, far: list[str], *, is_large: bool
) -> tuple[dict[str, Any], list[Fault]]:
    """The workload, published at `here`, and the faults that go with it."""
    span_s = min(10.0, plan.safety_s)
    entries = [way for link in plan.topology.links for way in ([link.one, link.other], [link.other, link.one])]
    listeners = [random.choice([here, *far]) for _ in range(random.choice((1, 2, 3)))]
    durable = random.sample(far, min(len(far), random.choice((1, 1, 2))))
    subscriptions = [
        {"node": node, "pattern": random.choice([*PATTERNS]), "selector": "", "from_s": 0.0, "for_s": 0.0}
        for node in durable
    ]
    messages = in_time(plan, 40)
    told: dict[str, Any] = {"kind": "listened", "topic": "heard", "entries": entries, "publishers": [here]}
    told |= {"subscriptions": subscriptions, "listeners": listeners, "listener_credit": random.choice((1, 5, 50))}
    told |= {"messages": messages, "rate": random.choice((0.0, round(messages / span_s, 3)))}
    told |= {"size": SMALL_BYTES if is_large else random.choice((12, 200)), "through": random.random() < 0.6}
    told |= {"confirm_s": random.choice((0.0, 2.0)), "after_s": random.choice((0.0, 1.0))}
    faults = []
    for node in dict.fromkeys(listeners):
        for _ in range(random.choice(REFUSALS)):
            at, seconds = round(random.uniform(0.1, span_s), 6), random.choice((0.05, 0.3, 1.5))
            when = random.choice(("", "a commit is under way"))
            faults.append(Fault(kind="refusing-disk", at=at, node=node, seconds=seconds, when=when))
    for _ in range(random.choice((0, 1, 2))):  # what is for it waits meanwhile
        at, seconds = round(random.uniform(0.1, span_s), 6), random.choice((0.5, 2.0, 5.0))
        faults.append(Fault(kind="crash", at=at, node=random.choice(durable), seconds=seconds))
    return told, faults
