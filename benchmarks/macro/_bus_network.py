"""The network of a routing measurement, and what must be true of it once links are cut and nodes are down.

Rules of this file: what is expected comes from the file, by the function behind `holdfast topology routes`, never from
a node that runs; `independent` asks networkx.
"""

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.node.topology import load_topology
from holdfast.routing.paths import shortest_paths
from holdfast.routing.topology import Topology

Edge = tuple[str, str]
Table = dict[str, tuple[str, ...]]
"""Destination to the whole path, both ends in it."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What every node should say: the links that carry, and each node's table."""

    links: frozenset[Edge]
    tables: dict[str, Table]


class Network:
    """The file's topology, less what is cut and who is down."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.topology = load_topology(file)
        self.names = [node.name for node in self.topology.nodes]
        self.cut: set[frozenset[str]] = set()
        self.down: set[str] = set()

    @property
    def up(self) -> list[str]:
        return [name for name in self.names if name not in self.down]

    def supers(self) -> list[str]:
        """Super nodes that are up; the first acts."""
        return [node.name for node in self.topology.supers() if node.name not in self.down]

    def left(self) -> Topology:
        """The topology without what is cut and who is down."""
        links = tuple(
            link
            for link in self.topology.links
            if frozenset(link.ends) not in self.cut and not self.down.intersection(link.ends)
        )
        return Topology(tuple(node for node in self.topology.nodes if node.name not in self.down), links)

    def expected(self) -> Expected:
        """What `holdfast topology routes` says of what is left."""
        left = self.left()
        edges = left.edges()
        links = frozenset((start, end) for start, ends in edges.items() for end in ends)
        return Expected(links, {node.name: routes(left, node.name) for node in left.nodes})


def routes(topology: Topology, node: str) -> Table:
    """What `holdfast topology routes FILE --from NODE --json` prints of each destination."""
    return {end: path.nodes for end, path in shortest_paths(topology.edges(), node).items()}


def table_of(status: dict[str, Any]) -> Table:
    """The same of a node that runs, by its status."""
    return {row["destination"]: tuple(row["path"]) for row in status["routes"] if row.get("path")}


def independent(topology: Topology, tables: dict[str, Table]) -> str:
    """What networkx says of those tables: "same" where each path is a shortest one and nobody in reach is missing;
    else the first difference. Needs networkx.
    """
    import networkx

    graph = networkx.DiGraph()
    graph.add_nodes_from(node.name for node in topology.nodes)
    for start, ends in topology.edges().items():
        graph.add_weighted_edges_from((start, end, cost) for end, cost in ends.items())
    for start, table in tables.items():
        lengths = networkx.single_source_dijkstra_path_length(graph, start)
        if set(lengths) - {start} != set(table):
            return f"{start}: reaches {sorted(lengths)}, has {sorted(table)}"
        for end, path in table.items():
            hops = list(itertools.pairwise(path))
            if not all(graph.has_edge(*hop) for hop in hops):
                return f"{start} to {end}: {path} is no path"
            if sum(graph.edges[hop]["weight"] for hop in hops) != lengths[end]:
                return f"{start} to {end}: {path} is longer than {lengths[end]}"
    return "same"


def way_round(topology: Topology, source: str, target: str, avoid: Edge) -> bool:
    """Whether LAN links alone lead from `source` to `target` when that link is cut."""
    ends: dict[str, set[str]] = {}
    for link in topology.links:
        if link.kind != "serial" and set(link.ends) != set(avoid):
            ends.setdefault(link.from_, set()).add(link.to)
            if link.direction == "both":
                ends.setdefault(link.to, set()).add(link.from_)
    reached, waiting = {source}, [source]
    while waiting:
        new = ends.get(waiting.pop(), set()) - reached
        reached |= new
        waiting += sorted(new)
    return target in reached
