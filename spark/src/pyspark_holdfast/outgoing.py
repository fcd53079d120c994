"""Rows as messages: the inverse of `rows.py`, for the sink (docs/spark.md, "Writing").

Rules of this file: a row becomes the line of JSON that `holdfast send` takes as a message (`message_json`), and that
alone decides what it is; `outgoing_plain.py` is its short form for plain rows. A mistake is a ValueError of one line.
"""

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    FractionalType,
    IntegralType,
    MapType,
    NullType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from holdfast.client import Message
from holdfast.client.messages.message_json import BODY_KINDS, FORMAT, message_of
from holdfast.errors import ConfigError
from pyspark_holdfast.columns import FIELDS
from pyspark_holdfast.outgoing_plain import plain_message

if TYPE_CHECKING:
    from pyarrow import RecordBatch

NOT_SENT: Final = frozenset(
    ("sequence", "enqueued", "first_acquirer", "delivery_count", "delivery_annotations_json", "footer_json", "origin",
     "number", "path", "node")
)  # fmt: skip
"""Columns of the source that say what a queue or a node says; the sink leaves them out. The footer is in `amqp`."""
SENT: Final = tuple(name for name in FIELDS if name not in NOT_SENT)

_PLAIN: Final = ("message_id", "to", "subject", "content_type")
_HEADER: Final = ("durable", "priority", "ttl_ms")
_PROPERTIES: Final = (
    "reply_to", "correlation_id", "content_encoding", "group_id", "group_sequence", "reply_to_group_id",
)  # fmt: skip
_TIMES: Final = {"created": "creation_time", "absolute_expiry_time": "absolute_expiry_time"}
_MAPS: Final = ("application_properties", "annotations")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


class Kind(NamedTuple):
    """What a column may be of."""

    types: tuple[type[DataType], ...]
    expected: str


_TEXT: Final = Kind((StringType,), "string")
_BYTES: Final = Kind((BinaryType, StringType), "binary or string")
_NUMBER: Final = Kind((IntegralType,), "a whole number: tinyint, smallint, int or bigint")
_TIME: Final = Kind((TimestampType, TimestampNTZType, IntegralType), "timestamp, or milliseconds as bigint")
_MAP: Final = Kind((MapType, StructType), "map or struct")
_OTHERS: Final[Mapping[str, Kind]] = {
    "body": _BYTES, "user_id": _BYTES, "created": _TIME, "absolute_expiry_time": _TIME, "group_sequence": _NUMBER,
    "priority": _NUMBER, "ttl_ms": _NUMBER, "durable": Kind((BooleanType,), "boolean"),
    "application_properties": _MAP, "annotations": _MAP,
}  # fmt: skip
"""Of the columns of SENT that are no text."""
_VALUES: Final = (
    NullType, BooleanType, IntegralType, FractionalType, StringType, BinaryType, TimestampType, TimestampNTZType,
)  # fmt: skip


def check_columns(schema: StructType) -> None:
    """Raises ConfigError where a column is none that a message could be made of."""
    names = schema.names
    for name in names:
        if name not in FIELDS:
            raise ConfigError(f"unknown column {name!r}; expected some of {', '.join(SENT)}")
        if names.count(name) > 1:
            raise ConfigError(f"column {name!r} is there {names.count(name)} times; expected once")
    if not set(names) & set(SENT):
        raise ConfigError(f"no column that a message could be made of; expected some of {', '.join(SENT)}")
    for column in schema.fields:
        if column.name not in SENT:
            continue
        kind = _OTHERS.get(column.name, _TEXT)
        if not isinstance(column.dataType, (*kind.types, NullType)):
            raise ConfigError(
                f"column {column.name!r} is of type {column.dataType.simpleString():.80}; expected {kind.expected}"
            )
        if column.name in _MAPS:
            _check_values(column.name, column.dataType)


def _check_values(name: str, kind: DataType) -> None:
    match kind:
        case MapType():
            if not isinstance(kind.keyType, StringType):
                raise ConfigError(
                    f"column {name!r} has a map with keys of {kind.keyType.simpleString()}; expected string"
                )
            _check_values(name, kind.valueType)
        case StructType():
            for field in kind.fields:
                _check_values(name, field.dataType)
        case ArrayType():
            _check_values(name, kind.elementType)
        case _ if not isinstance(kind, _VALUES) or isinstance(kind, DecimalType):
            raise ConfigError(f"column {name!r} has values of type {kind.simpleString()}; expected a cast to another")


def counting(rows: "RecordBatch") -> "RecordBatch":
    """The columns that are sent. A map is null where the JSON beside it counts: its keys are text, of which two that
    differ in AMQP, as 1 and "1", make one."""
    import pyarrow as pa
    import pyarrow.compute as compute

    wanted = rows.select([name for name in rows.schema.names if name not in NOT_SENT])
    for name in _MAPS:
        if {name, f"{name}_json"} <= {*wanted.schema.names}:
            at, given = wanted.schema.get_field_index(name), wanted.column(name)
            told = compute.is_valid(wanted.column(f"{name}_json"))
            wanted = wanted.set_column(at, name, compute.if_else(told, pa.scalar(None, given.type), given))
    return wanted


def message_of_row(row: dict[str, Any]) -> Message:
    """The message that a row tells, by the names of its columns. Raises ValueError, in one line."""
    message = plain_message(row)
    return message_of(line_of_row(row)) if message is None else message


def line_of_row(row: dict[str, Any]) -> dict[str, Any]:
    """The same as `holdfast receive --json` would print it. Raises ValueError."""
    amqp = _parsed(row, "amqp")
    line: dict[str, Any] = {"format": FORMAT, "amqp": amqp}
    for name in (*_PLAIN, *_HEADER):
        if row.get(name) is not None:
            line[name] = row[name]
    fields = {name: row[name] for name in _PROPERTIES if row.get(name) is not None}
    for column, name in _TIMES.items():
        if row.get(column) is not None:
            fields[name] = _milliseconds(column, row[column])
    if row.get("user_id") is not None:
        fields["user_id"] = {"amqp:binary": _base64("user_id", row["user_id"])}
    told = fields | (amqp.get("properties") or {})
    if told:
        amqp["properties"] = told
    _put_map(line, amqp, row, "properties", "application_properties")
    _put_map(line, amqp, row, "annotations", "annotations")
    _put_body(line, amqp, row)
    return line


def _parsed(row: dict[str, Any], name: str) -> dict[str, Any]:
    """The object of JSON in a column; empty where there is none."""
    text = row.get(name)
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError, TypeError):
        value = None
    if not isinstance(value, dict):
        raise ValueError(f"invalid value {text!r:.80} in column {name!r}; expected an object in JSON")
    return value


def _put_map(line: dict[str, Any], amqp: dict[str, Any], row: dict[str, Any], plain: str, column: str) -> None:
    """Plain values under `plain`, and those with a type of AMQP's own under `amqp`, unless it has them."""
    if f"{column}_map" in amqp:
        return
    values = row.get(f"{column}_json")
    if values is not None:
        told = _parsed(row, f"{column}_json")
        if set(told) == {"amqp:map"}:
            by_text = _by_text(told["amqp:map"], is_symbol=column == "annotations")
            if by_text is None:
                amqp[f"{column}_map"] = told["amqp:map"]
                return
            told = by_text
    else:
        given = row.get(column)
        if not given:
            return
        items = given.items() if isinstance(given, dict) else given
        told = {key: _plain_value(column, value) for key, value in items}
    exact = {key: value for key, value in told.items() if isinstance(value, dict | list)}
    line[plain] = {key: None if key in exact else value for key, value in told.items()}  # in their order
    if exact or not told:
        amqp[column] = exact | (amqp.get(column) or {})


def _by_text(pairs: Any, *, is_symbol: bool) -> dict[str, Any] | None:
    """Pairs as an object, where all keys are of the type that the section has, and one begins as no key of JSON may;
    else None. What the widths of their values are is in `amqp`, by these keys."""
    found: dict[str, Any] = {}
    for pair in pairs if isinstance(pairs, list) else ():
        key = pair[0] if isinstance(pair, list) and len(pair) == 2 else None
        if is_symbol and isinstance(key, dict) and set(key) == {"amqp:symbol"}:
            key = key["amqp:symbol"]
        elif is_symbol:
            return None
        if not isinstance(key, str):
            return None
        found[key] = pair[1]
    return found or None


def _plain_value(column: str, value: Any) -> Any:
    """A value of Spark's as JSON tells it."""
    match value:
        case None | bool() | int() | float() | str():
            return value if value == value and value not in (float("inf"), float("-inf")) else _infinite(value)
        case bytes() | bytearray():
            return {"amqp:binary": base64.b64encode(value).decode()}
        case datetime():
            return {"amqp:timestamp": _milliseconds(column, value)}
        case list():
            return [_plain_value(column, item) for item in value]
        case dict():
            return {key: _plain_value(column, item) for key, item in value.items()}
        case _:  # a date, a decimal or an interval, say
            kind = type(value).__name__
            raise ValueError(f"invalid value {value!r:.80} ({kind}) in column {column!r}; expected a cast to text")


def _infinite(value: Any) -> dict[str, str]:
    return {"amqp:double": "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"}


def _put_body(line: dict[str, Any], amqp: dict[str, Any], row: dict[str, Any]) -> None:
    kind, value = row.get("body_kind") or "data", row.get("body_value")
    if kind not in BODY_KINDS:
        raise ValueError(f"invalid value {kind!r:.80} in column 'body_kind'; expected one of {', '.join(BODY_KINDS)}")
    amqp.setdefault("body_kind", kind)
    if value is not None and "body_value" not in amqp:
        try:
            amqp["body_value"] = json.loads(value)
        except (ValueError, RecursionError, TypeError):
            raise ValueError(f"invalid value {value!r:.80} in column 'body_value'; expected JSON") from None
    if kind in ("data", "binary"):
        line["body_base64"] = _base64("body", row.get("body") or b"")
    elif kind == "string":
        body = row.get("body") or ""
        try:
            line["body"] = body if isinstance(body, str) else bytes(body).decode()
        except UnicodeDecodeError:
            raise ValueError("invalid value in column 'body' of kind string; expected UTF-8") from None


def _base64(column: str, value: Any) -> str:
    if isinstance(value, str):
        value = value.encode()
    if not isinstance(value, bytes | bytearray):
        raise ValueError(f"invalid value {value!r:.80} in column {column!r}; expected binary or string")
    return base64.b64encode(value).decode()


def _milliseconds(column: str, value: Any) -> int:
    """A time of Spark's, in UTC where it has no zone, or a whole number."""
    if type(value) is int:
        return value
    if not isinstance(value, datetime):
        raise ValueError(f"invalid value {value!r:.80} in column {column!r}; expected a timestamp")
    return (value.replace(tzinfo=value.tzinfo or UTC) - _EPOCH) // _MILLISECOND
