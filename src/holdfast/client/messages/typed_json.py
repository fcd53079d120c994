"""A message's body for programs that have no AMQP types: bytes where it is bytes or text, else JSON that keeps types.

Rules of this file: pure. No two different values become the same JSON, but for the width of numbers, which only the
exact form has (docs/spark.md, "Bodies", states the mapping; tables hold it: add to it, never change it).
"""

import base64
import json
from math import isfinite
from typing import Any, Final, NamedTuple
from uuid import UUID

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.types import (
    MISSING,
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Descriptors,
    Float,
    Int,
    Long,
    Pairs,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
)

PREFIX: Final = "amqp:"
"""The beginning of the key of every object that represents a value of another type; no map's own key does."""


compact_json: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
"""JSON in one line, without blanks; ValueError for NaN and the infinities."""
_AS_JSON: Final = frozenset((str, bool, int, type(None), Ubyte, Ushort, Uint, Ulong, Byte, Short, Int, Long))
"""Types of values that JSON has as they are, without their width."""


class TypedBody(NamedTuple):
    """`kind`: data, binary, string, value, sequence or none. `content`: the bytes of the first three, else empty;
    `value`: what `content` does not say, as JSON text, else None. The source of Spark also makes the kind undecodable:
    `content` is the message as it came, `value` the reason (pyspark_holdfast/rows.py)."""

    kind: str
    content: bytes
    value: str | None


def typed_body(message: Message) -> TypedBody:
    """All of the body of `message`."""
    if message.data is not None:
        if len(message.data) == 1:
            return TypedBody("data", message.data[0], None)
        return TypedBody("data", b"".join(message.data), json_text([len(part) for part in message.data]))
    if message.sequences is not None:
        return TypedBody("sequence", b"", json_text(message.sequences))
    value = message.value
    if value is MISSING:
        return TypedBody("none", b"", None)
    if type(value) is str:
        return TypedBody("string", value.encode(), None)
    if type(value) is bytes:
        return TypedBody("binary", value, None)
    return TypedBody("value", b"", json_text(value))


def json_text(value: Any) -> str:
    """`value` in one line of JSON."""
    return compact_json(typed_json(value))


def map_text(mapping: dict[Any, Any] | None) -> str | None:
    """A section of a message that is a map, in one line of JSON: its keys as text, whether they are strings or symbols;
    None of one that is not there."""
    if mapping is None:
        return None
    told: dict[Any, Any] = {}
    for key, item in mapping.items():
        kind = type(key)
        if (kind is not str and kind is not Symbol) or key.startswith(PREFIX):
            return compact_json(_map(mapping, False))
        told[key] = item if type(item) in _AS_JSON else _typed(item, False)
    return compact_json(told)


def typed_json(value: Any) -> Any:
    """An AMQP value as `json` takes it."""
    return _typed(value, False)


def exact_json(value: Any) -> Any:
    """As `typed_json`, and with the width of each number that is no long or double: `json_value` is its inverse."""
    return _typed(value, True)


def _typed(value: Any, exact: bool) -> Any:
    match value:
        case None | bool():
            return value
        case Ubyte() | Ushort() | Uint() | Ulong() | Byte() | Short() | Int() if exact:
            return {f"{PREFIX}{type(value).__name__.lower()}": int(value)}
        case Float() if exact:
            return {f"{PREFIX}float": float(value) if isfinite(value) else _infinite(value)}
        case Array() if exact:
            told: dict[str, Any] = {f"{PREFIX}array": [_typed(item, True) for item in value.values]}
            told[f"{PREFIX}code"] = value.code
            if isinstance(value.descriptor, Descriptors):
                told[f"{PREFIX}descriptors"] = [_typed(item, True) for item in value.descriptor]
            elif value.descriptor is not MISSING:
                told[f"{PREFIX}descriptor"] = _typed(value.descriptor, True)
            return told
        case Symbol() | Char():
            return {f"{PREFIX}{type(value).__name__.lower()}": str(value)}
        case Timestamp():
            return {f"{PREFIX}timestamp": int(value)}
        case str() | int():
            return value
        case float():
            return value if isfinite(value) else {f"{PREFIX}double": _infinite(value)}
        case Decimal32() | Decimal64() | Decimal128():
            return {f"{PREFIX}{type(value).__name__.lower()}": value.hex()}
        case bytes():
            return {f"{PREFIX}binary": base64.b64encode(value).decode()}
        case UUID():
            return {f"{PREFIX}uuid": str(value)}
        case dict():
            return _map(value, exact)
        case Pairs():
            return {f"{PREFIX}map": [[_typed(key, exact), _typed(item, exact)] for key, item in value]}
        case Described(descriptor, inner):
            return {f"{PREFIX}descriptor": _typed(descriptor, exact), f"{PREFIX}value": _typed(inner, exact)}
        case Array():
            told = {f"{PREFIX}array": [_typed(item, exact) for item in value.values]}
            if value.descriptor is not MISSING:
                told[f"{PREFIX}descriptor"] = _typed(value.descriptor, exact)
            return told
        case list() | tuple():
            return [_typed(item, exact) for item in value]
        case _:
            raise TypeError(f"no AMQP value: {type(value).__name__}")


def _map(value: dict[Any, Any], exact: bool) -> dict[str, Any]:
    """A map of strings is an object; any other is a list of pairs, so that 1 and "1" stay apart."""
    if all(type(key) is str and not key.startswith(PREFIX) for key in value):
        return {key: _typed(item, exact) for key, item in value.items()}
    return {f"{PREFIX}map": [[_typed(key, exact), _typed(item, exact)] for key, item in value.items()]}


def _infinite(value: float) -> str:
    """As ECMAScript and Arrow write it."""
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
