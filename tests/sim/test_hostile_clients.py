"""Hostile clients in the simulator: drawn by seed, repeatable, and noticed by nobody."""

from dataclasses import replace

import pytest

from holdfast.settings.queues import QueueConfig
from holdfast_lab.draws.drawn_hostile import GIVES_BACK, SHARE, with_hostile
from holdfast_lab.draws.drawn_static import plan_of
from holdfast_lab.hostile import ACTS
from holdfast_lab.plan.networks import line
from holdfast_lab.plan.plan import Plan
from holdfast_lab.plan.result import Result
from holdfast_lab.runs.coverage import ACTS as ACTS_KIND
from holdfast_lab.runs.coverage import Coverage
from holdfast_lab.runs.run import execute
from holdfast_lab.runs.swarm import draw_plan, run_seed
from support import today

pytestmark = pytest.mark.sim

NODES = replace(line("jfk lhr"), queues={"lhr": (QueueConfig(name="flights"),)})
PUBLISH = {"kind": "publish", "node": "jfk", "address": "flights@lhr", "messages": 100, "producers": 2, "rate": 20.0}
CONSUME = {"kind": "consume", "node": "lhr", "queue": "flights"}
HOSTILE = {"kind": "hostile", "clients": 3, "acts": 400, "seconds": 8.0, "far": True}
BESIDE = (
    {**HOSTILE, "node": "lhr", "shared": "flights", "held": "flights", "name": "there"},
    {**HOSTILE, "node": "jfk", "name": "here"},
)


def ran(seed: int) -> Result:
    plan = Plan(name="hostile", topology=NODES, workloads=(PUBLISH, CONSUME, *BESIDE), safety_s=10.0)
    return execute(plan, seed)


@pytest.mark.parametrize("seed", today.some(range(1, 5), 2))
def test_honest_traffic_beside_them_arrives(seed: int) -> None:
    result = ran(seed)
    assert result.ok, result.failure
    assert result.metrics["accepted"] == result.metrics["received"] == 200
    assert set(result.coverage[ACTS_KIND]) <= set(ACTS)
    assert len(result.coverage[ACTS_KIND]) > 0.9 * len(ACTS)


def test_a_run_can_be_repeated() -> None:
    one, two = ran(7), ran(7)
    assert (one.digest, one.metrics) == (two.digest, two.metrics)


def test_a_share_of_seeds_has_them_and_the_rest_of_each_is_as_it_was() -> None:
    before = [plan_of(seed) for seed in range(1, 401)]
    plans = [with_hostile(plan, seed) for seed, plan in enumerate(before, 1)]
    hostile = [[told for told in plan.workloads if told["kind"] == "hostile"] for plan in plans]
    assert SHARE * 0.7 < sum(bool(found) for found in hostile) / len(plans) < SHARE * 1.3
    for plan, found, without in zip(plans, hostile, before, strict=True):
        assert replace(plan, workloads=plan.workloads[: len(plan.workloads) - len(found)]) == without
        for told in found:
            assert told["seconds"] < plan.safety_s
            if "held" in told:
                consumers = [other for other in without.workloads if other.get("queue") == told["held"]]
                assert "consume" in {consumer["kind"] for consumer in consumers} <= {"consume", "browse"}
                assert not any(GIVES_BACK & set(consumer) for consumer in consumers)
    assert any("held" in told for found in hostile for told in found)
    assert any(told["far"] for found in hostile for told in found)


def test_coverage_counts_what_they_did() -> None:
    plans = ((seed, draw_plan(seed)) for seed in range(1, 100))
    seed = next(seed for seed, plan in plans if any(each["kind"] == "hostile" for each in plan.workloads))
    coverage = Coverage()
    assert run_seed(seed, coverage).ok
    assert coverage.counts[ACTS_KIND].total() > 10
    assert any("modified undeliverable here" in text for text in coverage.lines())
