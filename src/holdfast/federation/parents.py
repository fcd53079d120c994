"""From which neighbour each set is taken: the first hop of the way to its origin over the topic's graph.

Rules of this file: pure. An edge of the topic's graph is an entry by which a node forwards the topic; a way is one that
messages could go, with the fewest nodes, then the lowest cost, then the lowest names.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from holdfast.routing.paths import Edges, Graph

HOP_MICRO: Final = 1 << 60
"""Added to the cost of each hop, and greater than the cost of any path, so that paths with the fewest hops win."""


@dataclass(frozen=True, slots=True)
class Routes:
    """The result of routing. `up`: from node → to node → the cost in millionths, of links that carry messages."""

    up: Edges = field(default_factory=dict)


Ways = dict[frozenset[tuple[str, frozenset[str]]], tuple[dict[str, str], set[str]]]
"""The edges of a topic → its parents and the nodes that are reached."""


def parents(name: str, edges: Mapping[str, Iterable[str]], routes: Routes) -> dict[str, str]:
    """The parent of each node that is reached. `edges`: of each node of the topic, including `name`."""
    up = routes.up
    usable = {
        start: {end: HOP_MICRO + up[start][end] for end in ends if end in up.get(start, ())}
        for start, ends in edges.items()
    }
    return {node: path.next_hop for node, path in Graph(usable).paths_from(name).items()}


def ways(name: str, edges: Mapping[str, frozenset[str]], routes: Routes, made: Ways) -> tuple[dict[str, str], set[str]]:
    """`parents` and `reached`, computed once for all topics with the same edges and cached in `made`."""
    alike = frozenset(edges.items())
    if alike not in made:
        made[alike] = parents(name, edges, routes), reached(name, edges)
    return made[alike]


def reached(name: str, edges: Mapping[str, Iterable[str]]) -> set[str]:
    """The nodes that entries lead to, whether links are up or not; without `name`."""
    found, at = {name}, [name]
    while at:
        for end in edges.get(at.pop(), ()):
            if end not in found:
                found.add(end)
                at.append(end)
    found.discard(name)
    return found


def both_ways(routes: Routes) -> dict[str, set[str]]:
    """The links that carry messages in either direction."""
    both: dict[str, set[str]] = {}
    for start, ends in routes.up.items():
        for end in ends:
            both.setdefault(start, set()).add(end)
            both.setdefault(end, set()).add(start)
    return both
