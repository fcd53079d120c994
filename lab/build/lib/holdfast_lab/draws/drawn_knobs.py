"""Small bounds for a share of the swarm's seeds: of a node's work in a turn, and of what it holds (docs/adr/0050).

Rules of this file: from streams of its own, so that nothing else of a seed changes. Only what promises nothing is
turned down: a bound at which a node may refuse or forget for good is none of these.
"""

from dataclasses import replace
from random import Random
from typing import Any, Final

from holdfast_lab.base.seed_tree import SeedTree
from holdfast_lab.draws.drawn_scenes import RESUMED
from holdfast_lab.plan.knobs import KNOBS
from holdfast_lab.plan.plan import Plan

KNOBS_SHARE: Final = 0.4
"""Of all seeds, those that turn knobs; each turns a few, or many."""
FIRST_TAG: Final = "client.resume:FIRST_TAG"
LIMITS_SHARE: Final = 0.3
"""And those whose nodes have limits of kilobytes."""


def with_small_bounds(plan: Plan, seed: int) -> Plan:
    """The plan with its knobs and limits."""
    seeds = SeedTree(seed).child("swarm")
    limits = replace(plan.topology.limits, **_limits(seeds.stream("small limits")))
    topology = replace(plan.topology, limits=limits)
    knobs = _knobs(seeds.stream("knobs"))
    if any(told.get("name") == RESUMED for told in plan.workloads):
        knobs |= _first_tags(seeds.stream("first tags"))
    return replace(plan, topology=topology, knobs=knobs)


def _knobs(random: Random) -> dict[str, int]:
    if random.random() >= KNOBS_SHARE:
        return {}
    share = random.choice((0.05, 0.2, 0.7))
    return {name: random.choice(values) for name, values in KNOBS.items() if random.random() < share}


def _first_tags(random: Random) -> dict[str, int]:
    """Tags that wrap, for most of the producers that resume their links."""
    return {FIRST_TAG: random.choice(KNOBS[FIRST_TAG])} if random.random() < 0.7 else {}


def _limits(random: Random) -> dict[str, Any]:
    if random.random() >= LIMITS_SHARE:
        return {}
    small: dict[str, Any] = {
        "connection_unstored_bytes_max": random.choice((1_000, 20_000)),
        "unstored_bytes_max": random.choice((2_000, 50_000)),
        "neighbours_unstored_bytes_max": random.choice((2_000, 50_000)),
        "unfinished_bytes_max": random.choice((1_000, 100_000)),
        "parked_bytes_max": random.choice((1_000, 20_000)),
        "user_unsettled_bytes_max": random.choice((1_000, 20_000)),
        "commit_stall_s": random.choice((0.5, 2.0)),
        "session_links_max": random.choice((4, 8)),
        "neighbour_links_max": random.choice((1, 2)),
        "passed_max": random.choice((1, 10)),
    }
    return {name: value for name, value in small.items() if random.random() < 0.4}
