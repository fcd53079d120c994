"""The times that an event is handled at."""

from dataclasses import dataclass


@dataclass(slots=True)
class Clock:
    """Times of this event: `now` in seconds on the driver's monotonic scale, `wall_ms` for people, `steady_ms` for time
    to live; it never goes back, over restarts too."""

    wall_ms: int
    steady_ms: int
    now: float = 0.0
