"""The measured cost of a link: the configured one, increased by delay, loss and backlog.

Rules of this file: pure; costs are whole millionths (ADR 0015), times are seconds on `now`'s scale. A cost that follows
the load moves the load, which changes the cost again. So a change is only advertised if it is large enough, and not
often.
"""

from typing import Final

from holdfast.routing.topology import DRAINED_MICRO, MICRO

LOSS_SHARE_MAX: Final = 0.9
"""A link that loses more costs no more than one that loses this much: it is about to be declared down."""

SMOOTHING: Final = 0.25
"""The weight of a new measurement."""

TOLD_RATIO: Final = 1.5
"""A cost is advertised only if it is this many times the last advertised one, or that share of it."""

HOLD_S: Final = 10.0
"""Seconds between two advertisements of a cost."""


def measured_cost(given: int, *, round_trip_s: float, loss_share: float, backlog_bytes: int, bandwidth_bps: int) -> int:
    """The cost in millionths that one measurement gives; never below `given`, the cost of the link at rest.

    Half of `round_trip_s` counts, for one direction. `loss_share` (0 to 1): lost data is sent again, so everything
    counts 1 / (1 - loss) times. `backlog_bytes` are sent before anything new; `bandwidth_bps` is their speed, 0 if not
    known.
    """
    there_ms = max(0.0, round_trip_s) * 1000 / 2
    backlog_ms = max(0, backlog_bytes) * 8_000 / bandwidth_bps if bandwidth_bps > 0 else 0.0
    lost = min(max(0.0, loss_share), LOSS_SHARE_MAX)
    found = (max(given / MICRO, there_ms) + backlog_ms) / (1 - lost)
    return min(max(given, round(found * MICRO)), DRAINED_MICRO - 1)


class MeasuredCost:
    """The measured cost of one direction of a link: smoothed, and advertised with hysteresis."""

    def __init__(self, given: int, *, bandwidth_bps: int = 0) -> None:
        self.given = given
        self.bandwidth_bps = bandwidth_bps
        self.cost = given
        """The last advertised cost."""
        self._smoothed = float(given)
        self._told_at: float | None = None

    def measured(self, now: float, round_trip_s: float, loss_share: float, backlog_bytes: int) -> int | None:
        """The new cost if it is to be advertised; None if the last one stays."""
        found = measured_cost(
            self.given,
            round_trip_s=round_trip_s,
            loss_share=loss_share,
            backlog_bytes=backlog_bytes,
            bandwidth_bps=self.bandwidth_bps,
        )
        self._smoothed += SMOOTHING * (found - self._smoothed)
        if self._told_at is not None and now - self._told_at < HOLD_S:
            return None
        cost = max(self.given, round(self._smoothed))
        low, high = sorted((cost, self.cost))
        if high <= low * TOLD_RATIO:
            return None
        self.cost = cost
        self._told_at = now
        return cost
