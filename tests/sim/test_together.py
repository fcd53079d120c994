"""Messages of one transaction for another node, shown there together whatever breaks (docs/adr/0073)."""

from dataclasses import replace
from functools import cache
from random import Random

import pytest

from holdfast_lab.draws.drawn_policies import together
from holdfast_lab.plan.networks import line
from holdfast_lab.plan.plan import Plan
from holdfast_lab.plan.result import Result
from holdfast_lab.runs.run import execute
from support import today

pytestmark = pytest.mark.sim


@cache
def ran(seed: int) -> Result:
    plan = Plan(name="together", topology=line("jfk hub"), workloads=(), faults=(), safety_s=8.0)
    scene = together(Random(seed), "jfk", plan)
    faults = tuple(sorted(scene.faults, key=lambda fault: fault.at))
    limits = replace(plan.topology.limits, hop_in_doubt_max=(2, 20)[seed % 2])
    topology = replace(plan.topology, queues=scene.queues_with({}), limits=limits)
    return execute(replace(plan, topology=topology, workloads=tuple(scene.workloads), faults=faults), seed)


@pytest.mark.parametrize("seed", [*range(1, 3), *today.some(range(3, 1_000), 3)])
def test_nobody_sees_a_part_of_a_transaction(seed: int) -> None:
    result = ran(seed)
    assert result.ok, result.failure


def test_the_seeds_meet_what_they_are_for() -> None:
    metrics = [ran(seed).metrics for seed in range(1, 3)]
    for what in ("committed", "shown together"):
        assert all(count > 0 for item in metrics for name, count in item.items() if name.endswith(f".{what}")), what
