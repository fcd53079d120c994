"""Waits grow, stay within their bounds, differ between clients, and start anew after a success."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from holdfast.client.network.backoff import FIRST_S, MOST_S, Backoff


@given(seed=st.integers(), attempts=st.integers(1, 80))
def test_bounds_at_every_attempt(seed: int, attempts: int) -> None:
    backoff = Backoff(Random(seed))
    for attempt in range(attempts):
        whole = min(MOST_S, FIRST_S * 2**attempt)
        assert whole / 2 <= backoff.next_s() <= whole
    backoff.reset()
    assert backoff.next_s() <= FIRST_S


def test_two_clients_do_not_return_together() -> None:
    assert Backoff(Random(1)).next_s() != Backoff(Random(2)).next_s()
