"""When a probe is due, how long its echo has, and what counts as missed (ADR 0015)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.peering.liveness import (
    FIRST_TIME_OUT_S,
    GRACE_S,
    HURRY,
    MISSES_MAX,
    OUTSTANDING_MAX,
    SHORT_TIME_OUT_S,
    Liveness,
    ProbeAction,
)
from holdfast.settings.neighbours import PROBE_S_BY_KIND

PROBE_S = 0.05


class Link:
    """A neighbour whose echoes come after `round_trip_s`, in time that the test moves in small steps."""

    def __init__(self, *, probe_s: float = PROBE_S, keepalive_s: float = 1.0, hold_time_s: float = 3.0) -> None:
        self.now = 100.0
        self.heard_at = self.now
        self.liveness = Liveness(probe_s=probe_s, keepalive_s=keepalive_s)
        self.liveness.reset(hold_time_s)
        self.liveness.begin(self.now)
        self.round_trip_s: float | None = 0.001
        self.unanswered_at: float | None = None
        self.echoes: list[tuple[float, int]] = []
        self.probed: list[float] = []
        self.down_at: float | None = None
        self.output: tuple[int, int] | None = None

    def run(self, seconds: float, step_s: float = 0.000_5) -> "Link":
        end = self.now + seconds
        while self.now < end and self.down_at is None:
            self.step(step_s)
        return self

    def step(self, seconds: float) -> None:
        self.now += seconds
        while self.echoes and self.echoes[0][0] <= self.now:
            self.heard_at = self.now
            self.liveness.echo(self.echoes.pop(0)[1], self.now)
        self.act(self.liveness.tick(self.now, self.heard_at, self.unanswered_at))

    def silence(self) -> None:
        """From now on nothing is answered, nor what was asked before."""
        self.round_trip_s, self.echoes = None, []

    def act(self, act: ProbeAction) -> None:
        if act is ProbeAction.PROBE:
            self.probed.append(self.now)
            if self.round_trip_s is not None:
                self.echoes.append((self.now + self.round_trip_s, self.liveness.number))
        elif act is ProbeAction.DOWN:
            self.down_at = self.now
        if act in (ProbeAction.PROBE, ProbeAction.MEASURE) and self.output is not None:
            self.liveness.measured(*self.output)


def test_an_idle_link_is_probed_each_probe_s_and_measured() -> None:
    link = Link().run(10 * PROBE_S)
    assert len(link.probed) in (9, 10)
    assert link.liveness.smoothed_s == pytest.approx(0.001, abs=0.000_6)
    assert not link.liveness.missed


def test_a_dead_link_is_down_after_three_time_outs() -> None:
    """The goal of 250 ms from the cut to the new path leaves 160 for this: a first miss ends half of the patience."""
    link = Link().run(1.0)
    link.silence()
    cut_at = link.now
    link.run(5)
    assert link.down_at is not None
    assert link.down_at - cut_at < PROBE_S * (2 + (MISSES_MAX - 1) / HURRY) + MISSES_MAX * GRACE_S + 0.005
    assert link.liveness.missed == MISSES_MAX
    assert link.liveness.next_deadline(link.heard_at, None) is None


def test_a_late_echo_of_the_first_probe_is_life_after_shorter_time_outs() -> None:
    link = Link().run(1.0)
    link.round_trip_s, link.echoes = PROBE_S + 1.5 * PROBE_S / HURRY, []
    missed = link.liveness.missed
    while link.liveness.missed < missed + MISSES_MAX - 1:
        link.step(0.000_5)
    link.run(PROBE_S / HURRY)
    assert link.down_at is None
    assert link.liveness.misses == 0


def test_two_misses_and_an_answer_are_no_end() -> None:
    link = Link().run(1.0)
    for _ in range(5):
        link.silence()
        while link.liveness.misses < MISSES_MAX - 2:
            link.step(0.000_5)
        link.round_trip_s = 0.001  # the probe that is out is missed yet, the next one answered
        link.run(0.3)
        assert link.liveness.missed % (MISSES_MAX - 1) == 0
        assert link.liveness.misses == 0
    assert link.down_at is None


def test_whatever_arrives_is_life_and_puts_the_probe_off() -> None:
    link = Link().run(0.5)
    before = link.liveness.sent
    for _ in range(40):  # data each 20 ms, for 0.8 s: one probe at most, which measures
        link.heard_at = link.now
        link.run(0.02)
    assert link.liveness.sent - before <= 1
    link.silence()
    for _ in range(200):
        link.heard_at = link.now
        link.run(0.02)
    assert link.down_at is None


def test_a_busy_link_is_measured_each_keepalive() -> None:
    link = Link(keepalive_s=0.5)
    for _ in range(500):
        link.heard_at = link.now
        link.run(0.01)
    assert len(link.probed) == pytest.approx(5.0 / 0.5, abs=2)


def test_a_transfer_without_answer_sets_off_a_probe() -> None:
    link = Link(keepalive_s=60.0).run(1.0)
    probed = len(link.probed)
    link.unanswered_at = link.now
    for _ in range(12):
        link.heard_at = link.now  # the idle probe is not due
        link.run(0.01)
    assert len(link.probed) in (probed + 1, probed + 2)
    link.unanswered_at = None
    probed = len(link.probed)
    for _ in range(12):
        link.heard_at = link.now
        link.run(0.01)
    assert len(link.probed) == probed


@pytest.mark.parametrize("stall_s", [0.06, 0.5, 30.0])
def test_while_the_process_stood_still_nothing_is_missed(stall_s: float) -> None:
    link = Link().run(1.0)
    link.silence()  # what comes meanwhile lies unread
    for _ in range(10):
        link.run(PROBE_S / 2)
        link.step(PROBE_S + stall_s)
    assert link.down_at is None
    assert not link.liveness.missed
    assert link.liveness.stalls >= 5


def test_a_miss_waits_for_one_more_look_at_the_sockets() -> None:
    link = Link().run(1.0)
    link.silence()
    while link.liveness.tick(link.now, link.heard_at, None) is not ProbeAction.PROBE:
        link.now += 0.001
    due = link.liveness.next_deadline(link.heard_at, None)
    assert due is not None
    assert link.liveness.tick(due, link.heard_at, None) is ProbeAction.MEASURE
    link.liveness.echo(link.liveness.number, due + 0.001)  # it lay in the socket
    assert link.liveness.tick(due + GRACE_S, due + 0.001, None) is ProbeAction.NOTHING
    assert not link.liveness.missed


def test_a_probe_in_our_own_line_is_not_missed_while_the_line_moves() -> None:
    link = Link().run(1.0)
    link.silence()
    link.output = (0, 100_000)
    for _ in range(1_000):
        link.step(0.001)
        link.output = (link.output[0] + 50, link.output[1] + 10)
    assert link.down_at is None
    assert not link.liveness.missed
    link.run(1.0)  # and now the line stands still
    assert link.down_at is not None


def test_what_the_other_system_took_is_no_proof_of_life() -> None:
    """A relay acknowledges everything and passes nothing on."""
    link = Link().run(1.0)
    link.silence()
    link.output = (500, 500)
    for _ in range(400):
        link.step(0.001)
        link.output = (link.output[0] + 10, link.output[1] + 10)
        if link.down_at is not None:
            break
    assert link.down_at is not None


def test_a_changed_network_has_little_time_to_answer() -> None:
    link = Link(probe_s=1.0).run(5.0)
    link.silence()
    changed_at = link.now
    link.act(link.liveness.network_changed(link.now, link.heard_at))
    link.run(5.0)
    assert link.down_at is not None
    assert link.down_at - changed_at < MISSES_MAX * (SHORT_TIME_OUT_S + GRACE_S) + 0.02
    link = Link(probe_s=1.0).run(5.0)
    link.act(link.liveness.network_changed(link.now, link.heard_at))
    link.run(0.5)
    assert link.liveness.time_out_s >= 1.0, "an answer ends the hurry"


def test_a_network_that_changes_all_the_time_hides_no_dead_link() -> None:
    link = Link(probe_s=0.1, hold_time_s=60.0)
    link.round_trip_s = 0.6  # a satellite: the time-out is far above the time between two changes
    link.run(10.0)
    link.silence()
    cut_at = link.now
    while link.down_at is None and link.now < cut_at + 10:
        link.run(0.05)
        if link.down_at is None:
            link.act(link.liveness.network_changed(link.now, link.heard_at))
    assert link.down_at is not None and link.down_at - cut_at < 4.0


def test_what_was_heard_ends_the_misses_before_the_network_changes() -> None:
    link = Link().run(1.0)
    link.silence()
    link.run(0.1)
    assert link.liveness.misses
    link.heard_at = link.now
    link.act(link.liveness.network_changed(link.now + 0.001, link.heard_at))
    assert not link.liveness.misses


@given(st.lists(st.floats(0, 100), min_size=1, max_size=50), st.floats(0.005, 5), st.floats(0.1, 60))
def test_the_time_out_lies_between_probe_s_and_the_hold_time(
    round_trips: list[float], probe_s: float, hold_time_s: float
) -> None:
    liveness = Liveness(probe_s=probe_s, keepalive_s=1.0)
    liveness.reset(hold_time_s)
    liveness.begin(0.0)
    assert liveness.time_out_s == min(max(probe_s, FIRST_TIME_OUT_S), hold_time_s)
    now = 0.0
    for round_trip_s in round_trips:
        assert liveness.network_changed(now, now) is ProbeAction.PROBE
        now += round_trip_s
        liveness.echo(liveness.number, now)
        assert min(probe_s, hold_time_s) <= liveness.time_out_s <= hold_time_s
    assert min(round_trips) - 1e-6 <= (liveness.smoothed_s or 0.0) <= max(round_trips) + 1e-6


def test_the_estimator_is_rfc_6298s() -> None:
    """§2.2 and §2.3, by hand: R = 0.1, then 0.3."""
    liveness = Liveness(probe_s=0.01, keepalive_s=1.0)
    liveness.reset(60.0)
    liveness.begin(0.0)
    liveness.network_changed(0.0, 0.0)
    liveness.echo(1, 0.1)
    assert liveness.time_out_s == pytest.approx(0.1 + 4 * 0.05)
    liveness.network_changed(1.0, 1.0)
    liveness.echo(2, 1.3)
    variance_s = 0.75 * 0.05 + 0.25 * 0.2
    assert liveness.time_out_s == pytest.approx((0.875 * 0.1 + 0.125 * 0.3) + 4 * variance_s)


def test_echoes_of_probes_that_were_never_sent_say_nothing() -> None:
    link = Link()
    link.round_trip_s = None
    link.run(0.5)
    for number in (0, -1, 99, 2**64):
        link.liveness.echo(number, link.now)
    assert link.liveness.smoothed_s is None


def test_the_moments_of_so_many_probes_are_kept_and_no_more() -> None:
    liveness = Liveness(probe_s=0.01, keepalive_s=1.0)
    liveness.reset(60.0)
    liveness.begin(0.0)
    for number in range(OUTSTANDING_MAX + 1):
        liveness.network_changed(float(number), 0.0)
    liveness.echo(1, 20.0)
    assert liveness.smoothed_s is None, "one past the bound is forgotten"
    liveness.echo(2, 20.0)
    assert liveness.smoothed_s == 19.0


def test_the_share_of_misses_is_since_the_last_time() -> None:
    link = Link().run(1.0)
    assert link.liveness.take_loss_share() == 0.0
    link.silence()
    link.run(5.0)
    assert link.liveness.take_loss_share() > 0.5
    assert link.liveness.take_loss_share() == 0.0


def test_a_lan_is_probed_often_and_a_serial_line_seldom() -> None:
    assert PROBE_S_BY_KIND == {"tcp": 0.05, "tls": 0.05, "serial": 1.0}


def test_a_new_connection_begins_anew_and_is_silent_until_its_control_link_is_up() -> None:
    link = Link(probe_s=0.01, keepalive_s=0.02)
    link.run(1.0)
    link.silence()
    link.act(link.liveness.network_changed(link.now, link.heard_at))
    link.run(0.03)
    liveness = link.liveness
    assert liveness.misses and liveness.smoothed_s is not None and liveness.time_out_s < FIRST_TIME_OUT_S
    number = liveness.number
    for fresh in (liveness, Liveness(probe_s=0.01, keepalive_s=0.02)):
        fresh.reset(3.0)
        for now in (link.now, link.now + 60.0):
            assert fresh.next_deadline(link.heard_at, link.heard_at) is None
            assert fresh.tick(now, link.heard_at, link.heard_at) is ProbeAction.NOTHING
            assert fresh.network_changed(now, link.heard_at) is ProbeAction.NOTHING
        assert (fresh.misses, fresh.smoothed_s, fresh.time_out_s) == (0, None, FIRST_TIME_OUT_S)
        fresh.echo(number, link.now)
        assert fresh.smoothed_s is None, "of a probe on the last connection"
        fresh.begin(link.now)
        assert (fresh.next_deadline(link.heard_at, None) or 0.0) <= link.now
        assert fresh.tick(link.now, link.now, None) is ProbeAction.PROBE
        fresh.echo(fresh.number, link.now + 0.001)
        assert fresh.time_out_s == 0.01, "no hurry is left from the last connection"
