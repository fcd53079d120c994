"""The times of the event that is being handled."""

from dataclasses import dataclass


@dataclass(slots=True)
class Clock:
    """Times of this event: `now` in seconds on the driver's monotonic scale, `wall_ms` for people, `steady_ms` for time
    to live, which never goes back, also after a restart."""

    wall_ms: int
    steady_ms: int
    now: float = 0.0
