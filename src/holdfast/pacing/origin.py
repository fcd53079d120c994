"""The origin's part: what it reports to one root and when, and which rate holds now.

Rules of this file: no clock; times are seconds on `now`'s scale. A rate holds for its lease, which counts from when the
report that it answers was *sent*: so it ends here before the root believes so, however late anything came. No report
waits for data, so a client with weight zero still reports. Source: traffic-control §3.3; docs/adr/0074-pacing.md.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from holdfast.pacing.arrivals import Arrivals
from holdfast.pacing.changes import ARRIVALS_CHANGE, REPORT_S, TRIGGER_GAP_S, USED_CHANGE, period_of
from holdfast.pacing.messages import BYTES_MAX, Pace, Report

REPORT_LEAST_S: Final = 0.05

SENT_MAX: Final = 512
"""Reports whose time of sending is remembered. A rate that answers an older one is not obeyed."""

FORGET_S: Final = 600.0
"""A root of which nothing was received for so long paces no longer: the link's credit alone bounds what is sent."""

ROUND_TRIP_S: Final = 0.5
"""Until one was measured."""


Weigh = Callable[[float, float], int]


class Origin:
    """One origin's side towards one root and group. Its owner asks `report` whenever something changed or
    `next_deadline` has come, and puts `rate` into its shaper whenever `receive` or `report` returned."""

    def __init__(
        self, root: str, name: str, group: str, weigh: Weigh, capacity: int, *, process: int, now: float
    ) -> None:
        """`weigh`: weight by used and capacity, as a policy's. `capacity`: bytes of the queue, above 0. `process`:
        higher for each life of this node, as a wall time is."""
        if not 0 < capacity <= BYTES_MAX:
            raise ValueError(f"invalid capacity {capacity}; expected 1 to {BYTES_MAX}")
        self.root, self.name, self.group = root, name, group
        self._weigh = weigh
        self.capacity = capacity
        self.process = process
        self.arrivals = Arrivals(now)
        self.version = 0
        self._due_at = now
        """When the next report is due, at the latest."""
        self.told: Report | None = None
        """The last report."""
        self._sent_at: float | None = None
        self._used = 0
        self._rate_told: float | None = None
        self._changes = 0
        """As last reported."""
        self._sent: deque[tuple[int, float]] = deque(maxlen=SENT_MAX)
        self._repeat_at: float | None = None
        """When a report that did not wait for its time goes out again, where no rate has answered it."""
        self._answered = 0
        """The newest report that the root has, as it says."""
        self._pace: Pace | None = None
        """The newest of the root's process that was obeyed; None once its lease is over."""
        self._applied = (0, 0)
        """Process of the root, and version of the pace."""
        self._lease_ends = now
        self._base: float | None = None
        self._received_at = now
        self._round_trip_s = ROUND_TRIP_S

    # ----------------------------------------------------------------------------------------------- reporting

    def arrived(self, now: float, size: int, messages: int = 1) -> None:
        """Messages were offered, whether taken or refused."""
        self.arrivals.add(now, size, messages)

    def report(self, now: float, used: int, *, leaving: bool = False) -> Report | None:
        """The report that is due; None where there is none. `used`: bytes in the queue."""
        used = min(max(0, used), self.capacity)
        due = leaving or now >= self._due_at
        triggered = False
        if not due:
            assert self._sent_at is not None  # the first is due at once
            if now < self._sent_at + TRIGGER_GAP_S:
                return None
            triggered = self._has_moved(now, used)
            if not triggered and (self._repeat_at is None or now < self._repeat_at):
                return None
        return self._made(now, used, leaving=leaving, triggered=triggered)

    def _has_moved(self, now: float, used: int) -> bool:
        if abs(used - self._used) >= USED_CHANGE * self.capacity:
            return True
        if self.told is not None and self._weigh(used, self.capacity) != self.told.weight:
            return True
        self.arrivals.advance(now)
        if self.arrivals.changes != self._changes:
            return True
        found = self.arrivals.estimate(now)
        if found is None:
            return False
        mean, spread = found
        if self._rate_told is None:
            return mean > 0
        # Below its own error an estimate says nothing new.
        return abs(mean - self._rate_told) > max(ARRIVALS_CHANGE * self._rate_told, spread)

    def _made(self, now: float, used: int, *, leaving: bool, triggered: bool) -> Report:
        found = self.arrivals.estimate(now)
        self.version += 1
        self._sent.append((self.version, now))
        self._sent_at, self._used = now, used
        self._rate_told = found[0] if found is not None else None
        self._changes = self.arrivals.changes
        self._due_at = now + self._period_s()
        self._repeat_at = now + TRIGGER_GAP_S + 2 * self._round_trip_s if triggered else None
        self._lapse(now)
        process, applied = self._applied
        self.told = Report(
            self.root, self.name, self.group, self.process, self.version, self._weigh(used, self.capacity),
            self.capacity, used, None if found is None else min(int(found[0]), BYTES_MAX),
            0 if found is None else min(int(found[1]), BYTES_MAX), process, applied,
            int((now - self._received_at) * 1000) if applied else 0, leaving,
        )  # fmt: skip
        return self.told

    def _period_s(self) -> float:
        """Of reports: half of the root's period, which its leases show, and REPORT_S at most."""
        if self._pace is None:
            return REPORT_S
        return min(REPORT_S, max(REPORT_LEAST_S, period_of(self._pace.valid_ms) / 2))

    def hurry(self, now: float) -> None:
        """There is a way to the root again: it is to hear at once, whatever was sent before and may be lost."""
        self._due_at = min(self._due_at, now)

    def next_deadline(self, now: float) -> float:
        """When `report` is to be asked again, if nothing changes before. Arrivals that cease are seen by then, too."""
        at = self._due_at
        if self._repeat_at is not None:
            at = min(at, self._repeat_at)
        if self._sent_at is not None and now < self._sent_at + TRIGGER_GAP_S:
            at = min(at, self._sent_at + TRIGGER_GAP_S)
        if self._pace is not None:
            at = min(at, max(now, self._lease_ends))
        return at

    # ----------------------------------------------------------------------------------------------- obeying

    def receive(self, now: float, pace: Pace) -> bool:
        """The root's word; whether it is obeyed. It is not if it is old, or answers what this process never sent."""
        self._lapse(now)
        if (pace.root, pace.to, pace.group) != (self.root, self.name, self.group) or pace.of != self.process:
            return False
        sent_at = self._sent_at_of(pace.heard)
        if sent_at is None:
            return False
        if (pace.process, pace.version) <= self._applied:
            return False
        ends = sent_at + pace.valid_ms / 1000
        if ends <= now:
            return False
        if pace.heard > self._answered:
            self._answered = pace.heard
            self._round_trip_s += (min(now - sent_at, REPORT_S) - self._round_trip_s) / 4
        if self._repeat_at is not None and pace.heard >= self.version:
            self._repeat_at = None
        self._pace, self._applied = pace, (pace.process, pace.version)
        self._lease_ends, self._base, self._received_at = ends, float(pace.base), now
        assert self._sent_at is not None  # else nothing could have been answered
        self._due_at = min(self._due_at, max(now, self._sent_at + self._period_s()))
        return True

    def rate(self, now: float) -> float | None:
        """Bytes a second that hold now; None where no root paces."""
        self._lapse(now)
        return float(self._pace.rate) if self._pace is not None else self._base

    def _lapse(self, now: float) -> None:
        """At the lease's end the base holds. Whatever another life of the root says counts from then on: an old pace
        has no lease left either."""
        if self._pace is not None and now >= self._lease_ends:
            self._pace = None
            self._applied = (0, 0)
        if self._base is not None and now >= self._received_at + FORGET_S:
            self._pace, self._base = None, None
            self._applied = (0, 0)

    def _sent_at_of(self, version: int) -> float | None:
        if not self._sent or not self._sent[0][0] <= version <= self.version:
            return None
        return self._sent[version - self._sent[0][0]][1]

    @property
    def sent(self) -> list[tuple[int, float]]:
        """The reports that are remembered: version, and when it was sent."""
        return list(self._sent)

    @property
    def pace(self) -> Pace | None:
        """What is obeyed, up to its lease's end."""
        return self._pace

    @property
    def base(self) -> float | None:
        """Bytes a second that hold after the lease; None where no root paces."""
        return self._base

    @property
    def lease_ends(self) -> float:
        """When the rate that holds ends, and the base begins."""
        return self._lease_ends
