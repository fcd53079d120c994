"""What lies under a seed's nodes, for a share of the seeds: connections that bring a write in pieces, and LMDB's store.

Rules of this file: from streams of its own, so that nothing else of a seed changes. Where frames come in pieces, the
time after which a silent neighbour is given up is short: a frame that takes longer is no silence.
"""

from dataclasses import replace
from random import Random
from typing import Final

from holdfast_lab.base.seed_tree import SeedTree
from holdfast_lab.plan.networks import LinkShape, Topology
from holdfast_lab.plan.plan import Plan
from holdfast_lab.sim.network import PIECE_BYTES_MAX

PIECES_SHARE: Final = 0.2
PAGED_SHARE: Final = 0.1
PIECE_BYTES: Final = "links.large_receives:PIECE_BYTES"
"""Not turned beside LMDB: the check of its store knows how large the pieces of a blob are."""


def with_wire(plan: Plan, seed: int) -> Plan:
    """The plan with what its connections and disks are made of."""
    seeds = SeedTree(seed).child("swarm")
    if seeds.stream("paged").random() < PAGED_SHARE:
        plan = on_lmdb(plan)
    random = seeds.stream("pieces")
    if random.random() >= PIECES_SHARE:
        return plan
    piece_bytes = random.choice((8, 60, 700, 2_000))
    return replace(plan, piece_bytes=piece_bytes, topology=_sooner(plan.topology, random))


def on_lmdb(plan: Plan) -> Plan:
    """The plan with LMDB's store under its nodes."""
    knobs = {knob: value for knob, value in plan.knobs.items() if knob != PIECE_BYTES}
    return replace(plan, paged=True, knobs=knobs)


def _sooner(topology: Topology, random: Random) -> Topology:
    """With times that outlast a piece, and not a frame."""
    shapes = [shape for link in topology.links for shape in (link.there, link.back) if shape is not None]
    keepalive_s = max(random.choice((0.2, 0.5, 1.0)), round(max(map(_slowest_s, shapes)), 3))
    if keepalive_s >= topology.keepalive_s:
        return topology
    hold_time_s = round(keepalive_s * random.uniform(2.5, 5.0), 3)
    return replace(topology, keepalive_s=keepalive_s, hold_time_s=hold_time_s)


def _slowest_s(shape: LinkShape) -> float:
    return 2 * shape.delay_s + shape.jitter_s + 2 * PIECE_BYTES_MAX / (shape.rate or 1e9)
