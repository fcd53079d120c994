"""Scenes that are drawn after everything else of a seed."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from holdfast.core import undo
from holdfast.harness import drawn_scenes
from holdfast.harness.drawn_scenes import LATER, with_later_scenes
from holdfast.harness.drawn_wire import PIECE_BYTES, on_lmdb
from holdfast.harness.plan import Plan
from holdfast.harness.sim.run import execute
from holdfast.harness.swarm import draw_plan
from holdfast.storage import entries

SEEDS = range(1, 200)
REJECTED = 91
"""A seed with dead letters that a disk refuses."""
RETURNED = 81
"""A seed in which messages leave that came back."""


def has(scene: str, plan: Plan) -> bool:
    return any(told["name"] == f"{scene}-in" for told in plan.workloads)


def test_a_share_of_the_seeds_has_each() -> None:
    plans = list(map(draw_plan, SEEDS))
    for scene, (share, _) in LATER.items():
        assert share / 3 < sum(has(scene, plan) for plan in plans) / len(plans) < share * 2
    assert all(plan.paged and PIECE_BYTES not in plan.knobs for plan in plans if has("returned", plan))
    for plan in (plan for plan in plans if has("rejected", plan)):
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
        expected = on_lmdb(without) if has("returned", plan) else without
        assert replace(plan, workloads=(), faults=()) == replace(expected, workloads=(), faults=())
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
    assert has("rejected", plan)
    assert execute(plan, REJECTED).failure == ""
    assert sum(count > 1 for count in moved) > 1


def test_commits_have_what_leaves_out_of_order(monkeypatch: pytest.MonkeyPatch) -> None:
    mixed: list[int] = []
    consecutive = entries._consecutive

    def seen(sequences: Sequence[int]) -> bool:
        span = max(sequences) - min(sequences) + 1
        if len(sequences) == len(set(sequences)) == span > 10 and list(sequences) != sorted(sequences):
            mixed.append(span)
        return consecutive(sequences)

    monkeypatch.setattr(entries, "_consecutive", seen)
    plan = draw_plan(RETURNED)
    assert has("returned", plan)
    assert execute(plan, RETURNED).failure == ""
    assert mixed
