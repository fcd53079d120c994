"""The shaper: never more than the rate allows and one message, whatever the rates and the sizes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.pacing.shaper import Shaper

RATES = st.floats(0.1, 1e6)
SIZES = st.integers(1, 1_000_000)


def test_messages_leave_at_the_rate() -> None:
    shaper = Shaper(0.0, 10.0)
    times, now = [], 0.0
    for _ in range(5):
        now = shaper.ready_at()
        assert shaper.ready(now)
        shaper.sent(now, 20)
        times.append(now)
    assert times == pytest.approx([0, 2, 4, 6, 8])


def test_a_quiet_while_saves_nothing_up() -> None:
    shaper = Shaper(0.0, 10.0)
    shaper.sent(1_000.0, 20)
    assert not shaper.ready(1_001.9)
    assert shaper.ready(1_002.0)


def test_who_is_woken_late_keeps_its_rate_while_messages_wait() -> None:
    """A node's clock ticks in milliseconds, and its turns take some: 500 messages a second are 500, not 330."""
    shaper = Shaper(0.0, 500.0)
    now, sent = 0.0, 0
    while now < 10.0:
        while shaper.ready(now):
            shaper.sent(now, 1, waited=sent > 0)
            sent += 1
        now = shaper.ready_at() + 0.001
    assert 5_000 <= sent <= 5_001


def test_of_a_long_wait_a_tenth_of_a_second_is_made_good() -> None:
    shaper = Shaper(0.0, 10.0)
    shaper.sent(0.0, 10)
    shaper.sent(100.0, 10, waited=True)  # it could have left at 1.0
    assert shaper.ready_at() == pytest.approx(100.0 + 1.0 - 0.1)
    shaper.sent(200.0, 10)
    assert shaper.ready_at() == pytest.approx(201.0), "what came later has waited for nothing"


def test_a_new_rate_applies_to_what_is_left_of_the_debt() -> None:
    shaper = Shaper(0.0, 1.0)
    shaper.sent(0.0, 100)
    assert shaper.ready_at() == 100.0
    shaper.set_rate(50.0, 10.0)
    assert shaper.ready_at() == pytest.approx(55.0)
    shaper.set_rate(52.5, 1.0)
    assert shaper.ready_at() == pytest.approx(77.5)


def test_not_paced_is_ready_at_once() -> None:
    shaper = Shaper(0.0)
    shaper.sent(0.0, 10**9)
    assert shaper.ready(0.0)
    shaper.set_rate(1.0, 5.0)
    shaper.sent(1.0, 50)
    assert not shaper.ready(2.0)
    shaper.set_rate(2.0, None)
    assert shaper.ready(2.0)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan")])
def test_a_rate_of_nothing_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match=r"invalid rate .*; expected more than 0"):
        Shaper(0.0).set_rate(0.0, rate)


@given(SIZES, RATES)
def test_a_message_of_any_size_passes_an_idle_shaper(size: int, rate: float) -> None:
    shaper = Shaper(0.0, rate)
    assert shaper.ready(0.0)
    shaper.sent(0.0, size)
    assert shaper.ready(shaper.ready_at())


@given(st.data())
def test_within_any_time_no_more_leaves_than_the_rates_allow_and_a_message(data: st.DataObject) -> None:
    steps = data.draw(st.lists(st.tuples(st.floats(0, 20), st.one_of(RATES, SIZES)), max_size=60))
    shaper = Shaper(0.0, 100.0)
    now, allowed = 0.0, 0.0
    rate = 100.0
    sent: list[tuple[float, int]] = []
    for pause_s, what in steps:
        now += pause_s
        allowed += rate * pause_s
        if isinstance(what, float):
            shaper.set_rate(now, what)
            rate = what
        elif shaper.ready(now):
            shaper.sent(now, what)
            sent.append((allowed, what))
    # From the first of any run to the last: what left before the last message is paid for by then.
    for begin in range(len(sent)):
        total = 0
        for place, size in sent[begin:]:
            assert total <= (place - sent[begin][0]) * (1 + 1e-6) + 1e-6
            total += size


@given(st.lists(st.tuples(st.floats(0, 20), RATES), min_size=1, max_size=40), st.lists(SIZES, min_size=1, max_size=20))
def test_while_messages_wait_no_more_leaves_than_the_rates_allow_and_a_message(
    pauses: list[tuple[float, float]], sizes: list[int]
) -> None:
    """However late their sender is woken, and whatever the rates."""
    shaper = Shaper(0.0, 100.0)
    now, allowed, rate, sent, left = 0.0, 0.0, 100.0, 0.0, 0
    for pause_s, following in pauses:
        now += pause_s
        allowed += rate * pause_s
        while shaper.ready(now) and left < 1_000:
            size = sizes[left % len(sizes)]
            assert sent <= allowed * (1 + 1e-6) + 1e-6, "what left before is paid for"
            shaper.sent(now, size, waited=left > 0)
            sent += size
            left += 1
        shaper.set_rate(now, following)
        rate = following


@given(st.lists(st.tuples(st.floats(0, 5), RATES), min_size=1, max_size=40), SIZES)
def test_a_backlog_is_sent_as_fast_as_the_rates_allow(changes: list[tuple[float, float]], size: int) -> None:
    shaper = Shaper(0.0, 100.0)
    now, paid, sent, rate = 0.0, 0.0, 0, 100.0
    for pause_s, following in changes:
        end = now + pause_s
        for _ in range(1_000):
            at = max(now, shaper.ready_at())
            if at > end:
                break
            shaper.sent(at, size)
            sent += size
        else:
            return  # a tiny message at a huge rate: enough seen
        paid += rate * pause_s
        now, rate = end, following
        shaper.set_rate(now, following)
    assert sent >= paid * (1 - 1e-6) - size
    assert sent <= paid * (1 + 1e-6) + size
