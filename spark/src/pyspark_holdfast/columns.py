"""The columns of a row, in their order, as Spark and as Arrow know them (docs/spark.md, "Reading the table").

Rules of this file: names and types only. Columns are added at the end and never changed: tables hold them. pyarrow is
imported inside functions, so that a driver can plan without it.
"""

from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyarrow import Schema

_TEXTS: Final = "map<string,string>"

FIELDS: Final[dict[str, str]] = {
    "address": "string not null",
    "sequence": "bigint not null",
    "message_id": "string",
    "subject": "string",
    "content_type": "string",
    "correlation_id": "string",
    "created": "timestamp",
    "enqueued": "timestamp",
    "application_properties": _TEXTS,
    "annotations": _TEXTS,
    "body": "binary not null",
    "body_kind": "string not null",
    "body_value": "string",
    "user_id": "binary",
    "to": "string",
    "reply_to": "string",
    "content_encoding": "string",
    "absolute_expiry_time": "timestamp",
    "group_id": "string",
    "group_sequence": "bigint",
    "reply_to_group_id": "string",
    "durable": "boolean",
    "priority": "int",
    "ttl_ms": "bigint",
    "first_acquirer": "boolean",
    "delivery_count": "bigint",
    "application_properties_json": "string",
    "annotations_json": "string",
    "delivery_annotations_json": "string",
    "footer_json": "string",
    "origin": "string",
    "number": "bigint",
    "path": "array<string>",
    "amqp": "string",
    "node": "string",
}
"""Each column's type in Spark's own words."""

COLUMNS: Final = ", ".join(f"`{name}` {kind}" for name, kind in FIELDS.items())
"""The schema in Spark's own words. `node`, `address` and `sequence` name an entry once and for ever; `body` is the data
sections joined, or the text or bytes of a value; of any other body `body_value` is its JSON (docs/spark.md, "Bodies").
"""

NULLABLE_COLUMNS: Final = COLUMNS.replace(" not null", "")


@cache
def arrow_schema() -> "Schema":
    """`COLUMNS` as Arrow, as Spark would write it."""
    import pyarrow as pa

    kinds = {
        "string": pa.string(),
        "binary": pa.binary(),
        "bigint": pa.int64(),
        "int": pa.int32(),
        "boolean": pa.bool_(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "array<string>": pa.list_(pa.string()),
        _TEXTS: pa.map_(pa.string(), pa.string()),
    }
    return pa.schema(
        [
            pa.field(name, kinds[kind.removesuffix(" not null")], nullable=not kind.endswith(" not null"))
            for name, kind in FIELDS.items()
        ]
    )
