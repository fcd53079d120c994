"""Every scenario that comes along ends as it must, and shows what it says it shows."""

import re
from functools import cache
from importlib.resources import files

import pytest

from holdfast_lab.plan import scenario_file
from holdfast_lab.plan.result import Result
from holdfast_lab.runs.run import execute

pytestmark = pytest.mark.sim


@cache
def ran(name: str) -> Result:
    """With seed 1; each once, whoever looks at it."""
    result = execute(scenario_file.load(name, 1), 1, keep_notes=True)
    assert result.ok, f"{result.failure}; holdfast sim run {name} --seed 1"
    return result


def most_held(result: Result, node: str) -> int:
    held = [note.text for note in result.notes if note.place == node and note.kind == "holds"]
    return max(int(text.split()[0]) for text in held)


TAKES_SOME_WITH_IT = ("replaced-disk", "gaps-for-ever", "short-lives", "three-hundred")
"""Scenarios in which a disk is lost, or time runs out, for some of the messages."""


LARGE = ("convergence-200", "three-hundred")
"""Minutes each: `make sim-large`."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name in LARGE else []) for name, _ in scenario_file.names()],
)
def test_it_ends_well(name: str) -> None:
    result = ran(name)
    metrics = result.metrics
    assert metrics["received"] + metrics["excused"] >= metrics["accepted"] == metrics["offered"] > 0
    # Every fault of the plan struck before all was done.
    assert sum(metrics["faults"].values()) == len(scenario_file.load(name, 1).faults) or name == "drawn-faults"
    if name not in TAKES_SOME_WITH_IT:
        assert not metrics["excused"] and metrics["received"] == metrics["offered"]


def test_a_cut_line_keeps_its_backlog_on_the_near_side() -> None:
    result = ran("line-cut")
    assert most_held(result, "west") > 50 and most_held(result, "east") <= most_held(result, "west")


def test_a_full_disk_pushes_back_to_the_node_before() -> None:
    result = ran("full-disk")
    assert most_held(result, "field") > 100 and any(note.kind == "commit refused" for note in result.notes)


def test_messages_go_round_a_node_whose_disk_does_not_answer() -> None:
    result = ran("stalled-disk")
    logged = [(note.place, note.text) for note in result.notes if note.kind == "log"]
    assert ("near", "WARNING the disk has not answered a commit for 5 s: nothing is taken until it does") in logged
    assert ("field", "WARNING neighbour near: its disk does not answer, and it takes nothing") in logged
    assert sum(note.place == "far" and note.kind == "append" for note in result.notes) > 100
    assert any(place == "near" and text.startswith("INFO the disk answers again") for place, text in logged)
    assert not any("Established -> Idle" in text for _, text in logged if "near" in text)


def test_a_slow_consumer_keeps_the_backlog_at_the_origin() -> None:
    result = ran("slow-consumer")
    assert most_held(result, "plant") > 100 and most_held(result, "hub") == 20


def test_a_ring_goes_the_long_way_round() -> None:
    result = ran("ring-re-route")
    by_d = [note for note in result.notes if note.place == "d" and note.kind == "append"]
    assert len(by_d) > 50 and all(re.search(r" to @c$", note.text) for note in by_d)


def test_a_replaced_disk_takes_no_more_with_it_than_it_held() -> None:
    result = ran("replaced-disk")
    assert 0 < result.metrics["excused"] <= most_held(result, "relay") + 1


@pytest.mark.slow
def test_200_nodes_have_right_tables_within_a_second_of_a_cut() -> None:
    metrics = ran("convergence-200").metrics
    print(f"tables right after {metrics['tables_right_s']} s, the first message after {metrics['convergence_s']} s")
    assert metrics["recoveries"] == metrics["convergences"] == 2
    assert metrics["tables_right_s"] < 1.0 and metrics["convergence_s"] < 1.0


def test_a_small_network_is_drawn_and_its_cut_measured() -> None:
    """What the large ones rest on, with nine nodes."""
    text = LARGE_ONE.replace("nodes = 200", "nodes = 9").replace('"n007", "n023"', '"n007"')
    assert text != LARGE_ONE
    result = execute(scenario_file.parse(text, "small", 3), 3)
    assert result.ok, result.failure
    assert result.metrics["recoveries"] == 2 and 0.1 < result.metrics["tables_right_s"] < 1.0


LARGE_ONE = files("holdfast_lab").joinpath("scenarios", "convergence-200.toml").read_text(encoding="utf-8")
