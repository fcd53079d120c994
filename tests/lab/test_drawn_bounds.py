"""Subscriptions with bounds, as the swarm draws them: the last of all draws."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from holdfast_lab.draws import drawn_bounds
from holdfast_lab.draws.drawn_bounds import BOUNDS, IDLE, OVERFLOWS, with_bounds, with_idle, with_overflows
from holdfast_lab.plan.plan import Plan, from_json
from holdfast_lab.runs.swarm import DRAWS, draw_plan
from support.drawing import draw_up_to

SEEDS = range(1, 200)
KINDS = {
    "bounded": ("BOUNDS", BOUNDS, with_bounds),
    "overflowing": ("OVERFLOWS", OVERFLOWS, with_overflows),
    "idle": ("IDLE", IDLE, with_idle),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_share_of_the_seeds_has_them(name: str) -> None:
    plans = list(map(draw_plan, SEEDS))
    ((share, _),) = KINDS[name][1].values()
    drawn = [plan for plan in plans if any(told.get("name") == name for told in plan.workloads)]
    assert share / 3 < len(drawn) / len(plans) < share * 2
    assert all(from_json(plan.to_json()) == plan for plan in drawn)


@pytest.mark.parametrize("name", KINDS)
def test_nothing_else_of_a_seed_changes(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    table, scenes, with_them = KINDS[name]
    draw_up_to(monkeypatch, with_them)
    plans = list(map(draw_plan, SEEDS[:60]))
    monkeypatch.setattr(drawn_bounds, table, {each: (0.0, draw) for each, (_, draw) in scenes.items()})
    for seed, plan in zip(SEEDS, plans, strict=False):
        without = draw_plan(seed)
        assert with_them(without, seed) == without
        topology = replace(plan.topology, queues=without.topology.queues)
        assert replace(plan, topology=topology, workloads=(), faults=()) == replace(without, workloads=(), faults=())
        assert plan.workloads[: len(without.workloads)] == without.workloads
        assert set(without.faults) <= set(plan.faults)


def test_those_of_bytes_are_drawn_after_those_of_messages() -> None:
    draws: list[Callable[[Plan, int], Plan]] = [*DRAWS]
    assert draws.index(with_bounds) < draws.index(with_overflows)
