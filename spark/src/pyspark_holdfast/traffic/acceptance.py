"""The acceptance table: what the runs of the paper's experiment must give, by the mean of many and in each.

Rules of this file: the bounds are data, worked out beforehand from the paper and from two independent models (docs/adr/
0074-pacing.md); nothing here is fitted to what this model gives. A mean is judged of SEEDS_FOR_MEANS runs or more.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any, Final

from pyspark_holdfast.traffic.runs import Run, grouped

SEEDS_FOR_MEANS: Final = 20

Range = tuple[float, float]

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


def _values(runs: Sequence[Run], metric: str) -> tuple[float, ...]:
    return tuple(run.metrics[metric] for run in runs)


def of_fixed(runs: Sequence[Run]) -> list[Check]:
    """The paper's network without control (§4.4, figure 9)."""
    others = tuple(run.metrics["overflowed.client1"] + run.metrics["overflowed.client3"] for run in runs)
    return [
        Check(
            "fixed, overflow of client 2", "8,800 ± 165", (8_650, 8_950), (8_150, 9_450),
            _values(runs, "overflowed.client2"),
        ),
        Check("fixed, overflow of clients 1 and 3", "0", (0, 0), (0, 0), others),
        Check(
            "fixed, overflow outside the burst", "0", (0, 0), (0, 0), _values(runs, "overflowed_outside_burst")
        ),
    ]  # fmt: skip


def of_weights(runs: Sequence[Run]) -> list[Check]:
    """The paper's control (§4.4, figures 9, 10 and 12)."""
    peaks = (("1", 34, 3, (28, 42)), ("2", 56, 4, (46, 72)), ("3", 35, 3, (28, 44)))
    return [
        Check("weights, overflow", "0", (0, 0), (0, 0), _values(runs, "overflowed_total")),
        *(
            Check(
                f"weights, peak of client {name}", f"{peak} of 200", (peak - by, peak + by), each,
                _values(runs, f"peak_messages.client{name}"),
            )
            for name, peak, by, each in peaks
        ),
        Check("weights, peak of the root", "27 of 800", (25, 33), (0, 40), _values(runs, "root_peak_messages")),
    ]  # fmt: skip


def of_all(runs: Sequence[Run]) -> Check:
    """All clients burst at once, which no control can absorb without the root's space."""
    what = f"all at 13.3/s, {runs[0].policy}, overflow"
    values = _values(runs, "overflowed_total")
    return Check(what, "26,380 ± 310", (26_100, 26_700), (25_100, 27_700), values)


def of_bursts(runs: Iterable[Run]) -> list[Check]:
    """One line for each policy and rate of which something is expected."""
    checks = []
    for (name, burst), group in grouped(runs, lambda run: (run.policy, run.burst)).items():
        what = f"{name}, burst at {burst:g}/s"
        sizes, shares = _values(group, "burst_messages"), _values(group, "share_of_limit")
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
