"""Federated topics are in a share of the seeds, and shift nothing that was drawn before (docs/adr/0053)."""

from dataclasses import replace

import pytest

from holdfast_lab.draws import drawn_federation
from holdfast_lab.draws.drawn_federation import SPOILS, with_federation
from holdfast_lab.draws.drawn_scenes import renewed_in
from holdfast_lab.plan.plan import Plan, from_json
from holdfast_lab.runs.swarm import draw_plan
from support.drawing import draw_up_to

SEEDS = range(1, 301)


def has(plan: Plan) -> bool:
    return any(told["kind"] == "federated" for told in plan.workloads)


def test_a_share_of_the_seeds_has_one() -> None:
    drawn = [plan for plan in map(draw_plan, SEEDS) if has(plan)]
    assert 10 < len(drawn) < 60
    assert all(from_json(plan.to_json()) == plan for plan in drawn)
    for plan in drawn:
        assert not renewed_in(plan) and not any(fault.kind in SPOILS for fault in plan.faults)


def test_nothing_else_of_a_seed_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    draw_up_to(monkeypatch, with_federation)
    plans = list(map(draw_plan, SEEDS[:60]))
    monkeypatch.setattr(drawn_federation, "SHARE", 0.0)
    for seed, plan in zip(SEEDS, plans, strict=False):
        without = draw_plan(seed)
        assert replace(plan, workloads=(), faults=()) == replace(without, workloads=(), faults=())
        assert plan.workloads[: len(without.workloads)] == without.workloads
        assert set(without.faults) <= set(plan.faults)
