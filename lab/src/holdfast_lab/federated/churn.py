"""Subscriptions to a federated topic come and go on whole nodes, while nodes die and links break; and the copies of a
message in a quiet network.

Rules of this file: one seed, one run. What is due is judged by the workload, and by the checkers of every run.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from random import Random
from typing import Any, Final

from holdfast_lab.bindings.measures import Graph, shortest_tree, steiner_tree
from holdfast_lab.federated.forms import FORMS, drawn, entries
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.networks import Topology
from holdfast_lab.plan.plan import Plan
from holdfast_lab.runs.run import execute
from holdfast_lab.workloads.federated import PATTERNS, SELECTORS

SPAN_S: Final = 12.0
"""Of publishing, binding and breaking."""

JOIN_S: Final = 5.0
"""When islands join."""

RATE: Final = 4.0


@dataclass(frozen=True, slots=True)
class Churned:
    """One run. `binds`: subscriptions; `due`: deliveries that were promised; `shown`: all that came."""

    seed: int
    form: str
    nodes: int
    binds: int
    confirmations: int
    accepted: int
    due: int
    shown: int
    faults: int
    failure: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def churned(seed: int) -> Churned:
    """The form of the network goes by the seed's place among all."""
    form = [*FORMS][seed % len(FORMS)]
    random = Random(f"churned nodes {seed}")
    topology = drawn(form, random)
    told = _workload(form, topology, random, _come_and_go(topology, random))
    faults = _faults(form, topology, random)
    plan = Plan(name="federated", topology=topology, workloads=(told,), faults=faults, safety_s=SPAN_S)
    result = execute(plan, seed)
    count = _metrics(result.metrics)
    return Churned(
        seed, form, len(topology.nodes), len(told["subscriptions"]), count("confirmations"), count("accepted"),
        count("due"), count("shown"), len(faults), "" if result.ok else result.failure,
    )  # fmt: skip


def _metrics(metrics: Mapping[str, Any]) -> Any:
    return lambda name: int(sum(found for key, found in metrics.items() if key.endswith(f".{name}")))


def _come_and_go(topology: Topology, random: Random) -> list[dict[str, Any]]:
    return [
        {
            "node": random.choice(topology.nodes),
            "pattern": random.choice([*PATTERNS]),
            "selector": random.choice(("", "", *SELECTORS)),
            "from_s": round(random.choice((0.0, random.uniform(0.0, SPAN_S))), 3),
            "for_s": round(random.choice((0.0, random.uniform(0.5, SPAN_S / 2))), 3),
        }
        for _ in range(2 * len(topology.nodes))
    ]


def _workload(form: str, topology: Topology, random: Random, subscriptions: list[dict[str, Any]]) -> dict[str, Any]:
    publishers = random.sample(topology.nodes, min(3, len(topology.nodes)))
    return {
        "kind": "federated", "topic": "spread", "entries": entries(form, topology, random), "publishers": publishers,
        "subscriptions": subscriptions, "messages": int(RATE * SPAN_S), "rate": RATE, "size": 100, "confirm_s": 2.0,
        "credit": 50,
    }  # fmt: skip


def _faults(form: str, topology: Topology, random: Random) -> tuple[Fault, ...]:
    ends = [(link.one, link.other) for link in topology.links]
    faults = []
    for _ in range(random.randint(2, 8)):
        kind = random.choice(
            ("crash", "power", "cut-clients", "refusing-disk", "cut", "cut", "partition", "silent-cut")
        )
        at, seconds = round(random.uniform(0.5, SPAN_S), 3), round(random.uniform(0.2, 3.0), 3)
        if kind in ("cut", "partition", "silent-cut"):
            faults.append(Fault(kind=kind, at=at, link=random.choice(ends), seconds=seconds))
        else:
            length = 0.0 if kind == "cut-clients" else min(seconds, 1.0)
            faults.append(Fault(kind=kind, at=at, node=random.choice(topology.nodes), seconds=length))
    if form == "islands that join":
        faults.append(Fault(kind="partition", at=0.0, link=ends[len(ends) // 2], seconds=JOIN_S))
    return tuple(sorted(faults, key=lambda fault: fault.at))


# ---------------------------------------------------------------------------------------------------- copies


@dataclass(frozen=True, slots=True)
class Forwarded:
    """Of the messages of a quiet run: `copies` that were stored for a next hop, at all nodes, and `bodies`: those of
    them that were sent with their bare message; links of the `shortest`-path trees, and of heuristic `steiner` trees,
    to the nodes that each was for."""

    seed: int
    form: str
    nodes: int
    messages: int
    copies: int
    bodies: int
    shortest: int
    steiner: int
    failure: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def forwarded(seed: int) -> Forwarded:
    form = [name for name in FORMS if name not in ("one-way links", "islands that join")][seed % (len(FORMS) - 2)]
    random = Random(f"copies of nodes {seed}")
    topology = drawn(form, random)
    whole = {"selector": "", "from_s": 0.0, "for_s": 0.0}
    subscriptions = [
        {"node": node, "pattern": random.choice([*PATTERNS][:-1])} | whole
        for node in topology.nodes
        if random.random() < 0.5
    ]
    told = _workload(form, topology, random, subscriptions) | {"after_s": 5.0, "messages": 20, "size": 1_000}
    plan = Plan(name="federated", topology=topology, workloads=(told,), faults=(), safety_s=SPAN_S)
    result = execute(plan, seed, keep_notes=True)
    graph: Graph = {name: dict.fromkeys(topology.neighbours(name), 1.0) for name in topology.nodes}
    targets: dict[str, dict[str, None]] = {}
    starts: dict[str, str] = {}
    copies = 0
    for note in result.notes:
        if note.kind == "append" and " to @" in note.text:
            key, _, destination = note.text.partition(" to @")
            starts.setdefault(key, note.place)  # the notes are in order, so the first is its publisher's node
            targets.setdefault(key, {})[destination] = None
            copies += 1
    trees = [(starts[key], wanted) for key, wanted in targets.items()]
    return Forwarded(
        seed, form, len(topology.nodes), len(trees), copies, copies - int(result.metrics["shared"]),
        sum(len(shortest_tree(graph, start, wanted)) for start, wanted in trees),
        sum(len(steiner_tree(graph, start, wanted)) for start, wanted in trees),
        "" if result.ok else result.failure,
    )  # fmt: skip
