"""A row of the root's table: the reports of one client, the rates sent to it, and the bytes received from it.

Rules of this file: values of one client alone; a client lies at most about itself, and each value is bounded by what
its root measures. Times are seconds on `now`'s scale.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

from holdfast.engine.allowance import Allowance
from holdfast.pacing.changes import ARRIVALS_CHANGE, USED_CHANGE
from holdfast.pacing.messages import Report
from holdfast.pacing.obedience import Obedience
from holdfast.pacing.policy import Load, full_s

REPORTS_PER_S: Final = 16.0
"""Of one origin, and as many at once after a quiet while. More are passed over."""

ROUND_TRIPS: Final = 8
"""Measurements of which the median counts."""

ROUND_TRIP_S: Final = 0.5
"""Until one was measured."""

RECENT_S: Final = 0.5
"""Over so much at least, what is received is measured between reports."""

ARRIVALS_BY_INTAKE: Final = 10.0
"""What a client claims to be offered counts up to so many times what is received from it, or the root's rate."""


class Row:
    """One client. `rate` is what it is to have, `told_…` what the last pace said: 0 where there was none. What an older
    report says it uses is brought forward by arrivals and rate, by USED_CHANGE at most: more would have been reported.
    """

    __slots__ = (
        "applied", "arrivals", "arrivals_computed", "base", "capacity", "heard", "heard_at", "intake", "intake_bytes",
        "lease_ends", "obedience", "origin", "process", "rate", "recent", "recent_at", "recent_bytes", "reports",
        "root_process", "round_trips", "share", "spread", "told_at", "told_base", "told_heard", "told_rate",
        "told_version", "used", "used_computed", "weight",
    )  # fmt: skip

    def __init__(self, origin: str, share: float, now: float) -> None:
        self.origin = origin
        self.share = share
        self.process = -1
        self.heard = 0
        self.heard_at = now
        self.capacity = 1
        self.used = 0
        self.arrivals: int | None = None
        self.spread = 0
        self.weight = 0
        self.root_process = 0
        self.applied = 0
        self.used_computed = 0
        self.arrivals_computed: int | None = None
        """As they were reported when rates were last computed."""
        self.rate = 0.0
        self.base = 0.0
        self.told_rate = 0
        self.told_base = 0
        self.told_version = 0
        self.told_heard = 0
        self.told_at = now
        self.lease_ends = now
        self.round_trips: deque[float] = deque(maxlen=ROUND_TRIPS)
        self.reports = Allowance(now, per_s=REPORTS_PER_S, burst=REPORTS_PER_S)
        self.intake_bytes = 0
        """Received in the period that runs."""
        self.intake = 0.0
        """Bytes a second in the last whole period."""
        self.recent = 0.0
        self.recent_bytes = 0
        self.recent_at = now
        """Bytes a second between its reports, RECENT_S apart at least."""
        self.obedience = Obedience()

    def held(self, now: float) -> float:
        """The rate that it has: the rate sent to it during its lease, then its base."""
        return float(self.told_rate if now < self.lease_ends else self.told_base)

    def may_have(self, now: float) -> float:
        """The highest rate that it may have: its base where it says that it knows no rate, or where its lease may be
        over, which ends there up to a round trip before it ends here."""
        over = not self.applied or now + self.round_trip_s() >= self.lease_ends
        return float(max(self.told_rate, self.told_base) if over else self.told_rate)

    def excess(self, now: float) -> float:
        """The part of the root's rate that it takes beyond its own rate."""
        return max(0.0, self.obedience.received - self.held(now)) if self.obedience.ignoring else 0.0

    @property
    def overflow_s(self) -> float | None:
        """When its queue is full, if arrivals stay as reported, at the rate sent to it; None while arrivals are not
        known."""
        return full_s(self.capacity, self.used, self.arrivals, self.told_rate)

    def allows_report(self, now: float) -> bool:
        """Counts a report; False where there were too many."""
        return self.reports.count(now)

    def took(self, size: int) -> None:
        """A message of it came in."""
        self.intake_bytes += size
        self.recent_bytes += size
        self.obedience.took(size)

    def take(self, now: float, report: Report, root_process: int) -> None:
        """A report that is newer than the last. Of another process it begins anew, and knows no pace."""
        if report.process != self.process:
            self.process = report.process
            self.told_rate = self.told_base = self.told_version = self.told_heard = 0
            self.lease_ends = now
            self.applied = 0
            self.round_trips.clear()
        if now - self.recent_at >= RECENT_S:
            self.recent = self.recent_bytes / (now - self.recent_at)
            self.recent_bytes, self.recent_at = 0, now
        self.heard, self.heard_at = report.version, now
        self.capacity, self.used = report.capacity, report.used
        self.arrivals, self.spread, self.weight = report.arrivals, report.spread, report.weight
        fresh = report.root_process == root_process and report.applied == self.told_version != self.applied
        if fresh:
            self.round_trips.append(max(0.0, now - self.told_at - report.held_ms / 1000))
        self.root_process, self.applied = report.root_process, report.applied

    def has_moved(self) -> bool:
        """Whether its report differs so much from what the rates were computed with that they are to be computed now:
        by what makes an origin report at once."""
        if abs(self.used - self.used_computed) >= USED_CHANGE * self.capacity:
            return True
        before, now = self.arrivals_computed, self.arrivals
        if before is None or now is None:
            return before is not now
        return abs(now - before) > ARRIVALS_CHANGE * before

    def round_trip_s(self) -> float:
        return _median(self.round_trips) if self.round_trips else ROUND_TRIP_S

    def load(self, now: float, root_rate: float, equal: float) -> Load:
        """What a policy sees. `equal`: its equal share, in place of arrivals that are not known yet."""
        if self.arrivals is None:
            arrivals = spread = equal
        else:
            most = max(root_rate, ARRIVALS_BY_INTAKE * max(self.intake, self.recent))
            arrivals, spread = min(float(self.arrivals), most), min(float(self.spread), most)
        drift = (arrivals - self.told_rate) * max(0.0, now - self.heard_at)
        bound = USED_CHANGE * self.capacity
        used = min(max(0.0, self.used + min(max(drift, -bound), bound)), float(self.capacity))
        return Load(float(self.capacity), used, arrivals, spread, self.weight, self.share)

    def end_period(self, over_s: float) -> None:
        """A period of the root is over."""
        self.intake = self.intake_bytes / over_s
        self.intake_bytes = 0


def typical_round_trip_s(rows: list[Row]) -> float:
    """The median: a few clients who answer late on purpose, or are far away, do not slow all others down."""
    return _median(row.round_trip_s() for row in rows) if rows else ROUND_TRIP_S


def _median(values: Iterable[float]) -> float:
    """Of one or more. The module `statistics` would take every node half a megabyte."""
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
