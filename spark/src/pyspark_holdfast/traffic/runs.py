"""The rows of a sweep over the traffic paper's scenarios, as the report reads them.

Rules of this file: the table is all that is known of the runs; no simulator is asked. A table without a run that the
report could use is one ConfigError line.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Final

from holdfast.errors import ConfigError

PREFIX: Final = "traffic-"
POLICIES: Final = ("fixed", "weights", "backlog", "overflow", "level 0", "level 1")
"""In the order of the report's tables."""

COLUMNS: Final = ("grid", "scenario", "settings", "seed", "ok", "failure", "wall_s", "metrics", "series")
NOT_VARIED: Final = ("lend", "size", "burst", "series_s", "network")
"""Settings that say which policy or figure a run is for, and not what differs from the paper."""


@dataclass(frozen=True, slots=True)
class Run:
    """One row. `metrics`: numbers by dotted name. `series`: by name, in steps of `step_s`."""

    grid: str
    policy: str
    settings: Mapping[str, str]
    seed: int
    wall_s: float
    metrics: Mapping[str, float]
    series: Mapping[str, Sequence[float]]

    @property
    def step_s(self) -> int:
        return int(self.settings.get("series_s", "1"))

    @property
    def burst(self) -> float:
        return float(self.settings.get("burst", "nan"))

    @property
    def varied(self) -> tuple[tuple[str, str], ...]:
        """What was set otherwise than in the paper."""
        return tuple((key, value) for key, value in self.settings.items() if key not in NOT_VARIED)

    def by_client(self, name: str) -> list[float]:
        """A metric of each client, in their order."""
        found = ((key, value) for key, value in self.metrics.items() if key.startswith(f"{name}.client"))
        return [value for _, value in sorted(found, key=lambda pair: int(pair[0].rpartition("client")[2]))]


def policy_named(scenario: str, settings: Mapping[str, str]) -> str:
    """`level` has a name for each part of the space that it lends."""
    policy = scenario.removeprefix(PREFIX)
    return f"level {float(settings.get('lend', '0')):g}" if policy == "level" else policy


def read_runs(table: str) -> list[Run]:
    """All rows of the table. Raises ConfigError where it is no table of a sweep, or a run in it failed."""
    import pyarrow
    import pyarrow.parquet

    if not Path(table).is_dir():
        raise ConfigError(f"invalid value {table!r}; expected the directory of a table that `pipeline sweep` wrote")
    try:
        rows = pyarrow.parquet.read_table(table, columns=list(COLUMNS)).to_pylist()
    except (OSError, pyarrow.ArrowException, KeyError) as error:
        said = re.sub(r"\s+", " ", str(error))[:200]
        raise ConfigError(f"{table}: {said}; expected a table that `pipeline sweep` wrote") from None
    failed = [row for row in rows if not row["ok"]]
    if failed:
        row = failed[0]
        what = f"{row['scenario']} seed {row['seed']}: {row['failure']}"
        raise ConfigError(f"{table}: {len(failed)} of {len(rows)} runs failed ({what}); sweep them again")
    return sorted((_run(row) for row in rows if row["scenario"].startswith(PREFIX)), key=_order)


def _run(row: Mapping[str, Any]) -> Run:
    settings = dict(row["settings"])
    policy = policy_named(row["scenario"], settings)
    return Run(
        row["grid"], policy, settings, row["seed"], row["wall_s"], dict(row["metrics"]), dict(row["series"])
    )  # fmt: skip


def _order(run: Run) -> tuple[Any, ...]:
    place = POLICIES.index(run.policy) if run.policy in POLICIES else len(POLICIES)
    return run.grid, place, run.policy, sorted(run.settings.items()), run.seed


def in_grid(runs: Iterable[Run], grid: str) -> list[Run]:
    return [run for run in runs if run.grid == grid]


def grouped(runs: Iterable[Run], key: Callable[[Run], Any]) -> dict[Any, list[Run]]:
    """By `key`, in the order in which each first appears."""
    found: dict[Any, list[Run]] = {}
    for run in runs:
        found.setdefault(key(run), []).append(run)
    return found


def spread(values: Sequence[float]) -> dict[str, float]:
    """The mean and what is known of how far one run is from it."""
    deviation = stdev(values) if len(values) > 1 else 0.0
    return {
        "mean": mean(values), "deviation": deviation, "least": min(values), "most": max(values), "n": len(values)
    }  # fmt: skip
