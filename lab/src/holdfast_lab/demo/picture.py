"""By which path flights reach the hub over time, and what waits on the way, with what was done marked in it.

Rules of this file: pure drawing, from numbers to one PNG; matplotlib (Agg, no display) is imported when a
picture is drawn and never before. Times are seconds since the sites began to send.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast_lab.demo.flight_paths import Event

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INK: Final = "#222222"
_QUIET: Final = "#767676"
_BROKEN: Final = "#b3261e"
_MENDED: Final = "#2e7d32"
_PATHS: Final = ("#2f6db3", "#e08a1e", "#4a9d77", "#8e5ea2", "#c45a77", "#7a8b2f", "#3aa0b8")
_OTHERS: Final = "#b8b8b8"
_AIRPORTS: Final = ("#2f6db3", "#e08a1e", "#4a9d77", "#8e5ea2")

LABEL_ROWS: Final = 3
"""Names of events stand above each other in so many rows, so that neighbours do not overlap."""

WINDOW_S: Final = 1.0
"""Over so long the pipeline counts flights by path for a report (`count_by_path`)."""

Samples = Mapping[str, Sequence[tuple[float, int]]]
PACED: Final = ("rate of the\nhub, kB/s", "waits at the\nairport, kB")

Bars = Mapping[str, Mapping[float, int]]
"""By path, in the order in which they are drawn and named: flights in the window that begins then."""


def label(event: Event) -> str:
    """What stands above an event's line."""
    name = "-".join(event.nodes)
    return {"cut": f"{name} cut", "heal": f"{name} healed", "kill": f"{name} killed", "start": f"{name} back"}[
        event.kind
    ]


def folded(bars: Bars) -> dict[str, dict[float, int]]:
    """At most as many paths as there are colours; those with the fewest flights are one, the last."""
    totals = {path: sum(found.values()) for path, found in bars.items()}
    kept = set(sorted(bars, key=lambda path: (-totals[path], path))[: len(_PATHS)])
    shown = {path: dict(found) for path, found in bars.items() if path in kept}
    rest: dict[float, int] = {}
    for path, found in bars.items():
        if path not in kept:
            for at_s, count in found.items():
                rest[at_s] = rest.get(at_s, 0) + count
    return shown | ({f"{len(bars) - len(kept)} other paths": rest} if rest else {})


def draw(
    path: Path,
    arrived: Mapping[str, Bars],
    waiting: Mapping[str, Sequence[tuple[float, int]]],
    events: Sequence[Event],
    *,
    title: str,
    end_s: float,
    paced: tuple[Samples, Samples] = ({}, {}),
) -> None:
    """One panel an airport, `arrived` by path, and below them what waits on the way; one time axis. A PNG. `paced`: by
    airport the bytes a second that the hub gives it, and the bytes that wait there, in two more panels."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    pacing = [(samples, text) for samples, text in zip(paced, PACED, strict=True) if samples]
    count = len(arrived) + 1 + len(pacing)
    figure = Figure(figsize=(13, 2.0 * count + 1.1), dpi=130, layout="constrained")
    panels: Any = figure.subplots(count, 1, sharex=True, squeeze=False)[:, 0]
    panels[0].set_xlim(0, max(1.0, end_s))
    for axes, (airport, bars) in zip(panels, arrived.items(), strict=False):
        _arrivals(axes, airport, folded(bars))
    _waiting(panels[len(arrived)], waiting, "flights\non the way")
    for axes, (samples, text) in zip(panels[len(arrived) + 1 :], pacing, strict=True):
        _waiting(
            axes, {airport: [(at_s, value / 1_000) for at_s, value in of] for airport, of in samples.items()}, text
        )
    for axes in panels:
        _dress(axes)
        for event in events:
            axes.axvline(event.at_s, color=_BROKEN if event.breaks else _MENDED, lw=1, ls="-" if event.breaks else "--")
    for number, event in enumerate(sorted(events, key=lambda event: event.at_s)):
        panels[0].annotate(
            label(event), (event.at_s, 1.0), xycoords=("data", "axes fraction"),
            xytext=(2, 2 + 11 * (number % LABEL_ROWS)), textcoords="offset points",
            fontsize=8, color=_BROKEN if event.breaks else _MENDED, annotation_clip=False,
        )  # fmt: skip
    panels[-1].set_xlabel("seconds since the sites began to send", color=_QUIET)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, color=_INK)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _arrivals(axes: "Axes", airport: str, bars: Bars) -> None:
    below: dict[float, float] = {}
    for number, (path, found) in enumerate(bars.items()):
        moments = sorted(found)
        axes.bar(
            moments,
            [found[at_s] / WINDOW_S for at_s in moments],
            width=WINDOW_S,
            align="edge",
            bottom=[below.get(at_s, 0.0) for at_s in moments],
            color=_PATHS[number] if number < len(_PATHS) else _OTHERS,
            label=f"{path}  ({sum(found.values()):,})",
        )
        for at_s in moments:
            below[at_s] = below.get(at_s, 0.0) + found[at_s] / WINDOW_S
    axes.set_ylabel(f"{airport}\nflights/s at the hub", color=_INK)
    _legend(axes)


def _waiting(axes: "Axes", waiting: Mapping[str, Sequence[tuple[float, float]]], text: str) -> None:
    for number, (airport, samples) in enumerate(waiting.items()):
        colour = _AIRPORTS[number % len(_AIRPORTS)]
        axes.plot(
            [at_s for at_s, _ in samples],
            [count for _, count in samples],
            color=colour,
            lw=1.2,
            label=f"from {airport}",
        )
    axes.set_ylim(bottom=0)
    axes.set_ylabel(text, color=_INK)
    _legend(axes)


def _legend(axes: "Axes") -> None:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.03), frameon=False, fontsize=8)


def _dress(axes: "Axes") -> None:
    axes.tick_params(colors=_QUIET, labelsize=8)
    axes.grid(axis="y", color="#e6e6e6", lw=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
