"""Claims that wait to be passed on: that somebody has a higher stamp of a set than its origin may know of.

Rules of this file: of several for one set the highest is kept; one is passed on in CLAIM_GAP_S. Source: docs/adr/0079.
"""

from collections.abc import Callable, Iterator
from typing import Final

from holdfast.federation.messages import TRACE_MAX
from holdfast.federation.sets import Edition, Key

CLAIM_GAP_S: Final = 0.5
"""Seconds between two claims for one set."""

_LONG_AGO: Final = float("-inf")


class Claims:
    """The claims at the node `name`, which passes each claim on only once."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._waiting: dict[Key, tuple[Edition, tuple[str, ...]]] = {}
        self._passed_at: dict[Key, float] = {}

    def add(self, key: Key, has: Edition, trace: tuple[str, ...]) -> None:
        known = self._waiting.get(key)
        if self._name not in trace and len(trace) < TRACE_MAX and (known is None or known[0].stamp < has.stamp):
            self._waiting[key] = has, trace

    def take(self, now: float) -> Iterator[tuple[Key, Edition, tuple[str, ...]]]:
        """The claims that may be passed on now. A caller that passes one on calls `passed`."""
        for key, (has, trace) in list(self._waiting.items()):
            if now >= self._passed_at.get(key, _LONG_AGO) + CLAIM_GAP_S:
                del self._waiting[key]
                yield key, has, trace

    def passed(self, key: Key, now: float) -> None:
        self._passed_at[key] = now

    def next_deadlines(self) -> Iterator[float]:
        return (self._passed_at.get(key, _LONG_AGO) + CLAIM_GAP_S for key in self._waiting)

    def clear(self) -> None:
        self._waiting.clear()

    def forget(self, is_there: Callable[[Key], bool]) -> None:
        """Forgets when claims were passed on, for all sets that do not exist."""
        for key in [key for key in self._passed_at if not is_there(key)]:
            del self._passed_at[key]
