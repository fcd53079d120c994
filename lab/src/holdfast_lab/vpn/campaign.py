"""Many runs: the acceptance table, the comparison of policies, and what they are sensitive to.

Rules of this file: a plan of runs, shared out over processes, and what they gave, as one JSON object. The same seeds
for all policies, so that they meet the same messages.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from statistics import mean
from typing import Any, Final, TypeVar

from holdfast_lab.vpn import acceptance, priorities
from holdfast_lab.vpn.acceptance import ALL_FROM, SIZES, Check
from holdfast_lab.vpn.bound import limit
from holdfast_lab.vpn.measures import Burst, Outcome, Series, burst_size, run, settling_s
from holdfast_lab.vpn.parameters import Experiment, sizing

POLICIES: Final = (
    ("fixed", 0.0), ("weights", 0.0), ("backlog", 0.0), ("overflow", 0.0), ("level", 0.0), ("level", 1.0),
)  # fmt: skip
CONTROLLED: Final = POLICIES[1:]

TOGETHER: Final[dict[str, Any]] = {"bursting": ALL_FROM, "burst_s": (100.0, 1_900.0), "span_s": 1_950.0}
"""All clients burst at once, for as long as in the paper's burst; it begins sooner, which changes nothing but the time
that a run takes."""

VARIATIONS: Final[dict[str, dict[str, Any]]] = {
    "T 0.5": {"period_s": 0.5},
    "T 2": {},
    "T 5": {"period_s": 5.0},
    "T 10": {"period_s": 10.0},
    "T 30": {"period_s": 30.0},
    "loss 20 %": {"loss": 0.2},
    "delay 0.5 s": {"delay_s": 0.5},
    "n 30": {"clients": 30},
    "n 300": {"clients": 300},
}
VARIED_BURST: Final = 50.0
SEEDS_VARIED: Final = 10
SEEDS_LARGE: Final = 3
LARGE: Final = 100
"""Clients from which on a run takes seconds, and fewer seeds are run."""

Given = TypeVar("Given")
Found = TypeVar("Found")
Progress = Callable[[str], None]


def shared_out(work: Callable[[Given], Found], over: Sequence[Given], jobs: int) -> list[Found]:
    """In their order, in `jobs` processes; 1: in this one."""
    if jobs == 1 or len(over) < 2:
        return [work(one) for one in over]
    with ProcessPoolExecutor(jobs) as pool:
        return list(pool.map(work, over))


def _burst(given: tuple[Experiment, float]) -> Burst:
    return burst_size(*given)


def _limits(experiment: Experiment) -> tuple[int, int]:
    return limit(experiment, whole=False), limit(experiment, whole=True)


def _outcome(experiment: Experiment) -> tuple[Outcome, list[int]]:
    """With client 2's queue in the burst, by the second."""
    outcome, series = run(experiment)
    begins, ends = (int(at) for at in experiment.burst_s)
    return outcome, [queues[min(1, len(queues) - 1)] for queues in series.queues[begins:ends]]


def accept(seeds: Iterable[int], jobs: int, progress: Progress) -> dict[str, Any]:
    """The acceptance table, the comparison of policies in the paper's burst, and the sizes of bursts."""
    seeds = list(seeds)
    checks: list[Check] = []
    compared = []
    for policy, lend in POLICIES:
        base = Experiment(policy=policy, lend=lend)
        progress(f"the paper's burst, {base.name}")
        found = shared_out(_outcome, [replace(base, seed=seed) for seed in seeds], jobs)
        outcomes = [outcome for outcome, _ in found]
        compared.append(_comparison(outcomes, settling_s([path for _, path in found])))
        if policy == "fixed":
            checks += acceptance.of_fixed(outcomes)
        if policy == "weights":
            checks += acceptance.of_weights(outcomes)
    together = []
    for policy, lend in POLICIES:
        base = Experiment(policy=policy, lend=lend, **TOGETHER)
        progress(f"all at once, {base.name}")
        outcomes = [one for one, _ in shared_out(_outcome, [replace(base, seed=seed) for seed in seeds], jobs)]
        together.append({"policy": base.name, **_spread("overflow", [one.total for one in outcomes])})
        if policy in ("fixed", "weights"):
            checks.append(acceptance.of_all(outcomes))
    banded, of_banded = priorities.rows(
        POLICIES, seeds, lambda work: shared_out(priorities.run_banded, work, jobs), progress
    )
    checks += of_banded
    bursts = []
    for policy, lend in POLICIES:
        base = Experiment(policy=policy, lend=lend)
        progress(f"sizes of bursts, {base.name}")
        work = [(replace(base, seed=seed), size) for size in SIZES for seed in seeds]
        bursts += shared_out(_burst, work, jobs)
    checks += acceptance.of_bursts(bursts)
    return {
        "seeds": seeds,
        "checks": [check.as_json() for check in checks],
        "paper": compared,
        "together": together,
        "priorities": banded,
        "bursts": _sizes(bursts),
        "limits": _limit_rows(seeds, jobs),
        "holds": all(check.holds for check in checks),
    }


def vary(seeds: Sequence[int], jobs: int, progress: Progress) -> list[dict[str, Any]]:
    """Shares of the limit at VARIED_BURST, where one thing differs from the paper's experiment."""
    rows = []
    for name, other in VARIATIONS.items():
        few = SEEDS_LARGE if other.get("clients", 0) >= LARGE else SEEDS_VARIED
        row: dict[str, Any] = {"varied": name, "n": len(seeds[:few])}
        for policy, lend in CONTROLLED:
            base = Experiment(policy=policy, lend=lend, **other)
            progress(f"{name}, {base.name}")
            found = shared_out(_burst, [(replace(base, seed=seed), VARIED_BURST) for seed in seeds[:few]], jobs)
            row[base.name] = mean(one.share for one in found)
        rows.append(row)
    return rows


def series_of(seed: int, jobs: int) -> list[Series]:
    """One run of each policy by the second, for the figures."""
    experiments = [Experiment(policy=policy, lend=lend, seed=seed) for policy, lend in POLICIES]
    return [series for _, series in shared_out(run, experiments, jobs)]


def _comparison(outcomes: list[Outcome], settles_s: float) -> dict[str, Any]:
    return {
        "policy": outcomes[0].name,
        "overflow": mean(one.total for one in outcomes),
        "peaks": [mean(one.peaks[client] for one in outcomes) for client in range(3)],
        "root": mean(one.root_peak for one in outcomes),
        "fairness": mean(one.fairness for one in outcomes),
        "settles_s": settles_s,
        "changes_per_min": mean(one.changes_per_min for one in outcomes),
        "loads_per_s": mean(one.loads_per_s for one in outcomes),
        "paces_per_s": mean(one.paces_per_s for one in outcomes),
    }


def _spread(key: str, values: Sequence[float]) -> dict[str, float]:
    return {key: mean(values), "least": min(values), "most": max(values), "n": len(values)}


def _sizes(bursts: Sequence[Burst]) -> list[dict[str, Any]]:
    by: dict[tuple[str, float], list[Burst]] = {}
    for one in bursts:
        by.setdefault((one.name, one.burst), []).append(one)
    return [
        {
            "policy": name, "burst": size, "share": mean(one.share for one in runs),
            "least_share": min(one.share for one in runs), **_spread("size", [one.size for one in runs]),
        }
        for (name, size), runs in by.items()
    ]  # fmt: skip


def _limit_rows(seeds: Sequence[int], jobs: int) -> list[dict[str, Any]]:
    rows = []
    for size in SIZES:
        found = shared_out(_limits, [sizing(Experiment(seed=seed), size) for seed in seeds], jobs)
        rows.append(
            {"burst": size, "rate": mean(rate for rate, _ in found), "whole": mean(whole for _, whole in found)}
        )
    return rows
