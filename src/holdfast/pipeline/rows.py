"""Messages as rows: the source's columns, and entries turned into Arrow batches of exactly that shape.

Rules of this file: pyarrow is imported inside functions, so that a driver can plan without it; Spark checks
only the first batch of a task, so every batch is built from the one schema. Times are microseconds since
1970, UTC.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from holdfast.client.typed_json import TypedBody, json_text, typed_body
from holdfast.errors import HoldfastError
from holdfast.pipeline.bus import Entry
from holdfast.units import MIB

if TYPE_CHECKING:
    from pyarrow import RecordBatch, Schema

COLUMNS: Final = (
    "address string not null, sequence bigint not null, message_id string, subject string, content_type "
    "string, "
    "correlation_id string, created timestamp, enqueued timestamp, application_properties "
    "map<string,string>, "
    "annotations map<string,string>, body binary not null, body_kind string not null, body_value string"
)
"""`sequence` with `address` names an entry once and for ever; `body` is the data sections joined, or the text or
bytes of a value; of any other body `body_value` is its JSON (docs/spark.md, "Bodies").
"""

BATCH_BYTES_MAX: Final = 64 * MIB
"""Bodies of an Arrow batch, but for its last message: an array of Arrow's holds no more than 2 GiB."""

_MILLISECONDS_MAX: Final = 9_000_000_000_000_000
"""What still fits as microseconds into 64 bits; times beyond are null."""


@cache
def arrow_schema() -> "Schema":
    """`COLUMNS` as Arrow, as Spark would write it."""
    import pyarrow as pa

    moment = pa.timestamp("us", tz="UTC")
    texts = pa.map_(pa.string(), pa.string())
    return pa.schema(
        [
            pa.field("address", pa.string(), nullable=False),
            pa.field("sequence", pa.int64(), nullable=False),
            pa.field("message_id", pa.string()),
            pa.field("subject", pa.string()),
            pa.field("content_type", pa.string()),
            pa.field("correlation_id", pa.string()),
            pa.field("created", moment),
            pa.field("enqueued", moment),
            pa.field("application_properties", texts),
            pa.field("annotations", texts),
            pa.field("body", pa.binary(), nullable=False),
            pa.field("body_kind", pa.string(), nullable=False),
            pa.field("body_value", pa.string()),
        ]
    )


def text_of(value: Any) -> str | None:
    """A property's value as text: booleans as in JSON, bytes in hex, maps, lists and the like as the JSON of bodies,
    null as null."""
    if value is None:
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return float.__repr__(value)
    return str(value) if isinstance(value, UUID) else json_text(value)


def batches(address: str, entries: Iterable[Entry], rows_max: int) -> Iterator["RecordBatch"]:
    """`entries` in order as Arrow batches of `rows_max` rows, or of fewer where BATCH_BYTES_MAX is reached; none for
    no entries."""
    gathered: list[Entry] = []
    bodies: list[TypedBody] = []
    size = 0
    for entry in entries:
        gathered.append(entry)
        body = _body_of(address, entry)
        bodies.append(body)
        size += len(body.content) + len(body.value or "")
        if len(gathered) >= rows_max or size >= BATCH_BYTES_MAX:
            yield record_batch(address, gathered, bodies)
            gathered, bodies, size = [], [], 0
    if gathered:
        yield record_batch(address, gathered, bodies)


def record_batch(address: str, entries: list[Entry], bodies: list[TypedBody]) -> "RecordBatch":
    """One batch of `entries` and their `bodies`, in their order."""
    import pyarrow as pa

    schema = arrow_schema()
    message_ids: list[str | None] = []
    subjects: list[str | None] = []
    content_types: list[str | None] = []
    correlation_ids: list[str | None] = []
    created: list[int | None] = []
    properties: list[dict[Any, Any] | None] = []
    annotations: list[dict[Any, Any] | None] = []
    for entry in entries:
        message = entry.message
        header = message.properties
        if header is None:
            message_ids.append(None)
            subjects.append(None)
            content_types.append(None)
            correlation_ids.append(None)
            created.append(None)
        else:
            message_ids.append(_identifier(header.message_id))
            subjects.append(header.subject)
            content_types.append(header.content_type)
            correlation_ids.append(_identifier(header.correlation_id))
            created.append(_microseconds(header.creation_time))
        properties.append(message.application_properties)
        annotations.append(message.message_annotations)
    moment = schema.field("created").type
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(address, pa.string()), len(entries)),
            pa.array([entry.sequence for entry in entries], pa.int64()),
            pa.array(message_ids, pa.string()),
            pa.array(subjects, pa.string()),
            pa.array(content_types, pa.string()),
            pa.array(correlation_ids, pa.string()),
            pa.array(created, moment),
            pa.array([_microseconds(entry.enqueued_ms) for entry in entries], moment),
            _texts(properties),
            _texts(annotations),
            pa.array([body.content for body in bodies], pa.binary()),
            pa.array([body.kind for body in bodies], pa.string()),
            pa.array([body.value for body in bodies], pa.string()),
        ],
        schema=schema,
    )


def _body_of(address: str, entry: Entry) -> TypedBody:
    try:
        return typed_body(entry.message)
    except (TypeError, ValueError) as error:
        raise HoldfastError(
            f"queue {address!r}, sequence {entry.sequence}: its body cannot be told as a row: {error}"
        ) from None


def _texts(maps: list[dict[Any, Any] | None]) -> Any:
    """Maps as one Arrow array, from flat keys and values: four times faster than from pairs."""
    import pyarrow as pa

    keys: list[str] = []
    values: list[str | None] = []
    offsets = [0]
    for mapping in maps:
        if mapping:
            for key, value in mapping.items():
                keys.append(key if type(key) is str else str(text_of(key)))
                values.append(value if type(value) is str else text_of(value))
        offsets.append(len(keys))
    return pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()), pa.array(keys, pa.string()), pa.array(values, pa.string())
    )


def _identifier(value: Any) -> str | None:
    """A message or correlation id: string, ulong, UUID or binary (§3.2.11 to 3.2.14)."""
    if value is None or type(value) is str:
        return value
    return str(value) if isinstance(value, UUID) else text_of(value)


def _microseconds(milliseconds: int | None) -> int | None:
    if milliseconds is None or not -_MILLISECONDS_MAX < milliseconds < _MILLISECONDS_MAX:
        return None
    return int(milliseconds) * 1000
