"""The duration of turns: a histogram of their processor time, and the events of the longest one.

Rules of this file: it counts what the driver measured (events.TurnEnded); never reads a clock. A turn delays everything
else in the node: the goal is that none takes more than LONG_S, except one that hands over a commit.
"""

from typing import Any, Final

from holdfast.amqp.wire.types import Ulong
from holdfast.engine.outbox import Outbox

FIRST_S: Final = 0.0001
"""The first bucket's upper end; each of the others is twice as wide as all before it."""
BUCKETS: Final = (
    "to_0_1_ms", "to_0_2_ms", "to_0_4_ms", "to_0_8_ms", "to_1_6_ms", "to_3_2_ms", "to_6_4_ms", "to_12_8_ms",
    "to_25_6_ms", "to_51_2_ms", "to_102_4_ms", "to_204_8_ms", "longer",
)  # fmt: skip
LAST: Final = len(BUCKETS) - 1
LONG_S: Final = 0.02


class TurnTimes:
    """Processor time of turns, counted since the node's start and since the last record of telemetry."""

    def __init__(self) -> None:
        self.counts = [0] * len(BUCKETS)
        self.long = 0
        """Turns above LONG_S."""
        self.cpu_s = 0.0
        self.longest_s = 0.0
        self.longest_kinds: tuple[str, ...] = ()
        self.longest_at = 0.0
        """When that turn ended, on the scale of the core's `now`."""
        self._told = [0] * len(BUCKETS)
        self._told_cpu_s = 0.0
        self._longest_s = 0.0
        self._longest_kinds: tuple[str, ...] = ()

    def note(self, cpu_s: float, kinds: tuple[str, ...], now: float) -> None:
        """Counts a turn with that processor time; `kinds`: its events."""
        place = int(cpu_s / FIRST_S).bit_length()
        self.counts[place if place < LAST else LAST] += 1
        self.cpu_s += cpu_s
        if cpu_s > LONG_S:
            self.long += 1
        if cpu_s > self._longest_s:
            self._longest_s, self._longest_kinds = cpu_s, kinds
            if cpu_s > self.longest_s:
                self.longest_s, self.longest_kinds, self.longest_at = cpu_s, kinds, now

    def tell(self, outbox: Outbox) -> None:
        """Writes the telemetry record of the interval that ends; none if the driver does not measure."""
        counts = [count - told for count, told in zip(self.counts, self._told, strict=True)]
        if not any(counts):
            return
        outbox.record(
            "turns",
            {
                "turns": sum(counts),
                "cpu_s": round(self.cpu_s - self._told_cpu_s, 6),
                "longest_s": round(self._longest_s, 6),
                "longest_kinds": " ".join(self._longest_kinds),
                **dict(zip(BUCKETS, counts, strict=True)),
            },
        )
        self._told = self.counts.copy()
        self._told_cpu_s = self.cpu_s
        self._longest_s, self._longest_kinds = 0.0, ()

    def status(self, now: float) -> dict[str, Any]:
        """The fields of `status`."""
        turns = sum(self.counts)
        return {
            "turns": Ulong(turns),
            "cpu_s": round(self.cpu_s, 3),
            "longest_s": round(self.longest_s, 6),
            "longest_kinds": " ".join(self.longest_kinds),
            "longest_ago_s": round(now - self.longest_at, 1) if turns else None,
            "above_20_ms": Ulong(self.long),
            "histogram": {name: Ulong(count) for name, count in zip(BUCKETS, self.counts, strict=True)},
        }
