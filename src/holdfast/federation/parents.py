"""From which neighbour each set is taken: the first hop of the way to its origin over the topic's graph.

Rules of this file: pure. An edge of the topic's graph is an entry by which a node forwards the topic; a way is one that
messages could go, with the fewest nodes, then the lowest cost, then the lowest names.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from holdfast.routing.paths import Edges, Graph

HOP_MICRO: Final = 1 << 60
"""Above the cost of any way: what a hop costs beside its own, so that the fewest hops come first."""


@dataclass(frozen=True, slots=True)
class Routes:
    """What routing says. `up`: from node, to node, the cost in millionths, of links that carry messages."""

    up: Edges = field(default_factory=dict)


Ways = dict[frozenset[tuple[str, frozenset[str]]], tuple[dict[str, str], set[str]]]
"""Parents, and who is reached, by the edges."""


def parents(name: str, edges: Mapping[str, Iterable[str]], routes: Routes) -> dict[str, str]:
    """The parent of each node that is reached. `edges`: of each node of the topic, `name` among them."""
    up = routes.up
    usable = {
        start: {end: HOP_MICRO + up[start][end] for end in ends if end in up.get(start, ())}
        for start, ends in edges.items()
    }
    return {node: path.next_hop for node, path in Graph(usable).paths_from(name).items()}


def ways(name: str, edges: Mapping[str, frozenset[str]], routes: Routes, made: Ways) -> tuple[dict[str, str], set[str]]:
    """`parents` and `reached`, worked out once for all topics that have the same edges: `made`."""
    alike = frozenset(edges.items())
    if alike not in made:
        made[alike] = parents(name, edges, routes), reached(name, edges)
    return made[alike]


def reached(name: str, edges: Mapping[str, Iterable[str]]) -> set[str]:
    """The nodes to which entries lead, whatever is down; `name` is none of them."""
    found, at = {name}, [name]
    while at:
        for end in edges.get(at.pop(), ()):
            if end not in found:
                found.add(end)
                at.append(end)
    found.discard(name)
    return found
