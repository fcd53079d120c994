"""The report on bindings: all measurements by their seeds, and the tables of docs/results/federation.md.

Rules of this file: every figure comes from runs made here; a run that fails is named with its seed. What is outside the
markers of the document stays as it is.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from statistics import mean, median
from typing import Any, Final

from holdfast.marked_pages import table
from holdfast_lab.bindings import drawn
from holdfast_lab.bindings.drawn import Outcome, Shape
from holdfast_lab.bindings.measures import Bytes, Copies, Stabilised, control_bytes, copies, stabilise
from holdfast_lab.bindings.planted import RULES, Found, find

BEGIN: Final = "<!-- federation -->"
END: Final = "<!-- end federation -->"

KEYS: Final = (10, 100, 1_000)
SHAPES: Final[tuple[tuple[str, Shape, float], ...]] = (
    ("binds, cuts, splits, crashes, new stores, refused commits, one-way entries", drawn.CHURN, 1.0),
    ("the same, fewer crashes, and entries added and removed", drawn.CHANGED, 0.5),
    ("static and dynamic mixed, quiet", drawn.MIXED, 0.5),
    ("static and dynamic mixed, with cuts and refused commits", drawn.MIXED_CUT, 0.5),
    ("messages, parts and sets of a few rows, slow commits", drawn.SMALL, 0.5),
)

UNJUDGED: Final = {what for what, shape, _ in SHAPES if shape.entries}
"""Who removes an entry takes back what the node has confirmed."""

Tell = Callable[[str], None]


class Report:
    """What was found. `failures`: runs that did not end well, and rules that were not missed."""

    def __init__(self) -> None:
        self.churn: list[tuple[str, list[Outcome]]] = []
        self.stabilised: list[Stabilised] = []
        self.copies: list[Copies] = []
        self.bytes: list[Bytes] = []
        self.rules: list[Found] = []

    @property
    def failures(self) -> list[str]:
        found = [f"{what}, seed {one.seed}: {one.failure}" for what, runs in self.churn for one in runs if one.failure]
        found += [f"corrupted, seed {one.seed}: {one.failure}" for one in self.stabilised if one.failure]
        return found + [f"rule {one.name} was not missed" for one in self.rules if not one.text]

    def as_json(self) -> dict[str, Any]:
        return {
            "churn": [{"what": what, "runs": [one.as_json() for one in runs]} for what, runs in self.churn],
            "stabilised": [one.as_json() for one in self.stabilised],
            "copies": [one.as_json() for one in self.copies],
            "bytes": [one.as_json() for one in self.bytes],
            "rules": [one._asdict() for one in self.rules],
            "failures": self.failures,
        }


def make(first: int, seeds: int, jobs: int, tell: Tell) -> Report:
    """`seeds`: of the largest part; others have fewer."""
    report = Report()
    with ProcessPoolExecutor(jobs) as pool:
        for what, shape, part in SHAPES:
            runs = list(pool.map(partial(drawn.run, shape=shape), _seeds(first, seeds, part)))
            report.churn.append((what, runs))
            tell(f"{what}: {len(runs)} runs, {sum(bool(one.failure) for one in runs)} failed")
        report.stabilised = list(pool.map(stabilise, _seeds(first, seeds, 0.5)))
        tell(f"corrupted: {len(report.stabilised)} runs, {sum(bool(one.failure) for one in report.stabilised)} failed")
        report.copies = list(pool.map(copies, _seeds(first, seeds, 0.2)))
        report.bytes = [control_bytes(keys) for keys in KEYS]
        report.rules = list(pool.map(find, RULES))
        tell(f"rules taken out: {sum(bool(one.text) for one in report.rules)} of {len(report.rules)} missed")
    return report


def _seeds(first: int, seeds: int, part: float) -> range:
    return range(first, first + max(1, round(seeds * part)))


# ---------------------------------------------------------------------------------------------------- as text


def page(report: Report, command: str) -> list[str]:
    runs = [one for _, of_one in report.churn for one in of_one]
    return [
        f"Made {command}: {len(runs) + len(report.stabilised) + len(report.copies)} networks.",
        "",
        "### Missed and doubled",
        "",
        *table(
            ["what was drawn", "runs", "nodes", "binds", "due", "missed", "doubled", "suppressed", "failed"],
            [_churn(what, of_one) for what, of_one in report.churn],
        ),
        "",
        *_answers(runs),
        "",
        "### Tables that were corrupted at once",
        "",
        *_stabilised(report.stabilised),
        "",
        "### Copies of a message",
        "",
        *_copies(report.copies),
        "",
        "### Control bytes of two nodes",
        "",
        *table(
            ["keys", "all bound at once", "one key more", "a refresh, both ways", "session broke and came back"],
            [[f"{value:,}" for value in one.as_json().values()] for one in report.bytes],
        ),
        "",
        "### Rules taken out",
        "",
        *table(
            ["rule", "what was seen without it", "found by"], [[one.sentence, one.text, one.by] for one in report.rules]
        ),
        *([] if not report.failures else ["", "### Failures", "", *(f"- {text}" for text in report.failures)]),
    ]


def _churn(what: str, runs: Sequence[Outcome]) -> list[str]:
    nodes = f"{min(one.nodes for one in runs)} to {max(one.nodes for one in runs)}"
    fields = ("binds", "due", "missed", "doubled", "suppressed")
    sums = [f"{sum(getattr(one, field) for one in runs):,}" for field in fields]
    if what in UNJUDGED:
        sums[fields.index("missed")] = "not judged"
    return [what, str(len(runs)), nodes, *sums, str(sum(bool(one.failure) for one in runs))]


def _answers(runs: Sequence[Outcome]) -> list[str]:
    times = sorted(time for one in runs for time in one.answers_s)
    if not times:
        return []
    late = times[int(0.95 * (len(times) - 1))]
    return [
        f"A bind was answered in {median(times):.2f} s at the median, and {late:.1f} s at p95 (n = {len(times):,})."
    ]


def _stabilised(runs: Sequence[Stabilised]) -> list[str]:
    if not runs:
        return []
    refreshes = [one.refreshes for one in runs]
    kilobytes = [one.link_bytes / 1_000 for one in runs]
    return table(
        ["runs", "nodes", "diameter", "refreshes until right: mean", "most", "bound held", "kB a link"],
        [
            [
                str(len(runs)),
                f"{min(one.nodes for one in runs)} to {max(one.nodes for one in runs)}",
                f"{min(one.diameter for one in runs)} to {max(one.diameter for one in runs)}",
                f"{mean(refreshes):.2f}",
                f"{max(refreshes):.1f}",
                "in all" if not any(one.failure for one in runs) else "no",
                f"{min(kilobytes):.0f} to {max(kilobytes):.0f}",
            ]
        ],
    )


def _copies(runs: Sequence[Copies]) -> list[str]:
    total = {field: sum(getattr(one, field) for one in runs) for field in ("shared", "shortest", "steiner")}
    single, flooded = sum(one.single for one in runs), sum(one.flooded for one in runs)
    if not total["shared"]:
        return []
    ratios = [one.shared / one.steiner for one in runs if one.steiner]
    return table(
        ["networks", "messages", "links used", "shortest-path trees", "Steiner trees", "single copies", "flooding"],
        [
            [
                str(len(runs)),
                str(sum(one.messages for one in runs)),
                f"{total['shared']:,}",
                f"{total['shortest']:,}",
                f"{total['steiner']:,} (ours {min(ratios):.2f} to {max(ratios):.2f} of it)",
                f"{single:,} ({single / total['shared']:.2f} times)",
                f"{flooded:,} ({flooded / total['shared']:.1f} times)",
            ]
        ],
    )
