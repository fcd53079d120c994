"""Scenes that are drawn after everything else of a seed."""

from dataclasses import replace

import pytest

from holdfast.core import undo
from holdfast.harness import drawn_scenes
from holdfast.harness.drawn_scenes import LATER, with_later_scenes
from holdfast.harness.plan import Plan
from holdfast.harness.sim.run import execute
from holdfast.harness.swarm import draw_plan

SEEDS = range(1, 200)
REJECTED = 91
"""A seed with dead letters that a disk refuses."""


def has_rejected(plan: Plan) -> bool:
    return any(told["name"] == "rejected-in" for told in plan.workloads)


def test_a_share_of_the_seeds_has_each() -> None:
    drawn = [plan for plan in map(draw_plan, SEEDS) if has_rejected(plan)]
    assert 0.02 < len(drawn) / len(SEEDS) < 0.16
    for plan in drawn:
        (takes,) = [told for told in plan.workloads if told["name"] == "rejected-out"]
        assert takes["reject"] >= 0.3
        there = [fault for fault in plan.faults if fault.kind == "refusing-disk" and fault.node == takes["node"]]
        assert len(there) >= 3


def test_nothing_else_of_a_seed_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = [*SEEDS[:40], REJECTED]
    plans = list(map(draw_plan, seeds))
    monkeypatch.setattr(drawn_scenes, "LATER", {name: (0.0, draw) for name, (_, draw) in LATER.items()})
    for seed, plan in zip(seeds, plans, strict=True):
        without = draw_plan(seed)
        assert with_later_scenes(without, seed) == without
        assert replace(plan, workloads=(), faults=()) == replace(without, workloads=(), faults=())
        assert plan.workloads[: len(without.workloads)] == without.workloads
        assert set(without.faults) <= set(plan.faults)


def test_commits_that_move_several_to_the_dead_letters_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[int] = []
    take_back = undo._undo_moves

    def counted(core: object, turn: object, retry: object) -> None:
        moved.append(len(turn.moves))  # type: ignore[attr-defined]
        take_back(core, turn, retry)  # type: ignore[arg-type]

    monkeypatch.setattr(undo, "_undo_moves", counted)
    plan = draw_plan(REJECTED)
    assert has_rejected(plan)
    assert execute(plan, REJECTED).failure == ""
    assert sum(count > 1 for count in moved) > 1
