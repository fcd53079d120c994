"""The backlogs of the sites over time as a picture, with the faults and the catching up marked in it.

Rules of this file: pure drawing, from numbers to one PNG; matplotlib (Agg, no display) is imported when a
picture is drawn and never before. Times are seconds since the sites began to send.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INK: Final = "#222222"
_QUIET: Final = "#767676"
_SENDER: Final = "#c9d6e6"
_NODE: Final = "#2f6db3"
_CUT: Final = "#f3d9b1"
_CRASH: Final = "#f2c4c0"


@dataclass(frozen=True, slots=True)
class Sample:
    """At `at_s`: flights due by the timetable that the node has not taken, and flights stored in its queue to
    the hub."""

    at_s: float
    at_sender: int
    at_node: int

    @property
    def total(self) -> int:
        return self.at_sender + self.at_node


@dataclass(frozen=True, slots=True)
class Fault:
    """What was done to a site. `kind` is `cut` or `crash`; `caught_up_s` None where it never was."""

    site: str
    kind: str
    start_s: float
    end_s: float
    caught_up_s: float | None = None


def with_catch_up(fault: Fault, samples: Sequence[Sample], usual: int) -> Fault:
    """`fault` with the first moment after it at which the backlog is small again.

    Small is at most `usual`, or a tenth of what the fault had heaped up when it ended.
    """
    heaped = max((sample.total for sample in samples if fault.start_s <= sample.at_s <= fault.end_s), default=0)
    for sample in samples:
        if sample.at_s >= fault.end_s and sample.total <= max(usual, heaped // 10):
            return Fault(fault.site, fault.kind, fault.start_s, fault.end_s, sample.at_s)
    return fault


def draw(
    path: Path, backlogs: Mapping[str, Sequence[Sample]], faults: Sequence[Fault], *, title: str, end_s: float
) -> None:
    """One panel a site, above each other on one time axis, as a PNG of 1,600 by about 1,300 pixels."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    figure = Figure(figsize=(10, 2.35 * len(backlogs) + 0.9), dpi=160, layout="constrained")
    panels: Any = figure.subplots(len(backlogs), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    highest = max((sample.total for samples in backlogs.values() for sample in samples), default=1)
    top = max(10.0, highest * 1.32)
    panels[0].set_xlim(0, max(1.0, end_s))
    for axes, (site, samples) in zip(panels, backlogs.items(), strict=True):
        _panel(axes, site, samples, [fault for fault in faults if fault.site == site], top)
    areas = [
        Patch(color=_NODE, label="stored at the site"),
        Patch(color=_SENDER, label="still with the sender"),
    ]
    panels[0].legend(handles=areas, loc="upper right", frameon=False, fontsize=8, ncols=2)
    panels[-1].set_xlabel("seconds since the sites began to send", color=_QUIET)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, color=_INK)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _panel(axes: "Axes", site: str, samples: Sequence[Sample], faults: Sequence[Fault], top: float) -> None:
    for fault in faults:
        _mark(axes, fault, samples, top)
    times = [sample.at_s for sample in samples]
    total = [sample.total for sample in samples]
    axes.fill_between(times, total, color=_SENDER, lw=0)
    axes.fill_between(times, [sample.at_node for sample in samples], color=_NODE, lw=0)
    axes.plot(times, total, color=_NODE, lw=1)
    axes.set_ylim(0, top)
    axes.set_ylabel(f"{site}\nflights waiting", color=_INK)
    axes.tick_params(colors=_QUIET, labelsize=8)
    axes.grid(axis="y", color="#e6e6e6", lw=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _mark(axes: "Axes", fault: Fault, samples: Sequence[Sample], top: float) -> None:
    colour, text = (_CUT, "connection cut,\nsilently") if fault.kind == "cut" else (_CRASH, "killed\nwith -9")
    axes.axvspan(fault.start_s, fault.end_s, color=colour, lw=0)
    axes.annotate(
        text,
        (fault.start_s, top),
        xytext=(3, -3),
        textcoords="offset points",
        va="top",
        fontsize=8,
        color=_INK,
    )
    if fault.caught_up_s is None:
        return
    peak = max((s.total for s in samples if fault.start_s <= s.at_s <= fault.caught_up_s), default=0)
    axes.annotate(
        f"caught up {fault.caught_up_s - fault.end_s:.1f} s after",
        xy=(fault.caught_up_s, 0),
        xytext=(min(fault.caught_up_s + 1.2, axes.get_xlim()[1] * 0.86), max(peak * 0.55, top * 0.3)),
        fontsize=8,
        color=_INK,
        arrowprops={"arrowstyle": "->", "color": _INK, "lw": 0.8, "connectionstyle": "arc3,rad=0.2"},
    )
