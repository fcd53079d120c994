"""The acceptance table of the traffic paper's experiment, in a short form: each run must be within its bounds. The long
form, which judges the means of twenty seeds too, is `make pacing`."""

import pytest

from holdfast_lab.vpn import acceptance
from holdfast_lab.vpn.acceptance import SIZES, Check
from holdfast_lab.vpn.campaign import TOGETHER
from holdfast_lab.vpn.measures import burst_size, run
from holdfast_lab.vpn.parameters import Experiment

pytestmark = pytest.mark.sim

SEEDS = (1,)


def held(checks: list[Check]) -> None:
    assert checks
    for check in checks:
        assert check.each_holds, f"{check.what}: {check.values}, expected each within {check.of_each}"


def test_without_control_client_2_alone_overflows_and_in_the_burst_alone() -> None:
    held(acceptance.of_fixed([run(Experiment(policy="fixed"))[0]]))


def test_with_the_papers_control_nothing_overflows_and_peaks_are_a_quarter() -> None:
    held(acceptance.of_weights([run(Experiment(policy="weights"))[0]]))


def test_where_all_burst_at_once_the_papers_control_is_no_help() -> None:
    for policy in ("fixed", "weights"):
        held([acceptance.of_all([run(Experiment(policy=policy, **TOGETHER))[0]])])


@pytest.mark.parametrize(
    ("policy", "lend"), [("fixed", 0.0), ("weights", 0.0), ("level", 0.0), ("level", 1.0)], ids=str
)
def test_the_size_of_a_burst_is_as_expected_of_its_limit(policy: str, lend: float) -> None:
    base = [Experiment(policy=policy, lend=lend, seed=seed) for seed in SEEDS]
    sizes = [size for size in SIZES if size != 18.0 or policy == "level"]
    held(acceptance.of_bursts(burst_size(one, size) for size in sizes for one in base))


def test_level_beats_the_papers_policy_by_as_much_as_there_is_to_gain() -> None:
    for seed in SEEDS:
        weights, level, lent = (
            burst_size(Experiment(policy=policy, lend=lend, seed=seed), 20.0)
            for policy, lend in (("weights", 0.0), ("level", 0.0), ("level", 1.0))
        )
        assert level.size > 1.7 * weights.size
        assert lent.size > 4 * weights.size


@pytest.mark.parametrize("other", [{"period_s": 10.0}, {"loss": 0.2}, {"clients": 30}], ids=str)
def test_level_needs_neither_a_short_period_nor_all_messages_nor_few_clients(other: dict[str, float]) -> None:
    for lend, least in ((0.0, 0.8), (1.0, 0.88)):
        found = burst_size(Experiment(policy="level", lend=lend, **other), 50.0)  # type: ignore[arg-type]
        assert least < found.share <= 1
