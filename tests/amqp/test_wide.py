"""The first step of a disposition over a great many delivery-ids."""

import pytest

from holdfast.amqp.session.wide import OPEN_MAX, step

SERIALS = 2**32


@pytest.mark.parametrize("ahead", [0, SERIALS - 700])
def test_a_step_goes_from_the_first_that_is_open_to_the_last(ahead: int) -> None:
    """Though more are open elsewhere: what is beyond the range counts for nothing, and the last one is not left out."""
    far = [(ahead + 2**31 + offset) % SERIALS for offset in range(OPEN_MAX)]
    span = 4 * OPEN_MAX
    low, high, end = ahead, (ahead + 1_000) % SERIALS, (ahead + span) % SERIALS
    assert step(low, end, [high, *far]) == (high, high)
    assert step(low, end, [high, (high + 5) % SERIALS, *far]) == (high, (high + 5) % SERIALS)
    assert step(low, end, [*far, (far[-1] + 1) % SERIALS]) == (low, end)


@pytest.mark.parametrize("count", [OPEN_MAX + 1, 2 * OPEN_MAX, 4 * OPEN_MAX])
def test_ids_before_the_first_that_is_open_take_no_step(count: int) -> None:
    known = range(10**9, 10**9 + count)
    assert step(0, 2**31 - 2, known) == (10**9, 10**9 + OPEN_MAX - 1)


def test_few_that_are_open_are_one_step() -> None:
    assert step(0, 2**31 - 2, range(10**9, 10**9 + OPEN_MAX)) == (0, 2**31 - 2)
    assert step(5, 5 + OPEN_MAX - 1, range(2 * OPEN_MAX)) == (5, 5 + OPEN_MAX - 1)
    assert step(5, 5 + OPEN_MAX, range(2 * OPEN_MAX)) == (5, 5 + OPEN_MAX - 1)
