"""Convergence and CPU of a bus_routing.py report as one PNG, beside the goal and the paper's table 1.

Rules of this file: pure drawing of what the report has; matplotlib (Agg, no display) is imported when one is drawn.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK: Final = "#222222"
QUIET: Final = "#767676"
NODE: Final = "#2f6db3"
PALE: Final = "#c9d6e6"
PAPER: Final = "#c2571a"


def draw(report: dict[str, Any], path: Path) -> None:
    """Needs the parts `convergence` and `load`; KeyError without."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    try:
        _convergence(left, report)
        _cpu(right, report)
        figure.savefig(path, dpi=110)
    finally:
        pyplot.close(figure)


def _convergence(axes: "Axes", report: dict[str, Any]) -> None:
    for row, kind in enumerate(("loud", "silent")):
        runs = report["parts"]["convergence"][kind]["right_ms"]["runs"]
        axes.scatter(runs, [row + (place / max(1, len(runs) - 1) - 0.5) / 2 for place in range(len(runs))],
                     s=22, color=NODE, alpha=0.8)  # fmt: skip
    _line(axes, report["goals"]["convergence_s"] * 1000, "goal", INK)
    _line(axes, report["paper"]["convergence_s"] * 1000, "paper: less than", PAPER)
    axes.set_yticks([0, 1], ["loud", "silent"])
    axes.set_ylim(-0.6, 1.6)
    axes.set_xlim(0, None)
    axes.set_xlabel("ms from the cut until all sixteen nodes route right")
    axes.set_title("Every cut of a link", loc="left", color=INK, fontsize=10)


def _line(axes: "Axes", at_ms: float, text: str, colour: str) -> None:
    axes.axvline(at_ms, color=colour, linewidth=1, linestyle="--")
    axes.annotate(f"{text} {at_ms:g}", (at_ms, 1.5), xytext=(-3, 0), textcoords="offset points", color=colour,
                  fontsize=8, ha="right")  # fmt: skip


def _cpu(axes: "Axes", report: dict[str, Any]) -> None:
    steps = report["parts"]["load"]["undisturbed"]
    rates = [step["rate"] for step in steps]
    for name in steps[0]["cpu_percent_by_node"]:
        axes.plot(rates, [step["cpu_percent_by_node"][name] for step in steps], color=PALE, linewidth=1)
    axes.plot(rates, [step["cpu_percent"]["median"] for step in steps], color=NODE, linewidth=2, label="median node")
    axes.plot([], [], color=PALE, label="each node")
    limit = report["paper"]["cpu_percent"]
    axes.axhline(
        limit, color=PAPER, linewidth=1, linestyle="--", label=f"paper: less than {limit:g} %, load not stated"
    )
    axes.set_xlabel("messages a second over the bus, five classes")
    axes.set_ylabel("CPU, % of a core")
    axes.set_xlim(0, None)
    axes.set_ylim(0, None)
    axes.legend(frameon=False, fontsize=8, labelcolor=QUIET)
    axes.set_title("CPU of each node under rising load", loc="left", color=INK, fontsize=10)
