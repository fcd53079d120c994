"""The estimate of arrivals: its mean, its error, and how soon it follows a change."""

from random import Random
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.pacing.arrivals import BIN_S, BINS, KNOWN_AFTER_S, WINDOW_S, Arrivals


def poisson(arrivals: Arrivals, rng: Random, rate: float, start: float, end: float, size: int = 1) -> None:
    now = start
    while (now := now + rng.expovariate(rate)) < end:
        arrivals.add(now, size)
    arrivals.advance(end)


def test_nothing_is_known_in_the_first_second() -> None:
    arrivals = Arrivals(100.0)
    arrivals.add(100.1, 5_000)
    assert arrivals.estimate(100.0 + KNOWN_AFTER_S - 0.01) is None
    assert arrivals.estimate(100.0 + KNOWN_AFTER_S) is not None


def test_the_mean_is_that_of_the_last_seconds() -> None:
    arrivals = Arrivals(0.0)
    for step in range(400):  # 10 a second
        arrivals.add(step * 0.1 + 0.05, 5_000)
    found = arrivals.estimate(40.0)
    assert found is not None
    assert found[0] == pytest.approx(50_000, rel=0.01)
    assert found[1] == pytest.approx((200 * 5_000**2) ** 0.5 / 20, rel=0.01)
    assert arrivals.changes == 0


def test_larger_messages_make_the_estimate_less_certain() -> None:
    alike, mixed = Arrivals(0.0), Arrivals(0.0)
    for step in range(100):
        alike.add(step * 0.1 + 0.05, 500)
        mixed.add(step * 0.1 + 0.05, 1 if step % 2 else 999)
    one, other = alike.estimate(10.0), mixed.estimate(10.0)
    assert one is not None and other is not None
    assert one[0] == pytest.approx(other[0])
    assert other[1] > one[1] * 1.3


@pytest.mark.parametrize(("before", "after"), [(4.17, 13.3), (4.17, 50.0), (13.3, 4.17), (50.0, 5.0)])
def test_a_change_is_found_soon_and_the_mean_begins_anew(before: float, after: float) -> None:
    delays, errors = [], []
    for seed in range(40):
        arrivals, rng = Arrivals(0.0), Random(seed)
        poisson(arrivals, rng, before, 0.0, 60.0)
        quiet = arrivals.changes
        now = 60.0
        while arrivals.changes == quiet and now < 90:
            poisson(arrivals, rng, after, now, now + BIN_S)
            now += BIN_S
        delays.append(now - 60.0)
        poisson(arrivals, rng, after, now, now + 5.0)
        found = arrivals.estimate(now + 5.0)
        assert found is not None
        errors.append(abs(found[0] - after) / found[1])
    # Either log-likelihood grows by rate times (ln 2 - 1/2), at least, each second.
    assert mean(delays) < 2 + 20 / max(before, after)
    assert mean(errors) < 1.2  # of standard deviations: 0.8 where the mean began just at the change


def test_steady_arrivals_seldom_begin_anew() -> None:
    changes = 0
    for seed in range(20):
        arrivals = Arrivals(0.0)
        poisson(arrivals, Random(seed), 5.0, 0.0, 300.0)
        changes += arrivals.changes
    assert changes <= 60, "less than twice in three minutes"


def test_a_long_silence_is_a_rate_of_nothing_at_once() -> None:
    arrivals = Arrivals(0.0)
    for step in range(100):
        arrivals.add(step * 0.1, 1_000)
    changes = arrivals.changes
    found = arrivals.estimate(1e6)
    assert found is not None
    assert found[0] == 0.0
    assert found[1] == pytest.approx(1_000 / WINDOW_S, rel=0.01)
    assert arrivals.changes == changes + 1
    arrivals.add(1e6 + 0.1, 1_000)
    assert (arrivals.estimate(1e6 + 0.2) or (0.0, 0.0))[0] == pytest.approx(1_000 / WINDOW_S, rel=0.02)


@given(
    st.lists(st.tuples(st.one_of(st.floats(0, 2), st.floats(0, 100)), st.integers(1, 10**6), st.integers(1, 1_000))),
    st.floats(0, 1e9),
)
def test_no_stream_breaks_it(stream: list[tuple[float, int, int]], start: float) -> None:
    arrivals, now, whole = Arrivals(start), start, 0
    for pause_s, size, messages in stream:
        now += pause_s
        arrivals.add(now, size, messages)
        whole += size * messages
        found = arrivals.estimate(now)
        if found is not None:
            rate, spread = found
            assert 0 <= rate <= whole / BIN_S * (1 + 1e-9)
            assert 0 <= spread <= whole / BIN_S * (1 + 1e-9)
    assert len(arrivals._bins) <= BINS
    assert arrivals._sum_messages == sum(messages for messages, _, _ in arrivals._bins)
