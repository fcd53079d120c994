"""Whatever a message holds is in its row, and the row is the message again (docs/spark.md; ADR 0080)."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as parquet
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from client.test_message_json import bare, messages
from holdfast.amqp.wire.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
)
from holdfast.client import Header, Message, Properties
from holdfast.client.messages.typed_json import typed_body
from holdfast.errors import ConfigError, HoldfastError, StorageError
from pyspark_holdfast import dead_letters, rows
from pyspark_holdfast.bus import Entry
from pyspark_holdfast.columns import FIELDS
from pyspark_holdfast.dead_letters import DeadLetterTable
from pyspark_holdfast.outgoing import check_columns, message_of_row
from pyspark_holdfast.rows import Unreadable, batches, record_batch
from support import today
from support.delivered import delivered

U = UUID("5d2b9c5e-6a40-4b5c-8c9e-0123456789ab")


def row_of(message: Message) -> dict[str, Any]:
    """Through the wire and Arrow, as Spark has it."""
    (row,) = record_batch("q", [Entry(1, 5, Message.decode(message.encode()))], "jfk").to_pylist()
    assert list(row) == list(FIELDS)
    return row


@given(messages())
@settings(max_examples=today.drawn(100), deadline=None)
def test_a_row_is_the_message_again(message: Message) -> None:
    assert bare(message_of_row(row_of(message))) == bare(message)


@given(messages())
@settings(max_examples=today.drawn(100), deadline=None)
def test_what_is_seen_at_once_to_have_no_rest_has_none(message: Message) -> None:
    message = Message.decode(message.encode())
    assert rows._row_of(Entry(1, 5, message)).rest == rows._rest_columns(message, typed_body(message))


def gathered(entries: list[Entry]) -> tuple[list[dict[str, Any]], int]:
    """The rows, and how many bytes they are said to have."""
    found = rows._Gathered("q", "jfk", Unreadable())
    for entry in entries:
        found.add(entry)
    return found.batch().to_pylist(), found.size


@given(st.lists(messages(), max_size=4), st.integers(1, 3))
@settings(max_examples=today.drawn(100), deadline=None)
def test_bytes_and_messages_become_the_same_rows_alone_or_together(drawn: list[Message], times: int) -> None:
    encoded = [delivered(message, number // times, 2**40) for number, message in enumerate(drawn * times)]
    of_bytes = gathered([Entry(number, 5, payload) for number, payload in enumerate(encoded)])
    of_messages = gathered([Entry(number, 5, Message.decode(payload)) for number, payload in enumerate(encoded)])
    assert of_bytes == of_messages
    alone = [gathered([Entry(number, 5, payload)]) for number, payload in enumerate(encoded)]
    assert of_bytes == ([row for found, _ in alone for row in found], sum(size for _, size in alone))


def test_most_messages_are_rows_without_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    common = [
        Message(data=[b"x"]),
        Message(header=Header(durable=True, priority=7), data=[b""]),
        Message(properties=Properties(message_id="m"), application_properties={"n": 1, "t": "x"}, data=[bytes(300)]),
    ]
    encoded = [delivered(message, number, 2**40) for number, message in enumerate(common, 1)]
    expected = gathered([Entry(number, 5, Message.decode(payload)) for number, payload in enumerate(encoded, 1)])
    monkeypatch.setattr(rows, "read_message", None)
    assert gathered([Entry(number, 5, payload) for number, payload in enumerate(encoded, 1)]) == expected


VALUES: dict[str, tuple[Any, Any]] = {
    "null": (None, None),
    "boolean": (True, True),
    "ubyte": (Ubyte(200), 200),
    "ushort": (Ushort(60_000), 60_000),
    "uint": (Uint(2**32 - 1), 2**32 - 1),
    "ulong": (Ulong(2**64 - 1), 2**64 - 1),
    "byte": (Byte(-5), -5),
    "short": (Short(-300), -300),
    "int": (Int(-70_000), -70_000),
    "long": (Long(2**60), 2**60),
    "float": (Float(0.5), 0.5),
    "double": (1e300, 1e300),
    "decimal32": (Decimal32(b"\0\0\0\1"), {"amqp:decimal32": "00000001"}),
    "decimal64": (Decimal64(bytes(8)), {"amqp:decimal64": "00" * 8}),
    "decimal128": (Decimal128(bytes(16)), {"amqp:decimal128": "00" * 16}),
    "char": (Char("ö"), {"amqp:char": "ö"}),
    "timestamp": (Timestamp(9), {"amqp:timestamp": 9}),
    "uuid": (U, {"amqp:uuid": str(U)}),
    "binary": (b"\xff", {"amqp:binary": "/w=="}),
    "string": ("é", "é"),
    "symbol": (Symbol("s"), {"amqp:symbol": "s"}),
    "list": ([Int(1), "a"], [1, "a"]),
    "map": ({"a": Int(1)}, {"a": 1}),
    "map of others": ({Int(1): "x"}, {"amqp:map": [[1, "x"]]}),
    "array": (Array(0x71, (Int(1), Int(2))), {"amqp:array": [1, 2]}),
    "described": (Described(Symbol("d"), 1), {"amqp:descriptor": {"amqp:symbol": "d"}, "amqp:value": 1}),
}


@pytest.mark.parametrize("name", VALUES)
def test_each_type_as_a_body_a_property_and_an_annotation(name: str) -> None:
    value, told = VALUES[name]
    message = Message(message_annotations={Symbol("a"): value}, application_properties={"p": value}, value=value)
    row = row_of(message)
    if name == "string":
        assert (row["body_kind"], row["body"], row["body_value"]) == ("string", value.encode(), None)
    elif name == "binary":
        assert (row["body_kind"], row["body"], row["body_value"]) == ("binary", value, None)
    else:
        assert (row["body_kind"], row["body"], json.loads(row["body_value"])) == ("value", b"", told)
    assert json.loads(row["application_properties_json"]) == {"p": told}
    assert json.loads(row["annotations_json"]) == {"a": told}
    assert bare(message_of_row(row)) == bare(message)


def test_header_properties_and_the_way() -> None:
    message = Message(
        header=Header(durable=True, priority=7, ttl=5_000, first_acquirer=True, delivery_count=2),
        delivery_annotations={Symbol("d"): Int(1)},
        message_annotations={
            Symbol("x-opt-holdfast-path"): ["jfk", "hub"],
            Symbol("x-opt-holdfast-origin"): U,
            Symbol("x-opt-holdfast-number"): Ulong(9),
        },
        properties=Properties(
            message_id=Ulong(7),
            user_id=b"me",
            to="flights",
            subject="s",
            reply_to="answers",
            correlation_id=b"\x01",
            content_type=Symbol("text/plain"),
            content_encoding=Symbol("gzip"),
            absolute_expiry_time=Timestamp(1_700_000_000_123),
            creation_time=Timestamp(1_600_000_000_000),
            group_id="g",
            group_sequence=Uint(3),
            reply_to_group_id="r",
        ),
        footer={Symbol("f"): b"\x02"},
        data=[b"x"],
    )
    row = row_of(message)
    told = {name: row[name] for name in FIELDS if name not in ("address", "sequence", "enqueued", "created", "body")}
    told |= {name: json.loads(row[name]) for name in told if name.endswith("_json") and row[name] is not None}
    told["amqp"] = json.loads(row["amqp"])
    assert told == {
        "message_id": "7", "subject": "s", "content_type": "text/plain", "correlation_id": "01",
        "application_properties": [], "body_kind": "data", "body_value": None, "user_id": b"me", "to": "flights",
        "annotations": [
            ("x-opt-holdfast-path", '["jfk","hub"]'), ("x-opt-holdfast-origin", str(U)), ("x-opt-holdfast-number", "9"),
        ],
        "reply_to": "answers", "content_encoding": "gzip", "group_id": "g", "group_sequence": 3,
        "absolute_expiry_time": datetime.fromtimestamp(1_700_000_000.123, UTC),
        "reply_to_group_id": "r", "durable": True, "priority": 7, "ttl_ms": 5_000, "first_acquirer": True,
        "delivery_count": 2, "application_properties_json": None, "delivery_annotations_json": {"d": 1},
        "annotations_json": {
            "x-opt-holdfast-path": ["jfk", "hub"], "x-opt-holdfast-origin": {"amqp:uuid": str(U)},
            "x-opt-holdfast-number": 9,
        },
        "footer_json": {"f": {"amqp:binary": "Ag=="}}, "origin": str(U), "number": 9, "path": ["jfk", "hub"],
        "node": "jfk",
        "amqp": {
            "properties": {"message_id": {"amqp:ulong": 7}, "correlation_id": {"amqp:binary": "AQ=="}},
            "footer": [[{"amqp:symbol": "f"}, {"amqp:binary": "Ag=="}]],
        },
    }  # fmt: skip


def test_an_ordinary_message_has_no_rest() -> None:
    message = Message(
        header=Header(durable=True),
        properties=Properties(message_id="1", correlation_id="2", reply_to="q", group_id="g", user_id=b"u"),
        application_properties={"delay": 5, "carrier": "UA"},
        value={"t": 21.5},
    )
    assert row_of(message)["amqp"] is None


# ------------------------------------------------------------------------------------- what cannot be a row

ODD = Entry(3, 7, Message(), (b"\x00odd", "no format code"))
GOOD = [Entry(number, None, Message(data=[b"%d" % number])) for number in (1, 2)]


def sequences(unreadable: Unreadable) -> list[int]:
    found = batches("q", [GOOD[0], ODD, GOOD[1]._replace(sequence=4)], 10, unreadable)
    return [number for batch in found for number in batch.column("sequence").to_pylist()]


def test_it_is_a_row_of_its_own_and_nothing_else_is_made_up() -> None:
    assert sequences(Unreadable()) == [1, 3, 4]
    (row,) = record_batch("q", [ODD]).to_pylist()
    empty = ("address", "sequence", "enqueued", "body", "body_kind", "body_value")
    assert (row["body"], row["body_kind"], row["body_value"]) == (b"\x00odd", "undecodable", '"no format code"')
    assert all(not value for name, value in row.items() if name not in empty)


def test_it_ends_the_task_where_asked() -> None:
    with pytest.raises(HoldfastError, match=r"^queue 'q', sequence 3: no row can tell it: no format code$"):
        sequences(Unreadable("fail"))


def test_it_is_a_dead_letter_where_asked_once_whatever_is_read_again(tmp_path: Path) -> None:
    table = DeadLetterTable(tmp_path / "dead", "q", "u-1")
    for _ in range(2):
        assert sequences(Unreadable("deadLetter", table)) == [1, 4]
    assert [file.name for file in (tmp_path / "dead").iterdir()] == ["u-1-3.parquet"]
    (row,) = parquet.read_table(str(tmp_path / "dead")).to_pylist()
    assert (row["address"], row["queue_uuid"], row["sequence"]) == ("q", "u-1", 3)
    assert (row["payload"], row["reason"]) == (b"\x00odd", "no format code")


@pytest.mark.parametrize("size", [1_000, 1_001])
def test_a_message_with_more_bytes_than_a_query_takes_is_set_aside(tmp_path: Path, size: int) -> None:
    """All that goes into its columns counts; the others are rows as before."""
    entries = [Entry(number, 5, Message(data=[bytes(count)])) for number, count in ((1, 10), (2, size), (3, 10))]
    table = DeadLetterTable(tmp_path / "dead", "q", "u-1")

    def read(unreadable: Unreadable) -> list[int]:
        return [
            n for batch in batches("q", iter(entries), 10, unreadable) for n in batch.column("sequence").to_pylist()
        ]

    kind = len("data")
    wanted = [1, 2, 3] if size == 1_000 else [1, 3]
    assert read(Unreadable("deadLetter", table, 1_000 + kind)) == wanted
    assert read(Unreadable("deadLetter", table)) == [1, 2, 3]
    if size > 1_000:
        (row,) = parquet.read_table(str(tmp_path / "dead")).to_pylist()
        assert row["sequence"] == 2 and Message.decode(row["payload"]).data == [bytes(size)]
        assert row["reason"] == "its row would have 1005 bytes, more than maxMessageBytes, 1004"
        with pytest.raises(HoldfastError, match="sequence 2: no row can tell it: its row would have 1005 bytes, more"):
            read(Unreadable("fail", None, 1_000 + kind))


def test_a_dead_letter_that_no_table_holds_is_a_file_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On disk before the row that names it; readers of the table pass over it."""
    synced: list[str] = []
    monkeypatch.setattr(dead_letters, "PAYLOAD_BYTES_MAX", 10)
    monkeypatch.setattr(dead_letters, "sync_directories", lambda lowest, count: None)
    monkeypatch.setattr("os.fsync", lambda file: synced.append(Path(f"/proc/self/fd/{file}").read_bytes()[:1].hex()))
    table = DeadLetterTable(tmp_path, "q", "u-1")
    for payload in (b"\x01" * 10, b"\x02" * 11):
        for _ in range(2):
            table.put(Entry(payload[0], None, None), payload, "too large")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["_u-1-2.message", "u-1-1.parquet", "u-1-2.parquet"]
    assert (tmp_path / "_u-1-2.message").read_bytes() == b"\x02" * 11
    assert synced == ["50", "02", "50"], "the message, then the row: a file of Parquet begins with P"
    rows = parquet.read_table(str(tmp_path)).sort_by("sequence").to_pylist()
    assert [row["payload"] for row in rows] == [b"\x01" * 10, None]
    assert rows[1]["reason"] == "too large; the message is the file _u-1-2.message"


def test_a_dead_letter_s_directories_are_synced_also_where_another_task_wrote_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That one may have died before it had synced them."""
    synced: list[Path] = []
    monkeypatch.setattr(dead_letters, "sync_directories", lambda lowest, count: synced.append(lowest))
    table = DeadLetterTable(tmp_path / "dead", "q", "u-1")
    for times in (1, 2):
        sequences(Unreadable("deadLetter", table))
        assert synced == [tmp_path / "dead"] * times


def test_a_dead_letter_that_cannot_be_written_ends_the_task(tmp_path: Path) -> None:
    (tmp_path / "dead").write_text("a file")
    with pytest.raises(StorageError, match=r"dead-letter table .*dead: sequence 3 of queue 'q' cannot be written"):
        sequences(Unreadable("deadLetter", DeadLetterTable(tmp_path / "dead", "q", "u-1")))


def test_a_message_that_decodes_and_cannot_be_told_ends_the_task_by_any_policy() -> None:
    with pytest.raises(HoldfastError, match="sequence 9: no row can tell it"):
        list(batches("q", [Entry(9, None, Message(value=object()))], 10, Unreadable("row")))


# ------------------------------------------------------------------------------------------- rows as messages


def test_values_of_sparks_own_types() -> None:
    row = {
        "body": "late", "message_id": "1", "created": datetime(2026, 1, 2, tzinfo=UTC),
        "application_properties": {"i": 5, "f": 0.5, "s": "x", "b": b"\x01", "t": datetime(1970, 1, 1, 0, 0, 1)},
    }  # fmt: skip
    message = message_of_row(row)
    assert message.data == [b"late"]
    assert message.properties is not None and message.properties.creation_time == 1_767_312_000_000
    told = message.application_properties
    assert told == {"i": 5, "f": 0.5, "s": "x", "b": b"\x01", "t": 1000}
    assert type(told["t"]) is Timestamp
    assert message.header is not None and message.header.durable


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"body_kind": "undecodable"}, "invalid value 'undecodable' in column 'body_kind'"),
        ({"body_kind": "value", "body_value": "{"}, "column 'body_value'; expected JSON"),
        ({"body_kind": "string", "body": b"\xff"}, "expected UTF-8"),
        ({"body": 5}, "invalid value 5 in column 'body'; expected binary or string"),
        ({"priority": 300}, "invalid value 300 for priority"),
        ({"amqp": "[]"}, "column 'amqp'; expected an object in JSON"),
        ({"application_properties_json": "x"}, "column 'application_properties_json'"),
        ({"application_properties": {"a": datetime(2026, 1, 1).date()}}, "(date) in column 'application_properties'"),
        ({"created": "now"}, "invalid value 'now' in column 'created'; expected a timestamp"),
    ],
)
def test_a_mistake_in_a_row_is_said_in_a_line(row: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError) as caught:
        message_of_row(row)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def schema(*columns: tuple[str, DataType]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns])


TEXT, TEXTS = StringType(), MapType(StringType(), StringType())


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ([("body", TEXT), ("value", TEXT)], "unknown column 'value'; expected some of address, message_id"),
        ([("node", TEXT)], "no column that a message could be made of; expected some of address, message_id"),
        ([("body", TEXT), ("body", TEXT)], "column 'body' is there 2 times; expected once"),
        ([("message_id", LongType())], "column 'message_id' is of type bigint; expected string"),
        ([("amqp", TEXTS)], "column 'amqp' is of type map<string,string>; expected string"),
        ([("body", LongType())], "column 'body' is of type bigint; expected binary or string"),
        ([("created", DateType())], "column 'created' is of type date; expected timestamp, or milliseconds as bigint"),
        ([("priority", TEXT)], "column 'priority' is of type string; expected a whole number: tinyint, smallint, int"),
        ([("ttl_ms", DoubleType())], "column 'ttl_ms' is of type double; expected a whole number"),
        ([("durable", LongType())], "column 'durable' is of type bigint; expected boolean"),
        ([("annotations", TEXT)], "column 'annotations' is of type string; expected map or struct"),
        ([("annotations", ArrayType(TEXT))], "column 'annotations' is of type array<string>; expected map or struct"),
        (
            [("annotations", MapType(LongType(), TEXT))],
            "column 'annotations' has a map with keys of bigint; expected string",
        ),
        (
            [("application_properties", schema(("a", ArrayType(DateType()))))],
            "column 'application_properties' has values of type date; expected a cast",
        ),
        (
            [("application_properties", MapType(TEXT, DecimalType(5, 2)))],
            "column 'application_properties' has values of type decimal(5,2); expected a cast",
        ),
    ],
)
def test_columns_of_which_no_message_can_be_made_are_told_at_once(
    columns: list[tuple[str, DataType]], said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        check_columns(schema(*columns))
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_columns_of_which_messages_can_be_made() -> None:
    own = {
        "binary": BinaryType(), "string": TEXT, "boolean": BooleanType(), "int": LongType(), "bigint": LongType(),
        "timestamp": TimestampType(), "array<string>": ArrayType(TEXT), "map<string,string>": TEXTS,
    }  # fmt: skip
    check_columns(schema(*((name, own[kind.removesuffix(" not null")]) for name, kind in FIELDS.items())))
    check_columns(schema(("body", NullType()), ("created", LongType()), ("sequence", DateType())))
    nested = schema(("a", ArrayType(TimestampType())), ("b", MapType(TEXT, BinaryType())), ("c", DoubleType()))
    check_columns(schema(("application_properties", MapType(TEXT, nested)), ("annotations", nested)))


def test_a_map_within_a_map_is_one_in_the_message() -> None:
    nested = pa.array([[("a", [("b", 5)])]], pa.map_(pa.string(), pa.map_(pa.string(), pa.int32())))
    (row,) = pa.RecordBatch.from_arrays([nested], names=["application_properties"]).to_pylist(maps_as_pydicts="strict")
    assert message_of_row(row).application_properties == {"a": {"b": 5}}


@pytest.mark.parametrize("year_ms", [-62_135_596_800_000, 253_402_300_800_000])
def test_a_time_that_no_timestamp_has_is_null_and_exact_in_amqp(year_ms: int) -> None:
    """Spark, Python and what reads tables know the years 1 to 9999; a sender may tell any time."""
    within, beyond = (year_ms, year_ms - 1) if year_ms < 0 else (year_ms - 1, year_ms)
    for time, is_there in ((within, True), (beyond, False)):
        message = Message(
            properties=Properties(creation_time=Timestamp(time), absolute_expiry_time=Timestamp(time)), data=[b""]
        )
        row = row_of(message)
        assert (row["created"] is not None, row["absolute_expiry_time"] is not None) == (is_there, is_there)
        assert bare(message_of_row(row)) == bare(message)


def test_keys_that_begin_like_a_type_keep_the_widths_of_their_values() -> None:
    message = Message(
        application_properties={"amqp:x": Ulong(2**64 - 1), "a": Ubyte(5), "b": "text", "amqp:y": True},
        message_annotations={Symbol("amqp:z"): Short(7), Symbol("x"): "y"},
        data=[b""],
    )
    assert bare(message_of_row(row_of(message))) == bare(message)


@pytest.mark.parametrize(
    ("column", "key", "kind"),
    [
        ("annotations", '"a"', str),
        ("application_properties", '{"amqp:symbol": "a"}', Symbol),
        ("annotations", "5", int),
    ],
)
def test_keys_of_another_type_than_the_section_has_stay_of_it(column: str, key: str, kind: type) -> None:
    message = message_of_row({f"{column}_json": f'{{"amqp:map": [[{key}, 1]]}}'})
    (found,) = (message.message_annotations or message.application_properties or {}).keys()
    assert type(found) is kind
