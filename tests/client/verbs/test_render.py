"""What is printed of messages and answers: names and forms that other programs read."""

import base64
import json
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.amqp.message.message import Message
from holdfast.amqp.session.events import Delivery as Came
from holdfast.amqp.wire.performatives import Header, Properties
from holdfast.amqp.wire.types import Described, Symbol, Timestamp, Ulong
from holdfast.client.messages.payload import placed
from holdfast.client.receive.delivery import Delivery
from holdfast.client.verbs.render import as_json, body_bytes, plain
from holdfast.columns import size, table

FORM = ["format", "durable", "priority", "ttl_ms"]
NAMES = [
    "sequence", "message_id", "to", "subject", "content_type", "created", "enqueued", "delivery_count", "properties",
    "annotations",
]  # fmt: skip


def told(message: Message) -> dict[str, Any]:
    payload = message.encode()
    event = Came(None, 0, b"", 0, True, payload, None, None)  # type: ignore[arg-type]  # no link is needed
    answer = json.loads(as_json(Delivery(None, event, *placed(payload))))  # type: ignore[arg-type]  # nor a receiver
    assert isinstance(answer, dict)
    return answer


def test_a_table_is_in_words_for_people() -> None:
    rows: list[list[object]] = [["a", True, [], 3, None], ["b", False, ["filter", "properties"], 12, 0.5]]
    assert table(("name", "configured", "steps", "count", "age"), rows) == [
        "name  configured  steps               count  age",
        "a     yes         -                       3    -",
        "b     no          filter, properties     12  0.5",
    ]


def test_the_whole_message() -> None:
    message = Message(
        header=Header(delivery_count=2),
        message_annotations={
            Symbol("x-opt-sequence-number"): Ulong(7),
            Symbol("x-opt-enqueued-time"): Timestamp(1_000),
            Symbol("x-other"): b"\xff",
        },
        properties=Properties(message_id=UUID(int=1), to="q", subject="s", content_type="text/plain", creation_time=-1),
        application_properties={"a": 1, "b": True, "c": None, "d": "é"},
        data=["é".encode()],
    )
    assert told(message) == {
        "sequence": 7,
        "message_id": "00000000-0000-0000-0000-000000000001",
        "to": "q",
        "subject": "s",
        "content_type": "text/plain",
        "created": "1969-12-31T23:59:59.999Z",
        "enqueued": "1970-01-01T00:00:01.000Z",
        "delivery_count": 2,
        "properties": {"a": 1, "b": True, "c": None, "d": "é"},
        "annotations": {
            "x-opt-sequence-number": 7,
            "x-opt-enqueued-time": "1970-01-01T00:00:01.000Z",
            "x-other": "/w==",
        },
        "body": "é",
        "format": "holdfast-message-1",
        "durable": False,
        "priority": 4,
        "ttl_ms": None,
        "amqp": {
            "properties": {"message_id": {"amqp:uuid": "00000000-0000-0000-0000-000000000001"}},
            "annotations": {"x-other": {"amqp:binary": "/w=="}},
        },
    }


def test_an_empty_message_has_every_name() -> None:
    assert list(told(Message(data=[b""]))) == [*NAMES, "body", *FORM]
    assert told(Message(data=[b""]))["body"] == ""


@given(st.binary(max_size=50))
@settings(deadline=None)
def test_bytes_are_text_or_base64(content: bytes) -> None:
    answer = told(Message(data=[content]))
    body = answer.get("body")
    again = body.encode() if body is not None else base64.b64decode(answer["body_base64"])
    assert again == content == body_bytes(Message(data=[content]))


def test_other_bodies() -> None:
    assert told(Message(value="text"))["body"] == "text" and body_bytes(Message(value="text")) == b"text"
    assert told(Message(value={"a": Ulong(1)}))["body"] == {"a": 1}
    assert body_bytes(Message(value={"a": Ulong(1)})) == b'{"a": 1}'
    assert told(Message(sequences=[[1, "x"]]))["body"] == [[1, "x"]]
    assert body_bytes(Message(sequences=[[1, "x"]])) == b'[[1, "x"]]'
    assert told(Message(value=None))["body"] is None and body_bytes(Message(value=None)) == b""
    assert told(Message())["body"] is None and body_bytes(Message()) == b""


def test_plain_values() -> None:
    assert plain(Described(Symbol("d"), [Timestamp(0), b"x", UUID(int=0)])) == [
        "1970-01-01T00:00:00.000Z",
        "x",
        "00000000-0000-0000-0000-000000000000",
    ]
    assert plain({Ulong(1): ()}) == {"1": []}


def test_tables_and_sizes() -> None:
    assert table(("name", "n"), [("a", 1), ("long", None)]) == ["name  n", "a     1", "long  -"]
    assert table(("name",), []) == ["name"]
    assert [size(n) for n in (None, 0, 1023, 1024, 20 * 1024 * 1024)] == [
        "-", "0 B", "1023 B", "1.0 KiB", "20.0 MiB",
    ]  # fmt: skip
