"""How long each gap was waited for, against a clock for each of them."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.stored.gaps import CLOCKS_MAX, GapClocks


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), min_size=1, max_size=200))
def test_every_gap_has_its_own_time(steps: list[tuple[int, int]]) -> None:
    """Below the bound no gap is let go early, and none has to wait for a tick longer."""
    clocks, began, now, last = GapClocks(), dict[int, float](), 0.0, 0
    for passed, beyond in steps:
        clocks.pass_time(passed)
        now += passed
        last += beyond
        clocks.begin(last)
        began[last] = now
    assert [clocks.waited_s(missing) for missing in began] == [now - at for at in began.values()]
    assert clocks.waited_s(last + 1) == 0.0
    clocks.drop_below(last)
    assert clocks.waited_s(last) == now - began[last] and len(clocks) == 1
    clocks.drop_below(last + 1)
    assert not clocks and clocks.longest_s == 0.0


def test_what_begins_within_a_tick_does_not_count_the_part_before_it() -> None:
    clocks = GapClocks()
    clocks.begin(1, -0.5)
    clocks.begin(3, -0.75)
    clocks.pass_time(1.0)
    assert clocks.waited_s(1) == clocks.waited_s(3) == 0.25


def test_at_the_bound_gaps_without_end_share_clocks_and_each_is_waited_for_about_its_time() -> None:
    """A new gap each second for six hours: none goes early, none late by more than a fifth."""
    clocks = GapClocks()
    seconds = 6 * 3_600
    for second in range(1, seconds + 1):
        clocks.begin(second)
        clocks.pass_time(1.0)
        assert len(clocks) <= CLOCKS_MAX
    for second in range(1, seconds, 97):
        age_s = seconds - second + 1
        assert 0.8 * age_s <= clocks.waited_s(second) <= age_s
