"""A topic over simulated nodes: what is confirmed comes once, whatever breaks (docs/adr/0082)."""

from dataclasses import replace
from functools import cache
from random import Random

import pytest

from holdfast_lab.draws.drawn_federation import draw
from holdfast_lab.plan.networks import line
from holdfast_lab.plan.plan import Plan
from holdfast_lab.plan.result import Result
from holdfast_lab.runs.run import execute
from support import today

pytestmark = pytest.mark.sim


@cache
def ran(seed: int) -> Result:
    plan = Plan(name="federated", topology=line("jfk hub ewr"), workloads=(), faults=(), safety_s=8.0)
    told, faults = draw(Random(seed), plan)
    in_order = tuple(sorted(faults, key=lambda fault: fault.at))
    return execute(replace(plan, workloads=(told,), faults=in_order), seed)


@pytest.mark.parametrize("seed", [*range(1, 4), *today.some(range(4, 1_000), 4)])
def test_what_is_confirmed_comes_once(seed: int) -> None:
    result = ran(seed)
    assert result.ok, result.failure


def test_the_seeds_meet_what_they_are_for() -> None:
    metrics = [ran(seed).metrics for seed in range(1, 4)]
    for what in ("confirmations", "due", "shown"):
        assert sum(count for item in metrics for name, count in item.items() if name.endswith(f".{what}")) > 10, what
