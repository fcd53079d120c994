"""Subscriptions with bounds, as the swarm draws them: the last of all draws."""

from dataclasses import replace

import pytest

from holdfast_lab.draws import drawn_bounds
from holdfast_lab.draws.drawn_bounds import BOUNDS, with_bounds
from holdfast_lab.plan.plan import from_json
from holdfast_lab.runs.swarm import draw_plan
from support.drawing import draw_up_to

SEEDS = range(1, 200)


def test_a_share_of_the_seeds_has_them() -> None:
    plans = list(map(draw_plan, SEEDS))
    ((share, _),) = BOUNDS.values()
    drawn = [plan for plan in plans if any(told.get("name") == "bounded" for told in plan.workloads)]
    assert share / 3 < len(drawn) / len(plans) < share * 2
    assert all(from_json(plan.to_json()) == plan for plan in drawn)


def test_nothing_else_of_a_seed_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    draw_up_to(monkeypatch, with_bounds)
    plans = list(map(draw_plan, SEEDS[:60]))
    monkeypatch.setattr(drawn_bounds, "BOUNDS", {name: (0.0, draw) for name, (_, draw) in BOUNDS.items()})
    for seed, plan in zip(SEEDS, plans, strict=False):
        without = draw_plan(seed)
        assert with_bounds(without, seed) == without
        topology = replace(plan.topology, queues=without.topology.queues)
        assert replace(plan, topology=topology, workloads=(), faults=()) == replace(without, workloads=(), faults=())
        assert plan.workloads[: len(without.workloads)] == without.workloads
        assert set(without.faults) <= set(plan.faults)
