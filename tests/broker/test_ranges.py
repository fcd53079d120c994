"""RangeSet against a plain set."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.stored.ranges import RangeSet

numbers = st.integers(0, 60)
steps = st.lists(st.tuples(st.sampled_from(["add", "remove", "below"]), numbers, st.integers(0, 8)))


def build(taken: list[tuple[str, int, int]]) -> tuple[RangeSet, set[int]]:
    ranges, plain = RangeSet(), set()
    for what, first, span in taken:
        if what == "add":
            ranges.add(first, first + span)
            plain |= set(range(first, first + span + 1))
        elif what == "remove":
            ranges.remove(first)
            plain.discard(first)
        else:
            ranges.drop_below(first)
            plain = {number for number in plain if number >= first}
    return ranges, plain


@given(steps)
def test_as_a_set(taken: list[tuple[str, int, int]]) -> None:
    ranges, plain = build(taken)
    assert {number for number in range(80) if number in ranges} == plain
    assert ranges.last == max(plain, default=0)
    pairs = list(ranges)
    assert all(first <= last for first, last in pairs)
    assert all(after[0] > before[1] + 1 for before, after in pairwise(pairs))
    assert ranges == RangeSet(pairs) and ranges.copy() == ranges


@given(steps, numbers, numbers)
def test_gaps_and_runs(taken: list[tuple[str, int, int]], first: int, last: int) -> None:
    ranges, plain = build(taken)
    assert ranges.count_below(last) == len([number for number in plain if number < last])
    gaps = {number for low, high in ranges.gaps(first, last) for number in range(low, high + 1)}
    assert gaps == set(range(first, last + 1)) - plain
    end = first - 1
    while end + 1 in plain:
        end += 1
    assert ranges.end_of_run(first) == end
