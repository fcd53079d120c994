"""What whole nodes hold of bindings is spoilt at all of them at once: how many refreshes until every table is right.

Rules of this file: one seed, one run. What is spoilt holds all invariants, so that only others show that it is wrong; a
table counts as right once it stays so.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Any, Final

from holdfast.federation.sets import Key
from holdfast.federation.settings import Bounds, Entry
from holdfast_lab.base.client_history import Violation
from holdfast_lab.bindings.measures import Graph, hops_from
from holdfast_lab.federated.forms import FORMS, drawn
from holdfast_lab.histories.federation import PATTERNS, TOPIC, federation, spoil, subscriber
from holdfast_lab.histories.stage import History, Stage
from holdfast_lab.plan.networks import Topology

REFRESH_S: Final = Bounds().refresh_s
SETTLED_S: Final = 45.0
"""For so long tables must stay right."""


@dataclass(slots=True)
class Spoilt:
    """`sets`: those that were spoilt; `refreshes`: until all tables were right and stayed so."""

    seed: int
    form: str
    nodes: int = 0
    diameter: int = 0
    sets: int = 0
    refreshes: float = 0.0
    failure: str = ""

    @property
    def bound(self) -> int:
        return self.diameter + 2

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def right(stage: Stage, wanted: dict[str, set[str]]) -> bool:
    """Whether each node has of each the edition that it has itself, with what its clients want."""
    for origin in stage.nodes:
        key = Key(origin, TOPIC)
        theirs = federation(stage, origin)
        own = None if theirs is None else theirs.sets.committed(key)
        if own is None or {row.pattern for row in own.rows} != wanted.get(origin, set()):
            return False
        for node in stage.nodes:
            found = federation(stage, node)
            held = None if found is None else found.sets.committed(key)
            if held is None or held.edition != own.edition or held.rows != own.rows:
                return False
    return True


def spoilt(seed: int) -> Spoilt:
    form = [name for name in FORMS if name not in ("one-way links", "islands that join")][seed % (len(FORMS) - 2)]
    made = Spoilt(seed, form)

    def network(random: Random) -> Topology:
        topology = drawn(form, random)
        entries = {node: tuple(Entry(TOPIC, name) for name in topology.neighbours(node)) for node in topology.nodes}
        graph: Graph = {name: dict.fromkeys(topology.neighbours(name), 1.0) for name in topology.nodes}
        made.nodes, made.diameter = len(topology.nodes), max(_farthest(graph))
        return replace(topology, federation=entries)

    async def act(stage: Stage) -> None:
        await stage.together()
        some = stage.random.sample([*stage.nodes], max(1, len(stage.nodes) // 2))
        wanted = {node: set(stage.random.sample(PATTERNS, stage.some(1, 3))) for node in some}
        for node, patterns in wanted.items():
            subscriber(stage, node, *sorted(patterns))
        await stage.until("all know of all", lambda: right(stage, wanted), 90.0)
        await stage.moment(REFRESH_S)
        made.sets = sum(spoil(stage, node) for node in stage.nodes)
        world = stage.bed.world
        began = world.elapsed_s
        while True:
            left_s = (made.bound + 1) * REFRESH_S - (world.elapsed_s - began)
            await stage.until("all tables are right again", lambda: right(stage, wanted), max(0.0, left_s))
            made.refreshes = (world.elapsed_s - began) / REFRESH_S
            try:
                await stage.holds("tables stay right", lambda: right(stage, wanted), SETTLED_S)
            except Violation:
                continue
            break
        stage.check(made.refreshes <= made.bound, f"tables are right after {made.refreshes:.1f} refreshes")

    result = History("spoilt", "Bindings that are spoilt at all nodes become right.", network, act).run(seed)
    made.failure = "" if result.ok else result.failure
    return made


def _farthest(graph: Graph) -> Iterable[int]:
    """From each node, the hops to the one that is farthest away."""
    return (max(hops_from(graph, name).values()) for name in graph)
