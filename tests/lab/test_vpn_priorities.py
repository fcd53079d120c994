"""All at once, with priorities: who is refused, and that the tables say so."""

from typing import Any

import pytest

from holdfast_lab.vpn.acceptance import SEEDS_FOR_MEANS
from holdfast_lab.vpn.campaign import POLICIES
from holdfast_lab.vpn.priorities import (
    CHECKED,
    EQUAL,
    EXPECTED,
    OFFERED,
    UNEQUAL,
    BandedNetwork,
    Burst,
    all_at_once,
    rows,
    run_banded,
)

SEEDS = (1,)


def burst(policy: str, rates: tuple[float, float, float], *, whole: bool = False) -> Burst:
    return run_banded((all_at_once(policy), rates, whole))


def test_the_low_priority_pays_and_each_client_alike() -> None:
    found = burst("level", EQUAL)
    low, normal, high = found.by_class()
    assert 0.57 < low < 0.65 and normal < 0.003 and high == 0
    assert found.by_client() == pytest.approx((0.37, 0.37, 0.37), abs=0.03)
    assert sum(map(sum, found.offered)) == pytest.approx(40_000, rel=0.02)


def test_a_modest_client_loses_nothing_unless_its_report_tells_the_whole_queue() -> None:
    assert burst("level", UNEQUAL).by_client() == pytest.approx((0.0, 0.64, 0.30), abs=0.03)
    assert burst("level", UNEQUAL, whole=True).by_client()[0] > 0.7
    assert burst("overflow", UNEQUAL).by_client()[0] > 0.3


def test_all_policies_meet_the_same_messages() -> None:
    assert burst("fixed", UNEQUAL).offered == burst("weights", UNEQUAL).offered
    network = BandedNetwork(all_at_once("fixed", seed=2), UNEQUAL)
    network.run()
    assert [sum(of) / 1_000 for of in network.offered] == pytest.approx([4.17, 30, 15], rel=0.1)
    classes = [sum(of) for of in zip(*network.offered, strict=True)]
    assert [each / sum(classes) for each in classes] == pytest.approx([0.6, 0.3, 0.1], abs=0.02)


def fake(given: Any) -> Burst:
    experiment, rates, _ = given
    refused = ((61, 0, 0),) * 3 if rates == EQUAL else ((0, 0, 0), (64, 0, 0), (30, 0, 0))
    return Burst(experiment.name, experiment.seed, ((100, 30, 10),) * 3, refused, 27)


def test_the_rows_have_each_policy_and_the_checks_can_fail() -> None:
    said: list[str] = []
    found, checks = rows(POLICIES, range(SEEDS_FOR_MEANS), lambda work: [fake(one) for one in work], said.append)
    assert len(found) == len(said) == 2 * (len(POLICIES) + 1)
    assert {row["offered"] for row in found} == set(OFFERED)
    assert len(checks) == len(CHECKED) * sum(len(each) for each in EXPECTED.values())
    failed = [check.what for check in checks if not check.holds]
    assert "13.3 / 13.3 / 13.3/s, level 0, low refused" not in failed
    assert "13.3 / 13.3 / 13.3/s, level 0, client 1 refused" in failed  # 61 of 140 are not 37 %
