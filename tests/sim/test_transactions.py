"""Transactions in the simulator: messages that are moved in them, with faults that strike at their moments."""

from functools import cache

import pytest

from holdfast_lab.draws.drawn_scenes import transactions
from holdfast_lab.plan.result import Result
from support import today
from support.scenes import run_scene

pytestmark = pytest.mark.sim


@cache
def ran(seed: int) -> Result:
    return run_scene(transactions, seed)


@pytest.mark.parametrize("seed", [*range(1, 3), *today.some(range(3, 1_000), 3)])
def test_all_or_nothing_under_crashes_cuts_and_full_disks(seed: int) -> None:
    result = ran(seed)
    assert result.ok, result.failure


def test_the_seeds_meet_what_they_are_for() -> None:
    metrics = [ran(seed).metrics for seed in range(1, 3)]
    for fate in ("passed on", "committed", "aborted", "rolled back"):
        found = [count for item in metrics for name, count in item.items() if name.endswith(f".{fate}")]
        assert sum(found) > 0, fate
