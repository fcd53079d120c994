"""Figures 8 to 12 of the traffic paper, from our runs, and the sizes of bursts beside their limit, as one PNG.

Rules of this file: pure drawing of what runs gave, with the paper's axes and units; matplotlib (Agg, no display) is
imported when one is drawn.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast_lab.vpn.arriving import times
from holdfast_lab.vpn.measures import Series
from holdfast_lab.vpn.parameters import CLIENT_MESSAGES, RATE, ROOT_MESSAGES, SIZE, Experiment

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

BITS: Final = SIZE * 8


def draw(series: Sequence[Series], report: dict[str, Any], seed: int, path: Path) -> None:
    """`series`: one run of each policy, with this seed. `report`: of campaign.accept."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    by = {one.name: one for one in series}
    figure, axes = pyplot.subplots(3, 2, figsize=(12, 11), layout="constrained")
    try:
        _figure_8(axes[0][0], Experiment(seed=seed))
        _figure_9(axes[0][1], by)
        _figure_10(axes[1][0], by)
        _figure_11(axes[1][1], by)
        _figure_12(axes[2][0], by)
        _sizes(axes[2][1], report)
        figure.savefig(path, dpi=100)
    finally:
        pyplot.close(figure)


def _titled(axes: "Axes", title: str, unit: str, below: str = "seconds") -> None:
    axes.set_title(title, loc="left", color=INK, fontsize=10)
    axes.set_xlabel(below)
    axes.set_ylabel(unit)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=8)


def _figure_8(axes: "Axes", experiment: Experiment) -> None:
    span = int(experiment.span_s)
    for client, colour in enumerate(("#2f6db3", "#c2571a", "#2b8a57")):
        counts = [0] * (span // COUNTED_S)
        for at in times(experiment, client):
            if at >= span:
                break
            counts[int(at) // COUNTED_S] += 1
        axes.step(
            [place * COUNTED_S for place in range(len(counts))], [count * BITS / COUNTED_S for count in counts],
            where="post", color=colour, linewidth=1, label=f"client {client + 1}",
        )  # fmt: skip
    _titled(axes, "Figure 8: generated, by the minute", "bps")


def _figure_9(axes: "Axes", by: dict[str, Series]) -> None:
    for name, one in by.items():
        at = [0.0, *(when for when, _ in one.overflows), float(len(one.root))]
        axes.step(at, [*range(len(at) - 1), len(at) - 2], where="post", color=COLOURS[name], label=name)
    _titled(axes, "Figure 9: overflowed messages, cumulative, all clients", "messages")


def _figure_10(axes: "Axes", by: dict[str, Series]) -> None:
    for name in DRAWN:
        axes.plot([queues[1] * SIZE for queues in by[name].queues], color=COLOURS[name], linewidth=0.8, label=name)
    axes.axhline(CLIENT_MESSAGES * SIZE, color=INK, linewidth=0.8, linestyle="--")
    _titled(axes, "Figure 10: size of client 2's queue", "bytes")


def _figure_11(axes: "Axes", by: dict[str, Series]) -> None:
    for name in ("weights", "level 0"):
        axes.plot([rates[1] * BITS for rates in by[name].rates], color=COLOURS[name], linewidth=0.8, label=name)
    axes.axhline(RATE / 3 * BITS, color=INK, linewidth=0.8, linestyle="--", label="R/3")
    _titled(axes, "Figure 11: rate of client 2", "bps")
    axes.set_ylim(0, 1.05 * RATE * BITS)


def _figure_12(axes: "Axes", by: dict[str, Series]) -> None:
    for name in DRAWN:
        axes.plot(moving_average([size * SIZE for size in by[name].root]), color=COLOURS[name], linewidth=1, label=name)
    _titled(axes, f"Figure 12: size of the root's queue, moving average of 60 s (of {ROOT_MESSAGES * SIZE:,})", "bytes")


def moving_average(values: Sequence[float], width: int = COUNTED_S) -> list[float]:
    """Of each second the mean of the last `width`, of fewer at the beginning."""
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
        axes.plot(bursts, [row[key] for row in report["limits"]], color=INK, linewidth=1,
                  linestyle="--" if key == "rate" else ":", label=what)  # fmt: skip
    for name, colour in COLOURS.items():
        sizes = [row["size"] for row in report["bursts"] if row["policy"] == name]
        axes.plot(bursts, sizes, color=colour, linewidth=1, marker="o", markersize=3, label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(top=100_000)  # room for the legend
    axes.set_title("Size of a burst at the first overflow", loc="left", color=INK, fontsize=10)
    axes.set_xlabel("messages a second in the burst")
    axes.set_ylabel("messages")
    axes.set_xticks(bursts, [f"{burst:g}" for burst in bursts])
    axes.minorticks_off()
    axes.legend(frameon=False, fontsize=8, ncols=2)
