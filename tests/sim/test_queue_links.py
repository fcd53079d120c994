"""Links between queues in the simulator, with faults that strike while they pass messages on."""

from functools import cache

import pytest

from holdfast_lab.draws.drawn_scenes import links
from holdfast_lab.plan.result import Result
from support import today
from support.scenes import run_scene

pytestmark = pytest.mark.sim


@cache
def ran(seed: int) -> Result:
    return run_scene(links, seed)


@pytest.mark.parametrize("seed", today.some(range(1, 1_000), 4))
def test_nothing_is_lost_or_doubled_under_crashes_and_full_disks(seed: int) -> None:
    result = ran(seed)
    assert result.ok, result.failure


def test_the_seeds_meet_what_they_are_for() -> None:
    for what in ("taken", "copied"):
        metrics = (item for seed in range(1, 9) for item in ran(seed).metrics.items())
        assert any(value > 0 for name, value in metrics if name.endswith(what)), what
