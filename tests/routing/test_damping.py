"""Flapping links: penalties by hand, and what holds for any flapping."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ConfigError
from holdfast.routing.damping import PENALTY, Damping, DampingConfig

CONFIG = DampingConfig()


def test_the_first_failures_damp_nothing_and_the_fourth_in_a_row_does() -> None:
    damping = Damping(CONFIG)
    for second in range(3):
        damping.fell(float(second))
        assert damping.reuse_at() is None
    damping.fell(2.1)
    assert damping.held


def test_failures_far_apart_never_damp() -> None:
    damping = Damping(CONFIG)
    for number in range(100):
        damping.fell(number * 5 * CONFIG.half_life_s)
        assert not damping.held


def test_the_penalty_halves_and_then_it_is_used_again() -> None:
    damping = Damping(CONFIG)
    for _ in range(4):
        damping.fell(10.0)
    assert damping.penalty(10.0) == 4 * PENALTY
    assert damping.penalty(10.0 + CONFIG.half_life_s) == pytest.approx(2 * PENALTY)
    at = damping.reuse_at()
    assert at == pytest.approx(10.0 + 2 * CONFIG.half_life_s)  # from 4,000 to 1,000
    assert at is not None
    assert not damping.release(at - 0.001)
    assert damping.release(at + 0.001)
    assert not damping.release(at + 0.002), "once"
    assert damping.reuse_at() is None


@given(st.lists(st.floats(0, 60), min_size=1, max_size=200))
def test_no_flapping_holds_a_link_longer_than_the_bound(gaps: list[float]) -> None:
    damping = Damping(CONFIG)
    now = 0.0
    for gap in gaps:
        now += gap
        damping.release(now)
        damping.fell(now)
        assert damping.penalty(now) <= CONFIG.penalty_max
    at = damping.reuse_at()
    assert at is None or now <= at <= now + 3 * CONFIG.half_life_s + 1e-6


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"half_life_s": 0}, "half_life_s: found 0"),
        ({"suppress_above": 1_000.0}, "suppress_above: found 1000.0, accepted is above 1000, what one failure costs"),
        ({"suppress_above": 9_000.0}, r"up to penalty_max \(8000\)"),
        ({"reuse_below": 3_000.0}, r"below suppress_above \(3000\)"),
        ({"reuse_below": 0.0}, "reuse_below: found 0.0"),
    ],
)
def test_settings_under_which_one_failure_damps_are_refused(fields: dict[str, float], text: str) -> None:
    CONFIG.validate()
    with pytest.raises(ConfigError, match=text):
        DampingConfig(**fields).validate()
