"""A message read as it comes, against the same message decoded whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.amqp.message.body import HEAD_BYTES_MAX, BodyReader
from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Header, Properties
from holdfast.amqp.wire.types import Symbol, Uint
from holdfast.errors import RemoteProtocolError

BODIES = st.one_of(
    st.builds(lambda data: {"data": data}, st.lists(st.binary(max_size=400), min_size=1, max_size=4)),
    st.builds(lambda value: {"value": value}, st.binary(max_size=400) | st.text(max_size=300)),
    st.just({}),
)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    return Message(
        header=draw(st.none() | st.builds(Header, durable=st.booleans(), ttl=st.none() | st.just(Uint(7)))),
        message_annotations=draw(st.none() | st.just({Symbol("x-opt-a"): "b" * 300})),
        properties=draw(st.none() | st.builds(Properties, message_id=st.text(max_size=20))),
        application_properties=draw(st.none() | st.just({"k": "v"})),
        footer=draw(st.none() | st.just({Symbol("f"): 1})),
        **draw(BODIES),
    )


@given(messages(), st.lists(st.integers(1, 60), min_size=1, max_size=30))
def test_however_it_is_cut_it_is_the_message_that_it_is_whole(message: Message, sizes: list[int]) -> None:
    payload = message.encode()
    reader, body, at = BodyReader(), b"", 0
    for size in [*sizes, len(payload)]:
        body += b"".join(reader.feed(payload[at : at + size]))
        at += size
    reader.end()
    whole = Message.decode(payload)
    assert body == whole.body_bytes()
    assert reader.head is not None
    assert reader.head == Message.decode(
        Message(
            whole.header, whole.delivery_annotations, whole.message_annotations, whole.properties,
            whole.application_properties,
        ).encode()
    )  # fmt: skip
    assert payload.startswith(reader.head_bytes)


@given(messages(), st.data())
def test_cut_short_it_is_none(message: Message, data: st.DataObject) -> None:
    payload = message.encode()
    whole = {len(Message(**part).encode()) for part in prefixes(message)}
    end = data.draw(st.integers(0, max(0, len(payload) - 1)))
    reader = BodyReader()
    reader.feed(payload[:end])
    if end in whole:
        reader.end()  # it ends between two sections
    else:
        with pytest.raises(RemoteProtocolError):
            reader.end()


def prefixes(message: Message) -> list[dict[str, object]]:
    names = ("header", "message_annotations", "properties", "application_properties", "value", "footer")
    found: list[dict[str, object]] = [{}]
    for name in names:
        if name == "value":
            for count in range(1, len(message.data or ()) + 1):
                found.append({**found[0], **last_of(found), "data": (message.data or [])[:count]})
        if getattr(message, name) is not Message().value and getattr(message, name) is not None:
            found.append({**last_of(found), name: getattr(message, name)})
    return found


def last_of(found: list[dict[str, object]]) -> dict[str, object]:
    return found[-1]


@pytest.mark.parametrize(
    ("payload", "condition"),
    [
        (b"\x01", "amqp:decode-error"),
        (b"\x00\x53\x10\x45", "amqp:decode-error"),
        (b"\x00\xa3\x05wrong\x45", "amqp:decode-error"),
        (b"\x00\x53\x75\xa1\x01a", "amqp:decode-error"),
        (b"\x00\x53\x70\xa0\x01a", "amqp:decode-error"),
        (b"\x00\x53\x75\xa0\x01a\x00\x53\x70\x45", "amqp:decode-error"),
        (b"\x00\x53\x75\xa0\x01a\x00\x53\x77\xa0\x01a", "amqp:decode-error"),
        (b"\x00\x53\x77\x54\x01", "amqp:not-implemented"),
        (b"\x00\x53\x76\x45", "amqp:not-implemented"),
    ],
)
def test_what_is_none_is_refused(payload: bytes, condition: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        BodyReader().feed(payload)
    assert caught.value.condition == condition


def test_descriptors_may_be_long_or_symbols() -> None:
    reader = BodyReader()
    long = b"\x00\x80" + (0x70).to_bytes(8, "big") + b"\x45"
    assert reader.feed(long + b"\x00\xa3\x10amqp:data:binary\xa0\x02ab") == [b"ab"]
    assert reader.head is not None and reader.head.header is not None


@pytest.mark.parametrize("beyond", [0, 1])
def test_the_head_is_bounded(beyond: int) -> None:
    size = HEAD_BYTES_MAX - 8 + beyond
    reader = BodyReader()
    section = b"\x00\x53\x74\xd1" + (size + 100).to_bytes(4, "big") + b"x" * size
    if beyond:
        with pytest.raises(RemoteProtocolError, match="the limit is 1048576 bytes"):
            reader.feed(section)
    else:
        assert reader.feed(section) == [] and reader.head is None


def test_a_footer_before_the_body() -> None:
    """CLIENTS 41: rhea writes it there."""
    footer = Message(footer={"a": "b"}).encode()
    for body, found in ((Message(data=[b"x", b"y"]), b"xy"), (Message(value="z"), b"z")):
        reader = BodyReader()
        assert b"".join(reader.feed(footer + body.encode())) == found
        reader.end()
        with pytest.raises(RemoteProtocolError):
            BodyReader().feed(footer + body.encode() + footer)
