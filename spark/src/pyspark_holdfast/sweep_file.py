"""A sweep as a file: grids of scenarios, settings and seeds (TOML; docs/simulator.md, "Sweeps").

Rules of this file: text to a list of runs and nothing more; a mistake is one ConfigError line that names file and key.
What a scenario's settings mean is the simulator's business.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final

from holdfast.errors import ConfigError
from holdfast.text_files import read_text, toml_of

FILE_BYTES_MAX: Final = 1_000_000
RUNS_MAX: Final = 1_000_000
SEEDS_MAX: Final = 100_000
KEYS: Final = ("name", "scenarios", "seeds", "first_seed", "set", "run_s")
RUN_S_MAX: Final = 86_400


@dataclass(frozen=True, slots=True)
class Wanted:
    """One run. `settings`: what `--set` is given, by key. `run_s`: about so long it takes one core, as the file says; 0
    where it does not."""

    grid: str
    scenario: str
    settings: Mapping[str, str]
    seed: int
    run_s: float = field(default=0.0, compare=False)


def read_sweep(file: str) -> list[Wanted]:
    """All runs of the file's grids, in its order. Raises ConfigError."""
    text = read_text("sweep", file, FILE_BYTES_MAX, allow_pipe=True)
    document = toml_of(text, file)
    _known(file, "the file", document, ("grid",))
    grids = document.get("grid")
    if not isinstance(grids, list) or not all(isinstance(grid, dict) for grid in grids) or not grids:
        raise ConfigError(f"{file}: no [[grid]]; expected at least one")
    wanted: list[Wanted] = []
    for grid in grids:
        wanted += _grid(file, grid, RUNS_MAX - len(wanted))
    return wanted


def _grid(file: str, grid: Mapping[str, Any], most: int) -> Iterator[Wanted]:
    _known(file, "[[grid]]", grid, KEYS)
    name = grid.get("name")
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{file}: invalid value {name!r} for grid.name; expected text")
    scenarios = grid.get("scenarios")
    if not isinstance(scenarios, list) or not scenarios or not all(isinstance(one, str) and one for one in scenarios):
        raise ConfigError(f"{file}: invalid value {scenarios!r} for grid.scenarios; expected a list of names")
    seeds = _whole(file, "seeds", grid.get("seeds", 1), 1, SEEDS_MAX)
    first = _whole(file, "first_seed", grid.get("first_seed", 1), 0, 1 << 62)
    run_s = grid.get("run_s", 0)
    if not isinstance(run_s, (int, float)) or isinstance(run_s, bool) or not 0 <= run_s <= RUN_S_MAX:
        raise ConfigError(f"{file}: invalid value {run_s!r} for grid.run_s; expected 0 to {RUN_S_MAX} seconds")
    table = grid.get("set", {})
    if not isinstance(table, dict):
        raise ConfigError(f"{file}: invalid value {table!r} for grid.set; expected a table")
    choices = [_choices(file, key, values) for key, values in table.items()]
    count = len(scenarios) * seeds
    for values in choices:
        count *= len(values)
    if count > most:
        raise ConfigError(f"{file}: more than {RUNS_MAX:,} runs; take fewer seeds or values")
    return (
        Wanted(name, scenario, dict(zip(table, chosen, strict=True)), seed, float(run_s))
        for chosen in product(*choices)
        for scenario in scenarios
        for seed in range(first, first + seeds)
    )


def _known(file: str, where: str, table: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in table:
        if key not in known:
            raise ConfigError(f"{file}: unknown key {key!r} in {where}; expected one of {', '.join(known)}")


def _whole(file: str, key: str, value: Any, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ConfigError(f"{file}: invalid value {value!r} for grid.{key}; expected {low} to {high}")
    return value


def _choices(file: str, key: str, values: Any) -> list[str]:
    """As `--set` takes them."""
    found = []
    for value in values if isinstance(values, list) else [values]:
        if isinstance(value, bool):
            found.append("true" if value else "false")
        elif isinstance(value, (int, float, str)):
            found.append(str(value))
        else:
            raise ConfigError(f"{file}: invalid value {value!r} for grid.set.{key}; expected text, a number or a list")
    if not found:
        raise ConfigError(f"{file}: invalid value [] for grid.set.{key}; expected at least one value")
    return found
