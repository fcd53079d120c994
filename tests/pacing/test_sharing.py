"""The arithmetic of sharing, against plain forms of it."""

from math import fsum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.pacing.sharing import fitted, max_min, proportional, smallest_fit

amounts = st.lists(st.tuples(st.floats(0, 1e6), st.floats(0.01, 100)), min_size=1, max_size=20)


@given(amounts, st.floats(0, 1e6))
def test_max_min_is_what_filling_by_small_steps_gives(given_to: list[tuple[float, float]], budget: float) -> None:
    needs, shares = [need for need, _ in given_to], [share for _, share in given_to]
    rates = max_min(needs, shares, budget)
    assert fsum(rates) == pytest.approx(min(budget, fsum(needs)), rel=1e-9, abs=1e-6)
    # Who is short has the highest rate for its share; nobody has more than it needs.
    heights = [rate / share for rate, share in zip(rates, shares, strict=True)]
    for need, rate, height in zip(needs, rates, heights, strict=True):
        assert rate <= need
        if rate < need * (1 - 1e-6) - 1e-6:
            assert height >= max(heights) * (1 - 1e-6) - 1e-6


@given(
    st.lists(st.tuples(st.floats(0, 1e3), st.floats(0.001, 1)), min_size=1, max_size=20).filter(
        lambda found: any(weight > 0.001 for weight, _ in found)
    ),
    st.floats(1.5, 100),
)
def test_proportional_shares_sum_up_and_keep_the_floors(found: list[tuple[float, float]], times: float) -> None:
    weights, least = [weight for weight, _ in found], [floor for _, floor in found]
    budget = times * fsum(least)
    rates = proportional(weights, least, budget)
    assert fsum(rates) == pytest.approx(budget)
    above = [(rate / weight) for rate, weight, floor in zip(rates, weights, least, strict=True)
             if rate > floor * (1 + 1e-9) and weight]  # fmt: skip
    assert all(rate >= floor * (1 - 1e-9) for rate, floor in zip(rates, least, strict=True))
    assert above == pytest.approx([above[0]] * len(above)) if above else True


@given(amounts, st.floats(0, 1e6))
def test_fitting_never_exceeds_the_budget(given_to: list[tuple[float, float]], budget: float) -> None:
    rates, least = [rate for rate, _ in given_to], [floor for _, floor in given_to]
    found = fitted(rates, least, budget)
    assert fsum(found) <= max(budget, fsum(least)) * (1 + 1e-9)
    assert all(rate >= floor for rate, floor in zip(found, least, strict=True))


@given(st.lists(st.tuples(st.floats(0.1, 1e3), st.floats(0.1, 1e3)), min_size=1, max_size=20), st.floats(0, 1e3))
def test_the_smallest_fit_is_where_bisection_finds_it(pieces: list[tuple[float, float]], allowed: float) -> None:
    def excess(at: float) -> tuple[float, float]:
        values = [max(0.0, height - slope * at) for height, slope in pieces]
        slopes = [-slope for height, slope in pieces if height - slope * at > 0]
        return fsum(values) - allowed, fsum(slopes)

    found = smallest_fit(excess, 0.0, len(pieces))
    assert found is not None
    low, high = 0.0, 1e5
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle)[0] > 0 else (low, middle)
    assert found == pytest.approx(high, rel=1e-6, abs=1e-6)


def test_where_nothing_fits_there_is_none() -> None:
    assert smallest_fit(lambda at: (1.0, 0.0), 0.0, 1) is None
    assert smallest_fit(lambda at: (-1.0, 0.0), 3.0, 1) == 3.0
