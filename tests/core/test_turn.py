"""What a turn's deliveries are answered with."""

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.state.turns import runs

LAST = 2**32 - 1


@given(st.lists(st.one_of(st.integers(0, 12), st.integers(LAST - 3, LAST)), min_size=1, max_size=20))
@example([5, 9, 1, 8])
@example([5, 5, 8, 8])
@example([LAST - 1, LAST, 0, 1])
@example(list(range(7, 2_000)))
def test_the_runs_of_a_list_are_what_it_has_in_its_order_and_nothing_else(numbers: list[int]) -> None:
    """A peer chooses the ids of its deliveries: they may descend, repeat or jump back into a range that fits."""
    found = runs(numbers)
    assert [number for first, last in found for number in range(first, last + 1)] == numbers
    assert all(last + 1 != following for (_, last), (following, _) in pairwise(found))
