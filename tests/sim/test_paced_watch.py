"""Roots and their clients as the swarm draws them, and the checker that holds clients to their rates."""

from dataclasses import replace
from typing import Any

import pytest

from holdfast.pacing.origin import Origin
from holdfast.pacing.pacer import Pacer
from holdfast_lab.draws import drawn_pacing
from holdfast_lab.draws.drawn_pacing import SHARE, with_pacing
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.plan import Plan, from_json
from holdfast_lab.runs.run import execute
from holdfast_lab.runs.swarm import draw_plan
from support.drawing import draw_up_to

SEEDS = range(1, 120)
UNSTEADY = "unsteady-pacing"


def plans() -> dict[int, Plan]:
    found = {seed: draw_plan(seed) for seed in SEEDS}
    return {seed: plan for seed, plan in found.items() if plan.topology.pacing}


def test_a_share_of_the_seeds_has_a_root(monkeypatch: pytest.MonkeyPatch) -> None:
    draw_up_to(monkeypatch, with_pacing)  # what is drawn later has roots too
    drawn = plans()
    assert SHARE / 4 < len(drawn) / len(SEEDS) < SHARE
    for plan in drawn.values():
        assert from_json(plan.to_json()) == plan
        roots = [name for name, told in plan.topology.pacing.items() if told.rate is not None]
        assert len(roots) == 1
        assert all(told.roots == tuple(roots) for name, told in plan.topology.pacing.items() if name not in roots)


def test_nothing_else_of_a_seed_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    draw_up_to(monkeypatch, with_pacing)
    drawn = plans()
    monkeypatch.setattr(drawn_pacing, "SHARE", 0.0)
    for seed, plan in drawn.items():
        without = draw_plan(seed)
        assert with_pacing(without, seed) == without
        topology = replace(plan.topology, pacing={})
        assert replace(plan, topology=topology, workloads=(), faults=()) == replace(without, workloads=(), faults=())
        assert plan.workloads[: len(without.workloads)] == without.workloads
        assert set(without.faults) <= set(plan.faults)


def quick() -> tuple[Plan, int]:
    """One of them without faults and other workloads."""
    seed, plan = next(iter(plans().items()))
    mine = tuple(told for told in plan.workloads if str(told.get("name", "")).startswith(drawn_pacing.QUEUE))
    return replace(plan, workloads=mine, faults=(), knobs={}, paged=False), seed


def test_a_seed_with_a_root_ends_well() -> None:
    plan, seed = quick()
    result = execute(plan, seed)
    assert result.ok, result.failure
    assert result.metrics["paced"] > 10
    assert result.metrics["turns_that_waited"] > 10


def test_some_seeds_have_control_messages_that_are_lost_late_or_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = plans()
    unsteady = {seed for seed, plan in drawn.items() if any(fault.kind == UNSTEADY for fault in plan.faults)}
    assert len(drawn) / 3 < len(unsteady) < len(drawn)
    monkeypatch.setattr(drawn_pacing, "UNSTEADY_SHARE", 0.0)
    for seed, plan in drawn.items():
        kept = tuple(fault for fault in plan.faults if fault.kind != UNSTEADY)
        assert replace(plan, faults=kept) == draw_plan(seed), "nothing else of a seed changes"


def test_rates_hold_while_control_messages_are_lost_late_or_doubled() -> None:
    plan, seed = quick()
    faults = tuple(
        Fault(kind=UNSTEADY, at=0.0, node=node, seconds=60.0, amount=0.7) for node in plan.topology.nodes
    )  # fmt: skip
    result = execute(replace(plan, faults=faults), seed)
    assert result.ok, result.failure
    assert result.metrics["paced"] > 10
    assert set(result.metrics["pacing_messages"]) == {"doubled", "late", "lost"}


def test_a_client_that_counts_too_little_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def sent(self: Any, now: float, size: int, messages: int = 1, *, waited: bool = False) -> None:
        original(self, now, size // 2, messages, waited=waited)

    original = Pacer.sent
    monkeypatch.setattr(Pacer, "sent", sent)
    plan, seed = quick()
    result = execute(plan, seed)
    assert not result.ok
    assert "than its rate of" in result.failure


def test_a_client_that_obeys_longer_than_its_root_counts_with_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def receive(self: Any, now: float, pace: Any) -> bool:
        sent_at, self._sent = self._sent, [(version, now) for version, _ in self._sent]
        try:
            return original(self, now, pace)  # as if the report had been sent when it was answered
        finally:
            self._sent = sent_at

    original = Origin.receive
    monkeypatch.setattr(Origin, "receive", receive)
    plan, seed = quick()
    result = execute(plan, seed)
    assert not result.ok
    assert "counts with it" in result.failure
