"""The table of a sweep that was ended: what is in it already, and what is still to be run.

Rules of this file: without Spark. Whatever whole rows a file has count: a job that was ended while it moved its files
into place has left some of them. A row of a run that failed is removed, so that the run is made again.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow
import pyarrow.parquet as parquet

from holdfast.errors import ConfigError
from pyspark_holdfast.sweep_file import Wanted

KEYS: Final = ["grid", "scenario", "settings", "seed"]

Key = tuple[str, str, tuple[tuple[str, str], ...], int]


def still_to_do(file: str, wanted: Sequence[Wanted], out: Path) -> list[Wanted]:
    """Those of the file's runs that the table in `out` does not have, in their order. Raises ConfigError where that is
    no table of a sweep, or of another one."""
    if out.exists() and not out.is_dir():
        raise ConfigError(f"invalid value {str(out)!r} for --out; expected a directory")
    done: set[Key] = set()
    for path in sorted(out.glob("[!_.]*.parquet")):
        done |= _kept(path)
    known = {_key(one.grid, one.scenario, one.settings.items(), one.seed) for one in wanted}
    if strange := done - known:
        grid, scenario, settings, seed = min(strange)
        run = " ".join([grid, scenario, f"seed {seed}", *(f"{key}={value}" for key, value in settings)])
        raise ConfigError(f"{out} has runs that {file} does not ({run}); give --out an empty or new directory")
    return [one for one in wanted if _key(one.grid, one.scenario, one.settings.items(), one.seed) not in done]


def _key(grid: str, scenario: str, settings: Any, seed: int) -> Key:
    return grid, scenario, tuple(sorted(settings)), seed


def _kept(path: Path) -> set[Key]:
    """The runs in that file that ended well; the others are removed from it."""
    try:
        table = parquet.read_table(str(path))
        rows = table.select([*KEYS, "ok"]).to_pylist()
    except (OSError, pyarrow.ArrowException, KeyError) as error:
        said = re.sub(r"\s+", " ", str(error))[:200]
        raise ConfigError(f"{path}: {said}; expected a table that `pipeline sweep` wrote") from None
    well = [row["ok"] for row in rows]
    if not all(well):
        part = path.with_name(f"_{path.name}")  # Spark and Arrow pass over names that begin so
        parquet.write_table(table.filter(pyarrow.array(well, pyarrow.bool_())), str(part))
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)  # first: it is the old content's
        os.replace(part, path)
    return {
        _key(row["grid"], row["scenario"], row["settings"], row["seed"]) for row in rows if row["ok"]
    }  # fmt: skip
