"""What a destination keeps of an origin, asked at its extremes."""

from uuid import UUID

import pytest

from holdfast.broker.stored import origins
from holdfast.broker.stored.custody_records import OriginRecord
from holdfast.broker.stored.gaps import GapClocks
from holdfast.broker.stored.groups import Waiting
from holdfast.broker.stored.origins import Origin, Verdict
from holdfast.broker.stored.ranges import RangeSet


def test_the_next_missing_number_is_found_at_once_however_far_it_is() -> None:
    origin = Origin(UUID(int=1))
    origin.wait(2**62 + 3, Waiting(1, "q", "strict", 30.0))
    origin.end(1, 2**62)
    assert origin.next_missing == 2**62 + 1
    origin.wait(2**62 + 1, Waiting(2, "q", "strict", 30.0))
    assert origin.next_missing == 2**62 + 2
    assert origin.in_order() == 2**62 + 1


def test_a_bounded_number_goes_on_after_its_wait_and_a_strict_one_does_not() -> None:
    origin = Origin(UUID(int=1))
    origin.wait(3, Waiting(1, "q", "strict", 1.0))
    origin.wait(5, Waiting(2, "q", "bounded", 1.0))
    assert origin.in_order() is None and not origin.may_release
    origin.clocks.pass_time(0.9)
    assert not origin.waited_enough(5) and not origin.may_release
    origin.clocks.pass_time(0.1)
    assert origin.waited_enough(5) and not origin.waited_enough(3) and origin.may_release


def test_a_strict_number_waits_though_a_bounded_one_went_on() -> None:
    origin = Origin(UUID(int=1))
    origin.finish(9)
    origin.went_on(9)
    assert origin.decide(7, "strict", ranges_max=10) is Verdict.WAIT
    assert origin.decide(7, "bounded", ranges_max=10) is Verdict.LATE
    origin.end(1, 6)
    assert origin.decide(7, "strict", ranges_max=10) is Verdict.DELIVER


def test_beside_what_waits_there_is_a_place_though_the_ranges_are_at_their_bound() -> None:
    origin = Origin(UUID(int=1))
    origin.finish(3)
    assert origin.decide(7, "strict", ranges_max=1) is Verdict.FULL
    origin.wait(6, Waiting(1, "q", "strict", 30.0))
    assert origin.decide(7, "strict", ranges_max=1) is Verdict.WAIT


def go_on(origin: Origin, number: int) -> None:
    origin.leave(number)
    origin.finish(number)
    origin.went_on(number)


def test_a_gap_that_was_waited_for_is_not_waited_for_again() -> None:
    origin = Origin(UUID(int=1))
    origin.wait(3, Waiting(1, "q", "bounded", 5.0))
    origin.clocks.pass_time(5.0)
    go_on(origin, 3)
    assert origin.decide(4, "bounded", order_wait_s=5.0, ranges_max=9) is Verdict.DELIVER
    assert origin.decide(4, "bounded", order_wait_s=5.1, ranges_max=9) is Verdict.WAIT
    assert origin.decide(4, "strict", order_wait_s=5.0, ranges_max=9) is Verdict.WAIT


def test_a_later_gap_is_waited_for_from_its_own_beginning() -> None:
    origin = Origin(UUID(int=1))
    origin.wait(3, Waiting(1, "q", "bounded", 5.0))
    origin.clocks.pass_time(5.0)
    go_on(origin, 3)
    assert origin.decide(6, "bounded", order_wait_s=5.0, ranges_max=9) is Verdict.WAIT
    origin.wait(6, Waiting(2, "q", "bounded", 5.0))
    assert not origin.waited_enough(6)
    origin.clocks.pass_time(4.9)
    assert not origin.waited_enough(6)
    origin.clocks.pass_time(0.2)
    assert origin.waited_enough(6)


def test_the_two_halves_of_a_gap_keep_its_time() -> None:
    origin = Origin(UUID(int=1))
    origin.wait(9, Waiting(1, "q", "bounded", 5.0))
    origin.clocks.pass_time(3.0)
    origin.wait(5, Waiting(2, "q", "bounded", 5.0))
    origin.clocks.pass_time(2.0)
    assert origin.waited_enough(5) and origin.waited_enough(9)


def test_a_row_without_clocks_goes_on_with_the_time_it_had() -> None:
    origin = Origin.load(UUID(int=1), OriginRecord(0, 0, 4.0, RangeSet(), RangeSet(), GapClocks()))
    for number in (5, 3, 9):
        origin.wait(number, Waiting(1, "q", "bounded", 5.0), origin.waited_before_s)
    assert not origin.waited_enough(9)
    origin.clocks.pass_time(1.0)
    assert all(origin.waited_enough(number) for number in (3, 5, 9))


def test_what_is_asked_with_each_message_does_not_grow_with_what_waits() -> None:
    origin = Origin(UUID(int=1))
    for number in range(2, 16_386):
        origin.wait(number, Waiting(number, "q", "strict", 30.0))
    looks = 0

    class Counting(dict[int, Waiting]):
        def __contains__(self, number: object) -> bool:
            nonlocal looks
            looks += 1
            return super().__contains__(number)

    origin.waiting = Counting(origin.waiting)
    assert origin.next_missing == 1 and origin.decide(16_386, "strict", ranges_max=10_000) is Verdict.WAIT
    assert origin.in_order() is None and not origin.may_release
    assert origin.end(1) == [(1, 1)] and origin.in_order() == 2
    assert looks < 20


def test_a_late_copy_of_what_was_ended_is_taken_once() -> None:
    """The second copy of a number that was given up, and came after all, is a duplicate like any other."""
    for more in ((), (5,)):
        origin = Origin(UUID(int=1))
        origin.end(1, 3)
        for number in more:
            origin.finish(number)
        assert origin.decide(2, "bounded", ranges_max=10) is Verdict.LATE
        origin.finish(2)
        assert origin.decide(2, "bounded", ranges_max=10) is Verdict.DUPLICATE
        assert origin.decide(3, "bounded", ranges_max=10) is Verdict.LATE


def test_what_came_and_went_in_a_refused_turn_does_not_wait() -> None:
    origin = Origin(UUID(int=1))
    origin.wait(3, Waiting(1, "q", "strict", 5.0))
    before = origin.record()._replace(
        finished=origin.finished.copy(), ended=origin.ended.copy(), clocks=origin.clocks.copy()
    )
    changes: list[tuple[int, Waiting | None]] = []
    for number, waiting in ((7, None), (7, Waiting(2, "q", "strict", 5.0)), (3, origin.waiting[3]), (3, None)):
        changes.append((number, waiting))
    origin.end(1, 2)
    origin.leave(3)
    origin.finish(3)
    origin.restore(before, changes)
    assert origin.waiting == {3: Waiting(1, "q", "strict", 5.0)} and origin.next_missing == 1


def test_what_a_refused_turn_went_on_past_is_not_passed() -> None:
    """Else a number that comes in its turn would be marked as late."""
    origin = Origin(UUID(int=1))
    before = origin.record()._replace(
        finished=origin.finished.copy(), ended=origin.ended.copy(), clocks=origin.clocks.copy()
    )
    origin.finish(5)
    origin.went_on(5)
    origin.restore(before, [])
    assert origin.passed == 0 and origin.decide(1, "bounded", ranges_max=10) is Verdict.DELIVER


def test_of_many_numbers_that_were_ended_the_latest_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origins, "ENDED_MAX", 2)
    origin = Origin(UUID(int=1))
    for number in (1, 2, 3, 4, 5):
        if number % 2:
            origin.end(number)
        else:
            origin.finish(number)
    found = [origin.decide(number, "bounded", ranges_max=10) for number in (1, 3, 5)]
    assert found == [Verdict.DUPLICATE, Verdict.LATE, Verdict.LATE]
