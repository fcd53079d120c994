"""A topic that nodes pass on by static entries, in a share of the seeds; some of them hold few bytes for the next node.
And larger messages in some of the seeds with a federated topic, so that lines share their bodies (docs/adr/0102); in
others static entries beside its dynamic ones, so that messages come on several ways; and in some of all these entries
that stand at the node to which messages go (docs/adr/0113).

Rules of this file: drawn last, from streams of their own, so that nothing else of a seed changes (docs/adr/0053). Where
queues are bounded, entries make no circle: nodes that wait for each other go on too late for a run.
"""

from dataclasses import replace
from random import Random
from typing import Any, Final

from holdfast.pacing.settings import PacingConfig
from holdfast_lab.base.seed_tree import SeedTree
from holdfast_lab.draws.drawn_clients import is_guessed_at
from holdfast_lab.draws.drawn_federation import may_have_one
from holdfast_lab.draws.drawn_scenes import in_time
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.plan import Plan
from holdfast_lab.workloads.federated import PATTERNS

SHARE: Final = 0.5
"""Of the seeds in which there can be one."""

LARGER_SHARE: Final = 0.8
"""Of the seeds with a federated topic and no line that is too thin."""

MIXED_SHARE: Final = 0.5
"""Of the seeds with a federated topic and few nodes."""

ASKED_SHARE: Final = 0.4
"""Of the seeds with a federated topic."""

NODES_MAX: Final = 6
"""Where entries lead around circles each message goes by all ways."""

THIN: Final = 20e3, 100e3
"""Bytes a second below which a line takes no larger messages in time, and none that are much larger."""

TRANSACTIONS: Final = frozenset({"transact", "together"})
"""Workloads with transactions of up to `most` messages."""

USUAL_SIZE: Final = 200
"""Bytes of a body, where the workload does not say."""

MORE_BYTES: Final = 1_000
"""What a message of a transaction may count beyond its `size`."""


def with_relays(plan: Plan, seed: int) -> Plan:
    random = SeedTree(seed).child("swarm").stream("relays")
    if random.random() >= SHARE or not may_have_one(plan) or len(plan.topology.nodes) > NODES_MAX:
        return plan
    if plan.topology.pacing:  # its rates are drawn for what is sent to its root
        return plan
    is_bounded = random.random() < 0.5 and _may_be_bounded(plan, seed)
    entries = _entries(random, plan, both_ways=not is_bounded)
    pacing = _bounds(random, entries, plan) if is_bounded else {}
    told, faults = _draw(random, plan, entries)
    faults = [fault for fault in faults if not is_guessed_at(plan, fault.node)]
    return replace(
        plan, topology=replace(plan.topology, pacing=pacing), workloads=(*plan.workloads, told),
        faults=tuple(sorted((*plan.faults, *faults), key=lambda fault: fault.at)),
    )  # fmt: skip


def _entries(random: Random, plan: Plan, *, both_ways: bool) -> list[list[str]]:
    """Who passes the topic on to whom; without circles they all lead the same way."""
    order = list(plan.topology.nodes)
    random.shuffle(order)
    found: list[list[str]] = []
    for link in plan.topology.links:
        ways = [[link.one, link.other], [link.other, link.one]]
        if not both_ways:
            found.append(min(ways, key=lambda way: order.index(way[0])))
        else:
            found += ways if random.random() < 0.6 else [random.choice(ways)]
    return [way for place, way in enumerate(found) if way not in found[:place]]


def _may_be_bounded(plan: Plan, seed: int) -> bool:
    """Always, and in half the seeds beside transactions, which a full queue refuses as a whole."""
    share = SeedTree(seed).child("swarm").stream("bounds beside transactions")
    return share.random() >= 0.5 or not any(told["kind"] in TRANSACTIONS for told in plan.workloads)


def _largest_transaction(plan: Plan) -> int:
    """Bytes: with less room it could never be committed."""
    told = [told for told in plan.workloads if told["kind"] in TRANSACTIONS]
    return max([int(item["most"]) * (int(item.get("size", USUAL_SIZE)) + MORE_BYTES) for item in told], default=0)


def _bounds(random: Random, entries: list[list[str]], plan: Plan) -> dict[str, PacingConfig]:
    """Nodes that take little for the next ones, and at least one transaction."""
    least = _largest_transaction(plan)
    onward: dict[str, list[str]] = {}
    for here, there in entries:
        onward.setdefault(here, []).append(there)
    return {
        here: PacingConfig(roots=tuple(there), capacity_bytes=least + random.choice((1_000, 5_000)), when_full="block")
        for here, there in onward.items()
        if random.random() < 0.7
    }


def _draw(random: Random, plan: Plan, entries: list[list[str]]) -> tuple[dict[str, Any], list[Fault]]:
    nodes, span_s = plan.topology.nodes, min(10.0, plan.safety_s)
    subscriptions = [
        {"node": node, "pattern": random.choice([*PATTERNS]), "selector": "", "from_s": 0.0, "for_s": 0.0}
        for node in nodes
    ]
    messages = in_time(plan, random.choice((10, 40)))
    publishers = random.sample(nodes, min(len(nodes), random.choice((1, 2))))
    told: dict[str, Any] = {"kind": "federated", "topic": "relayed", "name": "relayed", "mode": "push"}
    told |= {"entries": entries, "publishers": publishers, "subscriptions": subscriptions, "messages": messages}
    told |= {"rate": round(messages / span_s, 3), "size": random.choice((12, 200)), "confirm_s": 0.0}
    told |= {"credit": random.choice((1, 50)), "after_s": random.choice((0.0, 1.0))}
    faults = []
    for _ in range(random.choice((0, 3, 6))):
        kind = random.choice(("crash", "power", "refusing-disk"))
        at = round(random.uniform(0.2, span_s), 6)
        when = random.choice(("", "a commit is under way"))
        faults.append(Fault(kind=kind, at=at, node=random.choice(nodes), seconds=0.3, when=when))
    return told, faults


def with_larger(plan: Plan, seed: int) -> Plan:
    random = SeedTree(seed).child("swarm").stream("larger messages of federated topics")
    rate = min([shape.rate for link in plan.topology.links for shape in link.shapes if shape.rate is not None] or [1e9])
    least, usual = THIN
    if random.random() >= LARGER_SHARE or rate < least:
        return plan
    size = random.choice((300, 1_000, 3_000)) if rate >= usual else 300
    return replace(
        plan,
        workloads=tuple(
            {**told, "size": size} if told["kind"] == "federated" and told.get("mode", "dynamic") == "dynamic" else told
            for told in plan.workloads
        ),
    )


def with_mixed(plan: Plan, seed: int) -> Plan:
    """Some entries of the federated topic push everything: who has them passes on what its publisher chose it for."""
    random = SeedTree(seed).child("swarm").stream("static entries of federated topics")
    if random.random() >= MIXED_SHARE or len(plan.topology.nodes) > NODES_MAX or plan.topology.pacing:
        return plan
    workloads = []
    for told in plan.workloads:
        if told["kind"] == "federated" and told.get("mode", "dynamic") == "dynamic":
            entries = told["entries"]
            pushed = random.sample(entries, random.randint(1, max(1, len(entries) // 2)))
            told = {**told, "pushed": [way for way in entries if way in pushed]}
        workloads.append(told)
    return replace(plan, workloads=tuple(workloads))


def with_asked(plan: Plan, seed: int) -> Plan:
    """Some dynamic entries of the federated topic stand at the node that wants it, which asks the other one."""
    random = SeedTree(seed).child("swarm").stream("federated topics that are asked for")
    if random.random() >= ASKED_SHARE:
        return plan
    workloads = []
    for told in plan.workloads:
        if told["kind"] == "federated" and told.get("mode", "dynamic") == "dynamic":
            pushed = told.get("pushed", [])
            free = [way for way in told["entries"] if way not in pushed and way[::-1] not in pushed]
            asked = random.sample(free, random.randint(0, len(free)))
            told = {**told, "asked": [way for way in free if way in asked]}
        workloads.append(told)
    return replace(plan, workloads=tuple(workloads))
