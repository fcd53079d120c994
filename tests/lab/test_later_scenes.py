"""Scenes that are drawn after everything else of a seed."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from holdfast.engine.port import Batch
from holdfast.state.queue_changes import QueueChanges
from holdfast.state.turns import Turn
from holdfast.storage.layout import records
from holdfast_lab.draws import (
    drawn_scenes,
)
from holdfast_lab.draws.drawn_scenes import LATER, with_later_scenes
from holdfast_lab.draws.drawn_wire import PIECE_BYTES, on_lmdb
from holdfast_lab.plan.faults import PUT_BACK
from holdfast_lab.plan.plan import Plan
from holdfast_lab.runs.run import execute
from holdfast_lab.runs.swarm import draw_plan
from support.drawing import draw_up_to

SEEDS = range(1, 200)
REJECTED = 91
"""A seed with dead letters that a disk refuses."""
RETURNED = 81
"""A seed in which messages leave that came back."""


def has(scene: str, plan: Plan) -> bool:
    return any(told.get("name") == f"{scene}-in" for told in plan.workloads)


def test_a_share_of_the_seeds_has_each() -> None:
    plans = list(map(draw_plan, SEEDS))
    for scene in ("rejected", "returned"):
        share = LATER[scene][0]
        assert share / 3 < sum(has(scene, plan) for plan in plans) / len(plans) < share * 2
    assert all(plan.paged and PIECE_BYTES not in plan.knobs for plan in plans if has("returned", plan))
    for plan in (plan for plan in plans if has("rejected", plan)):
        (takes,) = [told for told in plan.workloads if told.get("name") == "rejected-out"]
        assert takes["reject"] >= 0.3
        there = [fault for fault in plan.faults if fault.kind == "refusing-disk" and fault.node == takes["node"]]
        assert len(there) >= 3


def test_a_queue_of_one_message_is_filled_by_the_next_node_where_little_may_wait() -> None:
    plans = [plan for plan in map(draw_plan, SEEDS) if has("crammed", plan)]
    assert len(plans) > 3
    for plan in plans:
        (told,) = [told for told in plan.workloads if told.get("name") == "crammed-in"]
        name, node = told["address"].split("@")
        assert plan.topology.limits.parked_bytes_max <= 1_000 and node in plan.topology.neighbours(told["node"])
        (queue,) = [queue for queue in plan.topology.queues[node] if queue.name == name]
        assert queue.messages_max == 1 and queue.when_full == "block"


def test_nothing_else_of_a_seed_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = [*SEEDS[:40], REJECTED]
    draw_up_to(monkeypatch, with_later_scenes)
    plans = list(map(draw_plan, seeds))
    monkeypatch.setattr(drawn_scenes, "LATER", {name: (0.0, draw) for name, (_, draw) in LATER.items()})
    for seed, plan in zip(seeds, plans, strict=True):
        without = draw_plan(seed)
        assert with_later_scenes(without, seed) == without
        expected = on_lmdb(without) if has("returned", plan) else without
        topology = replace(plan.topology, queues=without.topology.queues)
        assert replace(plan, topology=topology, workloads=(), faults=()) == replace(expected, workloads=(), faults=())
        for node in plan.topology.nodes:
            queues = without.topology.queues.get(node, ())
            assert plan.topology.queues.get(node, ())[: len(queues)] == queues
        assert plan.workloads[: len(without.workloads)] == without.workloads
        assert set(without.faults) <= set(plan.faults)


def test_their_messages_are_taken_and_their_strict_queues_wait_for_no_lost_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drawn_scenes, "LATER", {name: (1.0, draw) for name, (_, draw) in LATER.items()})
    strict = small = 0
    for plan in map(draw_plan, SEEDS[:60]):
        (at,) = {told["node"] for told in plan.workloads if told.get("name") == "rejected-out"} or {""}
        small += bool(plan.topology.takes)
        assert at not in plan.topology.takes
        taken = [told for told in plan.workloads if told.get("name") in ("overtaken-out", "given-up-out")]
        strict += len(taken)
        for node, name in ((told["node"], told["queue"]) for told in taken):
            assert name in [queue.name for queue in plan.topology.queues[node]]
            assert node not in {fault.node for fault in plan.faults if fault.kind in (*PUT_BACK, "replace-disk")}
    assert strict > 10 and small > 2


def test_commits_that_move_several_to_the_dead_letters_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[int] = []
    take_back = QueueChanges._undo_moves

    def counted(self: QueueChanges, turn: Turn, retry: Batch) -> None:
        moved.append(len(turn.moves))
        take_back(self, turn, retry)

    monkeypatch.setattr(QueueChanges, "_undo_moves", counted)
    monkeypatch.setattr(drawn_scenes, "LATER", {"rejected": LATER["rejected"]})
    plan = draw_plan(REJECTED)
    assert has("rejected", plan)
    assert execute(plan, REJECTED).failure == ""
    assert sum(count > 1 for count in moved) > 1


def test_commits_have_what_leaves_out_of_order(monkeypatch: pytest.MonkeyPatch) -> None:
    mixed: list[int] = []
    consecutive = records._consecutive

    def seen(sequences: Sequence[int]) -> bool:
        span = max(sequences) - min(sequences) + 1
        if len(sequences) == len(set(sequences)) == span > 10 and list(sequences) != sorted(sequences):
            mixed.append(span)
        return consecutive(sequences)

    monkeypatch.setattr(records, "_consecutive", seen)
    monkeypatch.setattr(drawn_scenes, "LATER", {"returned": LATER["returned"]})
    plan = draw_plan(RETURNED)
    assert has("returned", plan)
    assert execute(plan, RETURNED).failure == ""
    assert mixed
