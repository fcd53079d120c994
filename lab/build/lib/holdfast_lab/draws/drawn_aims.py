"""Faults aimed at a moment of a node's work, so that what rarely meets by chance meets often (docs/adr/0050).

Rules of this file: from a stream of its own, so that nothing else of a seed changes. All moments are drawn alike, the
rare ones as often as the common; one that comes about by a fault, in a scene or by a knob is drawn with it. A fault
whose time is part of a story keeps it: where a disk is replaced, and where a store goes back or is copied, but that its
disk may stall or fill up while its messages get new numbers.
"""

from dataclasses import replace
from random import Random
from typing import Any, Final

from holdfast_lab.base.seed_tree import SeedTree
from holdfast_lab.draws.drawn_scenes import OF_MOMENTS, RENEWED
from holdfast_lab.plan.faults import PUT_BACK, Fault
from holdfast_lab.plan.knobs import KNOBS
from holdfast_lab.plan.moments import MOMENTS, SCENES_ALONE
from holdfast_lab.plan.plan import Plan

AIMED_SHARE: Final = 0.4
"""Of the faults that may be aimed, those that are."""
AIMED: Final = (
    "crash", "power", "stop", "full-disk", "refusing-disk", "slow-disk", "stalled-disk", "failed-sync", "purge",
    "cut-clients", "cut", "silent-cut", "partition", "one-way", "clog", "slow-link", "re-route",
)  # fmt: skip
"""Kinds of faults that may be."""
CAUSES: Final = {
    "a commit waits behind another": "slow-disk",
    "a commit is under way": "slow-disk",
    "a consumer drains": "slow-disk",
    "a link may be resumed": "cut-clients",
    "a purge goes on": "purge",
    "reading is paused": "stalled-disk",
    "the disk is full": "full-disk",
    "the disk is stalled": "stalled-disk",
    "the node stops": "stop",
    "what links held goes back": "cut-clients",
}
"""By moment: the fault of the node that brings it about."""
DISKS: Final = frozenset({"full-disk", "refusing-disk", "slow-disk", "stalled-disk"})
LASTS_S: Final = {"full-disk": 3.0, "slow-disk": 2.0, "stalled-disk": 8.0, "stop": 0.5}
"""How long such a fault lasts where it does not end at once."""
PROLONGS: Final = {
    "a consumer drains": ("core.offering:PUMP_LIMIT", "broker.cursors.cursor:WATERMARK_AHEAD"),
    "a deleted queue leaves": ("broker.purge:RECLAIM_COUNT",),
    "a large message comes": ("links.large_receives:COMMIT_BYTES", "links.large_receives:PIECE_BYTES"),
    "a large message goes": ("links.large_sends:TURN_BYTES", "links.large_sends:NEIGHBOUR_TURN_BYTES"),
    "a purge goes on": ("broker.purge:RECLAIM_COUNT",),
    RENEWED: ("custody.names.identity:RENEW_COUNT",),
    "messages that waited are moved": ("custody.arrival.destination:RELEASE_COUNT",),
    "outcomes are carried out": ("endpoints.settlements:EFFORT_A_TURN",),
    "what links held goes back": ("custody.returns:GIVEN_BACK_MAX",),
}
"""By moment: the knobs at whose least it lasts for many turns."""


def with_aims(plan: Plan, seed: int) -> Plan:
    """The plan with a share of its faults aimed."""
    random = SeedTree(seed).child("swarm").stream("aims")
    renewed = {fault.node for fault in plan.faults if fault.kind in PUT_BACK}
    fixed = renewed | {fault.node for fault in plan.faults if fault.kind == "replace-disk"}
    names = tuple(moment for moment in MOMENTS if moment not in SCENES_ALONE)
    faults: list[Fault] = []
    knobs = dict(plan.knobs)
    workloads, queues = list(plan.workloads), dict(plan.topology.queues)
    played: set[tuple[Any, str]] = set()
    for fault in plan.faults:
        share, moment, chance = random.random(), random.choice(names), random.random()
        if fault.node in renewed and fault.kind in DISKS:
            moment = RENEWED
        elif fault.kind not in AIMED or not fixed.isdisjoint(fault.places):
            share = 1.0
        if share >= AIMED_SHARE or fault.when:
            faults.append(fault)
            continue
        faults.append(replace(fault, when=moment))
        if moment in CAUSES:
            faults.append(_cause(random, fault, CAUSES[moment]))
        if moment in OF_MOMENTS:
            node, scene = random.choice(fault.places), OF_MOMENTS[moment]
            others = [name for name in plan.topology.nodes if name not in (node, *fixed)]
            made = scene(random, node, plan, others)
            if (scene, node) not in played and node not in fixed:
                played.add((scene, node))
                workloads += made.workloads
                faults += made.faults
                queues = made.queues_with(queues)
        if chance < 0.7:
            knobs |= {knob: KNOBS[knob][0] for knob in PROLONGS.get(moment, ())}
    faults.sort(key=lambda fault: fault.at)
    topology = replace(plan.topology, queues=queues)
    return replace(plan, topology=topology, workloads=tuple(workloads), faults=tuple(faults), knobs=knobs)


def _cause(random: Random, fault: Fault, kind: str) -> Fault:
    """What brings the moment about that `fault` waits for, at one of its nodes and while it waits."""
    amount = 1_000.0 if kind == "slow-disk" else 0.0
    return Fault(
        kind=kind,
        at=round(fault.at + random.uniform(0.0, 2.0), 6),
        node=random.choice(fault.places),
        seconds=LASTS_S.get(kind, 0.0),
        amount=amount,
    )
