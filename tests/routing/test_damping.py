"""Flapping links: penalties by hand, and what holds for any flapping."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.routing.damping import HALF_LIFE_S, PENALTY, PENALTY_MAX, Damping


def test_the_first_failures_damp_nothing_and_the_fourth_in_a_row_does() -> None:
    damping = Damping()
    for second in range(3):
        damping.fell(float(second))
        assert damping.reuse_at() is None
    damping.fell(2.1)
    assert damping.held


def test_failures_far_apart_never_damp() -> None:
    damping = Damping()
    for number in range(100):
        damping.fell(number * 5 * HALF_LIFE_S)
        assert not damping.held


def test_the_penalty_halves_and_then_it_is_used_again() -> None:
    damping = Damping()
    for _ in range(4):
        damping.fell(10.0)
    assert damping.penalty(10.0) == 4 * PENALTY
    assert damping.penalty(10.0 + HALF_LIFE_S) == pytest.approx(2 * PENALTY)
    at = damping.reuse_at()
    assert at == pytest.approx(10.0 + 2 * HALF_LIFE_S)  # from 4,000 to 1,000
    assert at is not None
    assert not damping.release(at - 0.001)
    assert damping.release(at + 0.001)
    assert not damping.release(at + 0.002), "once"
    assert damping.reuse_at() is None


@given(st.lists(st.floats(0, 60), min_size=1, max_size=200))
def test_no_flapping_holds_a_link_longer_than_the_bound(gaps: list[float]) -> None:
    damping = Damping()
    now = 0.0
    for gap in gaps:
        now += gap
        damping.release(now)
        damping.fell(now)
        assert damping.penalty(now) <= PENALTY_MAX
    at = damping.reuse_at()
    assert at is None or now <= at <= now + 3 * HALF_LIFE_S + 1e-6
