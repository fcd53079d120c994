"""Messages as rows: the source's columns, and entries turned into Arrow batches of exactly that shape.

Rules of this file: pyarrow is imported inside functions, so that a driver can plan without it; Spark checks
only the first batch of a task, so every batch is built from the one schema. Times are microseconds since
1970, UTC.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from holdfast.client.messages.typed_json import TypedBody, json_text, typed_body
from holdfast.errors import HoldfastError
from holdfast.units import MIB
from pyspark_holdfast.bus import Entry

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
"""What an Arrow batch holds, but for its last message: an array of Arrow's holds no more than 2 GiB."""

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
    gathered = _Gathered(address)
    for entry in entries:
        gathered.add(entry)
        if len(gathered.sequences) >= rows_max or gathered.size >= BATCH_BYTES_MAX:
            yield gathered.batch()
            gathered = _Gathered(address)
    if gathered.sequences:
        yield gathered.batch()


def record_batch(address: str, entries: Iterable[Entry]) -> "RecordBatch":
    """One batch of all `entries`, in their order."""
    gathered = _Gathered(address)
    for entry in entries:
        gathered.add(entry)
    return gathered.batch()


class _Texts:
    """A column of maps, as flat keys and values: four times faster than from pairs."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.values: list[str | None] = []
        self.offsets = [0]

    def add(self, mapping: dict[Any, Any] | None) -> int:
        """The characters that it took."""
        size = 0
        if mapping:
            keys = [key if type(key) is str else str(text_of(key)) for key in mapping]
            values = [value if type(value) is str else text_of(value) for value in mapping.values()]
            self.keys += keys
            self.values += values
            size = sum(map(len, keys)) + sum([len(value) for value in values if value is not None])
        self.offsets.append(len(self.keys))
        return size


class _Gathered:
    """Rows on their way into one batch. `size`: of all that goes into its columns and has no fixed width, in bytes of
    bodies and characters of text, which take up to four bytes each."""

    def __init__(self, address: str) -> None:
        self.size = 0
        self.sequences: list[int] = []
        self._address = address
        self._message_ids: list[str | None] = []
        self._subjects: list[str | None] = []
        self._content_types: list[str | None] = []
        self._correlation_ids: list[str | None] = []
        self._created: list[int | None] = []
        self._enqueued: list[int | None] = []
        self._properties = _Texts()
        self._annotations = _Texts()
        self._bodies: list[TypedBody] = []

    def add(self, entry: Entry) -> None:
        message = entry.message
        body = _body_of(self._address, entry)
        header = message.properties
        if header is None:
            self._message_ids.append(None)
            self._subjects.append(None)
            self._content_types.append(None)
            self._correlation_ids.append(None)
            self._created.append(None)
        else:
            message_id, correlation_id = _identifier(header.message_id), _identifier(header.correlation_id)
            subject, content_type = header.subject, header.content_type
            self._message_ids.append(message_id)
            self._subjects.append(subject)
            self._content_types.append(content_type)
            self._correlation_ids.append(correlation_id)
            self._created.append(_microseconds(header.creation_time))
            self.size += (
                len(message_id or "") + len(correlation_id or "") + len(subject or "") + len(content_type or "")
            )
        self._enqueued.append(_microseconds(entry.enqueued_ms))
        self._bodies.append(body)
        self.sequences.append(entry.sequence)
        self.size += len(body.content) + len(body.value or "")
        self.size += self._properties.add(message.application_properties)
        self.size += self._annotations.add(message.message_annotations)

    def batch(self) -> "RecordBatch":
        """HoldfastError where one message alone has more than a column holds."""
        import pyarrow as pa

        schema = arrow_schema()
        moment = schema.field("created").type
        return pa.RecordBatch.from_arrays(
            [
                pa.repeat(pa.scalar(self._address, pa.string()), len(self.sequences)),
                pa.array(self.sequences, pa.int64()),
                self._array("message_id", self._message_ids, pa.string()),
                self._array("subject", self._subjects, pa.string()),
                self._array("content_type", self._content_types, pa.string()),
                self._array("correlation_id", self._correlation_ids, pa.string()),
                pa.array(self._created, moment),
                pa.array(self._enqueued, moment),
                self._maps("application_properties", self._properties),
                self._maps("annotations", self._annotations),
                self._array("body", [body.content for body in self._bodies], pa.binary()),
                pa.array([body.kind for body in self._bodies], pa.string()),
                self._array("body_value", [body.value for body in self._bodies], pa.string()),
            ],
            schema=schema,
        )

    def _array(self, name: str, values: list[Any], kind: Any) -> Any:
        import pyarrow as pa

        array = pa.array(values, kind)
        if isinstance(array, pa.ChunkedArray):  # as pyarrow makes it of more than fits one array
            raise HoldfastError(
                f"queue {self._address!r}, sequence {self.sequences[-1]}: column {name!r} of its row has more than "
                "2 GiB, the limit of an Arrow array"
            )
        return array

    def _maps(self, name: str, texts: _Texts) -> Any:
        import pyarrow as pa

        keys, values = self._array(name, texts.keys, pa.string()), self._array(name, texts.values, pa.string())
        return pa.MapArray.from_arrays(pa.array(texts.offsets, pa.int32()), keys, values)


def _body_of(address: str, entry: Entry) -> TypedBody:
    if entry.undecodable is not None:
        payload, reason = entry.undecodable
        return TypedBody("undecodable", payload, json_text(reason))
    try:
        return typed_body(entry.message)
    except (TypeError, ValueError) as error:
        raise HoldfastError(
            f"queue {address!r}, sequence {entry.sequence}: its body cannot be told as a row: {error}"
        ) from None


def _identifier(value: Any) -> str | None:
    """A message or correlation id: string, ulong, UUID or binary (§3.2.11 to 3.2.14)."""
    if value is None or type(value) is str:
        return value
    return str(value) if isinstance(value, UUID) else text_of(value)


def _microseconds(milliseconds: int | None) -> int | None:
    if milliseconds is None or not -_MILLISECONDS_MAX < milliseconds < _MILLISECONDS_MAX:
        return None
    return int(milliseconds) * 1000
