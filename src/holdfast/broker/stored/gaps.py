"""How long each gap in an origin's numbers has been waited for (CUSTODY, end to end 4).

Rules of this file: pure state; the caller passes elapsed time. A new gap is always above all earlier ones, so a higher
gap has never waited longer than a lower one, and a few clocks are enough for all of them.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Final

CLOCKS_MAX: Final = 256
"""Clocks kept for one origin. Gaps that appear within one tick share a clock; beyond the bound the two adjacent clocks
whose times differ least are merged, and the older gap waits a little longer."""


class GapClocks:
    """Clocks by the highest missing number that each covers, ascending; times never grow with the number."""

    __slots__ = ("_lasts", "_oldest", "_waited")

    def __init__(self, clocks: Iterable[tuple[int, float]] = ()) -> None:
        self._lasts: list[int] = []
        self._waited: list[float] = []
        for last, waited_s in clocks:
            self._lasts.append(last)
            self._waited.append(waited_s)
        self._oldest = self._waited.copy()
        """How long the oldest gap of each clock has really waited, as far as this run knows."""

    def __iter__(self) -> Iterator[tuple[int, float]]:
        return iter(zip(self._lasts, self._waited, strict=True))

    def __len__(self) -> int:
        return len(self._lasts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GapClocks) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"GapClocks({list(self)})"

    def copy(self) -> "GapClocks":
        twin = GapClocks(self)
        twin._oldest = self._oldest.copy()
        return twin

    @property
    def longest_s(self) -> float:
        """How long the oldest gap has been waited for; 0 without a gap."""
        return max(0.0, self._waited[0]) if self._waited else 0.0

    def begin(self, missing: int, waited_s: float = 0.0) -> None:
        """A message waits for `missing`, and perhaps for lower numbers; a gap that has a clock keeps it. `waited_s`:
        the initial value of a new clock, negative if part of the next tick was before.
        """
        lasts, waited = self._lasts, self._waited
        if lasts and missing <= lasts[-1]:
            return
        if waited and (waited[-1] <= 0.0 or waited[-1] <= waited_s):
            lasts[-1] = missing
            waited[-1] = min(waited[-1], waited_s)
            return
        lasts.append(missing)
        waited.append(waited_s)
        self._oldest.append(waited_s)
        if len(lasts) > CLOCKS_MAX:
            self._join_nearest()

    def _join_nearest(self) -> None:
        """Merges the two clocks whose times differ the least, so that no gap loses time again and again."""
        waited, oldest = self._waited, self._oldest
        nearest = min(range(len(waited) - 1), key=lambda at: (oldest[at] - waited[at + 1]) / oldest[at])
        del self._lasts[nearest], waited[nearest], oldest[nearest + 1]

    def waited_s(self, missing: int) -> float:
        """How long the gap with that number has been waited for; 0 if nothing waits for it."""
        at = bisect_left(self._lasts, missing)
        return max(0.0, self._waited[at]) if at < len(self._lasts) else 0.0

    def pass_time(self, seconds: float) -> None:
        self._waited = [waited + seconds for waited in self._waited]
        self._oldest = [oldest + seconds for oldest in self._oldest]

    def drop_below(self, bound: int) -> None:
        """Removes the clocks of gaps below `bound`, which are closed."""
        at = bisect_left(self._lasts, bound)
        del self._lasts[:at], self._waited[:at], self._oldest[:at]
