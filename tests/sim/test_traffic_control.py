"""The acceptance table of the traffic paper's experiment, in a short form: each run must be within its bounds. The long
form, which judges the means of twenty seeds too, is `make pacing`."""

from typing import Any

import pytest

from holdfast_lab import traffic
from holdfast_lab.vpn.settings import experiment
from pyspark_holdfast import swarm_job
from pyspark_holdfast.traffic import acceptance
from pyspark_holdfast.traffic.acceptance import Check
from pyspark_holdfast.traffic.runs import Run, policy_named

pytestmark = pytest.mark.sim

SIZES = (18, 20, 30, 50, 100)
TOGETHER = {"bursting": "1,2,3", "burst_from_s": "100", "burst_to_s": "1900", "span_s": "1950"}


def ran(policy: str, seed: int = 1, **other: Any) -> Run:
    """As a sweep's table tells it."""
    settings = {key: str(value) for key, value in other.items()}
    name = f"traffic-{policy}"
    found = traffic.run(name, experiment(name, seed, settings), None)
    return Run("", policy_named(name, settings), settings, seed, 0.0, swarm_job.flat(found.metrics), {})


def held(checks: list[Check]) -> None:
    assert checks
    for check in checks:
        assert check.each_holds, f"{check.what}: {check.values}, expected each within {check.of_each}"


def test_without_control_client_2_alone_overflows_and_in_the_burst_alone() -> None:
    held(acceptance.of_fixed([ran("fixed")]))


def test_with_the_papers_control_nothing_overflows_and_peaks_are_a_quarter() -> None:
    held(acceptance.of_weights([ran("weights")]))


def test_where_all_burst_at_once_the_papers_control_is_no_help() -> None:
    for policy in ("fixed", "weights"):
        held([acceptance.of_all([ran(policy, **TOGETHER)])])


@pytest.mark.parametrize(("policy", "lend"), [("fixed", 0), ("weights", 0), ("level", 0), ("level", 1)], ids=str)
def test_the_size_of_a_burst_is_as_expected_of_its_limit(policy: str, lend: int) -> None:
    sizes = [size for size in SIZES if size != 18 or policy == "level"]
    held(acceptance.of_bursts(ran(policy, lend=lend, size="true", burst=size) for size in sizes))


def test_level_beats_the_papers_policy_by_as_much_as_there_is_to_gain() -> None:
    weights, level, lent = (
        ran(policy, lend=lend, size="true", burst=20).metrics["burst_messages"]
        for policy, lend in (("weights", 0), ("level", 0), ("level", 1))
    )
    assert level > 1.7 * weights
    assert lent > 4 * weights


@pytest.mark.parametrize("other", [{"period_s": 10}, {"loss": 0.2}, {"clients": 30}], ids=str)
def test_level_needs_neither_a_short_period_nor_all_messages_nor_few_clients(other: dict[str, float]) -> None:
    for lend, least in ((0, 0.8), (1, 0.88)):
        found = ran("level", lend=lend, size="true", burst=50, **other)
        assert least < found.metrics["share_of_limit"] <= 1
