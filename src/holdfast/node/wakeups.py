"""The one timer of the driver: it wakes the core at its next deadline.

Rules of this file: a deadline that moves away costs one early wake-up, not a new timer in each turn.
"""

import asyncio
import math
import time
from collections.abc import Callable
from typing import Final

TIMER_MIN_S: Final = 0.001
"""Resolution of the loop's timers."""


class WakeUps:
    """`next_deadline`: of the core, None once nothing is to wake it; `fire`: its deadline is over; `failed`: the core
    could not compute its deadline."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        next_deadline: Callable[[], float | None],
        fire: Callable[[], None],
        failed: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._next_deadline = next_deadline
        self._fire = fire
        self._failed = failed
        self._timer: asyncio.Handle | None = None
        self._at = math.inf

    def look(self) -> None:
        """Sets the timer if the deadline is sooner than what it is set to."""
        deadline = self._next_deadline()
        if deadline is not None and deadline < self._at:
            self._arm(deadline)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._at = deadline
        left_s = deadline - time.monotonic()
        if left_s > 0:
            self._timer = self._loop.call_later(max(TIMER_MIN_S, left_s), self._fired)
        else:  # The core has more to do; sockets are read in between.
            self._timer = self._loop.call_soon(self._fired)

    def _fired(self) -> None:
        self._timer = None
        self._at = math.inf
        try:
            deadline = self._next_deadline()
        except Exception:
            self._failed("the next deadline")
            return
        if deadline is not None and deadline > time.monotonic():
            self._arm(deadline)
        elif deadline is not None:
            self._fire()
