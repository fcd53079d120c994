"""Drawn runs of the nodes' own code over a model of the network, corrupted tables, and rules that are taken out."""

import networkx as nx
import pytest
from networkx.algorithms.approximation import steiner_tree as reference_tree

from holdfast.marked_pages import put_into
from holdfast_lab.bindings import drawn, measures
from holdfast_lab.bindings.histories import HISTORIES
from holdfast_lab.bindings.planted import RULES, find
from holdfast_lab.bindings.report import BEGIN, END, Report, page

FEW = 1
"""Seeds of the day for each shape; `make federation` takes hundreds."""
SHAPES = {
    "churn": drawn.CHURN,
    "changed": drawn.CHANGED,
    "mixed": drawn.MIXED,
    "mixed-cut": drawn.MIXED_CUT,
    "small": drawn.SMALL,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_none_missed_none_doubled_none_waiting(shape: str, day: int) -> None:
    for seed in range(day * FEW, (day + 1) * FEW):
        outcome = drawn.run(seed, SHAPES[shape])
        assert not outcome.failure, f"seed {seed}: {outcome.failure}"
        assert outcome.binds


def test_corrupted_tables_become_right(day: int) -> None:
    for seed in range(day * FEW, (day + 1) * FEW):
        found = measures.stabilise(seed)
        assert not found.failure, f"seed {seed}: {found.failure}"
        assert 0 < found.refreshes <= found.bound


def test_one_seed_gives_one_history() -> None:
    assert drawn.run(5) == drawn.run(5)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_that_is_taken_out_is_missed(name: str) -> None:
    rule = RULES[name]
    if isinstance(rule.by, str):
        assert rule.by in HISTORIES
    assert find(name).text


def test_messages_go_over_shortest_path_trees() -> None:
    found = measures.copies(3, messages=15)
    assert found.messages
    assert found.shared == found.shortest
    assert found.shared <= found.single <= found.messages * found.nodes**2


def test_the_heuristic_is_as_good_as_that_of_a_library() -> None:
    for seed in range(1, 6):
        world = drawn.world_of(seed, drawn.QUIET)
        graph = {name: {end: float(cost) for end, cost in site.links.items()} for name, site in world.sites.items()}
        names = sorted(graph)
        source, targets = names[0], set(names[1::3])
        ours = measures.steiner_tree(graph, source, targets)
        network = nx.Graph([(start, end) for start, ends in graph.items() for end in ends])
        theirs = reference_tree(network, [source, *targets]).number_of_edges()
        assert len(ours) <= 1.3 * theirs
        assert nx.is_connected(nx.Graph(list(ours)))
        assert {source, *targets} <= {name for edge in ours for name in edge}


def test_control_bytes_grow_with_the_keys_alone() -> None:
    ten, hundred = measures.control_bytes(10), measures.control_bytes(100)
    assert ten.one == hundred.one < 300
    assert ten.refresh == hundred.refresh < 300
    assert ten.restart == hundred.restart < 600
    assert hundred.together < 2_500


def test_the_report_as_text() -> None:
    report = Report()
    report.churn = [("some", [drawn.run(5)])]
    report.bytes = [measures.control_bytes(10)]
    text = put_into(f"head\n{BEGIN}\nold\n{END}\ntail", page(report, "here"), BEGIN, END)
    assert "| some | 1 |" in text
    assert "old" not in text
    assert text.endswith("tail")
    assert not report.failures
