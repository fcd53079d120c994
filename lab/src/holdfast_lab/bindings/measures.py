"""What is measured of bindings: how tables become right, copies of a message, and bytes of control.

Rules of this file: one seed, one measurement; what it is compared with is computed here from the network alone.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from heapq import heappop, heappush
from random import Random
from typing import Any, Final

from holdfast.errors import BrokenInvariant
from holdfast.federation.rows import Row
from holdfast.federation.settings import Entry
from holdfast_lab.bindings import checks
from holdfast_lab.bindings.corrupting import corrupt
from holdfast_lab.bindings.drawn import QUIET, TOPIC, Drawn, Shape
from holdfast_lab.bindings.world import World

STEP_S: Final = 3.0
SETTLED_S: Final = 45.0
"""For so long tables must stay right, to count as right."""

Graph = dict[str, dict[str, float]]


@dataclass(frozen=True, slots=True)
class Stabilised:
    """Of a run in which everything was corrupted at once. `refreshes`: until all tables were right and stayed so."""

    seed: int
    nodes: int
    diameter: int
    refreshes: float
    link_bytes: int
    failure: str

    @property
    def bound(self) -> int:
        return self.diameter + 2

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"bound": self.bound}


CORRUPTED: Final = replace(QUIET, nodes=(8, 24), long=0.4)


def stabilise(seed: int, shape: Shape = CORRUPTED) -> Stabilised:
    """Corrupts all nodes at once, at a moment that is drawn, and waits until tables are right."""
    drawn = Drawn(seed, shape)
    world, rng = drawn.world, Random(f"corruption {seed}")
    world.run(5.0)
    for _ in range(10):
        drawn._bind()
    world.run(20.0 + rng.uniform(0, world.bounds.refresh_s))
    failure = next(iter(checks.tables(world)), "")
    diameter = checks.diameter(world)
    world.checked = False
    began, before = world.now, sum(world.control.values())
    for site in world.sites.values():
        corrupt(site.core, rng, drawn.names)
    right: float | None = None
    after = before
    refresh_s = world.bounds.refresh_s
    while not failure:
        world.run(STEP_S)
        if any(checks.tables(world)):
            right = None
        elif right is None:
            right, after = world.now, sum(world.control.values())
        if right is not None and world.now - right >= SETTLED_S:
            break
        if world.now - began > (diameter + 2) * refresh_s + SETTLED_S:
            failure = next(iter(checks.tables(world)), "not right for long enough")
    if not failure:
        world.checked = True
        try:
            world.run(2 * refresh_s)  # with all invariants
            failure = checks.verdict(world)
        except BrokenInvariant as error:
            failure = str(error)
    refreshes = 0.0 if right is None else (right - began) / refresh_s
    if refreshes > diameter + 2:
        failure = failure or f"right after {refreshes:.1f} refreshes, with a diameter of {diameter}"
    return Stabilised(
        seed, len(world.sites), diameter, refreshes, (after - before) // max(1, len(world.links)), failure
    )


# ---------------------------------------------------------------------------------------------------- copies


@dataclass(frozen=True, slots=True)
class Copies:
    """Links over which messages went in a quiet network: `shared` with one copy a link, `single` with one for each
    destination; `shortest`: links of the shortest-path trees, `steiner` of heuristic Steiner trees, `flooded` of a copy
    over each link."""

    seed: int
    nodes: int
    messages: int
    shared: int
    single: int
    shortest: int
    steiner: int
    flooded: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def copies(seed: int, shape: Shape = QUIET, messages: int = 40) -> Copies:
    drawn = Drawn(seed, shape)
    world, rng = drawn.world, drawn.rng
    world.run(5.0)
    for _ in range(len(world.sites) // 2):
        drawn._bind()
    world.run(10.0)
    graph: Graph = {name: {end: float(cost) for end, cost in site.links.items()} for name, site in world.sites.items()}
    found = Copies(seed, len(world.sites), 0, 0, 0, 0, 0, 0)
    for _ in range(messages):
        name = rng.choice(drawn.names)
        one = world.publish(name, TOPIC, f"{rng.choice('abcd')}.{rng.choice('abcd')}")
        world.run(2.0)
        if one is None:
            continue
        targets = {bind.site for bind in one.got if bind.site != name}
        if targets:
            found = replace(
                found,
                messages=found.messages + 1,
                shared=found.shared + len(world.copies.get(one.publication, ())),
                single=found.single + world.singles[one.publication],
                shortest=found.shortest + len(shortest_tree(graph, name, targets)),
                steiner=found.steiner + len(steiner_tree(graph, name, targets)),
                flooded=found.flooded + len(world.links),
            )
    return found


def _ways(graph: Graph, starts: Iterable[str]) -> dict[str, tuple[float, str | None]]:
    """Cost and the node before, of each node, from the nearest of `starts`."""
    found: dict[str, tuple[float, str | None]] = {}
    heap: list[tuple[float, str, str]] = [(0.0, start, "") for start in sorted(starts)]
    while heap:
        cost, name, before = heappop(heap)
        if name in found:
            continue
        found[name] = cost, before or None
        for end, more in graph[name].items():
            if end not in found:
                heappush(heap, (cost + more, end, name))
    return found


def _edges(ways: dict[str, tuple[float, str | None]], target: str) -> set[tuple[str, str]]:
    edges = set()
    at: str = target
    while (before := ways[at][1]) is not None:
        edges.add((before, at))
        at = before
    return edges


def hops_from(graph: Graph, start: str) -> dict[str, int]:
    """To each node."""
    hops: Graph = {name: dict.fromkeys(ends, 1.0) for name, ends in graph.items()}
    return {name: int(cost) for name, (cost, _) in _ways(hops, [start]).items()}


def shortest_tree(graph: Graph, source: str, targets: Iterable[str]) -> set[tuple[str, str]]:
    ways = _ways(graph, [source])
    return set().union(*(_edges(ways, target) for target in targets))


def steiner_tree(graph: Graph, source: str, targets: Iterable[str]) -> set[tuple[str, str]]:
    """Takahashi's and Matsuyama's heuristic, with a cost of 1 a link: the nearest target joins the tree."""
    hops: Graph = {name: dict.fromkeys(ends, 1.0) for name, ends in graph.items()}
    tree, edges, left = {source}, set[tuple[str, str]](), set(targets)
    while left:
        ways = _ways(hops, tree)
        nearest = min(left, key=lambda name: (ways[name][0], name))
        more = _edges(ways, nearest)
        edges |= more
        tree |= {nearest, *(name for edge in more for name in edge)}
        left -= tree
    return edges


# ---------------------------------------------------------------------------------------------------- bytes


@dataclass(frozen=True, slots=True)
class Bytes:
    """Control bytes over one link of two nodes, both directions, without what frames and transfers add."""

    keys: int
    together: int
    """All keys bound at once, with the answers."""
    one: int
    """One more key, with its answer."""
    refresh: int
    restart: int
    """Both follow each other anew after the session broke."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def control_bytes(keys: int) -> Bytes:
    world = World(1)
    world.build([("a", "b", 0.01)], {"a": [Entry(TOPIC, "b")], "b": [Entry(TOPIC, "a")]})
    world.run(5.0)

    def spent(for_s: float) -> int:
        before = sum(world.control.values())
        world.run(for_s)
        return sum(world.control.values()) - before

    site = world.sites["b"]
    before = sum(world.control.values())
    patterns = [Row(f"flights.gate{number:05}") for number in range(keys)]
    site.core.bind(TOPIC, patterns, world.now)
    world.after(site)
    world.run(5.0)
    together = sum(world.control.values()) - before
    before = sum(world.control.values())
    site.core.bind(TOPIC, [*patterns, Row("flights.one.more")], world.now)
    world.after(site)
    world.run(2.0)
    one = sum(world.control.values()) - before
    world.run(world.bounds.refresh_s - world.now % world.bounds.refresh_s - 1.0)
    refresh = spent(5.0)
    world.cut("a", "b")
    world.run(5.0)
    world.mend("a", "b")
    return Bytes(keys, together, one, refresh, spent(5.0))
