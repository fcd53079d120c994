"""Shortest paths: Dijkstra's algorithm, with one answer where several paths cost the same. esb-dynamic-routing §4.1.

Of equal costs the fewest hops, then the lowest names, path compared with path node by node. So two nodes with the same
table always have the same way, and what one sends as the shortest another verifies as such (§4.4).

Rules of this file: pure and exact: costs are whole millionths, names are compared as Python compares texts (by code
point). Cost and hops are one whole number, which makes a comparison of both one of numbers:

    key = cost_micro << hops_bits + node_bits  |  hops << node_bits  |  the node's place among the names

The place rides along so that a heap of plain numbers suffices; it never decides between two paths to one node.
"""

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

Edges = Mapping[str, Mapping[str, int]]
"""From node, to node: the cost in millionths, above 0. A node that only others name has no way out."""


class Path(NamedTuple):
    """`nodes` with both ends, at least two."""

    cost_micro: int
    nodes: tuple[str, ...]

    @property
    def next_hop(self) -> str:
        return self.nodes[1]


_path = tuple.__new__
"""A named tuple's own way to be made costs twice as much, 16,000 times in a table of everybody's."""


class Graph:
    """Edges made ready for many questions; later changes of them are not seen. O(edges) to make.

    Each question is one run of Dijkstra's algorithm, O((nodes + edges) log nodes).
    """

    def __init__(self, edges: Edges) -> None:
        names = set(edges).union(*edges.values())
        self.names: tuple[str, ...] = tuple(sorted(names))
        self._places = {name: place for place, name in enumerate(self.names)}
        count = len(self.names)
        self._node_bits = count.bit_length()
        self._cost_bits = 2 * self._node_bits
        hop = 1 << self._node_bits
        self._out: list[list[tuple[int, int]]] = [[] for _ in range(count)]
        self._in: list[list[tuple[int, int]]] = [[] for _ in range(count)]
        for start, ends in edges.items():
            first = self._places[start]
            out = self._out[first]
            for end, cost_micro in ends.items():
                assert cost_micro > 0, (start, end, cost_micro)
                last = self._places[end]
                # What an edge adds to its start's key: cost, one hop, and the place of its end.
                weight = (cost_micro << self._cost_bits) + hop
                out.append((last, weight + last))
                self._in[last].append((first, weight + first))

    def paths_from(self, source: str) -> dict[str, Path]:
        """The shortest path to each node that `source` reaches, itself left out; nearest first."""
        found = self._places.get(source)
        if found is None:
            return {}
        names, cost_bits = self.names, self._cost_bits
        keys, order, before = self._settle(found, self._out)
        paths: list[tuple[str, ...]] = [()] * len(names)
        paths[found] = (source,)
        answer = {}
        for place in order[1:]:
            options = before[place]
            via = options[0]
            if len(options) > 1:
                # All are equally long and end at different nodes, so the lowest of them makes the lowest path here.
                via = min(options, key=paths.__getitem__)
            name = names[place]
            nodes = paths[place] = (*paths[via], name)
            answer[name] = _path(Path, (keys[place] >> cost_bits, nodes))
        return answer

    def paths_to(self, target: str) -> dict[str, Path]:
        """The shortest path from each node that reaches `target`, itself left out; nearest first.

        `paths_to(t)[s] == paths_from(s)[t]`: one run gives the paths by which all nodes' messages should arrive.
        """
        found = self._places.get(target)
        if found is None:
            return {}
        names, cost_bits = self.names, self._cost_bits
        keys, order, after = self._settle(found, self._in)
        paths: list[tuple[str, ...]] = [()] * len(names)
        paths[found] = (target,)
        answer = {}
        for place in order[1:]:
            # Two paths from here differ in their next node already.
            name = names[place]
            nodes = paths[place] = (name, *paths[min(after[place])])
            answer[name] = _path(Path, (keys[place] >> cost_bits, nodes))
        return answer

    def _settle(
        self, start: int, edges: Sequence[Sequence[tuple[int, int]]]
    ) -> tuple[list[int], list[int], list[list[int]]]:
        """Keys by place; the places reached, in the order of their keys; for each place all that come before it on a
        shortest path of the fewest hops.
        """
        mask = (1 << self._node_bits) - 1
        beyond = 1 << 200  # above any key of 10,000 nodes and costs of 10^15
        keys = [beyond] * len(self.names)
        before: list[list[int]] = [[]] * len(self.names)
        order: list[int] = []
        keys[start] = start
        heap = [start]
        while heap:
            key = heappop(heap)
            place = key & mask
            if key != keys[place]:
                continue  # a shorter way was found since
            order.append(place)
            key -= place
            for end, weight in edges[place]:
                other = key + weight
                if other < keys[end]:
                    keys[end] = other
                    before[end] = [place]
                    heappush(heap, other)
                elif other == keys[end]:
                    before[end].append(place)
        return keys, order, before


def shortest_paths(edges: Edges, source: str) -> dict[str, Path]:
    """The shortest path to each node that `source` reaches, itself left out; nearest first. Several
    questions of one table go to one `Graph`.
    """
    return Graph(edges).paths_from(source)
