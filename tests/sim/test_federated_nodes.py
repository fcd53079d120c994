"""What is measured of federated topics on whole nodes (docs/results/federation.md)."""

import pytest

from holdfast_lab.federated import report
from holdfast_lab.federated.churn import churned, forwarded
from holdfast_lab.federated.keys import measured
from holdfast_lab.federated.spoilt import spoilt
from support import today

pytestmark = pytest.mark.sim


@pytest.mark.parametrize("seed", [1, *today.some(range(2, 1_000), 2)])
def test_what_is_due_comes_in_networks_of_each_form(seed: int) -> None:
    one = churned(seed)
    assert not one.failure and one.shown >= one.due and one == churned(seed)


def test_whole_nodes_forward_a_copy_for_each_destination() -> None:
    """On a line that several share that is more than a tree needs."""
    one = forwarded(6)
    assert one.form == "line" and not one.failure and one.copies > one.steiner > 0


@pytest.mark.parametrize("seed", [2, 8])
def test_what_is_spoilt_at_all_nodes_becomes_right_within_the_bound(seed: int) -> None:
    one = spoilt(seed)
    assert not one.failure and one.sets and 0 < one.refreshes <= one.bound


def test_many_keys_are_confirmed_by_their_summary() -> None:
    few, many = measured(100), measured(3_000)
    assert not few.failure and not many.failure
    assert many.confirmed_s < few.confirmed_s < few.known_s + 1 < many.known_s


def test_a_report_is_tables_with_the_failures_named() -> None:
    made = report.Report(churned=[churned(1)], forwarded=[forwarded(2)], keys=[measured(10)])
    made.spoilt = [spoilt(2)]
    lines = report.page(made, "by hand")
    assert not made.failures and not any("Failures" in line for line in lines)
    made.spoilt[0].failure = "it is not right"
    assert report.page(made, "by hand")[-1] == "- spoilt, seed 2 (ring): it is not right"
    assert made.as_json()["failures"] == made.failures
