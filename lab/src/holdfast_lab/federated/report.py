"""The report on federated topics on whole nodes: the tables of docs/results/federation.md below those of the model.

Rules of this file: every figure comes from runs made here; a run that fails is named with its seed.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from statistics import mean
from typing import Any, Final

from holdfast.marked_pages import table
from holdfast_lab.federated.churn import Churned, Forwarded, churned, forwarded
from holdfast_lab.federated.keys import Keys, measured
from holdfast_lab.federated.spoilt import Spoilt, spoilt

BEGIN: Final = "<!-- federated nodes -->"
END: Final = "<!-- end federated nodes -->"

KEYS: Final = (10, 100, 1_000, 40_000)

Tell = Callable[[str], None]


@dataclass(slots=True)
class Report:
    churned: list[Churned] = field(default_factory=list)
    forwarded: list[Forwarded] = field(default_factory=list)
    spoilt: list[Spoilt] = field(default_factory=list)
    keys: list[Keys] = field(default_factory=list)

    @property
    def failures(self) -> list[str]:
        runs: dict[str, Sequence[Churned | Forwarded | Spoilt]] = {
            "churned": self.churned, "forwarded": self.forwarded, "spoilt": self.spoilt,
        }  # fmt: skip
        return [
            f"{what}, seed {one.seed} ({one.form}): {one.failure}"
            for what, of_one in runs.items()
            for one in of_one
            if one.failure
        ] + [f"{one.keys} keys: {one.failure}" for one in self.keys if one.failure]

    def as_json(self) -> dict[str, Any]:
        return {
            "churned": [one.as_json() for one in self.churned],
            "forwarded": [one.as_json() for one in self.forwarded],
            "spoilt": [one.as_json() for one in self.spoilt],
            "keys": [one.as_json() for one in self.keys],
            "failures": self.failures,
        }


def make(seeds: int, jobs: int, tell: Tell) -> Report:
    """`seeds`: of networks with churn; a sixth as many are quiet, or spoilt."""
    report, few = Report(), range(1, 1 + max(1, seeds // 6))
    with ProcessPoolExecutor(jobs) as pool:
        report.churned = list(pool.map(churned, range(1, 1 + seeds)))
        tell(f"churned: {len(report.churned)} networks")
        report.forwarded = list(pool.map(forwarded, few))
        tell(f"quiet: {len(report.forwarded)} networks")
        report.spoilt = list(pool.map(spoilt, few))
        tell(f"spoilt: {len(report.spoilt)} networks")
    report.keys = [measured(count) for count in KEYS]
    return report


# ---------------------------------------------------------------------------------------------------- as text


def page(report: Report, command: str) -> list[str]:
    return [
        f"Made {command}: {len(report.churned)} networks with churn, {len(report.forwarded)} quiet ones,"
        f" {len(report.spoilt)} spoilt ones.",
        "",
        "### Churn on whole nodes",
        "",
        *table(
            ["form", "networks", "nodes", "subscriptions", "faults", "accepted", "due", "shown", "failed"],
            [_churned(form, runs) for form, runs in _by_form(report.churned).items()],
        ),
        "",
        "### Copies that whole nodes forward",
        "",
        *table(
            [
                "form",
                "networks",
                "messages",
                "copies",
                "bodies sent",
                "shortest-path trees",
                "Steiner trees",
                "bodies, of a Steiner tree",
            ],
            [_forwarded(form, runs) for form, runs in _by_form(report.forwarded).items()],
        ),
        "",
        "### Bindings that were spoilt at all nodes at once",
        "",
        *table(
            ["form", "networks", "nodes", "diameter", "sets spoilt", "refreshes until right: mean", "most", "failed"],
            [_spoilt(form, runs) for form, runs in _by_form(report.spoilt).items()],
        ),
        "",
        "### Keys across one hop",
        "",
        *table(
            [
                "keys",
                "bytes said for all",
                "for one more",
                "s until confirmed",
                "processor s",
                "s until all rows are known",
            ],
            [_keys(one) for one in report.keys],
        ),
        *([] if not report.failures else ["", "### Failures", "", *(f"- {text}" for text in report.failures)]),
    ]


def _by_form(runs: Sequence[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for one in sorted(runs, key=lambda one: (one.form, one.seed)):
        found.setdefault(one.form, []).append(one)
    return found


def _span(numbers: Sequence[int]) -> str:
    return f"{min(numbers)} to {max(numbers)}"


def _churned(form: str, runs: Sequence[Churned]) -> list[str]:
    sums = [sum(getattr(one, name) for one in runs) for name in ("binds", "faults", "accepted", "due", "shown")]
    failed = sum(bool(one.failure) for one in runs)
    return [form, str(len(runs)), _span([one.nodes for one in runs]), *(f"{each:,}" for each in sums), str(failed)]


def _forwarded(form: str, runs: Sequence[Forwarded]) -> list[str]:
    names = ("messages", "copies", "bodies", "shortest", "steiner")
    sums = [sum(getattr(one, name) for one in runs) for name in names]
    ratios = [one.bodies / one.steiner for one in runs if one.steiner]
    told = "-" if not ratios else f"{sums[2] / sums[4]:.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    return [form, str(len(runs)), *(f"{each:,}" for each in sums), told]


def _spoilt(form: str, runs: Sequence[Spoilt]) -> list[str]:
    refreshes = [one.refreshes for one in runs]
    return [
        form, str(len(runs)), _span([one.nodes for one in runs]), _span([one.diameter for one in runs]),
        str(sum(one.sets for one in runs)), f"{mean(refreshes):.2f}", f"{max(refreshes):.1f}",
        str(sum(bool(one.failure) for one in runs)),
    ]  # fmt: skip


def _keys(one: Keys) -> list[str]:
    seconds = (f"{one.confirmed_s:.2f}", f"{one.busy_s:.2f}", f"{one.known_s:.1f}")
    return [f"{one.keys:,}", f"{one.bytes_all:,}", f"{one.bytes_one:,}", *seconds]
