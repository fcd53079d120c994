"""The root's table: when rates are computed, who is told, and what a client may claim."""

from collections import deque
from collections.abc import Callable
from functools import partial
from math import fsum

import pytest

from holdfast.errors import BrokenInvariant
from holdfast.pacing import validation
from holdfast.pacing.groups import GROUPS_MAX, Groups
from holdfast.pacing.level import Level
from holdfast.pacing.messages import BYTES_MAX, Pace, Report
from holdfast.pacing.obedience import PERIODS
from holdfast.pacing.origin import Origin
from holdfast.pacing.policies import Fixed, Weights
from holdfast.pacing.policy import Policy
from holdfast.pacing.rows import REPORTS_PER_S
from holdfast.pacing.table import COMPUTE_GAP_S, KEPT_S, ROWS_MAX, Pacing, Table

RATE = 125_000
CAPACITY = 1_000_000
ROOT_CAPACITY = 4_000_000


class Desk:
    """A table, and the reports of its clients by hand."""

    def __init__(self, policy: Policy | None = None, period_s: float = 2.0, **shares: float) -> None:
        self.table = Table("hub", "", Pacing(RATE, policy or Weights(), period_s, shares), process=9, now=0.0)
        self.now = 0.0
        self.told: dict[str, Pace] = {}
        self.versions: dict[str, int] = {}

    def report(self, origin: str, weight: int = 0, used: int = 0, **other: int | None) -> bool:
        """With the last pace applied, if `applied` does not say otherwise."""
        self.versions[origin] = self.versions.get(origin, 0) + 1
        told = self.told.get(origin)
        found = Report(
            "hub", origin, "", 1, self.versions[origin], weight, CAPACITY, used, 20_000, 2_000,
            9, told.version if told is not None else 0,
        )._replace(**other)  # fmt: skip
        taken = self.table.receive(self.now, found)
        validation.table(self.table, self.now)
        return taken

    def go(self, to: float) -> list[tuple[float, Pace]]:
        """What is told until then, and when."""
        found = []
        while (at := max(self.now, self.table.next_deadline())) <= to:
            self.now = at
            self.table.tick(at, ROOT_CAPACITY, 0)
            validation.table(self.table, at)
            for pace in self.table.take(at, 1_000):
                self.told[pace.to] = pace
                found.append((at, pace))
            validation.table(self.table, at)
        self.now = to
        return found

    def rates(self) -> dict[str, int]:
        return {origin: pace.rate for origin, pace in self.told.items()}


# ------------------------------------------------------------------------------------------------ when, and whom


def test_who_joins_is_told_at_once() -> None:
    desk = Desk()
    desk.report("jfk")
    [(at, pace)] = desk.go(0.1)
    assert at == 0.0
    assert pace == Pace("hub", "jfk", "", 9, 1, 1, 1, RATE, RATE, 6_000)
    desk.report("ewr")
    found = desk.go(0.5)
    assert [at for at, _ in found] == pytest.approx([COMPUTE_GAP_S, COMPUTE_GAP_S])
    assert [pace.to for _, pace in found] == ["jfk", "ewr"], "the one whose rate falls first"
    assert desk.rates() == {"jfk": RATE // 2, "ewr": RATE // 2}


def three(policy: Policy | None = None, period_s: float = 2.0) -> Desk:
    desk = Desk(policy, period_s)
    for origin in ("jfk", "ewr", "lga"):
        desk.report(origin)
    desk.go(0.9)
    return desk


def test_rates_follow_weights_at_the_end_of_the_period() -> None:
    desk = three()
    assert desk.rates() == dict.fromkeys(("jfk", "ewr", "lga"), RATE // 3)
    desk.now = 1.0
    for origin, weight in (("jfk", 2), ("ewr", 6), ("lga", 9)):
        desk.report(origin, weight)
    found = desk.go(3.9)
    assert {at for at, _ in found} == {2.0}
    assert desk.rates() == {"jfk": RATE * 2 // 17, "ewr": RATE * 6 // 17, "lga": RATE * 9 // 17}
    assert found[0][1].to == "jfk" and found[-1][1].to == "lga"


def test_of_rates_that_changed_the_lower_ones_are_told_first() -> None:
    """So that what all may send together is never more than the root's rate, however few are told in a turn."""
    desk = three()
    desk.go(2.0)
    before = desk.rates()
    rising, *falling = before
    desk.report(rising, 9)
    for origin in falling:
        desk.report(origin, 1)
    told = [pace for _, pace in desk.go(4.5) if pace.rate != before[pace.to]]
    assert [pace.rate > before[pace.to] for pace in told] == [False, False, True]
    assert told[-1].to == rising


def test_where_the_policy_wants_it_rates_follow_a_report_at_once() -> None:
    desk = three(Level())
    desk.now = 1.05
    desk.report("jfk", used=CAPACITY // 2)
    found = desk.go(1.9)
    assert found and found[0][0] == pytest.approx(1.05)
    assert desk.rates()["jfk"] > RATE * 0.8


def test_a_change_of_less_than_a_twentieth_is_not_told() -> None:
    desk = three()
    desk.now = 1.0
    for origin, weight in (("jfk", 20), ("ewr", 20), ("lga", 20)):
        desk.report(origin, weight)
    assert desk.go(2.5) == []
    for origin, weight in (("jfk", 20), ("ewr", 20), ("lga", 21)):
        desk.report(origin, weight)
    desk.go(4.5)
    assert set(desk.rates().values()) == {RATE // 3}, "3.3 % at most: leases are renewed, and nothing else"
    for origin, weight in (("jfk", 20), ("ewr", 20), ("lga", 22)):
        desk.report(origin, weight)
    assert len(desk.go(6.5)) == 3, "one by 6.5 %, and with it all"
    assert desk.rates()["lga"] == RATE * 22 // 62


def test_a_rate_is_told_again_when_half_of_its_lease_is_over() -> None:
    desk = three()
    times = []
    for second in range(1, 13):
        desk.now = second - 0.05
        for origin in ("jfk", "ewr", "lga"):
            desk.report(origin)
        times += [at for at, pace in desk.go(second) if pace.to == "jfk"]
    assert times == pytest.approx([4.0, 8.0, 12.0])
    assert desk.table.changes == 0


def test_a_rate_that_was_not_applied_is_told_again() -> None:
    desk = three()
    desk.now = 1.9
    desk.report("jfk", applied=0)
    desk.report("ewr")
    assert [pace.to for _, pace in desk.go(2.5)] == ["jfk"]


def test_paces_beyond_what_may_be_sent_in_one_turn_wait() -> None:
    desk = Desk()
    for number in range(10):
        desk.report(f"n{number}")
    desk.table.tick(0.0, ROOT_CAPACITY, 0)
    assert len(desk.table.take(0.0, 4)) == 4
    assert desk.table.next_deadline() <= 0.0
    assert len(desk.table.take(0.0, 100)) == 6
    assert desk.table.take(0.0, 100) == []


# ------------------------------------------------------------------------------------------------ lives and silence


def test_old_doubled_and_reordered_reports_change_nothing() -> None:
    desk = three()
    desk.now = 1.0
    assert desk.report("jfk", 9)
    for version in (2, 1):
        assert not desk.report("jfk", 0, version=version)
    assert desk.table.rows["jfk"].weight == 9


def test_a_client_that_restarted_begins_anew() -> None:
    desk = three(Level())
    desk.now = 1.5
    assert desk.report("jfk", 3, process=2, version=1, arrivals=None)
    assert not desk.report("jfk", 9, process=1, version=50), "its life before"
    [row] = [row for row in desk.table.rows.values() if row.origin == "jfk"]
    load = row.load(1.5, RATE, RATE / 3)
    assert load.arrivals == load.spread == RATE / 3, "not known: as much as its share, or nothing, or twice that"
    found = [(at, pace.of, pace.heard) for at, pace in desk.go(1.9) if pace.to == "jfk"]
    assert found == [(1.5, 2, 1)], "at once, whatever it was told before"


def test_a_client_whose_clock_was_set_back_is_believed_once_it_was_silent() -> None:
    desk = three()
    desk.now = 2.0
    assert not desk.report("jfk", process=0, version=1)
    desk.go(5.0)
    assert desk.report("jfk", process=0, version=1)


def test_who_is_silent_keeps_its_lease_and_then_its_base_and_the_others_have_the_rest() -> None:
    desk = three()
    desk.now = 1.0
    desk.report("jfk", 8)
    desk.report("ewr", 1)
    desk.report("lga", 1)
    desk.go(2.1)
    assert desk.rates()["jfk"] == RATE * 8 // 10
    for second in range(2, 12):
        desk.now = second + 0.5
        desk.report("ewr", 1)
        desk.report("lga", 1)
        desk.go(second + 1.2)
        held = desk.rates()["jfk"] if desk.now < 1.0 + 6.0 else RATE // 3
        assert held + desk.rates()["ewr"] + desk.rates()["lga"] <= RATE
    assert desk.rates()["ewr"] == pytest.approx(RATE / 3, abs=2)


def test_the_row_of_who_is_silent_for_long_goes() -> None:
    desk = three()
    for second in range(1, int(KEPT_S) + 5):
        desk.now = float(second)
        desk.report("ewr")
        desk.report("lga")
        desk.go(second + 0.9)
    assert set(desk.table.rows) == {"ewr", "lga"}
    assert desk.rates()["ewr"] == RATE // 2


def test_who_leaves_is_gone_at_once() -> None:
    desk = three()
    desk.now = 1.0
    assert desk.report("jfk", leaving=True)
    assert {pace.to for _, pace in desk.go(1.5)} == {"ewr", "lga"}
    assert desk.rates()["ewr"] == RATE // 2
    assert not desk.report("jfk", leaving=True)
    assert set(desk.table.rows) == {"ewr", "lga"}


# ------------------------------------------------------------------------------------------------ liars


def test_the_reports_of_one_origin_are_bounded() -> None:
    desk = three()
    desk.now = 0.95
    taken = sum(desk.report("jfk") for _ in range(100))
    assert REPORTS_PER_S - 2 <= taken <= REPORTS_PER_S
    desk.now = 1.95
    assert desk.report("jfk")
    assert desk.report("ewr"), "others' are not touched"


def test_rows_are_bounded() -> None:
    desk = Desk(Fixed())
    for number in range(ROWS_MAX):
        assert desk.table.receive(0.0, Report("hub", f"n{number}", "", 1, 1, 0, CAPACITY, 0, 0, 0))
    assert not desk.table.receive(0.0, Report("hub", "one more", "", 1, 1, 0, CAPACITY, 0, 0, 0))
    assert desk.table.receive(0.0, Report("hub", "n7", "", 1, 2, 0, CAPACITY, 0, 0, 0))
    validation.table(desk.table, 0.0)
    assert desk.table._gap_s() == ROWS_MAX / 2_000, "the more rows, the more seldom they are computed"


def test_what_a_client_claims_to_be_offered_is_bounded_by_what_it_sends() -> None:
    desk = three(Level())
    desk.now = 1.0
    desk.report("jfk", arrivals=BYTES_MAX, spread=BYTES_MAX)
    row = desk.table.rows["jfk"]
    assert row.load(1.0, RATE, RATE / 3).arrivals == RATE
    for _ in range(10):
        desk.table.took("jfk", 50_000)
    desk.go(2.5)  # 250,000 bytes a second in the period
    assert row.load(2.5, RATE, RATE / 3).arrivals == pytest.approx(10 * row.intake)
    desk.report("jfk", arrivals=BYTES_MAX, spread=BYTES_MAX)
    assert row.recent == pytest.approx(500_000 / 1.5), "between its reports"
    assert row.load(2.5, RATE, RATE / 3).arrivals == pytest.approx(10 * row.recent)


def test_an_old_report_is_brought_forward_by_at_most_a_fiftieth() -> None:
    desk = three(Level())
    desk.now = 1.0
    desk.report("jfk", used=500_000, arrivals=RATE)
    row = desk.table.rows["jfk"]
    drift = (RATE - row.told_rate) * 0.1
    assert row.load(1.1, RATE, RATE / 3).used == pytest.approx(500_000 + drift)
    assert row.load(100.0, RATE, RATE / 3).used == 520_000
    desk.report("ewr", used=0, arrivals=0)
    assert desk.table.rows["ewr"].load(100.0, RATE, RATE / 3).used == 0


def test_who_sends_more_than_its_rate_is_shown_and_the_others_share_the_rest() -> None:
    desk = three()
    most = RATE // 3
    for period in range(1, 2 * PERIODS + 2):
        for now in (period * 2.0 - 1.0, period * 2.0 - 0.1):
            desk.go(now)
            for origin in ("jfk", "ewr", "lga"):
                desk.report(origin)
        for _ in range(20):
            desk.table.took("jfk", most * 2 // 10)  # twice its rate
            desk.table.took("ewr", most // 10)
        desk.go(period * 2.0 + 0.5)
        assert desk.table.rows["jfk"].obedience.ignoring == (period >= PERIODS)
    assert not desk.table.rows["ewr"].obedience.ignoring
    total = fsum(row.intake for row in desk.table.rows.values() if row.origin == "jfk")
    assert total + desk.rates()["ewr"] + desk.rates()["lga"] <= RATE * 1.01
    for _ in range(2):
        for origin in ("jfk", "ewr", "lga"):
            desk.report(origin)
        desk.go(desk.now + 2.0)
    assert not desk.table.rows["jfk"].obedience.ignoring, "it ends when it obeys"


def test_who_has_its_base_after_its_lease_ignores_nothing() -> None:
    """Its reports are lost, and its messages are not: as over a node of an earlier version."""
    desk = three()
    for step in range(1, 300):
        desk.now = step * 0.1
        if step < 20:
            desk.report("jfk", 0)
        if step % 5 == 0:
            desk.report("ewr", 9)
            desk.report("lga", 9)
        row = desk.table.rows["jfk"]
        if row.told_version:
            desk.table.took("jfk", int(row.held(desk.now) * 0.1))
        desk.go(desk.now + 0.05)
        assert row.told_rate < RATE // 3 or step < 25
        assert not row.obedience.ignoring and row.excess(desk.now) == 0
    assert row.obedience.received == pytest.approx(RATE / 3, rel=0.01)
    assert sum(desk.rates()[name] for name in ("ewr", "lga")) == pytest.approx(RATE * 2 / 3, rel=0.01), "it is had once"


def test_who_has_its_base_because_all_its_rates_are_lost_ignores_nothing() -> None:
    """Its reports arrive, and say that it knows no rate, so that it is told one again and again."""
    desk = three()
    for step in range(1, 300):
        desk.now = step * 0.1
        if step % 5 == 0:
            desk.report("jfk", 0, applied=0)
            desk.report("ewr", 9)
            desk.report("lga", 9)
        row = desk.table.rows["jfk"]
        if row.told_version:
            desk.table.took("jfk", RATE // 30)
        desk.go(desk.now + 0.05)
        assert not row.obedience.ignoring
    assert row.told_rate < RATE // 10 and row.lease_ends > desk.now


def test_who_ignores_its_rate_and_is_silent_costs_what_it_takes_and_no_more() -> None:
    desk = three()
    for step in range(1, 300):
        desk.now = step * 0.1
        desk.report("ewr", 9)
        desk.report("lga", 9)
        if desk.table.rows["jfk"].told_version:
            desk.table.took("jfk", RATE // 20)  # half of all
        desk.go(desk.now + 0.05)
    assert desk.table.rows["jfk"].obedience.ignoring
    assert sum(desk.rates()[name] for name in ("ewr", "lga")) == pytest.approx(RATE / 2, rel=0.02)


def test_who_says_that_it_restarts_again_and_again_is_still_judged() -> None:
    desk = three()
    for step in range(1, 400):
        desk.now = step * 0.05
        desk.report("jfk", process=step, version=1)
        if step % 10 == 0:
            desk.report("ewr")
            desk.report("lga")
        desk.table.took("jfk", RATE // 20)  # three times its rate
        desk.go(desk.now + 0.04)
    assert desk.table.rows["jfk"].obedience.ignoring


@pytest.mark.parametrize(("period_s", "delay_s"), [(0.2, 0.5), (0.5, 0.8), (2.0, 1.5)])
@pytest.mark.parametrize("policy", [Weights(), Level()], ids=lambda policy: policy.name)
def test_who_obeys_ignores_nothing_however_far_away_it_is(policy: Policy, period_s: float, delay_s: float) -> None:
    """What is received of it is late by all the way that its rate took, and its messages."""
    table = Table("hub", "", Pacing(RATE, policy, period_s), process=1, now=0.0)
    origins = {name: Origin("hub", name, "", policy.weight, CAPACITY, process=1, now=0.0) for name in ("jfk", "ewr")}
    used = dict.fromkeys(origins, 0.0)
    wire: deque[tuple[float, Callable[[float], object]]] = deque()
    for step in range(1, 3_000):
        now = step * 0.02
        while wire and wire[0][0] <= now:
            wire.popleft()[1](now)
        for place, (name, origin) in enumerate(origins.items()):
            offered = (1.4 if (int(now / 7) + place) % 2 else 0.1) * RATE * 0.02
            origin.arrived(now, int(offered))
            sent = min(used[name] + offered, (origin.rate(now) or 0.0) * 0.02)
            used[name] = min(CAPACITY, used[name] + offered - sent)
            wire.append((now + delay_s, partial(lambda name, size, _: table.took(name, size), name, int(sent))))
            report = origin.report(now, int(used[name]))
            if report is not None:
                wire.append((now + delay_s, partial(lambda report, at: table.receive(at, report), report)))
        table.tick(now, ROOT_CAPACITY, 0)
        for pace in table.take(now, 100):
            wire.append((now + delay_s, partial(lambda pace, at: origins[pace.to].receive(at, pace), pace)))
        assert not any(row.obedience.ignoring for row in table.rows.values()), f"at {now:.2f}"


def test_a_message_larger_than_a_periods_share_ignores_nothing() -> None:
    desk = three(period_s=0.5)
    for period in range(2, 20):
        desk.now = period * 0.5 - 0.1
        desk.report("jfk")
        if period % 8 == 0:
            desk.table.took("jfk", 4 * RATE // 3)
        desk.go(period * 0.5 + 0.2)
        assert desk.table.rows["jfk"].obedience.over == 0


def test_what_comes_of_strangers_makes_no_row() -> None:
    desk = three()
    desk.now = 1.0
    desk.report("jfk", 4)
    assert desk.table.rows["jfk"].weight == 4
    desk.table.took("nobody", 5)
    assert len(desk.table.rows) == 3


# ------------------------------------------------------------------------------------------------ settings


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"rate": 0.5}, "invalid rate 0.5"),
        ({"rate": BYTES_MAX * 2.0}, "invalid rate"),
        ({"period_s": 0.05}, "invalid period 0.05; expected 0.1 to 59 seconds"),
        ({"period_s": 60.0}, "invalid period 60"),
        ({"shares": {"jfk": 0.0}}, "invalid share"),
    ],
)
def test_what_cannot_be_paced_is_refused(given: dict[str, float], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Pacing(**{"rate": 1.0, "policy": Fixed(), **given})  # type: ignore[arg-type]


def test_shares_divide_the_rate() -> None:
    desk = Desk(Fixed(), jfk=3.0)
    desk.report("jfk")
    desk.report("ewr")
    desk.go(1.0)
    assert desk.rates() == {"jfk": RATE * 3 // 4, "ewr": RATE // 4}


def test_a_longer_period_has_a_longer_lease() -> None:
    desk = Desk(period_s=59.0)
    desk.report("jfk")
    [(_, pace)] = desk.go(1.0)
    assert pace.valid_ms == 120_000


def test_groups_share_a_root_and_know_nothing_of_each_other() -> None:
    groups = Groups("hub", RATE, Weights(), {"": 1.0, "acme": 4.0}, period_s=2.0, process=9, now=0.0)
    for group, origin in (("", "jfk"), ("acme", "jfk"), ("acme", "ewr")):
        assert groups.receive(0.0, Report("hub", origin, group, 1, 1, 0, CAPACITY, 0, 0, 0))
    assert not groups.receive(0.0, Report("hub", "jfk", "other", 1, 1, 0, CAPACITY, 0, 0, 0))
    assert groups.next_deadline() == 0.0
    groups.tick(0.0, dict.fromkeys(groups.tables, (ROOT_CAPACITY, 0)))
    assert [(pace.group, pace.to) for pace in groups.take(0.0, 2)] == [("", "jfk"), ("acme", "jfk")]
    assert [(pace.to, pace.rate) for pace in groups.take(0.0, 9)] == [("ewr", RATE * 4 // 10)]
    told = {(group, row.origin): row.told_rate for group, table in groups.tables.items() for row in table.rows.values()}
    assert told == {("", "jfk"): RATE // 5, ("acme", "jfk"): RATE * 4 // 10, ("acme", "ewr"): RATE * 4 // 10}


@pytest.mark.parametrize("shares", [{}, {"": 0.0}, {str(at): 1.0 for at in range(GROUPS_MAX + 1)}])
def test_groups_without_a_share_are_refused(shares: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="invalid"):
        Groups("hub", RATE, Weights(), shares, period_s=2.0, process=9, now=0.0)


# ------------------------------------------------------------------------------------------------ invariants


def test_a_table_that_contradicts_itself_is_found() -> None:
    desk = three()
    row = desk.table.rows["jfk"]
    row.used = row.capacity + 1
    with pytest.raises(BrokenInvariant, match="jfk uses what it has not"):
        validation.table(desk.table, desk.now)
    row.used = 0
    desk.table.computed = desk.table.budget * 1.01
    with pytest.raises(BrokenInvariant, match="rates above their budget"):
        validation.table(desk.table, desk.now)
    desk.table.computed = 0.0
    row.told_version = desk.table.version + 1
    with pytest.raises(BrokenInvariant, match="told what was not said"):
        validation.table(desk.table, desk.now)
