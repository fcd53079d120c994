"""Many sessions' moments: who is asked when, and that none is late."""

from math import inf

import pytest

from holdfast.engine.due_times import DueTimes


class Session:
    """One that tells `at`, and counts how often it was asked."""

    def __init__(self, at: float | None) -> None:
        self.at = at
        self.asked = 0

    def next_deadline(self) -> float | None:
        self.asked += 1
        return self.at

    def tick(self, now: float) -> None:
        raise AssertionError("whoever takes them ticks them")


class Broken(Session):
    def next_deadline(self) -> float | None:
        raise OSError("broken")


def times_of(*at: float | None) -> tuple[DueTimes[Session], list[Session]]:
    sessions = list(map(Session, at))
    return DueTimes(sessions), sessions


def test_each_is_asked_once_until_its_moment() -> None:
    times, (one, other, never) = times_of(5.0, 7.0, None)
    assert [times.soonest(now, ()) for now in (0.0, 1.0, 4.9)] == [5.0] * 3
    assert (one.asked, other.asked, never.asked) == (1, 1, 1)
    one.at = 9.0  # its own traffic moved it away: found out when its moment comes
    assert times.soonest(4.99, ()) == 5.0 and one.asked == 1
    assert times.soonest(5.0, ()) == 7.0 and (one.asked, other.asked) == (2, 1)


def test_one_that_was_stirred_is_asked_at_once() -> None:
    times, (one, other) = times_of(5.0, 7.0)
    times.soonest(0.0, ())
    other.at = 2.0
    times.stirred[other] = None
    assert times.soonest(1.0, ()) == 2.0 and one.asked == 1


def test_who_is_due_is_taken_in_order_and_asked_anew() -> None:
    times, (one, other, third) = times_of(5.0, 3.0, 7.0)
    times.soonest(0.0, ())
    assert times.take_due(2.9) == []
    times.stirred[third] = None  # nobody knows its moment: it may be due
    assert times.take_due(3.0) == [other, third]
    other.at = third.at = 4.0
    assert times.soonest(3.0, ()) == 4.0 and one.asked == 1


@pytest.mark.parametrize("due", [False, True])
def test_who_rests_is_left_out_and_comes_back(due: bool) -> None:
    times, (one, other) = times_of(5.0, 7.0)
    now = 6.0 if due else 1.0
    assert times.soonest(0.0, {one}) == 7.0 and one.asked == 0
    assert times.soonest(now, {one}) == 7.0
    assert times.soonest(now, {one, other}) == inf
    assert times.soonest(now, ()) == 5.0


def test_the_one_that_fails_is_named_and_asked_again() -> None:
    times = DueTimes([Session(5.0), broken := Broken(1.0)])
    for _ in range(2):
        with pytest.raises(OSError, match="broken"):
            times.soonest(0.0, ())
        assert times.asked is broken
    assert times.soonest(0.0, {broken}) == 5.0 and times.asked is None
