"""A pipeline as a file: a source, steps and a sink (TOML; docs/spark.md, "Jobs").

Rules of this file: text to a `Job` and nothing more; a mistake is one ConfigError line that names file and key. What
the options of a source or a sink may be is said by `options.py` and `sink_options.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Final

from holdfast.errors import ConfigError
from holdfast.text_files import read_text, toml_of
from pyspark_holdfast.options import local_path
from pyspark_holdfast.steps import STEPS_MAX, Step

FILE_BYTES_MAX: Final = 1_000_000
TRIGGER_S_MAX: Final = 86_400.0
FORMATS: Final = ("parquet", "delta", "holdfast", "postgresql")
PARTS: Final = ("source", "sink")
LIST: Final = "step"
OURS: Final = {"source": ("checkpoint", "sinkPath"), "sink": ("checkpointLocation",)}
"""Options that a job sets by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """`options`: those of the format. `path`: of parquet; `partition_by`: columns whose values are its directories."""

    format: str
    options: Mapping[str, str]
    path: Path | None = None
    partition_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """`source`: the options of the source `holdfast`. `trigger_s`: seconds between the starts of two batches."""

    source: Mapping[str, str]
    sink: Sink
    checkpoint: Path
    trigger_s: float = 1.0
    steps: tuple[Step, ...] = ()


def read_job(file: str) -> Job:
    """What the file says. Raises ConfigError."""
    text = read_text("job", file, FILE_BYTES_MAX, allow_pipe=True)
    document = toml_of(text, file)
    _known(file, "the file", document, ("checkpoint", "trigger_s", LIST, *PARTS))
    for part in PARTS:
        if not isinstance(document.get(part), dict):
            raise ConfigError(f"{file}: no [{part}]; expected one")
    if "checkpoint" not in document:
        raise ConfigError(f"{file}: checkpoint is missing; expected the directory that keeps the job's place")
    trigger_s = document.get("trigger_s", 1.0)
    if not isinstance(trigger_s, (int, float)) or isinstance(trigger_s, bool) or not 0 < trigger_s <= TRIGGER_S_MAX:
        raise ConfigError(f"{file}: invalid value {trigger_s!r} for trigger_s; expected up to {TRIGGER_S_MAX:g} s")
    return Job(
        source=_options(file, "source", document["source"]),
        sink=_sink(file, document["sink"]),
        checkpoint=_path(file, "checkpoint", document["checkpoint"]),
        trigger_s=float(trigger_s),
        steps=_steps(file, document.get(LIST, [])),
    )


def _steps(file: str, given: Any) -> tuple[Step, ...]:
    if not isinstance(given, list) or not all(isinstance(step, dict) for step in given) or len(given) > STEPS_MAX:
        raise ConfigError(f"{file}: invalid value for step; expected at most {STEPS_MAX} tables [[step]]")
    steps = []
    for number, table in enumerate(given, start=1):
        function = table.get("function")
        if not isinstance(function, str) or not function:
            raise ConfigError(f"{file}: step {number}: invalid value {function!r} for function; expected its name")
        steps.append(Step(function, {key: value for key, value in table.items() if key != "function"}))
    return tuple(steps)


def _sink(file: str, table: Mapping[str, Any]) -> Sink:
    form = table.get("format")
    if form not in FORMATS:
        raise ConfigError(f"{file}: invalid value {form!r} for sink.format; expected one of {', '.join(FORMATS)}")
    if form == "parquet":
        _known(file, "[sink]", table, ("format", "path", "partition_by"))
        if "path" not in table:
            raise ConfigError(f"{file}: sink.path is missing; expected the directory of the table")
        columns = table.get("partition_by", [])
        is_list = isinstance(columns, list) and all(isinstance(column, str) and column for column in columns)
        if not is_list or len(set(columns)) < len(columns):
            raise ConfigError(
                f"{file}: invalid value {columns!r} for sink.partition_by; expected a list of columns, each once"
            )
        path = _path(file, "sink.path", table["path"])
        return Sink(format=form, options={}, path=path, partition_by=tuple(columns))
    return Sink(format=form, options=_options(file, "sink", {key: table[key] for key in table if key != "format"}))


def _known(file: str, where: str, table: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in table:
        if key not in known:
            raise ConfigError(f"{file}: unknown key {key!r} in {where}; expected one of {', '.join(known)}")


def _path(file: str, key: str, value: Any) -> Path:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{file}: invalid value {value!r} for {key}; expected a directory")
    try:
        return local_path(key, value)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None


def _options(file: str, part: str, table: Mapping[str, Any]) -> dict[str, str]:
    """As Spark takes them: text, and a list with commas between its parts."""
    found: dict[str, str] = {}
    for key, value in table.items():
        if key.lower() in (name.lower() for name in OURS[part]):
            raise ConfigError(f"{file}: {part}.{key} is set by the job itself; leave it out")
        if key.lower() in (name.lower() for name in found):
            raise ConfigError(f"{file}: {part}.{key} is there twice, in another case; give it once")
        values = value if isinstance(value, list) else [value]
        if not values or not all(isinstance(one, (str, int, float, date)) for one in values):
            raise ConfigError(
                f"{file}: invalid value {value!r} for {part}.{key}; expected text, a number, true, false, a time or a "
                "list"
            )
        found[key] = ",".join(_text(one) for one in values)
    return found


def _text(value: str | float | bool | date) -> str:
    if isinstance(value, date):  # or a time with its date
        return value.isoformat()
    return str(value).lower() if isinstance(value, bool) else str(value)
