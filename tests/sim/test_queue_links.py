"""Links between queues in the simulator, with faults that strike while they pass messages on."""

from dataclasses import replace
from functools import cache
from random import Random

import pytest

from holdfast_lab.draws.drawn_scenes import links
from holdfast_lab.plan.networks import line
from holdfast_lab.plan.plan import Plan
from holdfast_lab.plan.result import Result
from holdfast_lab.runs.run import execute
from support import today

pytestmark = pytest.mark.sim


@cache
def ran(seed: int) -> Result:
    plan = Plan(name="links", topology=line("jfk hub"), workloads=(), faults=(), safety_s=8.0)
    scene = links(Random(seed), "jfk", plan)
    faults = tuple(sorted(scene.faults, key=lambda fault: fault.at))
    topology = replace(plan.topology, queues=scene.queues_with({}))
    return execute(replace(plan, topology=topology, workloads=tuple(scene.workloads), faults=faults), seed)


@pytest.mark.parametrize("seed", today.some(range(1, 1_000), 4))
def test_nothing_is_lost_or_doubled_under_crashes_and_full_disks(seed: int) -> None:
    result = ran(seed)
    assert result.ok, result.failure


def test_the_seeds_meet_what_they_are_for() -> None:
    for what in ("taken", "copied"):
        metrics = (item for seed in range(1, 9) for item in ran(seed).metrics.items())
        assert any(value > 0 for name, value in metrics if name.endswith(what)), what
