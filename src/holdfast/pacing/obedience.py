"""Whether a client keeps to the rate that its root gives it: what was received of it is held against what it may have
obeyed.

Rules of this file: values of one client alone. A rate reaches a client late, or not at all: then it obeys the one
before for a lease. So the highest rate counts that may have held in the last lease, and not the newest.
"""

from collections import deque
from typing import Final

EXCESS: Final = 0.1
"""Of its rate, beyond a message: a client that sends more than this ignores its rate."""

LEAST_S: Final = 1.0
"""A period of judgement lasts so long at least: messages on their way, and a sender that is woken late, are most of
what comes in less."""

PERIODS: Final = 3
"""For so many periods, one after the other."""

LEASE_PERIODS: Final = 4
"""Periods of judgement in the longest time for which an older rate may be obeyed: a lease, which is two periods of the
root and 2 s."""

CUT_PERIODS: Final = 10
"""For so many periods after it last ignored its rate, or used it up, a neighbour's link is held to it."""

CUT_USED: Final = 0.25
"""Of its rate: a client that is limited and sends this much has more to send. Over a long way credit brings less than
the rate."""


class Obedience:
    """`over`: periods in which it sent more than it was allowed, one after the other. `cut_periods`: those for which
    its link is still held to its rate. `received`: bytes a second in the last period."""

    __slots__ = ("_bytes", "_earlier", "_largest", "_most", "cut_periods", "over", "received")

    def __init__(self) -> None:
        self.over = 0
        self.cut_periods = 0
        self.received = 0.0
        self._bytes = 0
        self._largest = 0
        self._most = 0.0
        """The highest rate that it was sent in the present period, or had at its beginning; 0: it was never sent
        one."""
        self._earlier: deque[float] = deque(maxlen=LEASE_PERIODS)
        """The same of the periods before."""

    @property
    def ignoring(self) -> bool:
        return self.over >= PERIODS

    def took(self, size: int) -> None:
        """A message of it came in."""
        self._bytes += size
        self._largest = max(self._largest, size)

    def told(self, rate: float) -> None:
        """Records that it is sent that rate."""
        self._most = max(self._most, rate)

    def end_period(self, over_s: float, has: float) -> None:
        """Judges what was received in the last `over_s` seconds. `has`: the highest rate that it may have now."""
        self.received = self._bytes / over_s
        most = max(self._most, *self._earlier, 0.0)
        allowed = most * (1 + EXCESS) + self._largest / over_s
        self.over = self.over + 1 if most and self.received > allowed else 0
        wants_more = self.cut_periods > 0 and self.received >= CUT_USED * (self._earlier[-1] if self._earlier else 0.0)
        self.cut_periods = CUT_PERIODS if self.ignoring or wants_more else max(0, self.cut_periods - 1)
        self._bytes = 0
        self._earlier.append(self._most)
        self._most = has
