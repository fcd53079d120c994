"""`read_message`, `read_plain` and `placed` against the codec: the same answers, types included, the same refusals."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Header, Properties
from holdfast.amqp.wire.types import MISSING, Int, Long, Symbol, Timestamp, Uint, Ulong
from holdfast.client.messages.payload import cut, cut_payload, placed
from holdfast.client.messages.reading import read_message, read_plain
from holdfast.errors import RemoteProtocolError
from support import today
from support.delivered import delivered

TEXT = st.text(max_size=300)
SYMBOLS = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=40).map(Symbol)
TIMES = st.integers(-(2**63), 2**63 - 1).map(Timestamp)
IDS = st.none() | TEXT | st.binary(max_size=20) | st.uuids() | st.integers(0, 2**64 - 1).map(Ulong)
VALUES: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | TEXT
    | SYMBOLS
    | TIMES
    | st.binary(max_size=300)
    | st.floats(allow_nan=False)
    | st.integers(-(2**63), 2**63 - 1)
    | st.integers(0, 2**32 - 1).map(Uint)
    | st.integers(0, 2**64 - 1).map(Ulong)
    | st.integers(-(2**31), 2**31 - 1).map(Int)
    | st.uuids()
    | st.lists(st.integers(0, 5), max_size=3)
)
HEADERS = st.builds(
    Header,
    durable=st.booleans(),
    priority=st.integers(0, 255),
    ttl=st.none() | st.integers(0, 2**32 - 1),
    first_acquirer=st.booleans(),
    delivery_count=st.integers(0, 2**32 - 1),
)
PROPERTIES = st.builds(
    Properties,
    message_id=IDS,
    user_id=st.none() | st.binary(max_size=10),
    to=st.none() | TEXT,
    subject=st.none() | TEXT,
    reply_to=st.none() | TEXT,
    correlation_id=IDS,
    content_type=st.none() | SYMBOLS,
    absolute_expiry_time=st.none() | TIMES,
    creation_time=st.none() | TIMES,
    group_id=st.none() | TEXT,
    group_sequence=st.none() | st.integers(0, 2**32 - 1),
)
PLACES = st.builds(
    lambda sequence, enqueued: {
        Symbol("x-opt-sequence-number"): Ulong(sequence),
        Symbol("x-opt-enqueued-time"): Timestamp(enqueued),
    },
    st.integers(256, 2**63),
    st.integers(2**40, 2**62),
)
MESSAGES = st.builds(
    Message,
    header=st.none() | HEADERS,
    message_annotations=st.none() | PLACES | st.dictionaries(SYMBOLS, VALUES, max_size=4),
    properties=st.none() | PROPERTIES,
    application_properties=st.none() | st.dictionaries(TEXT, VALUES, max_size=5),
    data=st.lists(st.binary(max_size=600), min_size=1, max_size=2),
)


def typed(value: Any) -> Any:
    """A value with the types of all its parts, so that 5 differs from Ulong(5)."""
    if isinstance(value, dict):
        return [(typed(key), typed(item)) for key, item in value.items()]
    if isinstance(value, list):
        return [typed(item) for item in value]
    if value.__class__ in (Header, Properties, Message):
        return [(name, typed(getattr(value, name))) for name in value.__slots__]
    return (type(value), value) if value is not MISSING else "missing"


@given(message=MESSAGES)
@settings(max_examples=today.drawn(100), deadline=None)
def test_both_forms_read_the_same(message: Message) -> None:
    payload = message.encode()
    assert typed(read_message(payload)) == typed(Message.decode(payload))


def of_plain(payload: bytes) -> Message | None:
    """What `read_plain` says, as a message."""
    plain = read_plain(payload)
    if plain is None:
        return None
    header = None if plain.header is None else Header(*plain.header)
    annotations = {
        Symbol("x-opt-sequence-number"): Ulong(plain.sequence),
        Symbol("x-opt-enqueued-time"): Timestamp(plain.enqueued_ms),
    }
    return Message(
        header=header,
        message_annotations=annotations,
        properties=plain.properties,
        application_properties=plain.application_properties,
        data=[plain.data],
    )


@given(message=MESSAGES, data=st.data())
@settings(max_examples=today.drawn(100), deadline=None)
def test_a_plain_delivery_says_the_message_whole_or_damaged(message: Message, data: st.DataObject) -> None:
    message.message_annotations = None
    payload = delivered(message, 2**40, 2**41)
    found = of_plain(payload)
    assert found is None or typed(found) == typed(Message.decode(payload))
    damaged = bytearray(payload)
    damaged[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    payload = bytes(damaged[: data.draw(st.integers(0, len(payload)))]) if data.draw(st.booleans()) else bytes(damaged)
    found = of_plain(payload)
    if found is not None:
        assert repr(typed(found)) == repr(typed(Message.decode(payload)))


@pytest.mark.parametrize("head", [None, Header(durable=True), Header(priority=9, ttl=5)])
@pytest.mark.parametrize("told", [None, {"n": 1, "t": "x"}])
@pytest.mark.parametrize("properties", [None, Properties(message_id="m", content_type=Symbol("text/plain"))])
def test_what_most_deliveries_are_is_plain(
    head: Header | None, told: dict[str, Any] | None, properties: Properties | None
) -> None:
    for body in (b"", bytes(255), bytes(256)):
        message = Message(header=head, properties=properties, application_properties=told, data=[body])
        payload = delivered(message, 2**40, 2**41)
        assert typed(of_plain(payload)) == typed(Message.decode(payload))


def test_a_message_that_is_not_plain_is_none() -> None:
    for message in (
        Message(),
        Message(value=b"x"),
        Message(data=[b"x", b"y"]),
        Message(data=[b"x"], footer={Symbol("a"): 1}),
        Message(delivery_annotations={Symbol("a"): 1}, data=[b"x"]),
        Message(message_annotations={Symbol("a"): 1}, data=[b"x"]),
    ):
        assert of_plain(delivered(message, 1, 1)) is None
    assert of_plain(Message(data=[b"x"]).encode()) is None
    payload = delivered(Message(data=[b"x"]), 1, 1)
    assert of_plain(payload) is not None
    assert [size for size in range(len(payload)) if of_plain(payload[:size]) is not None] == []
    assert of_plain(payload + b"\0") is None


@given(message=MESSAGES, data=st.data())
@settings(max_examples=today.drawn(100), deadline=None)
def test_damaged_bytes_are_read_or_refused_alike(message: Message, data: st.DataObject) -> None:
    payload = bytearray(message.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(payload[: data.draw(st.integers(0, len(payload)))])
    try:
        expected = Message.decode(damaged)
    except RemoteProtocolError:
        with pytest.raises(RemoteProtocolError):
            read_message(damaged)
    else:
        # A NaN is unequal to itself; its text is not.
        assert repr(typed(read_message(damaged))) == repr(typed(expected))


@given(message=MESSAGES)
@settings(max_examples=today.drawn(67), deadline=None)
def test_placed_is_what_the_annotations_say(message: Message) -> None:
    payload = message.encode()
    told = message.message_annotations or {}
    sequence = told.get(Symbol("x-opt-sequence-number"), 0)
    enqueued = told.get(Symbol("x-opt-enqueued-time"), 0)
    assert placed(payload) == (sequence, enqueued)


@given(message=MESSAGES, number=st.none() | st.integers(1, 2**63))
@settings(max_examples=today.drawn(67), deadline=None)
def test_a_cut_message_is_the_message_and_its_number(message: Message, number: int | None) -> None:
    parts = cut(message).parts(number)
    again = Message.decode(b"".join(parts))
    told = dict(message.message_annotations or {})
    if number is not None:
        told[Symbol("x-opt-holdfast-number")] = Ulong(number)
    assert (again.message_annotations or {}) == told
    again.message_annotations = message.message_annotations
    assert again.encode() == message.encode()
    spooled = cut_payload(b"".join(cut(message).parts(None)))
    assert b"".join(spooled.parts(number)) == b"".join(parts)


@pytest.mark.parametrize("size", [0, 1, 255, 256, 70_000])
def test_bytes_become_one_durable_data_section(size: int) -> None:
    message = Message.decode(b"".join(cut(bytes(size)).parts(None)))
    assert message.data == [bytes(size)] and message.header is not None and message.header.durable


def test_values_keep_their_types() -> None:
    message = Message(application_properties={"long": 5, "id": UUID(int=7)}, value=Long(3))
    assert typed(read_message(message.encode())) == typed(Message.decode(message.encode()))
