"""What planted mistakes showed no seed to reach, as the swarm draws it now."""

from dataclasses import replace

import pytest

from holdfast_lab.draws import drawn_unreached
from holdfast_lab.draws.drawn_unreached import FULL, UNREACHED, with_full, with_unreached
from holdfast_lab.plan.plan import Plan, from_json
from holdfast_lab.runs.swarm import draw_plan
from support.drawing import draw_up_to

SEEDS = range(1, 200)
TABLES = {"UNREACHED": (UNREACHED, with_unreached), "FULL": (FULL, with_full)}


def has(scene: str, plan: Plan) -> bool:
    return any(told.get("name") == scene.replace(" ", "-") for told in plan.workloads)


def test_a_share_of_the_seeds_has_each() -> None:
    plans = list(map(draw_plan, SEEDS))
    for scene, (share, _) in (UNREACHED | FULL).items():
        drawn = [plan for plan in plans if has(scene, plan)]
        assert share / 3 < len(drawn) / len(plans) < share * 2, scene
        assert all(from_json(plan.to_json()) == plan for plan in drawn)


@pytest.mark.parametrize("table", TABLES)
def test_nothing_else_of_a_seed_changes(monkeypatch: pytest.MonkeyPatch, table: str) -> None:
    scenes, with_them = TABLES[table]
    draw_up_to(monkeypatch, with_them)
    plans = list(map(draw_plan, SEEDS[:60]))
    monkeypatch.setattr(drawn_unreached, table, {name: (0.0, draw) for name, (_, draw) in scenes.items()})
    for seed, plan in zip(SEEDS, plans, strict=False):
        without = draw_plan(seed)
        assert with_them(without, seed) == without
        topology = replace(plan.topology, queues=without.topology.queues)
        assert replace(plan, topology=topology, workloads=(), faults=()) == replace(without, workloads=(), faults=())
        assert plan.workloads[: len(without.workloads)] == without.workloads
        assert set(without.faults) <= set(plan.faults)
