"""The steps of a job: functions by name, DataFrame → DataFrame, with arguments of a file (docs/spark.md, "Steps").

Rules of this file: a name without a module is one of `cleaning.py`; `module:name` is a function of the user's own. What
the arguments must be is read from the function's signature; their names and types are checked before Spark starts, and
values later.
"""

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OWN: Final = (
    "with_fields", "where", "columns", "without_repeats", "without_ghosts", "counted", "in_order", "with_reference",
)  # fmt: skip
"""Of `cleaning.py`."""
SHUFFLING: Final = ("without_repeats", "without_ghosts", "counted")
"""Those of ours whose rows come in another order when they are computed again."""
STEPS_MAX: Final = 100
NUMBER_MAX: Final = 1_000_000_000
"""The highest number that a function of ours takes."""


class Kind(NamedTuple):
    """What an argument with some annotation must be."""

    holds: Callable[[Any], bool]
    expected: str


def _texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, str) for one in value)


KINDS: Final[Mapping[Any, Kind]] = {
    str: Kind(lambda value: isinstance(value, str), "text"),
    int: Kind(lambda value: type(value) is int, "a whole number"),
    float: Kind(lambda value: type(value) in (int, float), "a number"),
    Sequence[str]: Kind(_texts, "a list of texts, one at least"),
    dict[str, str]: Kind(
        lambda value: isinstance(value, dict) and _texts([*value.values()]), "a table of texts, one at least"
    ),
}
"""By annotation; a function with others is called with what the file says."""
REFERENCES: Final = ("parquet", "json", "csv")
"""Formats of tables of references."""


@dataclass(frozen=True, slots=True)
class Step:
    """`arguments`: those after the rows, by name."""

    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


def check_steps(steps: Sequence[Step]) -> None:
    """Raises ConfigError where a step has no function, or other arguments than it takes."""
    for number, step in enumerate(steps, start=1):
        try:
            signature = inspect.signature(_function(number, step))
            signature.bind(None, **step.arguments)
        except (TypeError, ValueError) as error:  # ValueError: a function of C's that has none
            raise ConfigError(f"step {number}, {step.function}: {error}") from None
        for name, value in step.arguments.items():
            annotation = signature.parameters[name].annotation if name in signature.parameters else None
            kind = next((kind for known, kind in KINDS.items() if known == annotation), None)
            if kind is not None and not kind.holds(value):
                raise ConfigError(
                    f"step {number}, {step.function}: invalid value {value!r} for {name}; expected {kind.expected}"
                )
            expected = _expected(name, value) if step.function in OWN else None
            if expected is not None:
                raise ConfigError(
                    f"step {number}, {step.function}: invalid value {value!r} for {name}; expected {expected}"
                )


def check_places(steps: Sequence[Step], *, by_column: bool) -> None:
    """Raises ConfigError where rows may be in other places when a batch is computed again, by which the sink of
    messages knows them. `by_column`: the column `address` says where a row goes."""
    for number, step in enumerate(steps, start=1):
        then = steps[number:]
        where = f"step {number}, {step.function}: the sink of messages knows a row by its place"
        if step.function in SHUFFLING and not any(one.function == "in_order" for one in then):
            raise ConfigError(f"{where}, and Spark gives them another order each time; expected in_order behind it")
        if step.function == "without_repeats":  # which of several rows stays may be another one each time
            key = step.arguments["key"]
            first = then[0].arguments["by"][: len(key)] if then[0].function == "in_order" else []
            if {*first} != {*key} or any(one.function in ("where", *SHUFFLING) for one in then):
                raise ConfigError(
                    f"{where}, and which of several repeats stays may change; expected in_order next, by "
                    f"{', '.join(key)} first, and behind it no step that leaves out or counts rows"
                )
            if by_column and "address" not in key:
                raise ConfigError(
                    f"{where}, and to which address a row goes may change with the repeat that stays; expected "
                    "'address' in its key, or sink.address"
                )


def _expected(name: str, value: Any) -> str | None:
    """What an argument of a function of ours must be otherwise, though its type is right; None where it may be."""
    if name == "format":
        return None if value in REFERENCES else f"one of {', '.join(REFERENCES)}"
    if not isinstance(value, (int, float)):
        return None
    least = 0 if name == "late_s" else 0.001 if name.endswith("_s") else 1
    return None if least <= value <= NUMBER_MAX else f"{least:g} to {NUMBER_MAX:,}"


def through(rows: "DataFrame", steps: Sequence[Step]) -> "DataFrame":
    """What the steps make of the rows, one after the other. Raises ConfigError."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame

    for number, step in enumerate(steps, start=1):
        where = f"step {number}, {step.function}"
        try:
            found: Any = _function(number, step)(rows, **step.arguments)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None
        except (Py4JError, OSError):  # Spark is gone
            raise
        except Exception as error:  # Spark's, of what an argument says; or of a function of the user's own
            raise ConfigError(f"{where}: {_told(error)}") from error
        if not isinstance(found, DataFrame):
            raise ConfigError(f"{where}: it returned {type(found).__name__}; expected rows, a DataFrame")
        rows = found
    return rows


def _told(error: Exception) -> str:
    """The first line of an exception, of others than Spark's with its kind."""
    from pyspark.errors import PySparkException

    line = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return line if line and isinstance(error, PySparkException) else f"{type(error).__name__}: {line}"


def _function(number: int, step: Step) -> "Callable[..., DataFrame]":
    module, _, name = step.function.rpartition(":")
    if not module and name not in OWN:
        raise ConfigError(f"step {number}: no function {name!r}; expected module:name, or one of {', '.join(OWN)}")
    try:
        found = getattr(importlib.import_module(module or "pyspark_holdfast.cleaning"), name)
    except Exception as error:  # a module of the user's own may raise anything
        said = error if isinstance(error, (ImportError, AttributeError)) else _told(error)
        raise ConfigError(f"step {number}: no function {step.function!r} ({said})") from None
    if not callable(found):
        raise ConfigError(f"step {number}: {step.function!r} is no function")
    function: Callable[..., DataFrame] = found
    return function
