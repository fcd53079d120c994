"""How often reports go out and by what they go out at once; both sides know it (docs/adr/0074-pacing.md).

Rules of this file: numbers alone.
"""

from typing import Final

REPORT_S: Final = 1.0
"""Reports are sent at least as often as this, and twice in each period of the root."""

TRIGGER_GAP_S: Final = 0.2
"""Between two reports that do not wait for their time."""

USED_CHANGE: Final = 0.02
"""Of the capacity: a queue that moved by this much is reported at once."""

ARRIVALS_CHANGE: Final = 0.2
"""Of what was reported: arrivals that changed by this much are reported at once."""


def period_of(valid_ms: int) -> float:
    """The root's period, by the length of its leases."""
    return max(0.0, (valid_ms / 1000 - 2.0) / 2)


def valid_ms_of(period_s: float) -> int:
    """The length of a lease: two periods, and what a report may be late."""
    return int((2 * period_s + 2.0) * 1000)
