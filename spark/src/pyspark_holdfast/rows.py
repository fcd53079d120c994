"""Messages as rows: entries turned into Arrow batches of exactly the shape that `columns.py` has.

Rules of this file: pyarrow is imported inside functions, so that a driver can plan without it; Spark checks
only the first batch of a task, so every batch is built from the one schema. Times are microseconds since
1970, UTC.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from uuid import UUID

from holdfast.client import Header, Properties
from holdfast.client.messages.message_json import PLAIN_TYPES, YEAR_10000_MS, exact_rest
from holdfast.client.messages.payload import ENQUEUED, SEQUENCE, is_placed, way_of
from holdfast.client.messages.reading import HeaderFields, PlainDelivery, fields_of, read_message, read_plain
from holdfast.client.messages.typed_json import TypedBody, compact_json, json_text, map_text, typed_body
from holdfast.errors import HoldfastError, RemoteProtocolError
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

_SECTIONS: Final[dict[str, tuple[str, ...]]] = {
    "entry": ("sequence", "enqueued", "body"),
    "body": ("body_kind", "body_value"),
    "header": ("durable", "priority", "ttl_ms", "first_acquirer", "delivery_count"),
    "properties": (
        "message_id", "user_id", "to", "subject", "reply_to", "correlation_id", "content_type", "content_encoding",
        "absolute_expiry_time", "created", "group_id", "group_sequence", "reply_to_group_id",
    ),
    "maps": ("application_properties_json",),
    "rest": ("delivery_annotations_json", "footer_json", "origin", "number", "path", "amqp"),
}  # fmt: skip
"""The columns of each of the first fields of a row, in their order."""
_DATA: Final = ("data", None)
_NO_HEADER: Final = Header()
_NO_HEADER_FIELDS: Final = fields_of(_NO_HEADER)
_NO_HEADER_COLUMNS: Final = (None,) * len(_SECTIONS["header"])
_NO_PROPERTIES_COLUMNS: Final = (None,) * len(_SECTIONS["properties"])
_NO_REST: Final = (None,) * len(_SECTIONS["rest"])
_PLACED: Final = '{"x-opt-sequence-number":', ',"x-opt-enqueued-time":{"amqp:timestamp":', "}}"
"""The JSON of the two annotations that a node writes: what stands around their numbers."""
_PLACED_KEYS: Final = [str(SEQUENCE), str(ENQUEUED)]
_PLACED_BYTES: Final = sum(map(len, (*_PLACED_KEYS, *_PLACED)))


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
_Notes = tuple[int, int] | tuple[_Flat, str | None]
"""The annotations of a message: sequence and enqueued time where they are the two that a node writes, else the two
columns."""


class _Row(NamedTuple):
    """A row by sections: one in which all rows of a batch are the same, or have nothing, is converted once. The first
    fields are those of _SECTIONS; then come the map of application properties, the columns of annotations, and the
    bytes of all that has no fixed width."""

    entry: tuple[Any, ...]
    body: tuple[Any, ...]
    header: tuple[Any, ...]
    properties: tuple[Any, ...]
    maps: tuple[Any, ...]
    rest: tuple[Any, ...]
    application_properties: _Flat
    annotations: _Notes
    size: int


class _Gathered:
    """Rows on their way into one batch. `size`: of all that goes into its columns and has no fixed width, in bytes."""

    def __init__(self, address: str, node: str | None, unreadable: Unreadable) -> None:
        self.size = 0
        self.rows: list[_Row] = []
        self._constants = {"address": address, "node": node}
        self._address = address
        self._unreadable = unreadable

    def add(self, entry: Entry) -> None:
        """Adds the row of an entry, or does with it what is done with those that have none."""
        if entry.undecodable is not None:
            payload, reason = entry.undecodable
            self._add_unreadable(entry, payload, reason)
            return
        try:
            row = _row_of(entry)
        except (TypeError, ValueError, RecursionError) as error:  # half of a surrogate pair, too, is no text
            self._add_unreadable(entry, _encoded(entry.message), str(error))
            return
        except RemoteProtocolError as error:
            self._add_unreadable(entry, entry.message, error.description)
            return
        bytes_max = self._unreadable.bytes_max
        if bytes_max is not None and row.size > bytes_max:
            reason = f"its row would have {row.size} bytes, more than maxMessageBytes, {bytes_max}"
            self._add_unreadable(entry, _encoded(entry.message), reason)
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
        self._put(_general_row(entry, _NOTHING, body, None))

    def _put(self, row: _Row) -> None:
        self.rows.append(row)
        self.size += row.size

    def batch(self) -> "RecordBatch":
        """HoldfastError where one message alone has more than a column holds."""
        import pyarrow as pa

        schema = arrow_schema()
        arrays = {name: self._repeated(value, schema.field(name).type) for name, value in self._constants.items()}
        by_section = dict(zip(_Row._fields, zip(*self.rows, strict=True), strict=True)) if self.rows else {}
        for section, names in _SECTIONS.items():
            rows = by_section.get(section, ())
            if len(rows) > 1 and rows.count(rows[0]) == len(rows):
                for name, value in zip(names, rows[0], strict=True):
                    arrays[name] = self._repeated(value, schema.field(name).type)
            else:
                columns = zip(*rows, strict=True) if rows else ((),) * len(names)
                for name, values in zip(names, columns, strict=True):
                    arrays[name] = self._array(name, values, schema.field(name).type)
        arrays["application_properties"] = self._maps(
            "application_properties", by_section.get("application_properties", ())
        )
        arrays["annotations"], arrays["annotations_json"] = self._annotations(by_section.get("annotations", ()))
        return pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)

    def _repeated(self, value: Any, kind: Any) -> Any:
        """A column that has this value in every row."""
        import pyarrow as pa

        return pa.repeat(pa.scalar(value, kind), len(self.rows))

    def _array(self, name: str, values: Any, kind: Any) -> Any:
        import pyarrow as pa

        array = pa.array(values, kind)
        if isinstance(array, pa.ChunkedArray):  # as pyarrow makes it of more than fits one array
            raise HoldfastError(
                f"queue {self._address!r}, sequence {self.rows[-1].entry[0]}: column {name!r} of its row has more than "
                "2 GiB, the limit of an Arrow array"
            )
        return array

    def _annotations(self, notes: Sequence[_Notes]) -> tuple[Any, Any]:
        """The columns of annotations: the map, and its JSON."""
        import pyarrow as pa

        if notes and all(type(first) is int for first, _ in notes):
            return _placed_columns(notes)
        told = [_texts_of(*each) if type(each[0]) is int else each for each in notes]
        flats, jsons = zip(*told, strict=True) if told else ((), ())
        return self._maps("annotations", flats), self._array("annotations_json", jsons, pa.string())

    def _maps(self, name: str, texts: Sequence[_Flat]) -> Any:
        """A column of maps, from flat keys and values: four times faster than from pairs."""
        import pyarrow as pa

        if texts.count(_NO_TEXTS) == len(texts):
            nothing = pa.array([], pa.string())
            return pa.MapArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), len(texts) + 1), nothing, nothing)
        keys: list[str] = []
        values: list[str | None] = []
        offsets = [0]
        for own_keys, own_values in texts:
            keys += own_keys
            values += own_values
            offsets.append(len(keys))
        flat = self._array(name, keys, pa.string()), self._array(name, values, pa.string())
        return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), *flat)


class _Nothing:
    """Of a message of which nothing is known."""

    properties = None
    application_properties = None
    message_annotations = None
    delivery_annotations = None
    footer = None


_NOTHING: Final = _Nothing()


def _row_of(entry: Entry) -> _Row:
    """TypeError, ValueError or RecursionError if no row can represent it; RemoteProtocolError for bytes that are no
    message."""
    message = entry.message
    if type(message) is bytes:
        plain = read_plain(message)
        row = None if plain is None else _plain_row(entry, plain)
        if row is not None:
            return row
        message = read_message(message)
    return _general_row(entry, message, typed_body(message), message.header or _NO_HEADER)


def _plain_row(entry: Entry, plain: PlainDelivery) -> _Row | None:
    """As `_general_row` of the same message, in half the time; None where the columns of "rest" are not empty."""
    sequence, enqueued_ms, header, fields, properties, content = plain
    if not _is_told(fields, properties):
        return None
    size = len(_DATA[0]) + _placed_bytes(sequence, enqueued_ms)
    notes = sequence, enqueued_ms
    return _row(entry, content, _DATA, header or _NO_HEADER_FIELDS, fields, properties, notes, _NO_REST, size)


def _general_row(entry: Entry, message: Any, body: TypedBody, header: Header | None) -> _Row:
    """Of any message; `header`: None if nothing is known of it."""
    kind, content, value = body
    size = len(kind) + _text_bytes(value)
    of_header = _NO_HEADER_COLUMNS if header is None else fields_of(header)
    fields, properties, annotations = message.properties, message.application_properties, message.message_annotations
    placed = annotations is not None and is_placed(annotations)
    notes: _Notes
    if placed:
        notes = int(annotations[SEQUENCE]), int(annotations[ENQUEUED])
        size += _placed_bytes(*notes)
    else:
        flat, json, map_bytes = _map(annotations)
        notes = flat, json
        size += map_bytes
    rest: tuple[Any, ...] = _NO_REST
    if header is not None and not (
        (placed or annotations is None)
        and body.value is None
        and message.delivery_annotations is None
        and message.footer is None
        and _is_told(fields, properties)
    ):
        rest = _rest_columns(message, body)
        size += _bytes_of(rest)
    return _row(entry, content, (kind, value), of_header, fields, properties, notes, rest, size)


def _row(
    entry: Entry, content: bytes, body: tuple[str, str | None], header: HeaderFields, fields: Properties | None,
    properties: dict[Any, Any] | None, notes: _Notes, rest: tuple[Any, ...], size: int,
) -> _Row:  # fmt: skip
    """`size`: of `body`, `notes` and `rest`, in bytes."""
    of_properties: tuple[Any, ...] = _NO_PROPERTIES_COLUMNS
    if fields is not None:
        of_properties = _fields(fields)
        size += _bytes_of(of_properties)
    flat, json, map_bytes = _map(properties)
    of_entry = (entry.sequence, _microseconds(entry.enqueued_ms), content)
    return _Row(of_entry, body, header, of_properties, (json,), rest, flat, notes, size + len(content) + map_bytes)


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


def _placed_bytes(sequence: int, enqueued_ms: int) -> int:
    """What the columns of annotations have of the two that a node writes."""
    return _PLACED_BYTES + 2 * (len(int.__repr__(sequence)) + len(int.__repr__(enqueued_ms)))


def _texts_of(sequence: int, enqueued_ms: int) -> tuple[_Flat, str]:
    """These columns of one row."""
    texts: list[str | None] = [int.__repr__(sequence), int.__repr__(enqueued_ms)]
    before, between, behind = _PLACED
    return (_PLACED_KEYS, texts), f"{before}{texts[0]}{between}{texts[1]}{behind}"


def _placed_columns(notes: Sequence[Any]) -> tuple[Any, Any]:
    """These columns of many rows, in a tenth of the time."""
    import pyarrow as pa
    import pyarrow.compute as pc

    count = len(notes)
    numbers, times = zip(*notes, strict=True)
    sequences = pc.cast(pa.array(numbers, pa.uint64()), pa.string())
    enqueued = pc.cast(pa.array(times, pa.int64()), pa.string())
    in_turn = [at for pair in zip(range(count), range(count, 2 * count), strict=True) for at in pair]
    values = pa.concat_arrays([sequences, enqueued]).take(pa.array(in_turn, pa.int32()))
    keys = pa.array(_PLACED_KEYS, pa.string()).take(pa.array([0, 1] * count, pa.int32()))
    offsets = pa.array(range(0, 2 * count + 1, 2), pa.int32())
    before, between, behind = _PLACED
    json = pc.binary_join_element_wise(before, sequences, between, enqueued, behind, "")
    return pa.MapArray.from_arrays(offsets, keys, values), json


def _is_told(fields: Properties | None, properties: dict[Any, Any] | None) -> bool:
    """Whether it can be seen at once that the columns of these two sections say them exactly."""
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


def _rest_columns(message: Any, body: TypedBody) -> tuple[Any, ...]:
    """The columns of what few messages have."""
    way = way_of(message.message_annotations)
    origin = None if way.origin is None else str(way.origin)
    told = map_text(message.delivery_annotations), map_text(message.footer)
    return (*told, origin, way.number, way.path, _rest(message, body))


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
    if isinstance(message, bytes):
        return message
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
