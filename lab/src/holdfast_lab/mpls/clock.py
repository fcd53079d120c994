"""Events in virtual time: what is to be called when.

Rules of this file: equal times in the order in which they were asked for, so that one input gives one history. Nothing
is taken back: who no longer wants a call ignores it.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final

NEVER: Final = float("inf")


class Clock:
    """`now` is the time of the call that is being made, in seconds from the start."""

    __slots__ = ("_calls", "_order", "_stopped", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self._calls: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._order = 0
        self._stopped = False

    def at(self, when: float, call: Callable[[Any], None], argument: Any = None) -> None:
        """`call(argument)` at `when`, which is not before now."""
        self._order = order = self._order + 1
        heappush(self._calls, (when, order, call, argument))

    def stop(self) -> None:
        """No call after the one that is being made."""
        self._stopped = True

    def run(self, until: float) -> None:
        """Makes all calls up to `until`, that time included, unless one of them stops it; then it is `until`."""
        calls, pop = self._calls, heappop
        while calls and not self._stopped:
            when, _, call, argument = pop(calls)
            if when > until:
                heappush(calls, (when, 0, call, argument))
                break
            self.now = when
            call(argument)
        if not self._stopped:
            self.now = max(self.now, until)
