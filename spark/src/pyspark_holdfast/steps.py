"""The steps of a job: functions by name, DataFrame → DataFrame, with arguments of a file (docs/spark.md, "Steps").

Rules of this file: a name without a module is one of `cleaning.py`; `module:name` is a function of the user's own. What
the arguments must be is read from the function's signature; before Spark starts, names are checked, and values later.
"""

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OWN: Final = (
    "with_fields", "where", "columns", "without_repeats", "without_ghosts", "counted", "in_order", "with_reference",
)  # fmt: skip
"""Of `cleaning.py`."""
STEPS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class Step:
    """`arguments`: those after the rows, by name."""

    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


def check_steps(steps: Sequence[Step]) -> None:
    """Raises ConfigError where a step has no function, or other arguments than it takes."""
    for number, step in enumerate(steps, start=1):
        function = _function(number, step)
        try:
            inspect.signature(function).bind(None, **step.arguments)
        except TypeError as error:
            raise ConfigError(f"step {number}, {step.function}: {error}") from None


def through(rows: "DataFrame", steps: Sequence[Step]) -> "DataFrame":
    """What the steps make of the rows, one after the other. Raises ConfigError."""
    for number, step in enumerate(steps, start=1):
        try:
            rows = _function(number, step)(rows, **step.arguments)
        except ConfigError as error:
            raise ConfigError(f"step {number}, {step.function}: {error}") from None
    return rows


def _function(number: int, step: Step) -> "Callable[..., DataFrame]":
    module, _, name = step.function.rpartition(":")
    if not module and name not in OWN:
        raise ConfigError(f"step {number}: no function {name!r}; expected module:name, or one of {', '.join(OWN)}")
    try:
        found = getattr(importlib.import_module(module or "pyspark_holdfast.cleaning"), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"step {number}: no function {step.function!r} ({error})") from None
    if not callable(found):
        raise ConfigError(f"step {number}: {step.function!r} is no function")
    function: Callable[..., DataFrame] = found
    return function
