"""The clocks of a node: a monotonic one with its own drift, and a wall clock that may jump.

Rules of this file: arithmetic only.
"""

from typing import Final

WALL_START_MS: Final = 1_700_000_000_000


class SimClock:
    """`drift`: how much faster than the world's it runs, as a fraction (0.0001 is 100 ppm)."""

    __slots__ = ("drift", "offset_s", "step_ms")

    def __init__(self, *, offset_s: float = 0.0) -> None:
        self.drift = 0.0
        self.offset_s = offset_s
        self.step_ms = 0

    def monotonic(self, now: float) -> float:
        """The node's monotonic seconds at the world's `now`."""
        return self.offset_s + now * (1.0 + self.drift)

    def world(self, monotonic: float) -> float:
        """The world's time at which the node's monotonic clock says that."""
        return (monotonic - self.offset_s) / (1.0 + self.drift)

    def wall_ms(self, now: float) -> int:
        """The node's wall time in milliseconds since the epoch."""
        return WALL_START_MS + int(self.monotonic(now) * 1000) + self.step_ms

    def step(self, seconds: float) -> None:
        """Sets the wall clock forward or back."""
        self.step_ms += int(seconds * 1000)
