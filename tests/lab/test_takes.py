"""Nodes that take less than their neighbours, as the swarm draws them."""

from dataclasses import replace

import pytest

from holdfast.custody.hop.oversized import Oversized
from holdfast.custody.hop.sender import BESIDE_BYTES, CustodySender
from holdfast_lab.draws import (
    drawn_disks,
    drawn_scenes,
    drawn_takes,
)
from holdfast_lab.draws.drawn_scenes import LATER, too_large
from holdfast_lab.draws.drawn_takes import MOVED_COUNT, TAKES, with_takes
from holdfast_lab.plan.plan import Plan, from_json
from holdfast_lab.runs.run import execute
from holdfast_lab.runs.swarm import draw_plan
from support import today
from support.drawing import draw_up_to

SEEDS = range(1, 200)


@pytest.fixture(scope="module")
def plans() -> list[Plan]:
    return [draw_plan(seed) for seed in SEEDS]


def test_a_share_of_the_seeds_has_such_a_node(plans: list[Plan]) -> None:
    drawn = [plan for plan in plans if plan.topology.takes]
    assert 0.05 < len(drawn) / len(plans) < 0.2
    assert {size for plan in drawn for size in plan.topology.takes.values()} == set(TAKES)
    assert 0.3 < sum(plan.knobs.get(MOVED_COUNT) == 1 for plan in drawn) / len(drawn) < 0.95
    for plan in drawn:
        ((node, size),) = plan.topology.takes.items()
        configs = {
            name: plan.topology.config(name, remotes=dict.fromkeys(plan.topology.nodes, "h:1"))
            for name in plan.topology.nodes
        }
        assert {name for name, made in configs.items() if made.limits.message_bytes_max == size} == {node}
        assert from_json(plan.to_json()) == plan
        assert not any(told.get("node") == node and told["kind"] == "publish" for told in plan.workloads)


@pytest.mark.parametrize(("seed", "size"), [(525, 700), (1_115, 700), (809, 1_500)])
def test_it_takes_what_programs_send_there_that_later_draws_add(seed: int, size: int) -> None:
    """It would be rejected for ever."""
    plan = draw_plan(seed)
    assert [*plan.topology.takes.values()] == [size]
    assert execute(plan, seed).failure == ""


def test_nothing_else_of_a_seed_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    draw_up_to(monkeypatch, with_takes)
    plans = [draw_plan(seed) for seed in SEEDS[:40]]
    monkeypatch.setattr(drawn_takes, "TAKES_SHARE", 0.0)
    for seed, plan in zip(SEEDS[:40], plans, strict=True):
        without = draw_plan(seed)
        assert not without.topology.takes
        assert replace(plan, topology=replace(plan.topology, takes={}), faults=(), knobs={}) == replace(
            without, faults=(), knobs={}
        )
        assert set(without.faults) <= set(plan.faults) and with_takes(without, seed) == without


def test_a_node_whose_store_goes_back_sends_nothing_that_its_neighbour_does_not_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What waits to be a dead letter there holds the neighbour's mark down, and nobody tells the store that it gives
    numbers a second time (GUARANTEES, "What is left"): so a message of seed 3231607 was lost. Others do send such."""
    monkeypatch.setattr(drawn_disks, "RENEWAL_SHARE", 1.0)
    monkeypatch.setattr(drawn_takes, "TAKES_SHARE", 1.0)
    monkeypatch.setattr(drawn_scenes, "LATER", {**LATER, "too large": (1.0, too_large)})
    beside = others = 0
    for plan in map(draw_plan, SEEDS):
        takes = {name: size + BESIDE_BYTES for name, size in plan.topology.takes.items()}
        gone_back = {fault.node for fault in plan.faults if fault.kind == "restore-backup"}
        beside += any(takes.keys() & {*plan.topology.neighbours(node)} for node in gone_back)
        for told in plan.workloads:
            node = str(told.get("address", "")).rpartition("@")[2]
            if node in takes and told.get("size", 0) > takes[node]:
                assert told["node"] not in gone_back
                others += bool(gone_back)
    assert beside > 5 and others > 5


def test_a_run_in_which_some_are_too_large_ends_well(plans: list[Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    """And some of them wait: else the share proves nothing."""
    found: list[int] = []
    add = Oversized.add

    def counted(self: Oversized, sender: CustodySender, sequence: int, value: bytes) -> None:
        add(self, sender, sequence, value)
        found.append(len(self.sequences))

    monkeypatch.setattr(Oversized, "add", counted)
    for seed in today.some((109, 288), 1):
        plan = plans[seed - 1] if seed < SEEDS.stop else draw_plan(seed)
        assert plan.topology.takes
        assert execute(plan, seed).failure == ""
    assert len(found) > 5 and max(found) > 1
