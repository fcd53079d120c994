"""Messages as rows: entries turned into Arrow batches of exactly the shape that `columns.py` has.

Rules of this file: pyarrow is imported inside functions, so that a driver can plan without it; Spark checks
only the first batch of a task, so every batch is built from the one schema. Times are microseconds since
1970, UTC.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from uuid import UUID

from holdfast.client import Header, Properties
from holdfast.client.messages.message_json import PLAIN_TYPES, YEAR_10000_MS, exact_rest
from holdfast.client.messages.payload import ENQUEUED, SEQUENCE, is_placed, way_of
from holdfast.client.messages.typed_json import TypedBody, compact_json, json_text, map_text, typed_body
from holdfast.errors import HoldfastError
from holdfast.units import MIB
from pyspark_holdfast.bus import Entry
from pyspark_holdfast.columns import arrow_schema

if TYPE_CHECKING:
    from pyarrow import RecordBatch

BATCH_BYTES_MAX: Final = 64 * MIB
"""What an Arrow batch holds, but for its last message: an array of Arrow's holds no more than 2 GiB."""

YEAR_1_MS: Final = -62_135_596_800_000
"""Spark's timestamps are those of the years 1 to 9999, and Python's; others are null, and exact in the column `amqp`.
"""

_OWN: Final = ("address", "application_properties", "annotations", "node")
"""Columns that are not gathered with the others."""
_ENTRY: Final = ("sequence", "enqueued", "body", "body_kind", "body_value")
_HEADER: Final = ("durable", "priority", "ttl_ms", "first_acquirer", "delivery_count")
_PROPERTIES: Final = (
    "message_id", "user_id", "to", "subject", "reply_to", "correlation_id", "content_type", "content_encoding",
    "absolute_expiry_time", "created", "group_id", "group_sequence", "reply_to_group_id",
)  # fmt: skip
_MAPS: Final = ("application_properties_json", "annotations_json")
_REST: Final = ("delivery_annotations_json", "footer_json", "origin", "number", "path")
_GATHERED: Final = (*_ENTRY, *_HEADER, *_PROPERTIES, *_MAPS, *_REST, "amqp")
"""The order of a gathered row."""
_NO_HEADER: Final = Header()
_NO_HEADER_COLUMNS: Final = (None,) * len(_HEADER)
_NO_PROPERTIES_COLUMNS: Final = (None,) * len(_PROPERTIES)
_NO_REST: Final = (None,) * len(_REST)
_PLACED: Final = '{"x-opt-sequence-number":%s,"x-opt-enqueued-time":{"amqp:timestamp":%s}}'
_PLACED_KEYS: Final = [str(SEQUENCE), str(ENQUEUED)]
_PLACED_BYTES: Final = sum(map(len, _PLACED_KEYS))


class DeadLetters(Protocol):
    """Where messages go that are no rows."""

    def put(self, entry: Entry, payload: bytes | Iterator[bytes], reason: str) -> None:
        """Keeps it, on disk when this returns; again is no error, and changes nothing."""


class Unreadable(NamedTuple):
    """What is done with a message that cannot be told as a row: `row`, a row of kind `undecodable`; `fail`, the task
    fails; `deadLetter`, `dead_letters` has it and there is no row. The last two also with one whose row would have more
    than `bytes_max` bytes."""

    policy: str = "row"
    dead_letters: DeadLetters | None = None
    bytes_max: int | None = None


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


def batches(
    address: str,
    entries: Iterable[Entry],
    rows_max: int,
    unreadable: Unreadable = Unreadable(),
    *,
    node: str | None = None,
) -> Iterator["RecordBatch"]:
    """`entries` of a queue of `node`, in order, as Arrow batches of `rows_max` rows, or of fewer where BATCH_BYTES_MAX
    is reached; none for no entries. HoldfastError, which names queue and sequence, where one cannot be told and
    `unreadable` says so."""
    gathered = _Gathered(address, node, unreadable)
    for entry in entries:
        gathered.add(entry)
        if len(gathered.rows) >= rows_max or gathered.size >= BATCH_BYTES_MAX:
            yield gathered.batch()
            gathered = _Gathered(address, node, unreadable)
    if gathered.rows:
        yield gathered.batch()


def record_batch(address: str, entries: Iterable[Entry], node: str | None = None) -> "RecordBatch":
    """One batch of all `entries`, in their order."""
    gathered = _Gathered(address, node, Unreadable())
    for entry in entries:
        gathered.add(entry)
    return gathered.batch()


_Flat = tuple[list[str], list[str | None]]
"""A map of texts, as its keys and its values."""
_NO_TEXTS: Final[_Flat] = ([], [])


class _Texts:
    """A column of maps, as flat keys and values: four times faster than from pairs."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.values: list[str | None] = []
        self.offsets = [0]

    def add(self, texts: _Flat) -> None:
        """The map of the next row."""
        if texts is not _NO_TEXTS:
            self.keys += texts[0]
            self.values += texts[1]
        self.offsets.append(len(self.keys))


class _Gathered:
    """Rows on their way into one batch. `size`: of all that goes into its columns and has no fixed width, in bytes."""

    def __init__(self, address: str, node: str | None, unreadable: Unreadable) -> None:
        self.size = 0
        self.rows: list[tuple[Any, ...]] = []
        """Each as _GATHERED has it; the first is the sequence."""
        self._constants = {"address": address, "node": node}
        self._address = address
        self._unreadable = unreadable
        self._properties = _Texts()
        self._annotations = _Texts()

    def add(self, entry: Entry) -> None:
        """Adds the row of an entry, or does with it what is done with those that have none."""
        if entry.undecodable is not None:
            payload, reason = entry.undecodable
            self._add_unreadable(entry, payload, reason)
            return
        message = entry.message
        try:
            row = _row_of(entry, typed_body(message), message.header or _NO_HEADER)
        except (TypeError, ValueError, RecursionError) as error:  # half of a surrogate pair, too, is no text
            self._add_unreadable(entry, _encoded(message), str(error))
            return
        bytes_max = self._unreadable.bytes_max
        if bytes_max is not None and row.size > bytes_max:
            reason = f"its row would have {row.size} bytes, more than maxMessageBytes, {bytes_max}"
            self._add_unreadable(entry, _encoded(message), reason)
            return
        self._put(row)

    def _add_unreadable(self, entry: Entry, payload: bytes | Iterator[bytes] | None, reason: str) -> None:
        policy, dead_letters, _ = self._unreadable
        if dead_letters is not None and payload is not None:
            dead_letters.put(entry, payload, reason)
            return
        if not isinstance(payload, bytes) or policy == "fail":
            raise HoldfastError(f"queue {self._address!r}, sequence {entry.sequence}: no row can tell it: {reason}")
        body = TypedBody("undecodable", payload, json_text(reason))
        self._put(_row_of(entry._replace(message=_NOTHING), body, None))

    def _put(self, row: "_Row") -> None:
        self.rows.append(row.columns)
        self.size += row.size
        self._properties.add(row.properties)
        self._annotations.add(row.annotations)

    def batch(self) -> "RecordBatch":
        """HoldfastError where one message alone has more than a column holds."""
        import pyarrow as pa

        schema = arrow_schema()
        columns = dict(zip(_GATHERED, zip(*self.rows, strict=True), strict=True)) if self.rows else {}
        arrays = []
        for field in schema:
            if field.name in self._constants:
                arrays.append(pa.repeat(pa.scalar(self._constants[field.name], pa.string()), len(self.rows)))
            elif field.name in _OWN:
                texts = self._properties if field.name == "application_properties" else self._annotations
                arrays.append(self._maps(field.name, texts))
            else:
                arrays.append(self._array(field.name, columns.get(field.name, ()), field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _array(self, name: str, values: Any, kind: Any) -> Any:
        import pyarrow as pa

        array = pa.array(values, kind)
        if isinstance(array, pa.ChunkedArray):  # as pyarrow makes it of more than fits one array
            raise HoldfastError(
                f"queue {self._address!r}, sequence {self.rows[-1][0]}: column {name!r} of its row has more than "
                "2 GiB, the limit of an Arrow array"
            )
        return array

    def _maps(self, name: str, texts: _Texts) -> Any:
        import pyarrow as pa

        keys, values = self._array(name, texts.keys, pa.string()), self._array(name, texts.values, pa.string())
        return pa.MapArray.from_arrays(pa.array(texts.offsets, pa.int32()), keys, values)


class _Nothing:
    """Of a message of which nothing is known."""

    properties = None
    application_properties = None
    message_annotations = None
    delivery_annotations = None
    footer = None


_NOTHING: Final = _Nothing()


class _Row(NamedTuple):
    """A row: `columns` as _GATHERED has them, the two columns of maps, and the bytes of all that has no fixed width."""

    columns: tuple[Any, ...]
    properties: _Flat
    annotations: _Flat
    size: int


def _row_of(entry: Entry, body: TypedBody, header: Header | None) -> _Row:
    """Of an entry's message; a section that it does not have costs next to nothing here. TypeError, ValueError or
    RecursionError for what no row can tell."""
    message = entry.message
    kind, content, value = body
    size = len(content) + len(kind) + _text_bytes(value)
    columns: tuple[Any, ...] = (entry.sequence, _microseconds(entry.enqueued_ms), content, kind, value)
    if header is None:
        columns += _NO_HEADER_COLUMNS
    else:
        columns += (header.durable, header.priority, header.ttl, header.first_acquirer, header.delivery_count)
    if message.properties is None:
        columns += _NO_PROPERTIES_COLUMNS
    else:
        fields = _fields(message.properties)
        size += _bytes_of(fields)
        columns += fields
    flat, json, map_bytes = _map(message.application_properties)
    size += map_bytes
    notes = message.message_annotations
    if notes is not None and is_placed(notes):
        sequence, enqueued_ms = int.__repr__(notes[SEQUENCE]), int.__repr__(notes[ENQUEUED])
        flat_notes: _Flat = (_PLACED_KEYS, [sequence, enqueued_ms])
        json_notes: str | None = _PLACED % (sequence, enqueued_ms)
        size += _PLACED_BYTES + len(sequence) + len(enqueued_ms) + _text_bytes(json_notes)
    else:
        flat_notes, json_notes, map_bytes = _map(notes)
        size += map_bytes
    way = way_of(notes)
    origin = None if way.origin is None else str(way.origin)
    rest = (map_text(message.delivery_annotations), map_text(message.footer), origin, way.number, way.path)
    if rest != _NO_REST:
        size += _bytes_of(rest)
    exact = None if header is None or _has_no_rest(message, body) else _rest(message, body)
    return _Row((*columns, json, json_notes, *rest, exact), flat, flat_notes, size + _text_bytes(exact))


def _fields(fields: Properties) -> tuple[Any, ...]:
    """The columns of the properties section."""
    return (
        _identifier(fields.message_id),
        fields.user_id,
        text_of(fields.to),
        fields.subject,
        text_of(fields.reply_to),
        _identifier(fields.correlation_id),
        fields.content_type,
        fields.content_encoding,
        _microseconds(fields.absolute_expiry_time),
        _microseconds(fields.creation_time),
        fields.group_id,
        fields.group_sequence,
        fields.reply_to_group_id,
    )


def _has_no_rest(message: Any, body: TypedBody) -> bool:
    """Whether it can be seen at once that `_rest` is None."""
    fields, properties, notes = message.properties, message.application_properties, message.message_annotations
    if body.value is not None or message.footer is not None or (notes is not None and not is_placed(notes)):
        return False
    if fields is not None:
        if fields.message_id is None and fields.subject is None:
            return False  # a section without any field is no section left out
        for value in (fields.message_id, fields.correlation_id, fields.to, fields.reply_to):
            if value is not None and type(value) is not str:
                return False
        for time_ms in (fields.creation_time, fields.absolute_expiry_time):
            if time_ms is not None and _microseconds(time_ms) is None:
                return False
    if properties is None:
        return True
    return bool(properties) and all(
        type(key) is str and type(value) in PLAIN_TYPES for key, value in properties.items()
    )


def _rest(message: Any, body: TypedBody) -> str | None:
    """What the other columns do not say exactly, as JSON."""
    rest = exact_rest(message)
    if not rest:
        return None
    fields = rest.get("properties")
    if fields:
        rest["properties"] = {name: value for name, value in fields.items() if not _is_said(name, value)}
        if not rest["properties"]:
            del rest["properties"]
    if body.value is not None and compact_json(rest.get("body_value")) == body.value:
        del rest["body_value"]
    if rest.get("body_kind") == body.kind and "body_value" not in rest:
        del rest["body_kind"]  # the column says it
    return compact_json(rest) if rest else None


def _is_said(name: str, value: Any) -> bool:
    """Whether the column of a field of the properties section says its value exactly."""
    if name in ("creation_time", "absolute_expiry_time"):
        return _microseconds(value) is not None
    return type(value) is str or name in ("user_id", "group_sequence")


def _map(mapping: dict[Any, Any] | None) -> tuple[_Flat, str | None, int]:
    """Its two columns, and how many bytes they have."""
    if mapping is None:
        return _NO_TEXTS, None, 0
    flat, json = _flat(mapping), map_text(mapping)
    return flat, json, _bytes_of(flat[0]) + _bytes_of(flat[1]) + _text_bytes(json)


def _flat(mapping: dict[Any, Any]) -> _Flat:
    """The keys and the values, as text."""
    if not mapping:
        return _NO_TEXTS
    keys = [key if type(key) is str else str(text_of(key)) for key in mapping]
    return keys, [value if type(value) is str else text_of(value) for value in mapping.values()]


def _text_bytes(text: str | None) -> int:
    if text is None:
        return 0
    return len(text) if text.isascii() else len(text.encode())


def _bytes_of(values: Iterable[Any]) -> int:
    size = 0
    for value in values:
        if value is None:
            continue
        if isinstance(value, str):
            size += _text_bytes(value)
        elif isinstance(value, bytes):
            size += len(value)
        elif isinstance(value, list):
            size += _bytes_of(value)
    return size


def _encoded(message: Any) -> bytes | None:
    """Its bytes, or None where there are none."""
    try:
        encoded: bytes = message.encode()
    except (HoldfastError, TypeError, ValueError, RecursionError):
        return None
    return encoded


def _identifier(value: Any) -> str | None:
    """A message or correlation id: string, ulong, UUID or binary (§3.2.11 to 3.2.14)."""
    if value is None or type(value) is str:
        return value
    return str(value) if isinstance(value, UUID) else text_of(value)


def _microseconds(milliseconds: int | None) -> int | None:
    if milliseconds is None or not YEAR_1_MS <= milliseconds < YEAR_10000_MS:
        return None
    return int(milliseconds) * 1000
