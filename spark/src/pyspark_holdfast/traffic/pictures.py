"""Figures 8 to 12 of the traffic paper, from a table of runs, and the sizes of bursts beside their limit, as one PNG.

Rules of this file: pure drawing of what runs gave, with the paper's axes and units; matplotlib (Agg, no display) is
imported when one is drawn.
"""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import ConfigError
from pyspark_holdfast.traffic.runs import Run, in_grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK: Final = "#222222"
COLOURS: Final = {
    "fixed": "#767676",
    "weights": "#c2571a",
    "backlog": "#8a6d3b",
    "overflow": "#7a4fa3",
    "level 0": "#2f6db3",
    "level 1": "#2b8a57",
}
DRAWN: Final = ("fixed", "weights", "level 0", "level 1")
"""In figures 10 and 12."""

COUNTED_S: Final = 60
"""Figure 8 counts messages over this; figure 12 takes a moving average of this width (§4.4)."""

SIZE: Final = 5_000
CLIENT_MESSAGES: Final = 200
ROOT_MESSAGES: Final = 800
RATE: Final = 25.0
"""The paper's (§4.2): bytes of a message, messages of a queue, messages a second."""

BITS: Final = SIZE * 8


def draw(runs: Sequence[Run], report: dict[str, Any], path: Path) -> None:
    """Of the grid `paper` the runs of the lowest seed that has series. Raises ConfigError where there are none."""
    paper = [run for run in in_grid(runs, "paper") if run.series]
    if not paper:
        raise ConfigError("the table has no series of the grid paper; sweep it with series_s, or leave out --picture")
    seed = min(run.seed for run in paper)
    by = {run.policy: run for run in paper if run.seed == seed}
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(3, 2, figsize=(12, 11), layout="constrained")
    try:
        _figure_8(axes[0][0], next(iter(by.values())))
        _figure_9(axes[0][1], by)
        _figure_10(axes[1][0], by)
        _figure_11(axes[1][1], by)
        _figure_12(axes[2][0], by)
        _sizes(axes[2][1], report)
        figure.savefig(path, dpi=100)
    finally:
        pyplot.close(figure)


def _ends(run: Run, name: str) -> list[int]:
    """When each value of a series is of."""
    return [run.step_s * place for place in range(1, len(run.series[name]) + 1)]


def _titled(axes: "Axes", title: str, unit: str, below: str = "seconds") -> None:
    axes.set_title(title, loc="left", color=INK, fontsize=10)
    axes.set_xlabel(below)
    axes.set_ylabel(unit)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=8)


def _figure_8(axes: "Axes", run: Run) -> None:
    by = max(1, COUNTED_S // run.step_s)
    for client, colour in enumerate(("#2f6db3", "#c2571a", "#2b8a57"), 1):
        totals = [0.0, *run.series[f"generated{client}"][by - 1 :: by]]
        counts = [after - before for before, after in pairwise(totals)]
        axes.step(
            [place * by * run.step_s for place in range(len(counts))],
            [count * BITS / (by * run.step_s) for count in counts],
            where="post", color=colour, linewidth=1, label=f"client {client}",
        )  # fmt: skip
    _titled(axes, f"Figure 8: generated, by the minute (one run, seed {run.seed})", "bps")


def _figure_9(axes: "Axes", by: dict[str, Run]) -> None:
    for name, run in by.items():
        axes.plot(_ends(run, "overflowed"), run.series["overflowed"], color=_colour(name), label=name)
    _titled(axes, "Figure 9: overflowed messages, cumulative, all clients", "messages")


def _colour(name: str) -> str:
    return COLOURS.get(name, INK)


def _figure_10(axes: "Axes", by: dict[str, Run]) -> None:
    for name, run in by.items():
        if name in DRAWN:
            sizes = [queue * SIZE for queue in run.series["queue2"]]
            axes.plot(_ends(run, "queue2"), sizes, color=_colour(name), linewidth=0.8, label=name)
    axes.axhline(CLIENT_MESSAGES * SIZE, color=INK, linewidth=0.8, linestyle="--")
    _titled(axes, "Figure 10: size of client 2's queue", "bytes")


def _figure_11(axes: "Axes", by: dict[str, Run]) -> None:
    for name in ("weights", "level 0"):
        if name in by:
            rates = [rate * BITS for rate in by[name].series["rate2"]]
            axes.plot(_ends(by[name], "rate2"), rates, color=_colour(name), linewidth=0.8, label=name)
    axes.axhline(RATE / 3 * BITS, color=INK, linewidth=0.8, linestyle="--", label="R/3")
    _titled(axes, "Figure 11: rate of client 2", "bps")
    axes.set_ylim(0, 1.05 * RATE * BITS)


def _figure_12(axes: "Axes", by: dict[str, Run]) -> None:
    for name, run in by.items():
        if name in DRAWN:
            sizes = [size * SIZE for size in run.series["root"]]
            averages = moving_average(sizes, max(1, COUNTED_S // run.step_s))
            axes.plot(_ends(run, "root"), averages, color=_colour(name), linewidth=1, label=name)
    _titled(axes, f"Figure 12: size of the root's queue, moving average of 60 s (of {ROOT_MESSAGES * SIZE:,})", "bytes")


def moving_average(values: Sequence[float], width: int) -> list[float]:
    """Of each value the mean of the last `width`, of fewer at the beginning."""
    averages, total = [], 0.0
    for place, value in enumerate(values):
        total += value
        if place >= width:
            total -= values[place - width]
        averages.append(total / min(place + 1, width))
    return averages


def _sizes(axes: "Axes", report: dict[str, Any]) -> None:
    bursts = [row["burst"] for row in report["limits"]]
    for key, what in (("rate", "limit, sum of rates at most R"), ("whole", "limit, with the root's space")):
        axes.plot(bursts, [row[key]["mean"] for row in report["limits"]], color=INK, linewidth=1,
                  linestyle="--" if key == "rate" else ":", label=what)  # fmt: skip
    counts = set()
    for name, colour in COLOURS.items():
        of = sorted((row["burst"], row["size"]["mean"], row["size"]["deviation"], row["n"])
                    for row in report["bursts"] if row["policy"] == name)  # fmt: skip
        if not of:
            continue
        at, sizes, deviations, ns = zip(*of, strict=True)
        counts |= set(ns)
        axes.errorbar(at, sizes, deviations, color=colour, linewidth=1, marker="o", markersize=3, capsize=2, label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(top=100_000)  # room for the legend
    runs = " to ".join(str(count) for count in sorted({min(counts), max(counts)})) if counts else "0"
    title = f"Size of a burst at the first overflow; n = {runs}, ± one run's deviation"
    axes.set_title(title, loc="left", color=INK, fontsize=10)
    axes.set_xlabel("messages a second in the burst")
    axes.set_ylabel("messages")
    axes.set_xticks(bursts, [f"{burst:g}" for burst in bursts])
    axes.minorticks_off()
    axes.legend(frameon=False, fontsize=8, ncols=2)
