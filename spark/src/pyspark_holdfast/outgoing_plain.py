"""Rows of plain values as messages at once: what `outgoing.py` makes of them by way of JSON, in a tenth of the time.

Rules of this file: pure. A row with anything that is not surely plain is left to `outgoing.py`, which also tells what
is wrong with it; a test compares the two for drawn rows.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from holdfast.client import Header, Message, Properties

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_TEXTS: Final = frozenset(
    ("message_id", "to", "subject", "reply_to", "correlation_id", "group_id", "reply_to_group_id")
)  # fmt: skip
_SYMBOLS: Final = frozenset(("content_type", "content_encoding"))
"""AMQP has no others than those of ASCII."""
_SIMPLE: Final = (str, bool, int, type(None))
_HEADER: Final = {"durable": (bool, 1), "priority": (int, 255), "ttl_ms": (int, 2**32 - 1)}
"""The type, and the largest value."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def plain_message(row: Mapping[str, Any]) -> Message | None:
    """The message that a row tells, by the names of its columns; None if that is not plain."""
    body: bytes = b""
    properties: dict[str, Any] = {}
    header: dict[str, Any] = {"durable": True, "priority": 4, "ttl_ms": None}
    own = None
    for name, value in row.items():
        kind = type(value)
        if value is None or name == "address" or (name == "body_kind" and value == "data"):
            continue
        if name == "body" and kind in (bytes, str):
            body = value if kind is bytes else value.encode()
        elif kind is str and (name in _TEXTS or (name in _SYMBOLS and value.isascii())):
            properties[name] = value
        elif name == "created" and kind is datetime:
            properties["creation_time"] = (value.replace(tzinfo=value.tzinfo or UTC) - _EPOCH) // _MILLISECOND
        elif name in _HEADER and kind is _HEADER[name][0] and 0 <= value <= _HEADER[name][1]:
            header[name] = value
        elif name == "application_properties" and kind is dict and all(map(_is_simple, value.values())):
            own = dict(value) or None
        else:
            return None
    return Message(
        header=Header(durable=header["durable"], priority=header["priority"], ttl=header["ttl_ms"]),
        properties=Properties(**properties) if properties else None,
        application_properties=own,
        data=[body],
    )


def _is_simple(value: Any) -> bool:
    return type(value) in _SIMPLE or (type(value) is float and isfinite(value))


def bodies_of(part: "RecordBatch") -> list[bytes] | None:
    """The bodies of rows that have nothing else but an address; None of others. The client sends bytes as the message
    that `plain_message` makes of such a row."""
    if {*part.schema.names} - {"address"} != {"body"}:
        return None
    bodies = part.column("body").to_pylist()
    return [body if type(body) is bytes else (body or "").encode() for body in bodies]
