"""Seeds of the simulator spread over a Spark cluster: each runs the command line in an executor, a row a verdict.

Rules of this file: knows the simulator by its command line alone (docs/simulator.md); a seed whose process fails, or
gives no verdict in time, is a row that says so, never a failed job.
"""

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_holdfast.sweep_file import Wanted

SEED_LIMIT_S: Final = 600.0
"""Wall time that one seed may take; a run's virtual time is bounded by itself."""

SWEEP_TASKS_A_SLOT: Final = 16

FAILURES_TOLD_MAX: Final = 20

ERROR_CHARACTERS_MAX: Final = 500

SCHEMA: Final = (
    "scenario string, seed bigint, ok boolean, failure string, digest string, virtual_s double, wall_s double, "
    "metrics map<string,double>, host string"
)
"""One row a seed. `digest` is null where there was no verdict; `metrics` are the run's numbers, nested names joined
with a dot; `host` is the executor's."""


COLUMNS: Final = tuple(column.split()[0] for column in SCHEMA.split(", "))

SWEEP_SCHEMA: Final = f"grid string, settings map<string,string>, series map<string,array<double>>, {SCHEMA}"
"""One row a run of a sweep. `settings`: what was set otherwise than in the scenario; `series`: what was asked for by
the second."""

SWEEP_COLUMNS: Final = tuple(column.split()[0] for column in SWEEP_SCHEMA.split(", "))


def verdicts(spark: SparkSession, scenario: str, *, first_seed: int, seeds: int, slots: int) -> DataFrame:
    """The verdicts of `scenario` for `seeds` seeds from `first_seed`, as SCHEMA says, in no order; lazy.

    `slots`: about how many run at once; each gets a few small tasks, so that a slow seed holds up little.
    """
    wanted = range(first_seed, first_seed + seeds)
    runs = spark.sparkContext.parallelize(wanted, max(1, min(seeds, slots * 4)))

    def run(numbers: Iterable[int]) -> Iterable[tuple[Any, ...]]:
        import socket

        from pyspark_holdfast.swarm_job import run_seed

        host = socket.gethostname()
        for seed in numbers:
            row = run_seed(scenario, seed) | {"host": host}
            yield tuple(row[name] for name in COLUMNS)

    return spark.createDataFrame(runs.mapPartitions(run), SCHEMA)


def swept(spark: SparkSession, wanted: Sequence[Wanted], *, slots: int) -> DataFrame:
    """The verdicts of these runs, as SWEEP_SCHEMA says, in no order; lazy.

    They are dealt out in turn, so that each of the tasks, a few for each of `slots`, has its part of the long ones.
    """
    tasks = max(1, min(len(wanted), slots * SWEEP_TASKS_A_SLOT))
    runs = spark.sparkContext.parallelize([wanted[task::tasks] for task in range(tasks)], tasks)

    def run(shares: Iterable[Sequence[Wanted]]) -> Iterable[tuple[Any, ...]]:
        import socket

        from pyspark_holdfast.swarm_job import run_seed

        host = socket.gethostname()
        for one in (one for share in shares for one in share):
            row = run_seed(one.scenario, one.seed, settings=one.settings)
            row |= {"grid": one.grid, "settings": dict(one.settings), "host": host}
            yield tuple(row[name] for name in SWEEP_COLUMNS)

    return spark.createDataFrame(runs.mapPartitions(run), SWEEP_SCHEMA)


def run_seed(
    scenario: str, seed: int, *, settings: Mapping[str, str] | None = None, limit_s: float = SEED_LIMIT_S
) -> dict[str, Any]:
    """One run by the command line; every column of SCHEMA but `host`, and `series`."""
    command = [sys.executable, "-m", "holdfast", "sim", "run", scenario, "--seed", str(seed), "--json"]
    for key, value in (settings or {}).items():
        command += ["--set", f"{key}={value}"]
    row: dict[str, Any] = {
        "scenario": scenario,
        "seed": seed,
        "ok": False,
        "failure": "",
        "digest": None,
        "virtual_s": None,
        "wall_s": None,
        "metrics": {},
        "series": {},
    }
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        return row | {"failure": f"no verdict within {limit_s:g} s"}
    try:
        told = json.loads(done.stdout)
        found = {key: told[key] for key in ("ok", "digest", "virtual_s", "wall_s")}
    except (ValueError, KeyError, TypeError):
        said = done.stderr.strip().splitlines()[-1:] or ["nothing"]
        return row | {"failure": f"exit {done.returncode}: {said[0][:ERROR_CHARACTERS_MAX]}"}
    return (
        row
        | found
        | {
            "failure": str(told.get("failure", "")),
            "metrics": flat(told.get("metrics", {})),
            "series": {name: [float(value) for value in values] for name, values in told.get("series", {}).items()},
        }
    )


def flat(metrics: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Numbers by dotted name; what is no number is left out."""
    found: dict[str, float] = {}
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        elif isinstance(value, (int, float)):
            found[f"{prefix}{name}"] = float(value)
    return found


def summary(table: DataFrame) -> dict[str, Any]:
    """`{"seeds", "failed": [seed…], "failures": [line…], "hops", "virtual_s", "run_s"}`; `run_s` is what all took."""
    total = table.agg(
        F.count(F.lit(1)).alias("seeds"),
        F.sum("virtual_s").alias("virtual_s"),
        F.sum("wall_s").alias("run_s"),
        F.sum(F.col("metrics")["hops"]).alias("hops"),
    ).collect()[0]
    rows = table.where(~F.col("ok")).select("scenario", "seed", "failure").orderBy("seed", "scenario").collect()
    return {
        "seeds": total["seeds"],
        "failed": [row["seed"] for row in rows],
        "failures": [f"{row['scenario']} seed {row['seed']}: {row['failure']}" for row in rows[:FAILURES_TOLD_MAX]],
        "hops": int(total["hops"] or 0),
        "virtual_s": round(total["virtual_s"] or 0.0, 3),
        "run_s": round(total["run_s"] or 0.0, 3),
    }
