"""How long commits take, counted.

Rules of this file: it counts, and reads no clock.
"""

from bisect import bisect_left
from typing import Final

BOUNDS_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""The upper ends of the buckets, in seconds."""


class CommitTimes:
    """A histogram: `counts` of each bucket, and of what took longer; `seconds`: of all together."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.seconds = 0.0

    def note(self, seconds: float) -> None:
        """Counts a commit."""
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.seconds += seconds
