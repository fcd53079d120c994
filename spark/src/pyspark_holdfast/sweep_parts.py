"""In which order and in which parts the runs of a sweep are made, and how long that takes.

Rules of this file: numbers alone; no clock. A part comes into the table at once, so what is lost where a sweep is ended
is one part. The longest runs are first: nothing long is left for the end, when most cores have nothing to do.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from holdfast.columns import counted
from pyspark_holdfast.sweep_file import Wanted

PART_RUNS: Final = 50
PART_S: Final = 60.0
"""A part has so many runs at most, or takes about so long."""

RUN_S: Final = 1.0
"""As which a run counts of which the file does not say how long it takes."""


def cost_s(one: Wanted) -> float:
    return one.run_s or RUN_S


def parts(wanted: Sequence[Wanted], slots: int) -> Iterator[list[Wanted]]:
    """`slots`: how many run at once."""
    part: list[Wanted] = []
    seconds = 0.0
    for one in sorted(wanted, key=cost_s, reverse=True):
        if part and (len(part) >= PART_RUNS or seconds >= PART_S * slots):
            yield part
            part, seconds = [], 0.0
        part.append(one)
        seconds += cost_s(one)
    if part:
        yield part


class Forecast:
    """How long is left, by what the file says that runs take, and how long those took that were made."""

    def __init__(self, wanted: Sequence[Wanted], slots: int) -> None:
        self._is_known = all(one.run_s for one in wanted)
        self._left_s = sum(map(cost_s, wanted)) / max(1, min(slots, len(wanted)))
        self._made_s = 0.0

    def made(self, part: Sequence[Wanted], slots: int) -> None:
        seconds = sum(map(cost_s, part)) / max(1, slots)
        self._made_s += seconds
        self._left_s = max(0.0, self._left_s - seconds)

    def left_s(self, passed_s: float) -> float | None:
        """`passed_s`: since the first run began. None while nothing is known."""
        if self._made_s:
            return self._left_s * passed_s / self._made_s
        return self._left_s if self._is_known else None


def told(seconds: float | None) -> str:
    """`, about 25 minutes left`; nothing where it is not known."""
    if seconds is None:
        return ""
    if seconds < 90:
        return f", about {counted(max(1, round(seconds)), 'second')} left"
    return f", about {counted(round(seconds / 60), 'minute')} left"
