"""What a destination keeps of an origin, asked at its extremes."""

from uuid import UUID

from holdfast.broker.custody import Origin, Verdict, Waiting


def test_the_next_missing_number_is_found_at_once_however_far_it_is() -> None:
    origin = Origin(UUID(int=1))
    origin.waiting[2**62 + 3] = Waiting(1, "q", "strict", 30.0)
    origin.end(1, 2**62)
    assert origin.next_missing == 2**62 + 1
    origin.waiting[2**62 + 1] = Waiting(2, "q", "strict", 30.0)
    assert origin.next_missing == 2**62 + 2
    assert origin.releasable() == 2**62 + 1


def test_a_bounded_number_goes_on_after_its_wait_and_a_strict_one_does_not() -> None:
    origin = Origin(UUID(int=1))
    origin.waiting[3] = Waiting(1, "q", "strict", 1.0)
    origin.waiting[5] = Waiting(2, "q", "bounded", 1.0)
    assert origin.releasable() is None
    origin.waited_s = 0.9
    assert origin.releasable() is None
    origin.waited_s = 1.0
    assert origin.releasable() == 5


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
    origin.waiting[6] = Waiting(1, "q", "strict", 30.0)
    assert origin.decide(7, "strict", ranges_max=1) is Verdict.WAIT


def test_a_gap_that_was_waited_for_is_not_waited_for_again() -> None:
    origin = Origin(UUID(int=1))
    origin.finish(3)
    origin.waited_s = 5.0
    assert origin.decide(9, "bounded", order_wait_s=5.0, ranges_max=9) is Verdict.DELIVER
    assert origin.decide(9, "bounded", order_wait_s=5.1, ranges_max=9) is Verdict.WAIT
    assert origin.decide(9, "strict", order_wait_s=5.0, ranges_max=9) is Verdict.WAIT
    origin.waiting[6] = Waiting(1, "q", "bounded", 5.0)  # first in its turn
    assert origin.decide(9, "bounded", order_wait_s=5.0, ranges_max=9) is Verdict.WAIT
