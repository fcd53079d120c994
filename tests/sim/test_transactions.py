"""Transactions in the simulator: messages that are moved in them, with faults that strike at their moments."""

from dataclasses import replace
from functools import cache
from random import Random

import pytest

from holdfast_lab.draws.drawn_scenes import transactions
from holdfast_lab.plan.networks import line
from holdfast_lab.plan.plan import Plan
from holdfast_lab.plan.result import Result
from holdfast_lab.runs.run import execute
from support import today

pytestmark = pytest.mark.sim


@cache
def ran(seed: int) -> Result:
    plan = Plan(name="transactions", topology=line("jfk hub"), workloads=(), faults=(), safety_s=8.0)
    scene = transactions(Random(seed), "jfk", plan)
    faults = tuple(sorted(scene.faults, key=lambda fault: fault.at))
    topology = replace(plan.topology, queues=scene.queues_with({}))
    return execute(replace(plan, topology=topology, workloads=tuple(scene.workloads), faults=faults), seed)


@pytest.mark.parametrize("seed", [*range(1, 3), *today.some(range(3, 1_000), 3)])
def test_all_or_nothing_under_crashes_cuts_and_full_disks(seed: int) -> None:
    result = ran(seed)
    assert result.ok, result.failure


def test_the_seeds_meet_what_they_are_for() -> None:
    metrics = [ran(seed).metrics for seed in range(1, 3)]
    for fate in ("passed on", "committed", "aborted", "rolled back"):
        found = [count for item in metrics for name, count in item.items() if name.endswith(f".{fate}")]
        assert sum(found) > 0, fate
