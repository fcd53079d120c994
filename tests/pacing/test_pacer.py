"""What a client's messages to one root keep to: leases that end while nobody looks, and the first rate."""

import pytest

from holdfast.pacing.messages import Pace
from holdfast.pacing.origin import Origin
from holdfast.pacing.pacer import FIRST_S, Pacer
from holdfast.pacing.policy import PAPER

NOW = 1_000.0


def pacer() -> Pacer:
    return Pacer(Origin("hub", "jfk", "", PAPER.weight, 10_000, process=1, now=NOW), NOW)


def paced(rate: int = 100, base: int = 10, valid_ms: int = 2_000) -> Pacer:
    """One that has reported at NOW, and was answered at once."""
    found = pacer()
    assert found.report(NOW, 0) is not None
    assert found.receive(NOW, Pace("hub", "jfk", "", 1, 1, 1, 1, rate, base, valid_ms))
    return found


def test_without_a_root_nothing_waits() -> None:
    found = pacer()
    found.sent(NOW, 10_000)
    assert found.rate(NOW) is None
    assert found.ready(NOW)
    assert not found.bounds(NOW)


def test_a_message_is_paid_for_at_the_rate_that_holds() -> None:
    found = paced()
    found.sent(NOW, 150)
    assert not found.ready(NOW + 1.49)
    assert found.ready_at(NOW) == pytest.approx(NOW + 1.5)
    assert found.ready(NOW + 1.51)


def test_the_base_counts_from_the_end_of_the_lease_however_late_it_is_asked() -> None:
    """100 a second for two seconds, then 10: of 300 bytes 200 are paid then, and 50 five seconds later."""
    found = paced()
    found.sent(NOW, 300)
    assert found.ready_at(NOW) == NOW + 2.0
    assert found.rate(NOW + 7.0) == 10.0
    assert found.ready_at(NOW + 7.0) == pytest.approx(NOW + 12.0)


def test_asking_for_a_report_ends_a_lease_no_later() -> None:
    found = paced()
    found.sent(NOW, 300)
    assert found.report(NOW + 7.0, 0) is not None
    assert found.ready_at(NOW + 7.0) == pytest.approx(NOW + 12.0)


def test_the_first_rate_is_waited_for_once() -> None:
    found = pacer()
    found.begin(NOW)
    assert not found.ready(NOW + FIRST_S - 0.01)
    assert found.bounds(NOW)
    assert found.ready_at(NOW) == NOW + FIRST_S
    assert found.ready(NOW + FIRST_S)
    found.begin(NOW + 5.0)
    assert found.ready(NOW + 5.0)


def test_a_rate_ends_the_wait() -> None:
    found = pacer()
    found.begin(NOW)
    assert found.report(NOW, 0) is not None
    assert found.receive(NOW + 0.1, Pace("hub", "jfk", "", 1, 1, 1, 1, 100, 10, 2_000))
    assert found.ready(NOW + 0.1)


def test_arrivals_have_the_sizes_of_what_left_or_waits() -> None:
    found = pacer()
    found.arrived(NOW + 0.1, 2, 3_000, 2)
    found.sent(NOW + 0.2, 1_200, 3)
    found.arrived(NOW + 0.3, 1, 0, 0)
    found.arrived(NOW + 0.4, 0, 9_999, 1)
    assert found.origin.arrivals.estimate(NOW + 2.0) == pytest.approx((3_400 / 2.0, 1_079.4), rel=0.01)
