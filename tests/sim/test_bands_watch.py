"""Queues with room by priority, and roots whose clients send all at once: drawn by the swarm, and their checker."""

from dataclasses import replace
from typing import Any

import pytest

from holdfast.broker.bands import Bands
from holdfast.broker.queue import Queue
from holdfast.pacing.root_credit import RootCredit
from holdfast.pacing.settings import PacingConfig
from holdfast.settings.queues import QueueConfig
from holdfast_lab.draws import drawn_bursts
from holdfast_lab.draws.drawn_bursts import NAME, PACED, SHARE, with_bursts
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.networks import Link, LinkShape, Topology
from holdfast_lab.plan.plan import Plan, from_json
from holdfast_lab.runs.run import Result, execute
from holdfast_lab.runs.swarm import draw_plan
from support.drawing import draw_up_to

pytestmark = pytest.mark.sim

SEEDS = range(1, 130)


def has_queue(plan: Plan) -> bool:
    return any(queue.name == NAME for queues in plan.topology.queues.values() for queue in queues)


def is_bounded(plan: Plan) -> bool:
    return any(told.when_full for told in plan.topology.pacing.values())


def plans() -> dict[int, Plan]:
    return {seed: draw_plan(seed) for seed in SEEDS}


def test_a_share_of_the_seeds_has_them() -> None:
    drawn = plans()
    with_queue = [plan for plan in drawn.values() if has_queue(plan)]
    assert SHARE / 3 < len(with_queue) / len(SEEDS) < 2 * SHARE
    assert any(is_bounded(plan) for plan in drawn.values())
    assert any(fault.kind == "ignores-rate" for plan in drawn.values() for fault in plan.faults)
    for plan in with_queue[:5]:
        assert from_json(plan.to_json()) == plan
    bounded = next(plan for plan in drawn.values() if is_bounded(plan))
    assert from_json(bounded.to_json()) == bounded


def test_nothing_else_of_a_seed_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    draw_up_to(monkeypatch, with_bursts)
    drawn = {seed: plan for seed, plan in plans().items() if has_queue(plan)}
    monkeypatch.setattr(drawn_bursts, "SHARE", 0.0)
    monkeypatch.setattr(drawn_bursts, "PACED", 0.0)
    for seed, plan in drawn.items():
        without = draw_plan(seed)
        assert with_bursts(without, seed) == without
        assert plan.workloads[: len(without.workloads)] == without.workloads
        assert set(without.faults) <= set(plan.faults)
    assert PACED > 0


def quick(when_full: str = "refuse") -> tuple[Plan, int]:
    """One with such a queue, without faults and other workloads."""
    for seed, plan in plans().items():
        for node, queues in plan.topology.queues.items():
            mine = tuple(told for told in plan.workloads if str(told.get("name", "")).startswith(NAME))
            if any(queue.name == NAME and queue.when_full == when_full for queue in queues) and mine:
                told = tuple({**each, "rate": 0.0} if each["kind"] == "publish" else each for each in mine)
                assert all(each["node"] == node for each in told)
                return replace(plan, workloads=told, faults=(), knobs={}, paged=False), seed
    raise AssertionError(f"no seed has one that does {when_full}")


def ran(when_full: str = "refuse") -> Result:
    plan, seed = quick(when_full)
    return execute(plan, seed)


@pytest.mark.parametrize("when_full", ["refuse", "block"])
def test_a_seed_with_room_by_priority_ends_well(when_full: str) -> None:
    result = ran(when_full)
    assert result.ok, result.failure
    assert result.metrics["taken_by_band"] > 20
    assert (result.metrics["refused_by_band"] > 20) == (when_full == "refuse")


def test_what_fills_the_room_of_others_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Queue, "bounds", lambda self, priority=9: (self.config.messages_max, self.config.bytes_max))
    result = ran()
    assert not result.ok and "fills it up to" in result.failure


def returning() -> Plan:
    """A client whose messages for a root go over a node that cannot reach it either; they come back by the next table,
    while others have filled the part of their priority."""
    shape = LinkShape()
    return Plan(
        name="comes-back",
        topology=Topology(
            nodes=("ber", "zrh", "syd"),
            links=tuple(
                Link(one=one, other=other, there=shape)
                for one, other in (("ber", "zrh"), ("ber", "syd"), ("zrh", "syd"))
            ),
            queues={"syd": (QueueConfig(name="work"),)},
            pacing={"ber": PacingConfig(roots=("syd",), capacity_bytes=5_000, when_full="block")},
        ),
        workloads=(
            {"kind": "publish", "node": "ber", "address": "work@syd", "messages": 200, "size": 100, "rate": 50.0},
            {"kind": "consume", "node": "syd", "queue": "work"},
        ),
        faults=(
            Fault(kind="partition", at=0.0, link=("ber", "syd"), seconds=6.0),
            Fault(kind="partition", at=0.0, link=("zrh", "syd"), seconds=6.0),
            Fault(kind="re-route", at=0.0, link=("ber", "syd"), seconds=2.0),
            Fault(kind="re-route", at=4.0, link=("zrh", "syd"), seconds=4.0),
        ),
        safety_s=10.0,
    )


def test_what_comes_back_by_another_route_may_fill_all_of_a_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its node has accepted it already; what a client sends beside it is held to its part."""
    result = execute(returning(), 1)
    assert result.ok, result.failure
    assert result.metrics["came_back"] > 20
    assert result.metrics["taken_by_band"] >= 200
    monkeypatch.setattr(Queue, "bounds", lambda self, priority=9: (self.config.messages_max, self.config.bytes_max))
    result = execute(returning(), 1)
    assert not result.ok and "fills it up to" in result.failure


def test_what_is_refused_though_there_is_room_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bands, "part", lambda self, priority, now: 0.1)
    result = ran()
    assert not result.ok and "was refused with" in result.failure


def ignoring() -> tuple[Plan, int]:
    """A root with a neighbour that has much to send and ignores its rate."""
    for seed, plan in plans().items():
        roots = [name for name, told in plan.topology.pacing.items() if told.rate is not None]
        near = [name for root in roots for name in plan.topology.neighbours(root) if name in plan.topology.pacing]
        if not near:
            continue
        mine = []
        for told in plan.workloads:
            if str(told.get("name", "")).startswith("paced"):
                more: dict[str, Any] = {"messages": 600, "size": 1_200, "rate": 60.0, "in_doubt": 600}
                mine.append({**told, **more} if told["kind"] == "publish" and told["node"] == near[0] else told)
        if not any(told.get("messages") == 600 for told in mine):
            continue
        pacing = {name: replace(told, when_full=None) for name, told in plan.topology.pacing.items()}
        pacing[roots[0]] = replace(pacing[roots[0]], rate=20_000, period_s=0.5, policy="fixed", lend=0.0)
        fault = Fault(kind="ignores-rate", at=0.5, node=near[0], seconds=60.0)
        topology = replace(plan.topology, pacing=pacing)
        return replace(plan, topology=topology, workloads=tuple(mine), faults=(fault,), knobs={}, paged=False), seed
    raise AssertionError("no seed has a client next to its root")


def test_who_ignores_its_rate_is_held_to_it_and_all_arrives() -> None:
    plan, seed = ignoring()
    result = execute(plan, seed)
    assert result.ok, result.failure
    assert result.metrics["faults"]["ignores-rate"] == 1


def test_who_keeps_ignoring_its_rate_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def computed(self: Any, now: float) -> None:
        original(self, now)
        self.cut.clear()

    original = RootCredit.computed
    monkeypatch.setattr(RootCredit, "computed", computed)
    plan, seed = ignoring()
    result = execute(plan, seed)
    assert not result.ok and "its link is not held to it" in result.failure


def test_who_says_it_is_fuller_leaves_the_others_enough_where_weights_alone_decide() -> None:
    """Else what they sent comes long after the run's end."""
    plan = draw_plan(3_232_005)
    [root] = [told for told in plan.topology.pacing.values() if told.rate is not None]
    assert root.policy == "weights"
    told = {weight for told in plan.topology.pacing.values() for _, weight in told.weights}
    assert max(told) == 50, "of one who lies"
    result = execute(plan, 3_232_005)
    assert result.ok, result.failure
