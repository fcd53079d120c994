"""Messages as lines of JSON: what is printed is sent as the same message, whatever is in it."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.amqp.message.message import Message
from holdfast.amqp.session.events import Delivery as Came
from holdfast.amqp.wire import encoding
from holdfast.amqp.wire.performatives import Header, Properties
from holdfast.amqp.wire.types import MISSING, Int, Long, Symbol, Timestamp, Ulong
from holdfast.client.connection import Connection
from holdfast.client.messages.json_value import json_value
from holdfast.client.messages.message_json import FORMAT, is_the_nodes, message_of
from holdfast.client.messages.payload import cut, placed
from holdfast.client.messages.typed_json import exact_json
from holdfast.client.opening import connect
from holdfast.client.receive.delivery import Delivery
from holdfast.client.verbs.render import as_json
from support import today
from support.amqp_values import SCALAR, SCALARS, VALUES
from support.process import NodeProcess, run_holdfast, summary

TEXT = SCALARS[0xB1]
IDS = SCALARS[0x80] | st.uuids() | st.binary(max_size=9) | TEXT
TIMES = SCALARS[0x83] | st.integers(-(2**40), 2**40).map(Timestamp)
PROPERTIES = st.builds(
    Properties,
    message_id=st.none() | IDS,
    user_id=st.none() | st.binary(max_size=9),
    to=st.none() | TEXT | SCALAR,
    subject=st.none() | TEXT,
    reply_to=st.none() | TEXT | SCALAR,
    correlation_id=st.none() | IDS,
    content_type=st.none() | SCALARS[0xB3],
    content_encoding=st.none() | SCALARS[0xB3],
    absolute_expiry_time=st.none() | st.integers(2**42, 2**43).map(Timestamp),
    creation_time=st.none() | TIMES,
    group_id=st.none() | TEXT,
    group_sequence=st.none() | SCALARS[0x70],
    reply_to_group_id=st.none() | TEXT,
)
BODIES: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    st.lists(st.binary(max_size=40) | TEXT.map(str.encode), min_size=1, max_size=3).map(lambda data: {"data": data}),
    st.lists(st.lists(VALUES, max_size=3), min_size=1, max_size=2).map(lambda lists: {"sequences": lists}),
    (VALUES | TEXT | st.binary(max_size=9)).map(lambda value: {"value": value}),
)
NAMES = SCALARS[0xB3].filter(lambda key: not is_the_nodes(key))


@st.composite
def messages(draw: st.DrawFn) -> Message:
    """Of all kinds; none expires while a test runs."""
    return Message(
        header=draw(
            st.none()
            | st.builds(
                Header,
                durable=st.booleans(),
                priority=st.integers(0, 255),
                ttl=st.none() | st.integers(2**30, 2**32 - 1),
                delivery_count=st.integers(0, 3),
            )
        ),
        message_annotations=draw(st.none() | st.dictionaries(NAMES | SCALARS[0x80], VALUES, max_size=3)),
        properties=draw(st.none() | PROPERTIES),
        application_properties=draw(
            st.none() | st.dictionaries(TEXT, SCALAR, max_size=4) | st.dictionaries(TEXT, VALUES, max_size=2)
        ),
        footer=draw(st.none() | st.dictionaries(NAMES, VALUES, max_size=2)),
        **draw(BODIES),
    )


def bare(message: Message, *, ttl: bool = True) -> list[bytes]:
    """What is the same in two messages that are: each section's bytes."""
    header = message.header or Header()
    kept = {key: item for key, item in (message.message_annotations or {}).items() if not is_the_nodes(key)}
    return [
        Message(header=Header(header.durable, header.priority, header.ttl if ttl else None)).encode(),
        Message(message_annotations=kept or None).encode(),
        Message(properties=message.properties).encode(),
        Message(application_properties=message.application_properties).encode(),
        Message(data=message.data, sequences=message.sequences, value=message.value, footer=message.footer).encode(),
    ]


def line_of(message: Message) -> dict[str, Any]:
    payload = message.encode()
    event = Came(None, 0, b"", 0, True, payload, None, None)  # type: ignore[arg-type]  # no link is needed
    told = json.loads(as_json(Delivery(None, event, *placed(payload))))  # type: ignore[arg-type]  # nor a receiver
    assert isinstance(told, dict)
    return told


@given(VALUES)
def test_a_value_is_read_back_with_its_types(value: Any) -> None:
    told = json.loads(json.dumps(exact_json(value)))
    assert encoding.encode(json_value(told)) == encoding.encode(value)


@given(messages())
def test_a_line_is_the_message(message: Message) -> None:
    line = line_of(message)
    assert line["format"] == FORMAT
    assert bare(message_of(line)) == bare(message)


def test_an_ordinary_message_needs_no_types() -> None:
    message = Message(
        header=Header(durable=True, ttl=5),
        properties=Properties(message_id="1", to="q", subject="s", content_type="text/plain", creation_time=1),
        application_properties={"a": 1, "b": 0.5, "c": "x", "d": None, "e": True},
        message_annotations={Symbol("x"): "y"},
        data=["é".encode()],
    )
    line = line_of(message)
    assert "amqp" not in line and (line["durable"], line["priority"], line["ttl_ms"]) == (True, 4, 5)
    assert bare(message_of(line)) == bare(message)


def test_what_nodes_say_is_not_sent() -> None:
    told = {"x-opt-sequence-number": 1, "x-opt-holdfast-path": ["a"], "x": "y"}
    typed = {"x-opt-enqueued-time": {"amqp:timestamp": 1}}
    message = message_of({"body": "", "annotations": told, "amqp": {"annotations": typed}})
    assert message.message_annotations == {"x": "y"}


def test_a_line_by_hand_may_be_short() -> None:
    message = message_of({"body": "x", "properties": {"delay": 5}})
    assert message == Message(header=Header(durable=True), application_properties={"delay": 5}, data=[b"x"])
    empty = message_of({"amqp": {"body_kind": "none"}})
    assert empty.value is MISSING and empty.data is None


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({}, "invalid value for body; expected text, or base64 as body_base64"),
        ({"body": 5}, "invalid value for body"),
        ({"body": "", "property": {}}, "invalid key 'property'; expected one of format, message_id"),
        ({"body": "", "body_base64": ""}, "both body and body_base64 are given; expected one of them"),
        ({"body": "\ud800"}, "expected text that UTF-8 can encode"),
        ({"body_base64": "?"}, "body_base64: invalid value '?'; expected base64"),
        ({"body": "", "amqp": 1}, "invalid value 1 for amqp; expected an object"),
        ({"body": "", "amqp": {"bodykind": 1}}, "invalid key 'bodykind' in amqp; expected one of annotations"),
        ({"body": "", "amqp": {"body_kind": "x"}}, "invalid value 'x' for amqp.body_kind; expected one of data"),
        ({"body": "abc", "amqp": {"body_value": [1]}}, "expected 3 bytes together"),
        ({"body": "abc", "amqp": {"body_value": ["1"]}}, "expected the sizes of the data sections"),
        ({"amqp": {"body_kind": "sequence", "body_value": [1]}}, "expected a list of lists"),
        ({"body": "", "durable": 1}, "invalid value 1 for durable; expected true or false"),
        ({"body": "", "priority": 256}, "invalid value 256 for priority; expected a whole number, 0 to 255"),
        ({"body": "", "ttl_ms": -1}, "invalid value -1 for ttl_ms"),
        ({"body": "", "created": "now"}, "created: invalid value 'now'; expected a time as 1970-01-01T00:00:00.000Z"),
        ({"body": "", "created": "2020-01-01T00:00:00"}, "created: invalid value"),
        ({"body": "", "message_id": 5}, "message_id: invalid value 5; expected text"),
        ({"body": "", "properties": {"a": [1]}}, "for properties.a; expected text, a number"),
        ({"body": "", "properties": {"a": 2**64}}, "expected what AMQP can encode"),
        ({"body": "", "amqp": {"properties": {"id": 1}}}, "invalid key 'id' in amqp.properties"),
        ({"body": "", "amqp": {"properties": {"message_id": True}}}, "for message_id; expected text, a ulong"),
        ({"body": "", "amqp": {"properties": {"user_id": "x"}}}, "for amqp.properties.user_id; expected a binary"),
        ({"body": "", "amqp": {"application_properties": {"a": {"amqp:int": "x"}}}}, "application_properties.a: inv"),
        ({"body": "", "amqp": {"application_properties": {"a": {"amqp:word": 1}}}}, "invalid key 'amqp:word'"),
        ({"body": "", "amqp": {"footer": [[[1], 2]]}}, "invalid key [1] in amqp.footer"),
        ({"body": "", "amqp": {"footer": [[1]]}}, "amqp.footer: invalid value [[1]]; expected a list of pairs"),
        ({"amqp": {"body_kind": "value", "body_value": {"amqp:float": 10**400}}}, "expected a number, or one of NaN"),
        ({"amqp": {"body_kind": "value", "body_value": {"amqp:ubyte": 256}}}, "expected what AMQP can encode"),
        ({"amqp": {"body_kind": "value", "body_value": {"amqp:array": [1], "amqp:code": 5}}}, "AMQP can encode"),
        *[
            ({"amqp": {"body_kind": "value", "body_value": {"amqp:array": [item], "amqp:code": code}}}, "another type")
            for code, item in ((0xB0, 5), (0xB1, []), (0x98, 2**31), (0x94, True), (0xD0, 1), (0xD1, 1), (0xF0, 1))
        ],
        ({"body": "", "amqp": {"annotations_map": [[{"amqp:map": []}, 1]]}}, "expected one that AMQP allows"),
    ],
)  # fmt: skip
def test_a_line_that_is_no_message_is_said_in_a_line(line: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError) as error:
        message_of(line)
    assert said in str(error.value) and "\n" not in str(error.value)


ARRAYS = st.fixed_dictionaries(
    {
        "amqp:array": st.lists(st.booleans() | st.integers(-1, 2**31) | st.text(max_size=2) | st.just([]), max_size=2),
        "amqp:code": st.sampled_from([*SCALARS, 0xD0, 0xD1, 0xF0]),
    }
)
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | ARRAYS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(max_size=3)
            | st.sampled_from([f"amqp:{name}" for name in ("int", "map", "array", "code", "binary", "descriptor")]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)
FIELD_NAMES = ["message_id", "to", "created", "properties", "annotations", "body", "body_base64", "durable", "ttl_ms"]


@given(
    st.dictionaries(st.sampled_from(FIELD_NAMES), ANY)
    | st.fixed_dictionaries(
        {
            "body": st.just(""),
            "amqp": st.dictionaries(
                st.sampled_from(["properties", "application_properties", "annotations_map", "footer", "body_value"])
                | st.just("body_kind"),
                ANY | st.sampled_from(["data", "value", "sequence"]),
            ),
        }
    )
)
def test_whatever_a_line_holds_it_is_a_message_or_a_mistake(line: dict[str, Any]) -> None:
    try:
        message = message_of(line)
    except ValueError as error:
        assert "\n" not in str(error)
    else:
        Message.decode(message.encode())


def files_in(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir() if path.is_file()]


async def taken(connection: Connection, queue: str, count: int) -> list[Message]:
    receiver = await connection.receiver(queue, count_max=count)
    found = []
    async for delivery in receiver:
        found.append(delivery.message)
        delivery.accept()
    await receiver.close()
    return found


async def test_what_is_printed_is_sent_as_the_same_messages(node: NodeProcess, tmp_path: Path) -> None:
    """Over a real node: sent, printed, sent again, read."""
    drawn: list[Message] = []

    @settings(max_examples=today.drawn(150), database=None)
    @given(messages())
    def draw(message: Message) -> None:
        if any(cut(message).parts(None)):  # a node takes no empty delivery
            drawn.append(message)

    draw()
    async with await connect(node.url) as connection:
        sender = await connection.sender("first")
        for message in drawn:
            await sender.post(message)
        await sender.drain()
        assert sender.accepted == len(drawn) > 100
        count = str(len(drawn))
        printed = await run_holdfast("receive", "first", "--json", "--count", count, "--url", node.url)
        assert printed.code == 0, printed.stderr
        (tmp_path / "lines").write_text(printed.stdout)
        sent = await run_holdfast("send", "second", str(tmp_path / "lines"), "--format", "json", "--url", node.url)
        assert summary(sent.stderr)["accepted"] == len(drawn), sent.stderr
        for message, again in zip(drawn, await taken(connection, "second", len(drawn)), strict=True):
            assert bare(again, ttl=False) == bare(message, ttl=False)
            assert ((again.header or Header()).ttl is None) == ((message.header or Header()).ttl is None)


async def test_other_lines_of_json_are_bodies_as_ever_and_options_count_for_both(node: NodeProcess) -> None:
    whole = {"format": FORMAT, "message_id": "mine", "properties": {"a": 1}, "priority": 2, "body": "x"}
    plain = '{"format": "csv", "subject": "y"}'
    options = ["--subject-from", "subject", "--priority", "7", "--property", "b=2", "--ttl", "60"]
    lines = json.dumps({**whole, "subject": "z"}) + "\n" + plain + "\n"
    sent = await run_holdfast("send", "q", "--format", "json", *options, "--url", node.url, stdin=lines)
    ids = summary(sent.stderr)["ids"]
    assert ids[0] == "mine" and ids[1].endswith("-2")
    async with await connect(node.url) as connection:
        first, second = await taken(connection, "q", 2)
    assert first.body_bytes() == b"x" and second.body_bytes() == plain.encode()
    assert first.application_properties == {"a": 1, "b": "2"} and second.application_properties == {"b": "2"}
    for message, subject in ((first, "z"), (second, "y")):
        assert message.properties is not None and message.properties.subject == subject
        assert message.header is not None and message.header.priority == 7 and message.header.ttl is not None


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"format": "holdfast-message-2"}', "invalid value 'holdfast-message-2' for format; expected holdfast-mess"),
        ('{"format": "holdfast-message-1"}', "invalid value for body"),
        ('{"format": "holdfast-message-1", "amqp": {"body_kind": "value", "body_value": '
         + "[" * 600 + "]" * 600 + "}}", "nest"),
    ],
)  # fmt: skip
async def test_a_bad_message_ends_it_with_its_line(line: str, said: str, node: NodeProcess) -> None:
    sent = await run_holdfast("send", "q", "--format", "json", "--url", node.url, stdin="{}\n" + line + "\n")
    assert sent.code == 2 and "standard input, line 2: " in sent.stderr and said in sent.stderr
    assert summary(sent.stderr)["accepted"] == 1


async def test_messages_are_exported_and_stay(node: NodeProcess, tmp_path: Path) -> None:
    async with await connect(node.url) as connection:
        sender = await connection.sender("flights")
        for delay in range(1, 5):
            properties = {"delay": Int(delay), "n": Long(2**60)}
            await sender.send(Message(application_properties=properties, value=[Ulong(delay)]))
        file = tmp_path / "out.ndjson"
        run = ("messages", "export", "flights")
        ended = await run_holdfast(*run, str(file), "--selector", "delay > 2", "--url", node.url)
        assert ended.code == 0 and ended.stdout == "" and summary(ended.stderr)["exported"] == 2
        assert [json.loads(line)["sequence"] for line in file.read_text().splitlines()] == [3, 4]
        assert files_in(tmp_path) == ["out.ndjson"]
        some = await run_holdfast(*run, "--after", "1", "--count", "2", "--url", node.url)
        assert [json.loads(line)["sequence"] for line in some.stdout.splitlines()] == [2, 3]
        sent = await run_holdfast("send", "late", str(file), "--format", "json", "--url", node.url)
        assert sent.code == 0, sent.stderr
        assert [message.value for message in await taken(connection, "late", 2)] == [[3], [4]]
        receiver = await connection.receiver("flights", count_max=1)
        async for delivery in receiver:
            delivery.reject("app:no", "not mine")
        await receiver.close()
        assert len(await taken(connection, "flights", 3)) == 3
    dead = await run_holdfast("dead-letters", "export", "--url", node.url)
    assert dead.code == 0, dead.stderr
    assert json.loads(dead.stdout)["annotations"]["x-opt-dead-letter-from"] == "flights"
