"""Neighbours that log in by SCRAM in simulated networks: sessions come up each time, and a mistake is found."""

from dataclasses import replace
from typing import Any

import pytest

from holdfast_lab.canaries import plant
from holdfast_lab.draws import drawn_guesses
from holdfast_lab.draws.drawn_guesses import SHARE, with_guesses
from holdfast_lab.draws.drawn_logins import LOGINS_SHARE
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.networks import line
from holdfast_lab.plan.plan import Plan, from_json
from holdfast_lab.runs.run import execute
from holdfast_lab.runs.swarm import draw_plan
from support.drawing import draw_up_to


def run(seed: int = 1) -> Any:
    publish = {"kind": "publish", "node": "ber", "address": "q@fra", "messages": 60, "size": 200, "producers": 1}
    workloads = ({**publish, "rate": 20.0}, {"kind": "consume", "node": "fra", "queue": "q"})
    cuts = tuple(Fault(kind="crash", at=at, node=node, seconds=0.3) for at, node in ((1.0, "fra"), (2.0, "ber")))
    topology = replace(line("ber muc fra"), logins=True)
    return execute(Plan(name="logins", topology=topology, workloads=workloads, faults=cuts), seed)


def test_neighbours_log_in_at_each_connect() -> None:
    result = run()
    assert result.ok, result.failure


def test_a_session_that_does_not_begin_is_found() -> None:
    with plant("no-header-after-login"):
        result = run()
    assert not result.ok and result.failure


def test_a_share_of_seeds_has_logins() -> None:
    drawn = [draw_plan(seed).topology.logins for seed in range(1, 301)]
    assert 0 < sum(drawn) < 300 * (2 * LOGINS_SHARE + SHARE)


def guess(*, users: tuple[str, ...] = ("user ber+muc", "user fra+muc"), **told: Any) -> Any:
    guesses = {"kind": "guessing", "node": "muc", "users": [*users], "tries": 120, "pause_s": 0.01, **told}
    publish = {"kind": "publish", "node": "ber", "address": "q@fra", "messages": 60, "size": 200, "rate": 20.0}
    consume = {"kind": "consume", "node": "fra", "queue": "q"}
    topology = replace(line("ber muc fra"), logins=True)
    return execute(Plan(name="guesses", topology=topology, workloads=(publish, consume, guesses)), 1)


def test_guesses_are_bounded_and_keep_no_neighbour_out() -> None:
    result = guess(clients=2)
    assert result.ok, result.failure
    assert result.metrics["guessing-3.failed"] >= 20 and result.metrics["guessing-3.unheard"] > 0, result.metrics
    assert "guessing-3.entered" not in result.metrics


def test_guesses_that_are_not_counted_are_found() -> None:
    with plant("guesses-for-nothing"):
        result = guess()
    assert not result.ok and "were answered" in str(result.failure)


def test_a_share_of_seeds_has_guessers_and_nothing_else_of_them_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    draw_up_to(monkeypatch, with_guesses)
    plans = {seed: draw_plan(seed) for seed in range(1, 301)}
    drawn = {seed: plan for seed, plan in plans.items() if any(each["kind"] == "guessing" for each in plan.workloads)}
    assert 300 * SHARE / 8 < len(drawn) < 300 * SHARE
    assert all(from_json(plan.to_json()) == plan for plan in drawn.values())
    monkeypatch.setattr(drawn_guesses, "SHARE", 0.0)
    for seed, plan in drawn.items():
        without = draw_plan(seed)
        assert replace(plan, workloads=()) == replace(
            without, workloads=(), topology=replace(without.topology, logins=True)
        )
        assert plan.workloads[:-1] == without.workloads
