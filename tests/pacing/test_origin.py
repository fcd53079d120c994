"""The origin's part: when it reports, what it obeys, and what holds when a lease ends."""

from itertools import pairwise

import pytest

from holdfast.errors import BrokenInvariant
from holdfast.pacing import validation
from holdfast.pacing.changes import REPORT_S, TRIGGER_GAP_S, valid_ms_of
from holdfast.pacing.messages import BYTES_MAX, Pace, Report
from holdfast.pacing.origin import FORGET_S, ROUND_TRIP_S, SENT_MAX, Origin
from holdfast.pacing.policies import Weights

CAPACITY = 1_000_000
VALID_MS = valid_ms_of(2.0)


def an_origin(now: float = 0.0, process: int = 7) -> Origin:
    return Origin("hub", "jfk", "", Weights().weight, CAPACITY, process=process, now=now)


def a_pace(version: int = 1, heard: int = 1, rate: int = 40_000, base: int = 10_000, **other: int) -> Pace:
    found = Pace("hub", "jfk", "", 9, version, 7, heard, rate, base, VALID_MS)
    return found._replace(**other)


def reports_until(origin: Origin, now: float, end: float, used: int = 0) -> list[tuple[float, Report]]:
    """What is sent if nothing happens."""
    found = []
    while now <= end:
        report = origin.report(now, used)
        if report is not None:
            found.append((now, report))
        validation.origin(origin)
        following = origin.next_deadline(now)
        assert following > now, "it would ask for ever"
        now = following
    return found


# ------------------------------------------------------------------------------------------------ reporting


def test_the_first_report_is_due_at_once_and_then_each_second() -> None:
    found = reports_until(an_origin(), 0.0, 3.5)
    assert [at for at, _ in found] == pytest.approx([0.0, REPORT_S, 2 * REPORT_S, 3 * REPORT_S])
    first = found[0][1]
    assert first == Report("hub", "jfk", "", 7, 1, 0, CAPACITY, 0, None, 0)
    assert [report.version for _, report in found] == [1, 2, 3, 4]


def test_a_short_period_is_reported_twice_in_it() -> None:
    origin = an_origin()
    origin.report(0.0, 0)
    assert origin.receive(0.1, a_pace(valid_ms=valid_ms_of(0.5)))
    found = reports_until(origin, 0.1, 1.1)
    assert [at for at, _ in found] == pytest.approx([0.25, 0.5, 0.75, 1.0])


def test_a_queue_that_moved_is_reported_at_once_but_not_too_often() -> None:
    origin = an_origin()
    origin.report(0.0, 0)
    assert origin.report(0.5, CAPACITY // 50 - 1) is None
    report = origin.report(0.5, CAPACITY // 50)
    assert report is not None and report.used == CAPACITY // 50
    assert origin.report(0.5 + TRIGGER_GAP_S - 0.01, CAPACITY) is None
    assert origin.next_deadline(0.6) == pytest.approx(0.5 + TRIGGER_GAP_S)
    report = origin.report(0.5 + TRIGGER_GAP_S, CAPACITY)
    assert report is not None and report.weight == 9


def test_a_weight_that_changed_is_reported_at_once() -> None:
    """By one byte: the root goes by the weight of now, as if each message carried it (§3.3)."""
    origin = an_origin()
    origin.report(0.0, CAPACITY // 10 - 1)
    report = origin.report(0.5, CAPACITY // 10)
    assert report is not None and report.weight == 1
    assert origin.report(1.0, CAPACITY // 10 + 1) is None


def test_arrivals_that_changed_are_reported_at_once() -> None:
    origin, now, told = an_origin(), 0.0, []
    while now < 40:
        now += 0.05 if now > 20 else 0.5
        origin.arrived(now, 1_000)
        report = origin.report(now, 0)
        if report is not None and report.arrivals is not None:
            told.append((now, report.arrivals))
    soon = [arrivals for at, arrivals in told if 20 < at < 22]
    assert max(soon) > 5_000, "ten times as many are seen within two seconds"
    gaps = [later - earlier for (earlier, _), (later, _) in pairwise(told)]
    assert min(gaps) >= TRIGGER_GAP_S - 1e-9


def test_a_report_that_is_not_answered_goes_out_once_more() -> None:
    origin = an_origin()
    assert TRIGGER_GAP_S + 2 * ROUND_TRIP_S > REPORT_S, "as long as no round trip is known the next report is sooner"
    origin.report(0.0, 0)
    origin.receive(0.05, a_pace())
    for step in range(2, 20):
        now = step * 1.0
        report = origin.report(now, 0)
        assert report is not None
        origin.receive(now + 0.05, a_pace(version=step, heard=report.version))
    report = origin.report(19.5, CAPACITY // 2)
    assert report is not None
    assert origin.report(19.5 + TRIGGER_GAP_S + 2 * 0.05 - 0.01, CAPACITY // 2) is None
    again = origin.report(19.5 + TRIGGER_GAP_S + 2 * 0.06, CAPACITY // 2)
    assert again is not None and again.version == report.version + 1 and again.used == report.used
    assert origin.report(20.5, CAPACITY // 2) is None, "once"


def test_a_report_that_is_answered_does_not_go_out_again() -> None:
    origin = an_origin()
    origin.report(0.0, 0)
    report = origin.report(0.3, CAPACITY // 2)
    assert report is not None
    assert origin.receive(0.35, a_pace(heard=report.version))
    assert [at for at, _ in reports_until(origin, 0.35, 1.35, CAPACITY // 2)] == pytest.approx([1.3])


def test_one_that_leaves_says_so_at_once() -> None:
    origin = an_origin()
    origin.report(0.0, 0)
    report = origin.report(0.01, 0, leaving=True)
    assert report is not None and report.leaving


def test_what_is_used_is_within_the_capacity() -> None:
    for used, told in ((-1, 0), (CAPACITY + 1, CAPACITY)):
        report = an_origin().report(0.0, used)
        assert report is not None and report.used == told


@pytest.mark.parametrize("capacity", [0, -1, BYTES_MAX + 1])
def test_a_queue_without_room_is_refused(capacity: int) -> None:
    with pytest.raises(ValueError, match="invalid capacity"):
        Origin("hub", "jfk", "", Weights().weight, capacity, process=1, now=0.0)


# ------------------------------------------------------------------------------------------------ obeying


def test_before_any_pace_nothing_is_paced() -> None:
    origin = an_origin()
    origin.report(0.0, 0)
    assert origin.rate(1e6) is None


def test_a_lease_counts_from_when_the_report_was_sent_and_then_the_base_holds() -> None:
    origin = an_origin()
    origin.report(0.0, 0)
    assert origin.receive(5.0, a_pace())  # it came late
    assert origin.rate(5.99) == 40_000
    assert origin.rate(6.0) == 10_000
    assert origin.rate(5.0 + FORGET_S - 0.1) == 10_000
    assert origin.rate(5.0 + FORGET_S) is None


def test_a_pace_whose_lease_is_over_is_not_obeyed() -> None:
    origin = an_origin()
    origin.report(0.0, 0)
    assert not origin.receive(6.0, a_pace())
    assert origin.rate(6.0) is None


@pytest.mark.parametrize(
    "pace",
    [
        a_pace(version=5),
        a_pace(version=4),
        a_pace(version=6, heard=2),
        a_pace(version=6, of=6),
        a_pace(version=900, process=8),
        a_pace(version=6)._replace(to="ewr"),
        a_pace(version=6)._replace(root="ewr"),
        a_pace(version=6)._replace(group="other"),
    ],
    ids=["doubled", "older", "answers what was never sent", "another life of ours", "an earlier life of the root",
         "another node's", "another root's", "another group's"],
)  # fmt: skip
def test_what_is_old_or_not_for_it_is_not_obeyed(pace: Pace) -> None:
    origin = an_origin()
    origin.report(0.0, 0)
    assert origin.receive(0.1, a_pace(version=5))
    assert not origin.receive(0.2, pace._replace(rate=99_999))
    assert origin.rate(0.2) == 40_000


def test_a_later_life_of_the_root_counts_whatever_its_versions() -> None:
    origin = an_origin()
    origin.report(0.0, 0)
    assert origin.receive(0.1, a_pace(version=500))
    assert origin.receive(0.2, a_pace(version=1, process=10, rate=20_000))
    assert origin.rate(0.2) == 20_000


def test_after_a_lease_a_root_whose_clock_was_set_back_is_obeyed() -> None:
    origin = an_origin()
    origin.report(0.0, 0)
    assert origin.receive(0.1, a_pace(version=500))
    report = origin.report(6.5, 0)
    assert report is not None
    assert report.applied == 0, "the root learns that its rate does not hold"
    assert origin.receive(6.6, a_pace(version=1, process=2, heard=report.version, rate=20_000))
    assert origin.rate(6.6) == 20_000


def test_the_report_says_which_pace_is_obeyed() -> None:
    origin = an_origin()
    origin.report(0.0, 0)
    origin.receive(0.1, a_pace(version=3))
    report = origin.report(1.0, 0)
    assert report is not None
    assert (report.root_process, report.applied, report.held_ms) == (9, 3, 900)


def test_of_the_reports_the_last_are_remembered() -> None:
    origin = an_origin()
    for step in range(SENT_MAX + 1):
        assert origin.report(step * REPORT_S, 0) is not None
    validation.origin(origin)
    now = SENT_MAX * REPORT_S
    assert not origin.receive(now, a_pace(heard=1, valid_ms=120_000))
    assert not origin.receive(now, a_pace(heard=SENT_MAX + 2, valid_ms=120_000))
    assert origin.receive(now, a_pace(heard=SENT_MAX - 100, valid_ms=120_000))


def test_an_origin_that_contradicts_itself_is_found() -> None:
    origin = an_origin()
    origin.report(0.0, 0)
    validation.origin(origin)
    origin.version = 7
    with pytest.raises(BrokenInvariant, match="a report to hub was forgotten"):
        validation.origin(origin)
    origin.version = 1
    assert origin.receive(0.1, a_pace())
    origin.process = 8
    with pytest.raises(BrokenInvariant, match="hub answered another process"):
        validation.origin(origin)
