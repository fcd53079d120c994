"""A root's credit: scarce room by rate, and who is cut gets what its rate allows."""

from collections import deque

import pytest

from holdfast.pacing.messages import Report
from holdfast.pacing.policies import Fixed
from holdfast.pacing.root_credit import GRANT_S, SIZE_MEAN, RootCredit
from holdfast.pacing.table import Pacing, Table

MOST = 4_000
NOW = 10.0


def credits(**shares: float) -> tuple[Table, RootCredit]:
    table = Table("hub", "", Pacing(9_000, Fixed(), 2.0, shares), process=1, now=NOW)
    for name in shares:
        table.receive(NOW, Report("hub", name, "", 1, 1, 0, 100_000, 0, 0, 0))
    table.tick(NOW, 1_000_000, 0)
    table.take(NOW, 100)
    made = RootCredit(table, lambda client: client[0])
    made.computed(NOW)
    for _ in range(20 * SIZE_MEAN):
        made.took(NOW, "a", 500)
    return table, made


def test_with_room_for_all_nobody_is_bounded() -> None:
    _, made = credits(a=1.0, b=1.0)
    assert made.credit(NOW, "a", MOST, 3 * MOST * 500) == MOST


def test_scarce_room_is_given_by_the_rates_of_those_behind() -> None:
    _, made = credits(a=1.0, b1=1.0, b2=4.0)
    assert [made.credit(NOW, name, MOST, 60_100) for name in "ab"] == [20, 100]
    assert made.credit(NOW, "c", MOST, 60_100) == 60, "who is not paced: the mean of those that are"
    assert sum(made.credit(NOW, name, MOST, 60_000) for name in "ab") * 500 <= 60_000


def test_without_room_one_may_come() -> None:
    """It may be for another queue; what finds no room waits at its link."""
    _, made = credits(a=1.0, b=1.0)
    assert made.credit(NOW, "a", MOST, 0) == 1


def test_before_a_rate_was_told_nobody_is_bounded() -> None:
    table = Table("hub", "", Pacing(9_000, Fixed(), 2.0, {}), process=1, now=NOW)
    assert RootCredit(table, lambda client: client).credit(NOW, "a", MOST, 0) == MOST


def test_who_is_cut_has_credit_for_its_rate() -> None:
    table, made = credits(a=1.0, b=1.0)
    table.rows["a"].obedience.cut_periods = 1
    made.computed(NOW)
    rate, now, came = 4_500, NOW, 0
    for _ in range(100):
        given = made.credit(now, "a", MOST, 10**9)
        assert given <= max(2, rate * GRANT_S / 499)
        for _ in range(given):
            made.took(now, "a", 500)
            came += 500
        if not given:
            at = made.next_deadline()
            assert at is not None and at > now
            now = at
            assert made.due(now) == ["a"] and made.due(now) == []
    assert came / (now - NOW) == pytest.approx(rate, rel=0.1)
    assert made.credit(now, "b", MOST, 10**9) == MOST
    table.rows["a"].obedience.cut_periods = 0
    made.computed(now)
    assert not made.cut and made.credit(now, "a", MOST, 10**9) == MOST


def test_a_client_behind_another_node_is_not_cut() -> None:
    table, made = credits(a1=1.0, b=1.0)
    table.rows["a1"].obedience.cut_periods = 1
    made.computed(NOW)
    assert not made.cut


@pytest.mark.parametrize("size", [50, 500, 2_000])
@pytest.mark.parametrize("round_trip_s", [0.02, 0.1])
def test_who_is_cut_reaches_its_rate_from_far_away(size: int, round_trip_s: float) -> None:
    table, made = credits(a=1.0, b=1.0)
    for _ in range(20 * SIZE_MEAN):
        made.took(NOW, "a", size)
    table.rows["a"].obedience.cut_periods = 1
    made.computed(NOW)
    came, under_way, granted = 0, 0, deque[float]()
    for step in range(5_000):
        now = NOW + step * 0.002
        while granted and granted[0] <= now:  # a round trip after its credit was given
            granted.popleft()
            under_way -= 1
            made.took(now, "a", size)
            came += size
        more = made.credit(now, "a", MOST, 10**9) - under_way
        for _ in range(more):
            granted.append(now + round_trip_s)
            under_way += 1
        made.due(now)
    assert came / 10.0 == pytest.approx(4_500, rel=0.1)
