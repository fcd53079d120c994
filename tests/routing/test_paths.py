"""Shortest paths against networkx's costs, and ties against every path there is."""

import random
from collections.abc import Iterator
from itertools import pairwise, permutations

import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.routing.paths import Edges, Graph, Path, shortest_paths
from holdfast.routing.topology import COST_MAX, MICRO, NODES_MAX

TOPOLOGIES = 500
EVENTS = 20


class Network:
    """Directed edges that go down, come up and change their cost."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.names = [f"n{number}" for number in range(chance.randint(2, 12))]
        self.edges: dict[str, dict[str, int]] = {name: {} for name in self.names}
        # Few costs make many ties; costs that differ by a millionth must not be taken for one.
        self.costs = chance.choice([[1_000_000], [1, 2, 3], [999_999, 1_000_000, 1_000_001, 72_111_111]])
        self.down: dict[tuple[str, str], int] = {}
        for start in self.names:
            for end in self.names:
                if start != end and chance.random() < 0.3:
                    self.edges[start][end] = chance.choice(self.costs)

    def event(self) -> None:
        up = [(start, end) for start, ends in self.edges.items() for end in ends]
        kind = self.chance.choice(["down", "up", "cost"])
        if kind == "up" and self.down:
            start, end = self.chance.choice(sorted(self.down))
            self.edges[start][end] = self.down.pop((start, end))
        elif up:
            start, end = self.chance.choice(up)
            if kind == "cost":
                self.edges[start][end] = self.chance.choice(self.costs)
            else:
                self.down[start, end] = self.edges[start].pop(end)

    def oracle(self) -> dict[str, dict[str, int]]:
        graph = networkx.DiGraph()
        graph.add_nodes_from(self.names)
        graph.add_weighted_edges_from(
            (start, end, cost) for start, ends in self.edges.items() for end, cost in ends.items()
        )
        return dict(networkx.all_pairs_dijkstra_path_length(graph))


def cost_of(edges: Edges, nodes: tuple[str, ...]) -> int:
    return sum(edges[start][end] for start, end in pairwise(nodes))


def test_costs_are_those_of_networkx_after_every_link_event() -> None:
    chance = random.Random(15)
    for _ in range(TOPOLOGIES):
        network = Network(chance)
        for _ in range(EVENTS):
            network.event()
            graph = Graph(network.edges)
            expected = network.oracle()
            for source in network.names:
                found = graph.paths_from(source)
                assert {source: 0} | {name: path.cost_micro for name, path in found.items()} == expected[source]
                for name, path in found.items():
                    assert (path.nodes[0], path.nodes[-1]) == (source, name)
                    assert path.cost_micro == cost_of(network.edges, path.nodes)


def every_path(edges: Edges, source: str) -> Iterator[tuple[str, ...]]:
    """All paths from `source` without a node twice."""
    others = sorted(set(edges) - {source})
    for length in range(1, len(others) + 1):
        for nodes in permutations(others, length):
            path = (source, *nodes)
            if all(end in edges[start] for start, end in pairwise(path)):
                yield path


NAMES = ("a", "B", "aa", "b", "ä")
EDGES = st.fixed_dictionaries(
    {
        name: st.dictionaries(st.sampled_from([other for other in NAMES if other != name]), st.sampled_from([1, 2, 3]))
        for name in NAMES
    }
)


@given(EDGES)
def test_of_equal_costs_the_fewest_hops_then_the_lowest_names(edges: dict[str, dict[str, int]]) -> None:
    graph = Graph(edges)
    to = {target: graph.paths_to(target) for target in NAMES}
    for source in NAMES:
        best: dict[str, tuple[int, int, tuple[str, ...]]] = {}
        for nodes in every_path(edges, source):
            rank = (cost_of(edges, nodes), len(nodes), nodes)
            best[nodes[-1]] = min(rank, best.get(nodes[-1], rank))
        found = graph.paths_from(source)
        assert found == {name: Path(cost, nodes) for name, (cost, _, nodes) in best.items()}
        assert found == {name: to[name][source] for name in NAMES if source in to[name]}
        assert all(path.next_hop == path.nodes[1] for path in found.values())
        assert [path.cost_micro for path in found.values()] == sorted(path.cost_micro for path in found.values())


def test_what_a_path_tells() -> None:
    paths = shortest_paths({"a": {"b": 1_000_000, "c": 9}, "b": {"c": 2}, "c": {}, "d": {"a": 1}}, "a")
    assert paths == {"c": Path(9, ("a", "c")), "b": Path(1_000_000, ("a", "b"))}
    assert paths["b"].next_hop == "b"


def test_an_unknown_node_reaches_nothing_and_one_that_others_name_is_known() -> None:
    edges = {"a": {"b": 1}}
    assert shortest_paths(edges, "x") == {} == shortest_paths(edges, "b") == shortest_paths({}, "a")
    assert Graph(edges).paths_to("x") == {} == Graph(edges).paths_to("a")
    assert Graph(edges).paths_to("b") == {"a": Path(1, ("a", "b"))}


def test_no_edge_costs_nothing() -> None:
    with pytest.raises(AssertionError):
        Graph({"a": {"b": 0}})


def test_the_largest_costs_over_the_longest_path_are_exact() -> None:
    names = [f"{number:05}" for number in range(NODES_MAX)]
    edges = {start: {end: COST_MAX * MICRO} for start, end in pairwise(names)}
    path = shortest_paths(edges, names[0])[names[-1]]
    assert path.cost_micro == (NODES_MAX - 1) * COST_MAX * MICRO < 2**64
    assert len(path.nodes) == NODES_MAX
