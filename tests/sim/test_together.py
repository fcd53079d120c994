"""Messages of one transaction for another node, shown there together whatever breaks (docs/adr/0073)."""

from functools import cache

import pytest

from holdfast_lab.draws.drawn_policies import together
from holdfast_lab.plan.result import Result
from support import today
from support.scenes import run_scene

pytestmark = pytest.mark.sim


@cache
def ran(seed: int) -> Result:
    return run_scene(together, seed, hop_in_doubt_max=(2, 20)[seed % 2])


@pytest.mark.parametrize("seed", [*range(1, 3), *today.some(range(3, 1_000), 3)])
def test_nobody_sees_a_part_of_a_transaction(seed: int) -> None:
    result = ran(seed)
    assert result.ok, result.failure


def test_the_seeds_meet_what_they_are_for() -> None:
    metrics = [ran(seed).metrics for seed in range(1, 3)]
    for what in ("committed", "shown together"):
        assert all(count > 0 for item in metrics for name, count in item.items() if name.endswith(f".{what}")), what
