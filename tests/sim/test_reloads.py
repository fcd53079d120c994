"""Nodes of the swarm take up another configuration while they run (drawn_reloads.py)."""

import pytest

from holdfast_lab.draws.drawn_guesses import with_guesses
from holdfast_lab.draws.drawn_reloads import with_reloads
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.plan import Plan
from holdfast_lab.runs.run import execute
from holdfast_lab.runs.swarm import draw_plan
from support.drawing import draw_up_to

SEEDS = range(1, 80)
LIGHT = 39
"""A seed with reloads that runs in a few seconds."""


def of_reloads(plan: Plan) -> int:
    return sum(fault.kind == "reload" for fault in plan.faults)


def test_a_share_of_seeds_reloads_and_nothing_else_of_a_seed_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    draw_up_to(monkeypatch, with_reloads)
    after = {seed: draw_plan(seed) for seed in SEEDS}
    draw_up_to(monkeypatch, with_guesses)
    before = {seed: draw_plan(seed) for seed in SEEDS}
    assert 4 <= sum(of_reloads(plan) > 0 for plan in after.values()) <= 20
    for seed, plan in after.items():
        assert of_reloads(plan) == 0 or plan.topology.routing is None
        others = tuple(fault for fault in plan.faults if fault.kind != "reload")
        assert plan.shrunk(faults=others) == before[seed].shrunk(faults=tuple(sorted(before[seed].faults, key=_at)))


def _at(fault: Fault) -> float:
    return fault.at


def test_a_seed_whose_nodes_reload_ends_well() -> None:
    plan = draw_plan(LIGHT)
    assert of_reloads(plan) > 0
    result = execute(plan, LIGHT)
    assert result.ok, result.failure
    assert result.metrics["faults"]["reload"] > 0
