"""Makes steps from a link's `steps` in TOML, in a request or in the store.

Rules of this file: every mistake is a ConfigError of one line that names the link, the step and the key.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from holdfast.errors import ConfigError
from holdfast.schema import SECONDS, TEXT, TEXTS, Keys, Kind, check_keys, found, one_of
from holdfast.selectors.errors import SelectorError
from holdfast.selectors.predicate import compile_selector
from holdfast.steps.aggregates import KINDS, Aggregate
from holdfast.steps.changing import ChangeProperties, Lookup, Select
from holdfast.steps.conversion import READERS, Convert
from holdfast.steps.repeats import DropRepeats
from holdfast.steps.step import Step
from holdfast.units import KIB

STEPS_MAX: Final = 16
"""Steps of one link."""
STEPS_BYTES_MAX: Final = 512 * KIB
"""All steps of a link as JSON, their tables included: they are in one row of the store."""
TABLE_ROWS_MAX: Final = 10_000
WITHIN_S_MAX: Final = 86_400 * 366

_SINGLE: Final = (str, int, float, bool)


def _is_map(value: object, of: tuple[type, ...]) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(key, str) and key and isinstance(item, of) for key, item in value.items()
    )


_WITHIN: Final = Kind(
    f"a number of seconds from 0.001 to {WITHIN_S_MAX} (a year)",
    lambda value: SECONDS.fits(value) and 0.001 <= value <= WITHIN_S_MAX,
)
_VALUES: Final = Kind("a table of texts, numbers, true or false", lambda value: _is_map(value, _SINGLE))
_NAMES: Final = Kind("a table of texts", lambda value: _is_map(value, (str,)))
_ROWS: Final = Kind(
    f"a table of at most {TABLE_ROWS_MAX} texts",
    lambda value: (
        isinstance(value, Mapping)
        and len(value) <= TABLE_ROWS_MAX
        and all(isinstance(key, str) and isinstance(item, str) for key, item in value.items())
    ),
)
_FORMAT: Final = one_of(*READERS)
SELECT: Final = "select"
"""The kind of step whose value is a selector, not a table."""


def as_text(told: object, where: str) -> str:
    """Steps as JSON, "" for none, for the store and for comparing links."""
    if not isinstance(told, (list, tuple)):
        raise ConfigError(f"invalid value {found(told)} for {where} steps; expected a list of tables")
    if not told:
        return ""
    try:
        text = json.dumps(_plain(told), ensure_ascii=False, allow_nan=False, sort_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"invalid steps of {where}; expected texts, numbers, lists and tables ({error})") from None
    if len(text.encode("utf-8", "surrogatepass")) > STEPS_BYTES_MAX:
        raise ConfigError(f"{where} steps have {len(text)} bytes as JSON; the limit is {STEPS_BYTES_MAX}")
    return text


def _plain(value: Any) -> Any:
    """Without the types of AMQP."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    for kind in (bool, str, int, float):
        if isinstance(value, kind):
            return kind(value)
    raise TypeError(f"not {type(value).__name__}")


def steps_of(text: str, where: str) -> tuple[Step, ...]:
    """The steps in a text of `as_text`."""
    told: Sequence[Any] = json.loads(text) if text else ()
    if len(told) > STEPS_MAX:
        raise ConfigError(f"{where} has {len(told)} steps; the limit is {STEPS_MAX}")
    return tuple(_step(item, f"{where} step {number}") for number, item in enumerate(told, 1))


def _step(told: Any, where: str) -> Step:
    if not isinstance(told, dict) or len(told) != 1:
        raise ConfigError(f"invalid value {found(told)} for {where}; expected a table with one key, its kind")
    kind, given = next(iter(told.items()))
    if kind != SELECT and kind not in STEPS:
        raise ConfigError(f"unknown key {kind!r} in {where}; expected one of {', '.join((SELECT, *STEPS))}")
    where = f"{where} {kind}"
    if kind == SELECT:
        return _select(given, where)
    if not isinstance(given, dict):
        raise ConfigError(f"invalid value {found(given)} for {where}; expected a table")
    keys, needed, make = STEPS[kind]
    check_keys(where, given, keys)
    for key in needed:
        if key not in given:
            raise ConfigError(f"{where} has no {key}; expected {keys[key].expected}")
    return make(given, where)


def _select(given: Any, where: str) -> Step:
    if not isinstance(given, str):
        raise ConfigError(f"invalid value {found(given)} for {where}; expected a selector in quotes")
    try:
        return Select(compile_selector(given))
    except SelectorError as error:
        raise ConfigError(f"invalid selector of {where}: {error}") from error


def _drop_repeats(given: dict[str, Any], where: str) -> Step:
    return DropRepeats(given["key"], round(given["within_s"] * 1_000), where)


def _aggregate(given: dict[str, Any], where: str) -> Step:
    field, of = given.get("field"), given["of"]
    if (field is None) != (of == "count"):
        text = "has a field, and counts messages; remove it" if field is not None else "has no field; add one"
        raise ConfigError(f"{where} {text}")
    return Aggregate(given["key"], field, round(given["within_s"] * 1_000), of, where)


def _convert(given: dict[str, Any], where: str) -> Step:
    if given["from"] == given["to"]:
        raise ConfigError(f"invalid value {given['to']!r} for {where} to; expected another format than from")
    return Convert(given["from"], given["to"])


def _properties(given: dict[str, Any], where: str) -> Step:
    if not any(given.values()):
        raise ConfigError(f"{where} changes nothing; expected add, rename or drop")
    for name, value in given.get("add", {}).items():
        if isinstance(value, int) and abs(value) >= 2**63:
            raise ConfigError(f"invalid value {found(value)} for {where} add {name}; expected a number of 64 bits")
    return ChangeProperties(given.get("add", {}), given.get("rename", {}), given.get("drop", []))


def _lookup(given: dict[str, Any], where: str) -> Step:
    return Lookup(given["key"], given["value"], given["table"], given.get("default"), where)


class StepKind(NamedTuple):
    """A kind of step: the keys that it has, those that it must have, and what makes a step of them. `make` gets the
    step's table and its name in errors."""

    keys: Keys
    needed: tuple[str, ...]
    make: Callable[[dict[str, Any], str], Step]


STEPS: Final[Mapping[str, StepKind]] = {
    "drop_repeats": StepKind({"key": TEXT, "within_s": _WITHIN}, ("key", "within_s"), _drop_repeats),
    "aggregate": StepKind(
        {"key": TEXT, "field": TEXT, "within_s": _WITHIN, "of": one_of(*KINDS)},
        ("key", "within_s", "of"),
        _aggregate,
    ),
    "convert": StepKind({"from": _FORMAT, "to": _FORMAT}, ("from", "to"), _convert),
    "properties": StepKind({"add": _VALUES, "rename": _NAMES, "drop": TEXTS}, (), _properties),
    "lookup": StepKind(
        {"key": TEXT, "value": TEXT, "table": _ROWS, "default": Kind("text in quotes", lambda x: isinstance(x, str))},
        ("key", "value", "table"),
        _lookup,
    ),
}
"""All kinds but `select`, whose value is a selector."""
