"""Routing tables: the time to compute the table of one node and of all nodes, on one core, beside networkx.

A table is made of the edges as a node keeps them, every time anew: costs and whole paths. `drawn`: every link has
another cost; `equal`: all have the same, so that nearly every path has rivals. Prints one JSON object; progress on
standard error. `python benchmarks/macro/tables.py --help`; how to read it: benchmarks/README.md.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

import networkx
from _figures import spread
from _report import emit, frame, progress

from holdfast.routing.paths import Graph, shortest_paths

GOAL_TABLE_MS = 1.0
GOAL_ALL_PAIRS_MS = 40.0
GOAL_NODES = 128
COST_MICRO = 1_081_920
"""A TCP link's by the formula."""

Edges = dict[str, dict[str, int]]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", default="16,32,64,128", help="sizes, by commas (default %(default)s)")
    parser.add_argument("--degree", type=int, default=4, help="average links of a node (default %(default)s)")
    parser.add_argument("--repeat", type=int, default=9, help="runs of each, in turn (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json-out", type=Path, help="also write the report there")
    return parser.parse_args(arguments)


def network(nodes: int, degree: int, chance: Random, *, equal: bool) -> Edges:
    """A tree, so that all are joined, and further links up to the average degree; both ways cost the same."""
    names = [f"n{number:03}" for number in range(nodes)]
    edges: Edges = {name: {} for name in names}

    def join(one: str, other: str) -> None:
        cost = COST_MICRO if equal else chance.randint(COST_MICRO, 60 * COST_MICRO)
        edges[one][other] = edges[other][one] = cost

    for number in range(1, nodes):
        join(names[number], names[chance.randrange(number)])
    missing = min(nodes * degree // 2, nodes * (nodes - 1) // 2) - (nodes - 1)
    while missing > 0:
        one, other = chance.sample(names, 2)
        if other not in edges[one]:
            join(one, other)
            missing -= 1
    return edges


def everybody(edges: Edges) -> int:
    graph = Graph(edges)
    return sum(len(graph.paths_from(name)) for name in graph.names)


def everybody_of_networkx(edges: Edges) -> int:
    graph = networkx.DiGraph()
    for start, ends in edges.items():
        graph.add_weighted_edges_from((start, end, cost) for end, cost in ends.items())
    return sum(len(paths) - 1 for _, (_, paths) in networkx.all_pairs_dijkstra(graph))


def timed_ms(work: Callable[[], Any]) -> float:
    began = perf_counter()
    work()
    return (perf_counter() - began) * 1000


def main(arguments: Sequence[str]) -> int:
    args = parse(arguments)
    settings: dict[str, object] = {key: getattr(args, key) for key in ("nodes", "degree", "repeat")}
    report = frame("tables", Path(tempfile.gettempdir()), settings, args.seed)
    cases = {}
    for nodes in [int(size) for size in args.nodes.split(",")]:
        for costs in ("drawn", "equal"):
            edges = network(nodes, args.degree, Random(args.seed), equal=costs == "equal")
            source = min(edges)
            assert everybody(edges) == everybody_of_networkx(edges) == nodes * (nodes - 1)
            runs: dict[str, list[float]] = {"table_ms": [], "all_pairs_ms": [], "networkx_all_pairs_ms": []}
            for _ in range(args.repeat):
                runs["table_ms"].append(timed_ms(partial(shortest_paths, edges, source)))
                runs["all_pairs_ms"].append(timed_ms(partial(everybody, edges)))
                runs["networkx_all_pairs_ms"].append(timed_ms(partial(everybody_of_networkx, edges)))
            pairs = zip(runs["all_pairs_ms"], runs["networkx_all_pairs_ms"], strict=True)
            ratios = [ours / peer for ours, peer in pairs]
            cases[f"{nodes} {costs}"] = {
                "nodes": nodes,
                "costs": costs,
                "edges": sum(map(len, edges.values())),
                **{key: spread(values, 3) for key, values in runs.items()},
                "ratio": spread(ratios, 3),
            }
            progress(f"{nodes} nodes, {costs} costs: {runs}")
    goals = {"nodes": GOAL_NODES, "table_ms_below": GOAL_TABLE_MS, "all_pairs_ms_below": GOAL_ALL_PAIRS_MS}
    emit(report | {"cases": cases, "goals": goals}, args.json_out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
