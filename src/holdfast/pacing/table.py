"""The root's table of one group: loads come in, rates go out.

Rules of this file: no clock; times are seconds on `now`'s scale. Rates are computed each period and, where the policy
wants it, soon after a report. Of the rates that changed the lower ones go first, so that their sum holds. The work of
one turn is bounded: by rows a second in computing, by `take`'s argument in sending. Source: traffic-control
§3.3 (table of weights, time-out, R_i); docs/adr/0074-pacing.md.
"""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from math import fsum
from typing import Final

from holdfast.pacing.changes import REPORT_S, TRIGGER_GAP_S, valid_ms_of
from holdfast.pacing.messages import BYTES_MAX, VALID_MS_MAX, Pace, Report
from holdfast.pacing.obedience import LEAST_S
from holdfast.pacing.policy import FLOOR_SHARE, HORIZON_S, Policy, Root
from holdfast.pacing.rows import Row, typical_round_trip_s
from holdfast.units import written

PERIOD_S: Final = (0.1, 59.0)
"""The root's period: its lease, two of it and 2 s, is at most 120 s."""

COMPUTE_GAP_S: Final = 0.2
"""Between two computations, at least."""

ROWS_PER_S: Final = 2_000
"""Rows computed a second, of all groups together, so that ten thousand do not fill a node's time."""

ROWS_MAX: Final = 10_000

RATE_CHANGE: Final = 0.05
"""Relative change of one rate at which all changed rates are sent."""

LATE: Final = 1.5
"""Round trips after a pace: a report that comes later than this and does not know the pace says that it was lost."""

MISSED: Final = 3
"""Reports that a client may miss before it counts as silent."""

KEPT_S: Final = 60.0
KEPT_PERIODS: Final = 10
"""How long the row of a silent client is kept, the longer of both."""


@dataclass(frozen=True, slots=True)
class Pacing:
    """How one group is paced. `rate`: bytes a second, for the group. `shares` by origin; 1 where none is given."""

    rate: float
    policy: Policy
    period_s: float = 2.0
    shares: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 1 <= self.rate <= BYTES_MAX:
            raise ValueError(f"invalid rate {self.rate}; expected 1 to {BYTES_MAX} bytes a second")
        low, high = PERIOD_S
        if not low <= self.period_s <= high:
            raise ValueError(f"invalid period {self.period_s}; expected {low} to {written(high)} seconds")
        if not all(0.001 <= share <= 1_000 for share in self.shares.values()):
            raise ValueError("invalid share; expected 0.001 to 1,000")


class Table:
    """The clients of a group at a root, and the rates that it sent them."""

    def __init__(
        self, name: str, group: str, pacing: Pacing, *, process: int, now: float,
        rows_of_all: Callable[[], int] | None = None,
    ) -> None:  # fmt: skip
        """`name`: the root's. `process`: higher for each life of the root, as a wall time is. `rows_of_all`: the rows
        of all groups of that root, which bound the work of each; None where there is no other group."""
        self.name, self.group, self.pacing, self.process = name, group, pacing, process
        self.rows: dict[str, Row] = {}
        self._rows_of_all = rows_of_all if rows_of_all is not None else self.rows.__len__
        self.version = 0
        self.changes = 0
        """Rates sent that differ from those sent before."""
        self.budget = pacing.rate
        """What the rates of the last computation add up to at most, silent clients' leases aside."""
        self.computed = 0.0
        """What those rates add up to."""
        self.paced: tuple[str, ...] = ()
        """Whom the last computation shared the budget among; the others were silent."""
        self.overflow_s = HORIZON_S
        """When something overflows, by the last computation; HORIZON_S: not soon."""
        self._valid_ms = min(VALID_MS_MAX, valid_ms_of(pacing.period_s))
        self._began_at = self._judged_at = now
        self._period_at = now + pacing.period_s
        self._computed_at = now - COMPUTE_GAP_S
        self._compute_at: float | None = None
        self._untold: dict[str, None] = {}
        """Clients to which rates must be sent, in this order."""

    # ----------------------------------------------------------------------------------------------- coming in

    def receive(self, now: float, report: Report) -> bool:
        """A client's report; False where it is old, one too many, or finds no place."""
        row = self.rows.get(report.origin)
        if row is None:
            if report.leaving or self._rows_of_all() >= ROWS_MAX:
                return False
            row = self.rows[report.origin] = Row(report.origin, self.pacing.shares.get(report.origin, 1.0), now)
            self._soon(now)
        if not row.allows_report(now):
            return False
        if report.process == row.process:
            if report.version <= row.heard:
                return False
        elif report.process < row.process and not self._is_silent(row, now):
            return False
        else:
            self._soon(now)
        row.take(now, report, self.process)
        if report.leaving:
            del self.rows[report.origin]
            self._untold.pop(report.origin, None)
            self._soon(now)
        elif self.pacing.policy.triggered and row.has_moved():
            self._soon(now)
        return True

    def took(self, origin: str, size: int) -> None:
        """A message of a client came in."""
        row = self.rows.get(origin)
        if row is not None:
            row.took(size)

    def _soon(self, now: float) -> None:
        at = max(now, self._computed_at + self._gap_s())
        self._compute_at = at if self._compute_at is None else min(self._compute_at, at)

    def _gap_s(self) -> float:
        return max(COMPUTE_GAP_S, self._rows_of_all() / ROWS_PER_S)

    # ----------------------------------------------------------------------------------------------- computing

    def next_deadline(self) -> float:
        if self._untold:
            return self._computed_at
        return self._period_at if self._compute_at is None else min(self._period_at, self._compute_at)

    def tick(self, now: float, capacity: int, used: int) -> None:
        """Computes the rates where it is time. `capacity`, `used`: of the root's queue for this group, in bytes."""
        if now >= self._period_at:
            self._end_period(now)
        elif self._compute_at is None or now < self._compute_at:
            return
        self._compute(now, float(max(1, capacity)), float(min(max(0, used), capacity)))

    def _end_period(self, now: float) -> None:
        over_s = max(now - self._began_at, self.pacing.period_s)
        judged_s = max(now - self._judged_at, self.pacing.period_s)
        kept_s = max(KEPT_S, KEPT_PERIODS * self.pacing.period_s)
        for row in list(self.rows.values()):
            row.end_period(over_s)
            if judged_s >= LEAST_S:
                row.obedience.end_period(judged_s, row.may_have(now))
            if now - row.heard_at > kept_s:
                del self.rows[row.origin]
                self._untold.pop(row.origin, None)
        self._began_at = now
        if judged_s >= LEAST_S:
            self._judged_at = now
        self._period_at += self.pacing.period_s * (1 + int((now - self._period_at) / self.pacing.period_s))

    def _is_silent(self, row: Row, now: float) -> bool:
        return now - row.heard_at > MISSED * min(REPORT_S, self.pacing.period_s / 2) + row.round_trip_s()

    def loop_s(self) -> float:
        """How long it takes until a rate follows a load: a report, a computation, and both ways."""
        waits_s = TRIGGER_GAP_S + self._gap_s() if self.pacing.policy.triggered else self.pacing.period_s
        return waits_s + typical_round_trip_s(list(self.rows.values()))

    def _compute(self, now: float, capacity: float, used: float) -> None:
        self._computed_at, self._compute_at = now, None
        if not self.rows:
            self.overflow_s = HORIZON_S
            return
        policy, whole = self.pacing.policy, self.pacing.rate
        shares = fsum(row.share for row in self.rows.values())
        active, gone = [], 0.0
        for row in self.rows.values():
            row.base = whole * row.share / shares
            row.used_computed, row.arrivals_computed = row.used, row.arrivals
            gone += row.excess(now)
            if self._is_silent(row, now):
                row.rate = float(row.told_rate)
                gone += row.held(now)
            else:
                active.append(row)
        if not active:
            return
        self.paced = tuple([row.origin for row in active])
        root = Root(max(whole - gone, FLOOR_SHARE * whole), capacity, used, policy.lend)
        loads = [row.load(now, whole, row.base) for row in active]
        loop_s = self.loop_s()
        self.budget = policy.budget(root, loop_s)
        self.overflow_s = policy.overflow_s(root, loads, loop_s)
        rates = policy.rates(root, loads, loop_s)
        self.computed = fsum(rates)
        for row, rate in zip(active, rates, strict=True):
            row.rate = rate
        self._compare(now, active)

    def _compare(self, now: float, active: list[Row]) -> None:
        """Finds the clients to which rates must be sent, the lower rates first."""
        if fsum(row.told_rate for row in active) > self.budget or any(
            not row.told_version
            or row.told_base != _whole(row.base)
            or abs(row.rate - row.told_rate) >= RATE_CHANGE * row.told_rate
            for row in active
        ):
            changed = [row for row in active if _whole(row.rate) != row.told_rate or row.told_base != _whole(row.base)]
        else:
            changed = []
            for row in active:
                row.rate = float(row.told_rate)
        changed.sort(key=lambda row: row.rate > row.told_rate)
        self._untold = dict.fromkeys(row.origin for row in changed)
        for row in active:
            if row.origin not in self._untold and self._is_to_be_repeated(row, now):
                self._untold[row.origin] = None

    def _is_to_be_repeated(self, row: Row, now: float) -> bool:
        """Half of its lease is over, or it reported since and does not know the last pace."""
        since_s = now - row.told_at
        if row.heard > row.told_heard and since_s >= self._valid_ms / 2000:
            return True
        unknown = row.root_process != self.process or row.applied < row.told_version
        return unknown and since_s >= COMPUTE_GAP_S and row.heard_at - row.told_at >= LATE * row.round_trip_s()

    @property
    def untold(self) -> Set[str]:
        """The clients to which rates must be sent."""
        return self._untold.keys()

    # ----------------------------------------------------------------------------------------------- going out

    def take(self, now: float, most: int) -> list[Pace]:
        """Up to `most` paces, in the order in which they are to go out. While some wait the deadline is over: who can
        send no more is to wait for credit, and not for the deadline."""
        paces: list[Pace] = []
        while self._untold and len(paces) < most:
            origin = next(iter(self._untold))
            del self._untold[origin]
            paces.append(self._pace(self.rows[origin], now))
        return paces

    def _pace(self, row: Row, now: float) -> Pace:
        rate, base = _whole(row.rate), _whole(row.base)
        self.version += 1
        if rate != row.told_rate and row.told_version:
            self.changes += 1
        row.told_rate, row.told_base, row.told_version, row.told_heard = rate, base, self.version, row.heard
        row.told_at = now
        row.lease_ends = row.heard_at + self._valid_ms / 1000
        row.obedience.told(rate)
        return Pace(
            self.name, row.origin, self.group, self.process, self.version, row.process, row.heard, rate, base,
            self._valid_ms,
        )  # fmt: skip


def _whole(rate: float) -> int:
    """Rounded down, so that sums hold; a rate of zero would be none."""
    return max(1, int(rate))
