"""Clients of the protocol alone, as the swarm draws them."""

from dataclasses import replace

import pytest

from holdfast_lab.draws import drawn_clients
from holdfast_lab.draws.drawn_clients import CLIENTS, LARGE_BYTES, with_clients
from holdfast_lab.plan.plan import Plan, from_json
from holdfast_lab.runs.swarm import draw_plan
from support.drawing import draw_up_to

SEEDS = range(1, 200)


def has(scene: str, plan: Plan) -> bool:
    return any(told.get("name") == scene for told in plan.workloads)


def test_a_share_of_the_seeds_has_each(monkeypatch: pytest.MonkeyPatch) -> None:
    draw_up_to(monkeypatch, with_clients)
    plans = list(map(draw_plan, SEEDS))
    for scene in ("presettled", "addressed", "dynamic", "guarded", "fenced"):
        share = CLIENTS[{"guarded": "rights that change", "fenced": "users who may not"}.get(scene, scene)][0]
        assert share / 3 < sum(has(scene, plan) for plan in plans) / len(plans) < share * 2
    small = [plan for plan in plans if plan.topology.limits.stream_bytes < LARGE_BYTES]
    drawn = [plan for plan in small if has("in-parts", plan)]
    assert len(drawn) > 10 and len(drawn) > 0.8 * len(small)
    assert all(from_json(plan.to_json()) == plan for plan in drawn)


def test_nothing_else_of_a_seed_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    draw_up_to(monkeypatch, with_clients)
    plans = list(map(draw_plan, SEEDS[:60]))
    monkeypatch.setattr(drawn_clients, "CLIENTS", {name: (0.0, draw) for name, (_, draw) in CLIENTS.items()})
    for seed, plan in zip(SEEDS, plans, strict=False):
        without = draw_plan(seed)
        assert with_clients(without, seed) == without
        topology = replace(plan.topology, queues=without.topology.queues)
        assert replace(plan, topology=topology, workloads=(), faults=()) == replace(without, workloads=(), faults=())
        assert plan.workloads[: len(without.workloads)] == without.workloads
        assert set(without.faults) <= set(plan.faults)


def test_they_stay_off_nodes_whose_own_functions_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn_clients, "CLIENTS", {name: (1.0, draw) for name, (_, draw) in CLIENTS.items()})
    drawn = 0
    for plan in map(draw_plan, SEEDS[:60]):
        failing = {fault.node for fault in plan.faults if fault.kind == "defect"}
        for told in plan.workloads:
            if told["kind"] in ("presettled", "addressed", "dynamic", "guarded", "fenced"):
                drawn += 1
                assert told["node"] not in failing and told["node"] not in plan.topology.takes
    assert drawn > 100
