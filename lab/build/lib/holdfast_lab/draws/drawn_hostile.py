"""Hostile clients beside what a seed of the swarm draws anyway.

Rules of this file: from a stream of its own, so that nothing else of a seed changes. They stay off queues where another
consumer would change what an honest program may expect (ranges of a subscription, a lone consumer's own order), and
name other nodes only where links are fast: what they send must not keep honest messages from being through in time.
"""

from dataclasses import replace
from typing import Any, Final

from holdfast_lab.base.seed_tree import SeedTree
from holdfast_lab.plan.plan import Plan

SHARE: Final = 0.25
"""Of the swarm's seeds, those with hostile clients."""
FAST_BYTES_PER_S: Final = 1e6
UNTIL: Final = 0.9
"""They are gone after this share of the time in which faults strike."""
HELD_BYTES: Final = 1_000_000
"""What hostile clients hold at most, all together; they are of the same user as honest ones."""
HOLD_S: Final = 5.0
GIVES_BACK: Final = frozenset({"release", "modify", "reject"})


def with_hostile(plan: Plan, seed: int) -> Plan:
    """The plan with hostile clients, for a share of seeds."""
    random = SeedTree(seed).child("swarm").stream("hostile")
    if random.random() >= SHARE:
        return plan
    shapes = [shape for link in plan.topology.links for shape in (link.there, link.back) if shape is not None]
    fast = all(shape.rate is None or shape.rate >= FAST_BYTES_PER_S for shape in shapes)
    found = []
    for number in range(random.choice((1, 1, 2))):
        node = random.choice(plan.topology.nodes)
        consumed = [told for told in plan.workloads if told["kind"] == "consume" and told["node"] == node]
        told: dict[str, Any] = {
            "kind": "hostile",
            "node": node,
            "clients": random.choice((1, 2, 3)),
            "acts": random.choice((30, 100, 300)),
            "seconds": round(plan.safety_s * UNTIL, 3),
            "pause_s": random.choice((0.001, 0.02, 0.1)),
            "rude": random.choice((0.0, 0.05, 0.2)),
            "far": fast and random.random() < 0.5,
            "name": f"hostile{number}",
        }
        if consumed:
            honest = random.choice(consumed)
            told["shared"] = honest["queue"]
            alike = [told for told in plan.workloads if told.get("queue") == honest["queue"]]
            if not any(GIVES_BACK & set(told) for told in alike) and random.random() < 0.6:
                told["held"] = honest["queue"]
        found.append(told)
    return replace(plan, workloads=(*plan.workloads, *found))


def with_short_holds(plan: Plan, seed: int) -> Plan:
    """The plan with links of clients that are gone kept for seconds, where its hostile clients could else keep for
    minutes all that their user may hold, and nothing would be left to honest ones."""
    limits = plan.topology.limits
    hostile = any(told["kind"] == "hostile" for told in plan.workloads)
    if not hostile or limits.user_unsettled_bytes_max > HELD_BYTES:
        return plan
    topology = replace(plan.topology, limits=replace(limits, resume_s_max=min(HOLD_S, limits.resume_s_max)))
    return replace(plan, topology=topology)
