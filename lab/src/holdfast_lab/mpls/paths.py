"""Shortest paths over what a router knows of the network.

Rules of this file: pure functions of a graph; of equal costs the fewest hops, then the lowest names, so that one input
gives one tree.
"""

from collections.abc import Collection, Mapping
from heapq import heappop, heappush

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
    found: dict[str, tuple[str, ...]] = {}
    heap: list[tuple[float, int, tuple[str, ...]]] = [(0.0, 0, (source,))]
    while heap:
        cost, hops, path = heappop(heap)
        node = path[-1]
        if node in found:
            continue
        found[node] = path
        for other, more in graph.get(node, {}).items():
            if other not in found and other not in without:
                heappush(heap, (cost + more, hops + 1, (*path, other)))
    return found
