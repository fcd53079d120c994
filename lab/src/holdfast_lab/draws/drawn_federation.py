"""A federated topic, in a share of the seeds: which links forward it, who publishes, and subscriptions that come and
go, each confirmed (docs/adr/0082).

Rules of this file: drawn last, from a stream of its own, so that nothing else of a seed changes (docs/adr/0053). What a
node stored stays what it is, or a confirmation means nothing.
"""

from dataclasses import replace
from random import Random
from typing import Any, Final

from holdfast_lab.base.seed_tree import SeedTree
from holdfast_lab.draws.drawn_scenes import in_time, renewed_in
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.plan import Plan
from holdfast_lab.workloads.federated import PATTERNS, SELECTORS

SHARE: Final = 0.25
"""Of the seeds in which there can be one."""

NODES_MAX: Final = 16

SPOILS: Final = frozenset({"lying-peer", "defect", "purge", "earlier-version", "wrong-tables", "forbid"})
"""Faults beside which not all comes that was promised: somebody lies, or an operator deletes."""


def with_federation(plan: Plan, seed: int) -> Plan:
    random = SeedTree(seed).child("swarm").stream("federation")
    if random.random() >= SHARE or not may_have_one(plan):
        return plan
    told, faults = draw(random, plan)
    return replace(
        plan, workloads=(*plan.workloads, told),
        faults=tuple(sorted((*plan.faults, *faults), key=lambda fault: fault.at)),
    )  # fmt: skip


def may_have_one(plan: Plan) -> bool:
    topology = plan.topology
    if renewed_in(plan) or topology.takes or not 2 <= len(topology.nodes) <= NODES_MAX:
        return False
    if any(told["kind"] == "addressed" for told in plan.workloads):
        return False  # two large messages that wait on one link come about there when little else is sent
    return not any(fault.kind in SPOILS for fault in plan.faults)


def draw(random: Random, plan: Plan) -> tuple[dict[str, Any], list[Fault]]:
    """The workload, and the faults that go with it."""
    nodes, span_s = plan.topology.nodes, min(10.0, plan.safety_s)
    entries = []
    for link in plan.topology.links:
        ways = [[link.one, link.other], [link.other, link.one]]
        entries += ways if random.random() < 0.8 else [random.choice(ways)]
    subscriptions = [
        {
            "node": random.choice(nodes),
            "pattern": random.choice([*PATTERNS]),
            "selector": random.choice(("", "", *SELECTORS)),
            "from_s": round(random.choice((0.0, 0.0, random.uniform(0.0, span_s))), 6),
            "for_s": round(random.choice((0.0, 0.0, random.uniform(0.5, span_s))), 6),
        }
        for _ in range(random.choice((2, 4, 8)))
    ]
    faults: list[Fault] = []
    if random.random() < 0.7:
        more, faults = _handed_over(random, random.choice(nodes), span_s)
        subscriptions += more
    messages = in_time(plan, random.choice((30, 100)))
    publishers = random.sample(nodes, min(len(nodes), random.choice((1, 2, 3))))
    told: dict[str, Any] = {"kind": "federated", "topic": "spread", "entries": entries, "publishers": publishers}
    told |= {"subscriptions": subscriptions, "messages": messages, "rate": round(messages / span_s, 3)}
    told |= {"size": random.choice((12, 200)), "confirm_s": random.choice((0.0, 2.0, 10.0))}
    told |= {"credit": random.choice((1, 50)), "after_s": random.choice((0.0, 1.0, 3.0))}
    concerned = [*publishers, *(str(each["node"]) for each in subscriptions)]
    for _ in range(random.choice((0, 3, 8))):
        kind = random.choice(("crash", "power", "cut-clients", "refusing-disk"))
        at, seconds = round(random.uniform(0.2, span_s), 6), 0.0 if kind == "cut-clients" else 0.3
        when = random.choice(("", "a commit is under way"))
        faults.append(Fault(kind=kind, at=at, node=random.choice(concerned), seconds=seconds, when=when))
    return told, faults


def _handed_over(random: Random, node: str, span_s: float) -> tuple[list[dict[str, Any]], list[Fault]]:
    """A subscription to everything ends while others come, or one that takes its name, that are confirmed by it: they
    are never without."""
    at = random.uniform(0.3, 0.8) * span_s
    leaves = {"node": node, "pattern": "#", "selector": "", "from_s": 0.0, "for_s": round(at, 6)}
    changes = {**leaves, "then": random.choice(("s.*", "s.*", "s.0"))}
    comes = [
        {"node": node, "pattern": pattern, "selector": selector, "for_s": 0.0}
        | {"from_s": round(at + random.uniform(-0.3, 0.1), 6)}
        for pattern, selector in (("s.*", ""), ("s.0", ""), ("*.1", ""), ("s.*", "even = TRUE"), ("s.*", "number > 10"))
    ]
    return random.choice(([leaves, *comes], [changes], [changes])), [
        Fault(kind="slow-disk", at=round(max(0.0, at - 1.0), 6), node=node, seconds=3.0, amount=50.0)
    ]
