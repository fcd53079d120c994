"""Entries as Arrow: the exact schema that Spark demands, and every kind of value as text."""

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from holdfast.amqp.wire.extensions import NUMBER, ORIGIN, PATH
from holdfast.amqp.wire.types import Char, Symbol, Timestamp, Ulong
from holdfast.client import Header, Message, Properties
from holdfast.client.messages.payload import ENQUEUED, SEQUENCE
from holdfast.errors import HoldfastError
from pyspark_holdfast import rows
from pyspark_holdfast.bus import Entry
from pyspark_holdfast.columns import FIELDS, arrow_schema
from pyspark_holdfast.rows import Unreadable, batches, record_batch, text_of

if TYPE_CHECKING:
    import pyarrow

pytest.importorskip("pyarrow")
U = UUID("5d2b9c5e-6a40-4b5c-8c9e-0123456789ab")


def one_batch(*entries: Entry) -> "pyarrow.RecordBatch":
    return record_batch("q", entries)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None), ("é", "é"), (True, "true"), (False, "false"), (7, "7"), (-1.5, "-1.5"), (b"\x01\xff", "01ff"),
        (U, str(U)), (["a", "b"], '["a","b"]'), ([1, U], f'[1,{{"amqp:uuid":"{U}"}}]'), ({"a": None}, '{"a":null}'),
        ({b"a": 1, 2: 3}, '{"amqp:map":[[{"amqp:binary":"YQ=="},1],[2,3]]}'),
    ],
)  # fmt: skip
def test_text_of(value: object, text: str | None) -> None:
    assert text_of(value) == text


def test_each_column_is_in_one_section_or_made_on_its_own() -> None:
    of_sections = [name for names in rows._SECTIONS.values() for name in names]
    own = "address", "node", "application_properties", "annotations", "annotations_json"
    assert sorted((*of_sections, *own)) == sorted(FIELDS)


def test_a_batch_holds_every_column() -> None:
    full = Message(
        properties=Properties(
            message_id=U,
            subject="subject",
            content_type=Symbol("text/plain"),
            correlation_id=Ulong(7),
            creation_time=Timestamp(1_700_000_000_123),
        ),
        application_properties={"n": 1, "none": None, "yes": True},
        message_annotations={Symbol("x-opt-a"): 2.5},
        data=[b"\x00body"],
    )
    batch = one_batch(Entry(5, 1_700_000_000_456, full), Entry(6, None, Message(data=[b""])))
    assert batch.schema.equals(arrow_schema())
    first, second = batch.to_pylist()
    assert first["address"] == "q"
    assert (first["sequence"], first["message_id"], first["correlation_id"]) == (5, str(U), "7")
    assert (first["subject"], first["content_type"], first["body"]) == ("subject", "text/plain", b"\x00body")
    assert first["created"].isoformat() == "2023-11-14T22:13:20.123000+00:00"
    assert first["enqueued"].isoformat() == "2023-11-14T22:13:20.456000+00:00"
    assert first["application_properties"] == [("n", "1"), ("none", None), ("yes", "true")]
    assert first["annotations"] == [("x-opt-a", "2.5")]
    assert second["created"] is None and second["enqueued"] is None and second["message_id"] is None
    assert second["application_properties"] == [] and second["body"] == b""


PLACED = {SEQUENCE: Ulong(17), ENQUEUED: Timestamp(1_700_000_000_123)}


def bytes_in(value: object) -> int:
    """Of all texts and bytes in a row's columns that an entry has of its own."""
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, (list, tuple)):
        return sum(map(bytes_in, value))
    return len(value) if isinstance(value, bytes) else 0


@pytest.mark.parametrize(
    "message",
    [
        Message(data=[b"body"]),
        Message(value=["é", 7]),
        Message(properties=Properties(message_id="é1", user_id=b"u", subject="s", to="t"), data=[b"body"]),
        Message(application_properties={"é": "ö", "n": 1}, data=[b"body"]),
        Message(message_annotations=PLACED, data=[b"body"]),
        Message(message_annotations={Symbol("x-opt-a"): "é", Symbol("x-opt-b"): 2.5}, data=[b"body"]),
        Message(
            message_annotations=PLACED | {PATH: ["a", "é"], ORIGIN: U, NUMBER: Ulong(3)},
            delivery_annotations={Symbol("x-opt-d"): "é"},
            footer={Symbol("f"): "ö"},
            data=[b"body"],
        ),
        Message(header=Header(), properties=Properties(), data=[b"body"]),
    ],
)
def test_a_row_is_as_large_as_its_columns(message: Message) -> None:
    """`maxMessageBytes` goes by it, and batches are cut by it."""
    entry = Entry(1, None, message)
    (row,) = one_batch(entry).to_pylist()
    size = sum(bytes_in(value) for name, value in row.items() if name not in ("address", "node"))
    assert len([*batches("q", [entry], 10, Unreadable("fail", bytes_max=size))]) == 1
    with pytest.raises(HoldfastError, match=f"its row would have {size} bytes, more than maxMessageBytes, {size - 1}"):
        list(batches("q", [entry], 10, Unreadable("fail", bytes_max=size - 1)))


def test_a_section_without_entries_is_told_from_one_that_is_not_there() -> None:
    there = Message(application_properties={}, message_annotations={}, delivery_annotations={}, footer={}, data=[b""])
    sections = "application_properties", "annotations", "delivery_annotations", "footer"
    for message, json in ((there, "{}"), (Message(data=[b""]), None)):
        (row,) = one_batch(Entry(1, None, message)).to_pylist()
        assert [row[f"{name}_json"] for name in sections] == [json] * len(sections)
        assert row["application_properties"] == row["annotations"] == []


def test_a_time_beyond_64_bits_is_null() -> None:
    batch = one_batch(Entry(1, None, Message(properties=Properties(creation_time=Timestamp(2**62)), data=[b""])))
    assert batch.to_pylist()[0]["created"] is None


@pytest.mark.parametrize(("count", "sizes"), [(0, []), (1, [1]), (3, [3]), (4, [3, 1]), (7, [3, 3, 1])])
def test_batches_are_cut_in_order(count: int, sizes: list[int]) -> None:
    entries = [Entry(n, None, Message(data=[b""])) for n in range(1, count + 1)]
    cut = list(batches("q", iter(entries), 3))
    assert [batch.num_rows for batch in cut] == sizes
    assert [n for batch in cut for n in batch.column("sequence").to_pylist()] == list(range(1, count + 1))


@pytest.mark.parametrize(
    ("message", "kind", "body", "value"),
    [
        (Message(data=[b"ab"]), "data", b"ab", None),
        (Message(data=[b"a", b"bc"]), "data", b"abc", "[1,2]"),
        (Message(data=[]), "data", b"", "[]"),
        (Message(value="é"), "string", "é".encode(), None),
        (Message(value=b"\xff"), "binary", b"\xff", None),
        (Message(value=7), "value", b"", "7"),
        (Message(value=None), "value", b"", "null"),
        (Message(value={"t": 21.5}), "value", b"", '{"t":21.5}'),
        (Message(sequences=[[1], ["a"]]), "sequence", b"", '[[1],["a"]]'),
        (Message(), "none", b"", None),
    ],
)
def test_every_kind_of_body_is_in_its_row(message: Message, kind: str, body: bytes, value: str | None) -> None:
    found = one_batch(Entry(1, None, message)).to_pylist()[0]
    assert (found["body_kind"], found["body"], found["body_value"]) == (kind, body, value)


def test_what_cannot_be_told_is_named() -> None:
    with pytest.raises(HoldfastError, match="queue 'q', sequence 9: no row can tell it: no AMQP value: object"):
        list(batches("q", [Entry(9, None, Message(value=object()))], 10))


def size_of(*messages: Message) -> int:
    """The bytes that their rows count for."""
    gathered = rows._Gathered("q", None, rows.Unreadable())
    for number, message in enumerate(messages, 1):
        gathered.add(Entry(number, None, message))
    return gathered.size


def test_batches_are_bounded_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = Message(data=[bytes(40)]), Message(data=[bytes(500)])
    monkeypatch.setattr(rows, "BATCH_BYTES_MAX", 3 * size_of(small))

    def cut(*messages: Message) -> list[int]:
        entries = [Entry(number, None, message) for number, message in enumerate(messages, 1)]
        return [batch.num_rows for batch in batches("q", entries, 100)]

    assert cut(*[small] * 7) == [3, 3, 1]
    assert cut(small, small, large, small) == [3, 1]
    assert cut(large, small, large) == [1, 2]


LONG = "x" * 400


@pytest.mark.parametrize(
    "message",
    [
        Message(properties=Properties(message_id=LONG)),
        Message(properties=Properties(correlation_id=LONG.encode())),
        Message(properties=Properties(subject=LONG)),
        Message(properties=Properties(content_type=Symbol(LONG))),
        Message(application_properties={"a": LONG}),
        Message(application_properties={LONG: 1}),
        Message(message_annotations={Symbol("x-opt-a"): [LONG]}),
        Message(message_annotations={Symbol(LONG): None}),
        Message(delivery_annotations={Symbol(LONG): None}),
        Message(footer={Symbol("a"): LONG}),
        Message(properties=Properties(user_id=LONG.encode())),
        Message(properties=Properties(to=LONG)),
        Message(properties=Properties(reply_to=LONG)),
        Message(properties=Properties(content_encoding=Symbol(LONG))),
        Message(properties=Properties(group_id=LONG)),
        Message(properties=Properties(reply_to_group_id=LONG)),
        Message(message_annotations={PATH: [LONG]}),
        Message(value={"a": LONG}),
    ],
)
def test_whatever_goes_into_the_columns_bounds_a_batch(monkeypatch: pytest.MonkeyPatch, message: Message) -> None:
    assert size_of(message) >= len(LONG)
    monkeypatch.setattr(rows, "BATCH_BYTES_MAX", 2 * size_of(message))
    entries = [Entry(number, None, message) for number in range(1, 6)]
    assert [batch.num_rows for batch in batches("q", entries, 100)] == [2, 2, 1]


def test_characters_are_counted_in_bytes() -> None:
    one, three = (
        Message(properties=Properties(subject="a" * 100)),
        Message(properties=Properties(subject="\u20ac" * 100)),
    )
    assert size_of(three) == size_of(one) + 200


def test_one_message_that_no_column_holds_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow as pa

    real = pa.array

    def array(values: list[object], kind: "pyarrow.DataType") -> object:
        return pa.chunked_array([real(values, kind)]) if "big" in values else real(values, kind)

    monkeypatch.setattr(pa, "array", array)
    entries = [Entry(7, None, Message(message_annotations={Symbol("a"): "big"}))]
    with pytest.raises(HoldfastError, match="'q', sequence 7: column 'annotations' of its row has more than 2 GiB"):
        list(batches("q", entries, 10))


def test_a_char_that_is_half_of_a_pair_is_set_aside_as_what_cannot_be_decoded() -> None:
    """AMQP's char is a number of 32 bits, and some programs send halves of characters in it."""
    half = Char(chr(0xD83D))
    messages = [Message(value=half), Message(application_properties={"half": half}), Message(value=[{"x": half}])]
    entries = [Entry(sequence, None, message) for sequence, message in enumerate(messages, 1)]
    for row, message in zip(record_batch("q", entries).to_pylist(), messages, strict=True):
        assert (row["body_kind"], row["body"]) == ("undecodable", message.encode())
        assert "surrogates not allowed" in row["body_value"]
    with pytest.raises(HoldfastError, match="queue 'q', sequence 1: no row can tell it: "):
        list(batches("q", entries, 10, Unreadable("fail")))
