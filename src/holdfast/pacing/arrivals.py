"""How fast messages arrive: a mean over 20 s that begins anew when the rate has changed.

Rules of this file: no clock; times are seconds on `now`'s scale and never go back. A call costs as much as time has
passed, BINS at most. The detector is a Poisson CUSUM on both sides (Page 1954): for a rate that doubled, and for one
that halved.
"""

from collections import deque
from math import log, sqrt
from typing import Final

BIN_S: Final = 0.1
WINDOW_S: Final = 20.0
BINS: Final = 200

THRESHOLD: Final = 6.0
"""Of the log-likelihood ratio: at a steady rate of 5 a second it is crossed every few minutes."""

KNOWN_AFTER_S: Final = 1.0
"""How long arrivals are watched before they are an estimate."""

NOTHING: Final = (0, 0.0, 0.0)

_DOUBLED: Final = log(2.0)


class Arrivals:
    """Arrivals at one client. What was refused counts too: it would have used the rate."""

    def __init__(self, now: float) -> None:
        self.changes = 0
        """How often the mean began anew because the rate had changed."""
        self._began = now
        """Since when the mean is taken."""
        self._bin_ends = now + BIN_S
        self._bins: deque[tuple[int, float, float]] = deque(maxlen=BINS)
        """Closed bins, oldest first: messages, bytes, squares of bytes."""
        self._messages = 0
        self._bytes = 0.0
        self._squares = 0.0
        """Of the bin that is open."""
        self._sum_messages = 0
        self._sum_bytes = 0.0
        self._sum_squares = 0.0
        """Of the closed bins."""
        self._size = 0.0
        """Of the last message."""
        self._up = 0.0
        self._up_bins = 0
        self._down = 0.0
        self._down_bins = 0
        """The two sums, and for how many bins each has been above zero."""

    def add(self, now: float, size: int, messages: int = 1) -> None:
        """`messages` of `size` bytes each arrived, whether taken or refused."""
        if now >= self._bin_ends:
            self.advance(now)
        self._messages += messages
        self._bytes += size * messages
        self._squares += size * size * messages
        self._size = size

    def advance(self, now: float) -> None:
        """Closes the bins that are over."""
        passed = int((now - self._bin_ends) / BIN_S) + 1 if now >= self._bin_ends else 0
        if passed > BINS:  # nothing for longer than the window: all of it is forgotten
            if self._sum_messages or self._messages:
                self.changes += 1
            self._forget(BINS)
            self._messages, self._bytes, self._squares = 0, 0.0, 0.0
            self._bins.extend([NOTHING] * BINS)
            self._bin_ends += passed * BIN_S
            self._began = self._bin_ends - BIN_S - WINDOW_S
            return
        for _ in range(passed):
            self._close()

    def _close(self) -> None:
        if len(self._bins) == BINS:
            messages, size, square = self._bins[0]
            self._sum_messages -= messages
            self._sum_bytes -= size
            self._sum_squares -= square
            self._began += BIN_S
        mean = max(self._sum_messages / max(1, len(self._bins)), BIN_S / WINDOW_S)
        seen = self._messages
        self._bin_ends += BIN_S
        if seen:
            self._bins.append((seen, self._bytes, self._squares))
            self._sum_messages += seen
            self._sum_bytes += self._bytes
            self._sum_squares += self._squares
            self._messages, self._bytes, self._squares = 0, 0.0, 0.0
        else:
            self._bins.append(NOTHING)
        if len(self._bins) * BIN_S < KNOWN_AFTER_S:
            return
        up = self._up + seen * _DOUBLED - mean
        down = self._down - seen * _DOUBLED + mean / 2
        self._up, self._up_bins = (up, self._up_bins + 1) if up > 0 else (0.0, 0)
        self._down, self._down_bins = (down, self._down_bins + 1) if down > 0 else (0.0, 0)
        if up > THRESHOLD or down > THRESHOLD:
            kept = self._up_bins if up > THRESHOLD else self._down_bins
            self._forget(len(self._bins) - min(kept, len(self._bins)))
            self.changes += 1

    def _forget(self, bins: int) -> None:
        """Drops the oldest: the mean begins where the rate changed."""
        for _ in range(min(bins, len(self._bins))):
            self._bins.popleft()
            self._began += BIN_S
        self._sum_messages = sum(messages for messages, _, _ in self._bins)
        self._sum_bytes = sum(size for _, size, _ in self._bins)
        self._sum_squares = sum(square for _, _, square in self._bins)
        self._up = self._down = 0.0
        self._up_bins = self._down_bins = 0

    def estimate(self, now: float) -> tuple[float, float] | None:
        """Bytes a second, and the standard deviation of that; None while they are not known yet.

        Sizes count: the variance of a sum of n messages of random size is the sum of their squares.
        """
        self.advance(now)
        if not self.changes and now - self._began < KNOWN_AFTER_S:
            return None
        over_s = max(now - self._began, BIN_S)
        squares = self._sum_squares + self._squares
        if not squares:
            squares = self._size * self._size  # none was seen: at most about one was due
        return (self._sum_bytes + self._bytes) / over_s, sqrt(max(0.0, squares)) / over_s
