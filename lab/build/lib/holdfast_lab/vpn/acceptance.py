"""The acceptance table: what the runs of the paper's experiment must give, by the mean of many and in each.

Rules of this file: the bounds are data, worked out beforehand from the paper and from two independent models (docs/adr/
0074-pacing.md); nothing here is fitted to what this model gives. A mean is judged of SEEDS_FOR_MEANS runs or more.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any, Final

from holdfast_lab.vpn.measures import Burst, Outcome

SEEDS_FOR_MEANS: Final = 20

Range = tuple[float, float]

ALL_FROM: Final = (1, 2, 3)
"""All patterns burst at once."""

SIZES: Final = (18.0, 20.0, 30.0, 50.0, 100.0)
"""Messages a second of the bursts whose size is sought."""

FIXED_SIZES: Final = {20.0: 344, 30.0: 278, 50.0: 240, 100.0: 218}
WEIGHTS_SIZES: Final = {
    20.0: (1_365, 0.12, 0.45),
    30.0: (556, 0.07, 0.25),
    50.0: (331, 0.05, 0.17),
    100.0: (222, 0.03, 0.09),
}
"""Messages; how far the mean, and each run, may be from them."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the table. `values`: one for each run."""

    what: str
    expected: str
    of_mean: Range
    of_each: Range
    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return mean(self.values)

    @property
    def deviation(self) -> float:
        return stdev(self.values) if len(self.values) > 1 else 0.0

    @property
    def each_holds(self) -> bool:
        return all(self.of_each[0] <= value <= self.of_each[1] for value in self.values)

    @property
    def mean_holds(self) -> bool | None:
        """None where there are too few runs to say."""
        if len(self.values) < SEEDS_FOR_MEANS:
            return None
        return self.of_mean[0] <= self.mean <= self.of_mean[1]

    @property
    def holds(self) -> bool:
        return self.each_holds and self.mean_holds is not False

    def as_json(self) -> dict[str, Any]:
        return {
            "what": self.what, "expected": self.expected, "mean": self.mean, "deviation": self.deviation,
            "least": min(self.values), "most": max(self.values), "n": len(self.values),
            "of_mean": list(self.of_mean), "of_each": list(self.of_each), "holds": self.holds,
        }  # fmt: skip


def _around(value: float, mean_by: float, each_by: float) -> tuple[Range, Range]:
    return (value - mean_by, value + mean_by), (value - each_by, value + each_by)


def of_fixed(outcomes: Sequence[Outcome]) -> list[Check]:
    """The paper's network without control (§4.4, figure 9)."""
    return [
        Check(
            "fixed, overflow of client 2", "8,800 ± 165", (8_650, 8_950), (8_150, 9_450),
            tuple(one.overflowed[1] for one in outcomes),
        ),
        Check(
            "fixed, overflow of clients 1 and 3", "0", (0, 0), (0, 0),
            tuple(one.overflowed[0] + one.overflowed[2] for one in outcomes),
        ),
        Check(
            "fixed, overflow outside the burst", "0", (0, 0), (0, 0), tuple(one.outside for one in outcomes)
        ),
    ]  # fmt: skip


def of_weights(outcomes: Sequence[Outcome]) -> list[Check]:
    """The paper's control (§4.4, figures 9, 10 and 12)."""
    peaks = (("1", 34, 3, (28, 42)), ("2", 56, 4, (46, 72)), ("3", 35, 3, (28, 44)))
    return [
        Check("weights, overflow", "0", (0, 0), (0, 0), tuple(one.total for one in outcomes)),
        *(
            Check(
                f"weights, peak of client {name}", f"{peak} of 200", (peak - by, peak + by), each,
                tuple(one.peaks[place] for one in outcomes),
            )
            for place, (name, peak, by, each) in enumerate(peaks)
        ),
        Check("weights, peak of the root", "27 of 800", (25, 33), (0, 40), tuple(one.root_peak for one in outcomes)),
    ]  # fmt: skip


def of_all(outcomes: Sequence[Outcome]) -> Check:
    """All clients burst at once, which no control can absorb without the root's space."""
    values = tuple(float(one.total) for one in outcomes)
    what = f"all at 13.3/s, {outcomes[0].name}, overflow"
    return Check(what, "26,380 ± 310", (26_100, 26_700), (25_100, 27_700), values)


def of_bursts(bursts: Iterable[Burst]) -> list[Check]:
    """One line for each policy and rate of which something is expected."""
    by: dict[tuple[str, float], list[Burst]] = {}
    for one in bursts:
        by.setdefault((one.name, one.burst), []).append(one)
    checks = []
    for (name, burst), runs in by.items():
        what = f"{name}, burst at {burst:g}/s"
        sizes = tuple(float(one.size) for one in runs)
        shares = tuple(one.share for one in runs)
        if name == "fixed" and burst in FIXED_SIZES:
            size = FIXED_SIZES[burst]
            checks.append(Check(what, f"{size}", *_around(size, 0.03 * size, 0.15 * size), sizes))
        elif name == "weights" and burst in WEIGHTS_SIZES:
            size, by_mean, by_each = WEIGHTS_SIZES[burst]
            checks.append(Check(what, f"{size:,}", *_around(size, by_mean * size, by_each * size), sizes))
        elif name == "level 0":
            low, each = (0.88, 0.75) if burst == 30 else (0.93, 0.85)
            checks.append(Check(f"{what}, of the limit", f"{low} or more", (low, 1), (each, 1), shares))
        elif name == "level 1":
            low = 0.94 if burst == 100 else 0.95
            checks.append(Check(f"{what}, of the limit", f"{low} or more", (low, 1), (0.88, 1), shares))
    return checks
