"""All at once, with priorities: who is refused, and that the report says so."""

from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast_lab import traffic
from holdfast_lab.vpn.settings import experiment
from pyspark_holdfast import swarm_job
from pyspark_holdfast.traffic import priorities
from pyspark_holdfast.traffic.acceptance import SEEDS_FOR_MEANS
from pyspark_holdfast.traffic.runs import POLICIES, Run, policy_named

EQUAL = "13.333333333333334,13.333333333333334,13.333333333333334"
UNEQUAL = "0,30,15"
SPAN = {"burst_from_s": "100", "burst_to_s": "1100", "span_s": "1100"}


def ran(policy: str, rates: str, *, whole: bool = False) -> Run:
    name = f"traffic-{policy}"
    settings = SPAN | {"priorities": "true", "rates": rates} | ({"whole_capacity": "true"} if whole else {})
    found = traffic.run(name, experiment(name, 1, settings), None)
    return Run("priorities", policy_named(name, settings), settings, 1, 0.0, swarm_job.flat(found.metrics), {})


def total(run: Run, what: str) -> dict[str, float]:
    return {key: value for key, value in run.metrics.items() if key.startswith(f"priorities.{what}.")}


def test_the_low_priority_pays_and_each_client_alike() -> None:
    found = ran("level", EQUAL)
    low, normal, high = priorities.by_class(found)
    assert 0.57 < low < 0.65 and normal < 0.003 and high == 0
    assert priorities.by_client(found) == pytest.approx((0.37, 0.37, 0.37), abs=0.03)
    assert sum(total(found, "offered").values()) == pytest.approx(40_000, rel=0.02)


def test_a_modest_client_loses_nothing_unless_its_report_tells_the_whole_queue() -> None:
    assert priorities.by_client(ran("level", UNEQUAL)) == pytest.approx((0.0, 0.64, 0.30), abs=0.03)
    assert priorities.by_client(ran("level", UNEQUAL, whole=True))[0] > 0.7
    assert priorities.by_client(ran("overflow", UNEQUAL))[0] > 0.3


def test_all_policies_meet_the_same_messages() -> None:
    fixed, weights = ran("fixed", UNEQUAL), ran("weights", UNEQUAL)
    assert total(fixed, "offered") == total(weights, "offered")
    offered = total(fixed, "offered")
    by_client = [sum(offered[f"priorities.offered.{client}.{one}"] for one in priorities.CLASSES) / 1_000
                 for client in priorities.CLIENTS]  # fmt: skip
    assert by_client == pytest.approx([4.17, 30, 15], rel=0.1)
    shares = [sum(offered[f"priorities.offered.{client}.{one}"] for client in priorities.CLIENTS)
              for one in priorities.CLASSES]  # fmt: skip
    assert [share / sum(shares) for share in shares] == pytest.approx([0.6, 0.3, 0.1], abs=0.02)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"rates": "1,2"}, "invalid value 2 rates; expected one for each of 3 patterns"),
        ({"rates": "1,2,-1"}, "invalid value -1 for rates; expected 0 to 10000"),
        ({"whole_capacity": "true"}, "whole_capacity needs priorities"),
        ({"priorities": "true", "network": "paper"}, "priorities are simulated on direct links"),
    ],
)
def test_settings_that_cannot_be_are_one_line(settings: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        experiment("traffic-fixed", 1, settings)


def fake(policy: str, seed: int, rates: str, **more: str) -> Run:
    refused: tuple[int, ...] = (61, 61, 61) if rates == EQUAL else (0, 64, 30)
    metrics: dict[str, Any] = {"root_peak_messages": 27}
    for client, count in zip(priorities.CLIENTS, refused, strict=True):
        for one, of, lost in (("low", 100, count), ("normal", 30, 0), ("high", 10, 0)):
            metrics |= {f"priorities.offered.{client}.{one}": of, f"priorities.refused.{client}.{one}": lost}
    return Run("priorities", policy, {"rates": rates} | more, seed, 1.0, metrics, {})


def test_the_rows_have_each_policy_and_the_checks_can_fail() -> None:
    seeds = range(SEEDS_FOR_MEANS)
    runs = [fake(policy, seed, rates) for policy in POLICIES for rates in (EQUAL, UNEQUAL) for seed in seeds]
    runs += [fake("level 0", seed, EQUAL, whole_capacity="true") for seed in seeds]
    found, checks = priorities.rows(runs), priorities.checks(runs)
    assert len(found) == 2 * len(POLICIES) + 1
    assert {row["offered"] for row in found} == set(priorities.EXPECTED)
    assert len(checks) == len(priorities.CHECKED) * sum(len(each) for each in priorities.EXPECTED.values())
    failed = [check.what for check in checks if not check.holds]
    assert "13.3 / 13.3 / 13.3/s, level 0, low refused" not in failed
    assert "13.3 / 13.3 / 13.3/s, level 0, client 1 refused" in failed  # 61 of 140 are not 37 %
