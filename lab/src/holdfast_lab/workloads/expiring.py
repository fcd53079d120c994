"""`expiring`: messages with a time to live; only those that expire in transit or in a queue are excused.

Rules of this file: a key is excused only when its time could have run out by its nodes' own clocks: a little before
its deadline counted from the offer, and earlier by as much as somebody has set clocks forward. What ends at a time of
the wall clock ends as soon as that was set; a time to live is counted by a clock that nobody sets, to which a start
adds what the wall clock was set forward since the node's last commit.
"""

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import ClassVar, Final

from holdfast.client import Header
from holdfast_lab.base.client_history import Violation
from holdfast_lab.workloads.bed import Bed
from holdfast_lab.workloads.publish import ProducerLog, Publish

CLOCKS_APART: Final = 0.02
"""A node's clock may run that much faster, as a fraction; whole milliseconds at each hop cost `ROUNDING_S`."""
ROUNDING_S: Final = 0.02
OVER: Final = "its time to live was over"


@dataclass(kw_only=True)
class Expiring(Publish):
    """As `publish`; the share `share` has a time to live of `ttl_min_s` to `ttl_max_s`, of these the share `by_clock`
    an absolute-expiry-time as far ahead of all its nodes' clocks."""

    kind: ClassVar[str] = "expiring"

    share: float = 0.7
    ttl_min_s: float = 0.05
    ttl_max_s: float = 5.0
    by_clock: float = 0.0
    name: str = "expiring"
    _ttls: dict[bytes, float] = field(default_factory=dict, init=False)
    _ends: dict[bytes, int] = field(default_factory=dict, init=False)
    """Wall times."""
    _deadlines: dict[bytes, float] = field(default_factory=dict, init=False)

    def start(self, bed: Bed) -> None:
        bed.history.on_clock.append(lambda: self._sweep(bed))
        super().start(bed)

    def new_log(self, bed: Bed, name: str) -> ProducerLog:
        random = bed.stream(f"{name}/ttl")
        log = super().new_log(bed, name)
        log.header = lambda number: self._header(bed, log.key(number), random)
        log.expires_at = lambda number: self._ends.get(log.key(number), 0)
        return log

    def _header(self, bed: Bed, key: bytes, random: Random) -> Header | None:
        """Drawn once; the deadline counts from the first time that it is sent."""
        ttl_s = self._ttls.get(key)
        if ttl_s is None:
            ttl_s = self._ttls[key] = (
                round(random.uniform(self.ttl_min_s, self.ttl_max_s), 3) if random.random() < self.share else 0.0
            )
            if ttl_s:
                self._deadlines[key] = bed.now() + max(0.0, ttl_s * (1.0 - CLOCKS_APART) - ROUNDING_S)
                if self.by_clock and random.random() < self.by_clock:
                    self._ends[key] = max(map(bed.wall_ms, bed.nodes)) + int(ttl_s * 1000)
                self._await_end(bed, key)
        if key in self._ends:
            return None
        return Header(ttl=int(ttl_s * 1000)) if ttl_s else None

    def _await_end(self, bed: Bed, key: bytes) -> None:
        """Excuses it once its time may be over."""
        history = bed.history
        ahead_s = history.clock_ahead_s if key in self._ends else history.counted_ahead_s
        left_s = self._deadlines[key] - bed.now() - ahead_s
        if left_s > 0.0:
            asyncio.get_running_loop().call_later(left_s, self._excuse, bed, key)
        else:
            self._excuse(bed, key)

    def _excuse(self, bed: Bed, key: bytes) -> None:
        if self._deadlines.pop(key, None) is not None and key not in bed.history.received:
            bed.history.excuse(key, OVER)

    def _sweep(self, bed: Bed) -> None:
        """Somebody set a clock forward: all ends sooner, also what has not ended with that."""
        for key in list(self._deadlines):
            self._await_end(bed, key)

    def check(self, bed: Bed) -> None:
        history = bed.history
        for log in self.logs:
            for number in range(1, self.messages + 1):
                key = log.key(number)
                if not self._ttls.get(key) and history.excused.get(key) == OVER:
                    raise Violation(f"{key.decode()} had no time to live, and was excused for it")

    def metrics(self) -> dict[str, float]:
        return {
            **super().metrics(),
            "with a time to live": sum(1 for ttl_s in self._ttls.values() if ttl_s),
            "with an end on the clock": len(self._ends),
        }
