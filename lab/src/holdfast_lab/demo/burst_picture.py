"""Where the readings of a burst wait, over time: a panel for each run (demo/burst.py).

Rules of this file: pure drawing, from numbers to one PNG; matplotlib (Agg, no display) is imported when a picture is
drawn and never before.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

COLOURS: Final = ("#e08a1e", "#8e5ea2", "#2f6db3")
INK: Final = "#222222"
QUIET: Final = "#767676"

Samples = Mapping[str, Sequence[tuple[float, int]]]
"""By node: (second, how many it holds from then on)."""


def fullest(samples: Samples, nodes: Sequence[str]) -> list[tuple[float, int]]:
    """At each change of one of the nodes, what the fullest of them holds."""
    now = dict.fromkeys(nodes, 0)
    changes = sorted((at, node, count) for node in nodes for at, count in samples.get(node, ()))
    found = []
    for at, node, count in changes:
        now[node] = count
        found.append((at, max(now.values())))
    return found


def draw(
    path: Path, runs: Mapping[str, Samples], places: Mapping[str, Sequence[str]], *, holds: Mapping[str, int]
) -> None:
    """`places`: what is drawn, and of which nodes; `holds`: for how many each has room, a dotted line."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 2.3 * len(runs) + 0.6), dpi=120, layout="constrained")
    panels: Any = figure.subplots(len(runs), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, (way, samples) in zip(panels, runs.items(), strict=True):
        for colour, (place, nodes) in zip(COLOURS, places.items(), strict=False):
            points = fullest(samples, nodes)
            axes.step([at for at, _ in points], [count for _, count in points], where="post", color=colour, label=place)
            if place in holds:
                axes.axhline(holds[place], color=colour, lw=0.8, ls=":")
        axes.set_title(way, loc="left", fontsize=10, color=INK)
        axes.set_ylabel("readings waiting", fontsize=8, color=INK)
        axes.tick_params(colors=QUIET, labelsize=8)
        axes.grid(axis="y", color="#e6e6e6", lw=0.6)
        axes.set_axisbelow(True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    panels[0].legend(loc="upper right", frameon=False, fontsize=8)
    panels[0].set_ylim(bottom=0)
    panels[-1].set_xlabel("seconds; dotted: for how many there is room", color=QUIET, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
