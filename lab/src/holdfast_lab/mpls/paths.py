"""Shortest paths over what a router knows of the network.

Rules of this file: pure functions of a graph. Of equal costs the fewest hops, then the lowest names, as nodes compute
theirs (holdfast/routing/paths.py), so that one input gives one tree.
"""

from collections.abc import Collection, Mapping

from holdfast.routing.paths import shortest_paths
from holdfast.routing.topology import MICRO

Graph = Mapping[str, Mapping[str, float]]
"""Cost by node and neighbour."""


def two_way(known: Graph) -> dict[str, dict[str, float]]:
    """The links that both ends announce, as link-state protocols demand."""
    return {
        node: {other: cost for other, cost in neighbours.items() if node in known.get(other, {})}
        for node, neighbours in known.items()
    }


def shortest(graph: Graph, source: str, *, without: Collection[str] = ()) -> dict[str, tuple[str, ...]]:
    """The path to each node that can be reached, both ends included; none goes through a node of `without`."""
    edges = {
        node: {other: round(cost * MICRO) for other, cost in neighbours.items() if other not in without}
        for node, neighbours in graph.items()
    }
    found = shortest_paths(edges, source)
    return {source: (source,), **{name: path.nodes for name, path in found.items()}}
