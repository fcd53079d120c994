"""Measured costs: the formula by hand, and that they are told seldom."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from holdfast.routing.cost import HOLD_S, TOLD_RATIO, MeasuredCost, measured_cost
from holdfast.routing.topology import COST_MICRO_MAX

GIVEN = 2_000_000  # 2 ms


def cost(round_trip_s: float = 0.0, loss_share: float = 0.0, backlog_bytes: int = 0, bandwidth_bps: int = 0) -> int:
    return measured_cost(
        GIVEN,
        round_trip_s=round_trip_s,
        loss_share=loss_share,
        backlog_bytes=backlog_bytes,
        bandwidth_bps=bandwidth_bps,
    )


def test_by_hand() -> None:
    assert cost() == GIVEN
    assert cost(0.002) == GIVEN, "faster than it was given costs what was given"
    assert cost(0.02) == 10_000_000  # 10 ms there
    assert cost(0.02, 0.5) == 20_000_000  # each goes twice
    assert cost(0.02, 0.0, 125_000, 1_000_000) == 1_010_000_000  # a second's backlog
    assert cost(0.02, 0.0, 125_000, 0) == 10_000_000, "what it leaves with is not known"


@given(st.floats(0, 1e9), st.floats(-1, 2), st.integers(0, 2**60), st.integers(0, 10**10))
def test_it_is_whole_bounded_and_never_below_the_given_one(rtt: float, loss: float, backlog: int, bps: int) -> None:
    found = cost(rtt, loss, backlog, bps)
    assert isinstance(found, int)
    assert GIVEN <= found <= COST_MICRO_MAX
    assert cost(rtt * 2, loss, backlog, bps) >= found


def test_a_change_is_told_past_the_ratio_and_not_often() -> None:
    """A quarter of each measurement counts: 10 s apart, past one and a half times."""
    link = MeasuredCost(GIVEN)
    assert link.measured(0.0, 0.005, 0.0, 0) is None, "2.125 ms are less than one and a half times"
    assert link.measured(1.0, 0.02, 0.0, 0) == 4_093_750  # 2.125 + (10 - 2.125) / 4
    assert link.measured(2.0, 0.2, 0.0, 0) is None, "too soon"
    assert link.measured(10.9, 0.2, 0.0, 0) is None
    assert link.measured(11.0, 0.2, 0.0, 0) == 59_539_551
    for second in range(30, 200):
        link.measured(float(second), 0.0, 0.0, 0)
    assert GIVEN <= link.cost <= TOLD_RATIO * GIVEN, "and back"


@given(st.lists(st.floats(0, 10), min_size=10, max_size=300))
def test_it_is_told_no_oftener_than_it_may_whatever_is_measured(round_trips: list[float]) -> None:
    link = MeasuredCost(GIVEN)
    told = [second for second, rtt in enumerate(round_trips) if link.measured(float(second), rtt, 0.0, 0) is not None]
    assert all(later - earlier >= HOLD_S for earlier, later in pairwise(told))


def test_one_outlier_moves_little() -> None:
    link = MeasuredCost(GIVEN)
    for second in range(20):
        assert link.measured(float(second), 0.005 if second == 10 else 0.002, 0.0, 0) is None
