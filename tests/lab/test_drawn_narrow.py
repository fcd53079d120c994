"""Consumers that accept small messages only, as the swarm draws them: last."""

from dataclasses import replace
from typing import Any

import pytest

from holdfast.broker.cursors import cursor
from holdfast.broker.cursors.exclusions import Exclusions
from holdfast.settings.queues import QueueConfig
from holdfast_lab.base.contents import EVERYTHING
from holdfast_lab.canaries import plant
from holdfast_lab.draws import drawn_narrow
from holdfast_lab.draws.drawn_narrow import (
    ASIDE_BOUND,
    CALM,
    DELIVERIES_MAX,
    FOR_OTHERS_BOUNDS,
    NARROW,
    QUEUE,
    with_narrow,
)
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.networks import line
from holdfast_lab.plan.plan import Plan, from_json
from holdfast_lab.runs.run import execute
from holdfast_lab.runs.swarm import draw_plan
from support.drawing import draw_up_to

SEEDS = range(1, 150)


def narrow_in(plan: Plan) -> dict[str, Any] | None:
    return next((told for told in plan.workloads if told["kind"] == "narrow"), None)


def test_narrow_is_drawn_for_about_an_eighth_of_the_seeds() -> None:
    """With a bound of deliveries where no link ends but by the node's own choice, or dead letters are not judged."""
    plans = list(map(draw_plan, SEEDS))
    drawn = [(plan, told) for plan in plans if (told := narrow_in(plan)) is not None]
    assert NARROW["narrow"][0] / 3 < len(drawn) / len(plans) < NARROW["narrow"][0] * 2
    assert all(from_json(plan.to_json()) == plan for plan, _ in drawn)
    bounded = failing = 0
    for plan, told in drawn:
        (queue,) = [queue for queue in plan.topology.queues[told["node"]] if queue.name == QUEUE]
        if queue.deliveries_max is not None:
            bounded += 1
            failing += told.get("fails", False)
            assert told.get("fails") or {fault.kind for fault in plan.faults if fault.node == told["node"]} <= CALM
    assert 0 < failing < bounded < len(drawn)


def test_one_with_a_selector_is_drawn_beside_others_without() -> None:
    """And few of the messages that it alone takes may be set aside."""
    plans = [plan for plan in map(draw_plan, range(1, 1_000)) if (told := narrow_in(plan)) and "selector" not in told]
    selecting = [
        plan for plan in plans for told in plan.workloads if told["kind"] == "consume" and _selects_from_it(told)
    ]
    assert selecting and any(ASIDE_BOUND in plan.knobs for plan in selecting)


def _selects_from_it(told: dict[str, Any]) -> bool:
    return told["queue"] == QUEUE and bool(told.get("selectors"))


def test_nothing_else_of_a_seed_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    draw_up_to(monkeypatch, with_narrow)
    plans = list(map(draw_plan, SEEDS[:60]))
    monkeypatch.setattr(drawn_narrow, "NARROW", {name: (0.0, draw) for name, (_, draw) in NARROW.items()})
    for seed, plan in zip(SEEDS, plans, strict=False):
        without = draw_plan(seed)
        assert with_narrow(without, seed) == without
        topology = replace(plan.topology, queues=without.topology.queues)
        rest = {"workloads": (), "faults": (), "knobs": {}}
        assert replace(plan, topology=topology, **rest) == replace(without, **rest)
        bounds = dict.fromkeys((*FOR_OTHERS_BOUNDS, ASIDE_BOUND))
        assert {**without.knobs, **bounds} == {**plan.knobs, **bounds}
        assert plan.workloads[: len(without.workloads)] == without.workloads
        assert set(without.faults) <= set(plan.faults)


def plan_of(*, wide: bool, priorities: bool = False) -> Plan:
    """A queue whose messages are dead letters after few failed deliveries."""
    queue = QueueConfig(name=QUEUE, order="none", deliveries_max=DELIVERIES_MAX, priorities=priorities)
    sends = {
        "kind": "publish",
        "node": "fra",
        "address": QUEUE,
        "messages": 30,
        "size": 12,
        "rate": 20.0,
        "name": "small",
    }
    large = {**sends, "messages": 6, "size": 1_500, "rate": 5.0, "name": "large"}
    takes = {"kind": "narrow", "node": "fra", "queue": QUEUE, "messages": 36, "think_s": 0.05, "wide": wide}
    others = (
        [{"kind": "consume", "node": "fra", "queue": QUEUE, "credit": 1, "think_s": 0.3, "sorts": priorities}]
        if wide
        else []
    )
    topology = replace(line("ber fra"), queues={"fra": (queue,)})
    return Plan(name="narrow", topology=topology, workloads=(sends, large, takes, *others), safety_s=4.0)


def test_a_large_message_ends_links_that_hold_nothing_and_is_the_only_dead_letter() -> None:
    result = execute(plan_of(wide=False), 1)
    assert result.failure == ""
    assert (result.metrics["narrow-3.dead"], result.metrics["narrow-3.ends"]) == (6, 30)
    with plant("ended-with-what-it-held"):
        assert "while it held" in execute(plan_of(wide=False), 1).failure


@pytest.mark.parametrize("priorities", [False, True])
def test_a_large_message_is_for_the_consumer_that_takes_it(priorities: bool) -> None:
    """Others are handed out before it meanwhile, whatever its priority."""
    result = execute(plan_of(wide=True, priorities=priorities), 1)
    assert result.failure == ""
    assert (result.metrics["narrow-3.dead"], result.metrics["narrow-3.ends"]) == (0, 0)


@pytest.mark.parametrize("priorities", [False, True])
def test_large_messages_beyond_the_bound_come_to_the_consumer_that_takes_them(priorities: bool) -> None:
    """Only one of them is kept for it; the others are scanned again."""
    plan = plan_of(wide=True, priorities=priorities)
    *sends, takes, other = plan.workloads
    if not priorities:
        takes, other = {**takes, "selector": EVERYTHING}, {**other, "selectors": [EVERYTHING]}
    plan = replace(plan, workloads=(*sends, takes, other), knobs={FOR_OTHERS_BOUNDS[priorities]: 1})
    assert execute(plan, 1).failure == ""
    with plant("apart-and-forgotten"):
        found = "was handed out while" if priorities else "accepted messages not shown"
        assert found in execute(plan, 1).failure


def test_no_more_is_set_aside_for_one_with_a_selector_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others have none; they wait behind what is set aside."""
    plan = plan_of(wide=True)
    *sends, takes, other = plan.workloads
    plan = replace(plan, workloads=(*sends, takes, {**other, "selectors": [EVERYTHING]}), knobs={ASIDE_BOUND: 1})
    result = execute(plan, 1)
    assert result.failure == ""
    assert (result.metrics["narrow-3.dead"], result.metrics["narrow-3.ends"]) == (0, 0)
    monkeypatch.setattr(Exclusions, "has_room", lambda *_: True)
    assert "more is set aside than the bound" in execute(plan, 1).failure


def test_no_large_message_that_nobody_could_have_is_dead_because_its_node_was_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = plan_of(wide=False)
    sends, large, takes = plan.workloads
    queue = replace(plan.topology.queues["fra"][0], deliveries_max=1)
    plan = replace(
        plan,
        topology=replace(plan.topology, queues={"fra": (queue,)}),
        workloads=(sends, large, {**takes, "fails": True, "alone": True}),
        faults=tuple(Fault(kind="crash", at=at, node="fra", seconds=0.2) for at in (0.7, 1.1, 1.6)),
    )
    result = execute(plan, 1)
    assert result.failure == "" and result.metrics["narrow-3.ends"] > 0
    monkeypatch.setattr(cursor, "refuses", lambda *_: False)
    assert "which is too large for all consumers" in execute(plan, 1).failure
