"""Nodes of the swarm are drained for a while (drawn_drains.py)."""

import pytest

from holdfast_lab.draws.drawn_bounds import with_bounds
from holdfast_lab.draws.drawn_drains import with_drains
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.networks import line
from holdfast_lab.plan.plan import Plan
from holdfast_lab.runs.run import execute
from holdfast_lab.runs.swarm import draw_plan
from support.drawing import draw_up_to

SEEDS = range(1, 80)


def of_drains(plan: Plan) -> int:
    return sum(fault.kind == "drain" for fault in plan.faults)


def _at(fault: Fault) -> float:
    return fault.at


def test_a_share_of_seeds_drains_and_nothing_else_of_a_seed_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    draw_up_to(monkeypatch, with_drains)
    after = {seed: draw_plan(seed) for seed in SEEDS}
    draw_up_to(monkeypatch, with_bounds)
    before = {seed: draw_plan(seed) for seed in SEEDS}
    assert 4 <= sum(of_drains(plan) > 0 for plan in after.values()) <= 20
    for seed, plan in after.items():
        others = tuple(fault for fault in plan.faults if fault.kind != "drain")
        assert plan.shrunk(faults=others) == before[seed].shrunk(faults=tuple(sorted(before[seed].faults, key=_at)))


def test_all_arrives_where_each_node_of_a_line_is_drained_once() -> None:
    """Clients of a drained node wait until it is resumed; what was on its way arrives meanwhile."""
    publish = {"kind": "publish", "node": "ber", "address": "q@fra", "messages": 60, "size": 200, "producers": 1}
    workloads = ({**publish, "rate": 20.0}, {"kind": "consume", "node": "fra", "queue": "q"})
    drains = tuple(
        Fault(kind="drain", at=at, node=node, seconds=1.5)
        for at, node in ((0.5, "ber"), (1.0, "muc"), (2.5, "fra"), (3.0, "ber"))
    )
    crash = Fault(kind="crash", at=3.5, node="ber", seconds=0.3)
    result = execute(Plan(name="drains", topology=line("ber muc fra"), workloads=workloads, faults=(*drains, crash)), 1)
    assert result.ok, result.failure
    assert result.metrics["faults"]["drain"] == 4
