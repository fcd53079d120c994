"""Plain rows are the messages that they are by way of JSON; what is not plain is left to that way."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa

from holdfast.client.messages.message_json import message_of
from holdfast.client.messages.payload import cut
from pyspark_holdfast.outgoing import line_of_row, message_of_row
from pyspark_holdfast.outgoing_plain import bodies_of, plain_message

TEXTS = st.text(max_size=5)
TIMES = st.datetimes(datetime(1970, 1, 1), datetime(9999, 1, 1), timezones=st.sampled_from([None, UTC]))
VALUES = st.one_of(
    TEXTS, st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.none(), st.binary(max_size=3)
)
COLUMNS: dict[str, st.SearchStrategy[Any]] = {
    "address": TEXTS, "body": st.one_of(st.binary(max_size=9), TEXTS), "message_id": TEXTS, "to": TEXTS,
    "subject": TEXTS, "reply_to": TEXTS, "correlation_id": TEXTS, "group_id": TEXTS, "reply_to_group_id": TEXTS,
    "content_type": TEXTS, "content_encoding": TEXTS, "created": st.one_of(TIMES, st.integers(0, 2**40)),
    "durable": st.booleans(), "priority": st.integers(-1, 256), "ttl_ms": st.integers(-1, 2**32),
    "application_properties": st.dictionaries(TEXTS, VALUES, max_size=3),
    "body_kind": st.sampled_from(["data", "binary", "string", "none"]), "group_sequence": st.integers(0, 9),
    "user_id": st.binary(max_size=3), "application_properties_json": st.just('{"a": 1}'),
}  # fmt: skip
ROWS = st.fixed_dictionaries({}, optional={name: st.one_of(st.none(), values) for name, values in COLUMNS.items()})


@given(ROWS)
def test_a_plain_row_is_the_same_message_either_way(row: dict[str, Any]) -> None:
    message = plain_message(row)
    if message is not None:
        assert message.encode() == message_of(line_of_row(row)).encode()


FULL = {
    "address": "a", "body": b"b", "body_kind": "data", "message_id": "m", "to": "t", "subject": "s", "reply_to": "r",
    "correlation_id": "c", "group_id": "g", "reply_to_group_id": "h", "content_type": "text/plain",
    "content_encoding": "gzip", "created": datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1))), "durable": False,
    "priority": 255, "ttl_ms": 2**32 - 1, "application_properties": {"a": 1, "b": "x", "c": True, "d": 1.5, "e": None},
}  # fmt: skip


def test_the_short_way_is_taken_for_all_that_is_plain() -> None:
    message = plain_message(FULL)
    assert message is not None and message.encode() == message_of(line_of_row(FULL)).encode()
    assert message_of_row(FULL).encode() == message.encode()
    bare = plain_message({"body": None, "subject": None, "application_properties": {}})
    assert bare is not None and (bare.properties, bare.application_properties) == (None, None)


@pytest.mark.parametrize(
    "more",
    [
        {"amqp": "{}"}, {"body_kind": "binary"}, {"body_value": "[1]"}, {"content_type": "\xe9"}, {"priority": 256},
        {"priority": True}, {"ttl_ms": -1}, {"created": 5}, {"subject": 1}, {"application_properties": {"a": b""}},
        {"application_properties": {"a": float("nan")}}, {"application_properties": {"a": {"b": 1}}},
        {"application_properties_json": "{}"}, {"annotations": {"a": 1}}, {"user_id": b"u"}, {"body": bytearray(b"b")},
    ],
)  # fmt: skip
def test_what_is_not_surely_plain_is_left_to_the_long_way(more: dict[str, Any]) -> None:
    assert plain_message({**FULL, **more}) is None


@pytest.mark.parametrize("kind", [pa.binary(), pa.string(), pa.null()])
def test_rows_of_bodies_alone_are_sent_as_plain_rows_are(kind: pa.DataType) -> None:
    told = [None, None] if kind == pa.null() else [b"a", None, b""] if kind == pa.binary() else ["\xe9", None, ""]
    rows = pa.RecordBatch.from_pydict({"body": pa.array(told, kind), "address": ["q"] * len(told)})
    bodies, messages = bodies_of(rows), [plain_message(row) for row in rows.to_pylist()]
    assert bodies is not None
    assert [cut(body) for body in bodies] == [cut(message) for message in messages]
    assert bodies_of(rows.select(["address"])) is None
    assert bodies_of(rows.append_column("subject", rows.column("address"))) is None
