"""Messages whole and split; the bare message is never touched (§3.2)."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.amqp.message.message import SECTIONS_MAX, Message, Sections, split
from holdfast.amqp.wire import encoding
from holdfast.amqp.wire.performatives import Header, Properties
from holdfast.amqp.wire.types import MISSING, Byte, Described, Symbol, Ubyte, Uint, Ulong
from holdfast.errors import LocalProtocolError, RemoteProtocolError

BARE = bytes.fromhex("005375a00161")
HEADERS = st.builds(
    Header, st.booleans(), st.integers(0, 255), st.none() | st.integers(0, 2**32 - 1), st.booleans(),
    st.integers(0, 2**32 - 1),
)  # fmt: skip
TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
KEYS = st.text(st.characters(codec="ascii"), min_size=1, max_size=10).map(Symbol)
ANNOTATIONS = st.dictionaries(KEYS, st.text(st.characters(codec="utf-8"), max_size=300), max_size=4)
MESSAGES = st.builds(
    Message, header=st.none() | HEADERS, delivery_annotations=st.none() | ANNOTATIONS,
    message_annotations=st.none() | ANNOTATIONS,
    properties=st.none() | st.builds(Properties, message_id=st.none() | st.uuids() | st.binary() | st.just("5")),
    application_properties=st.none() | st.dictionaries(TEXT, st.booleans()),
    data=st.none() | st.lists(st.binary(max_size=300), min_size=1, max_size=3), footer=st.none() | ANNOTATIONS,
)  # fmt: skip


@given(MESSAGES)
def test_a_message_is_read_as_it_was_written(message: Message) -> None:
    assert Message.decode(message.encode()) == message


@given(MESSAGES)
def test_split_finds_the_parts(message: Message) -> None:
    payload = message.encode()
    parts = split(payload)
    assert parts.header == message.header
    assert parts.delivery_annotations == message.delivery_annotations
    start, end = parts.annotations
    if message.message_annotations is None:
        assert (start, end) == (0, 0)
    else:
        assert payload[start:end] == b"\x00\x53\x72" + encoding.encode(message.message_annotations)
    message.header = message.delivery_annotations = message.message_annotations = None
    assert payload[parts.bare :] == message.encode()


@pytest.mark.parametrize(
    ("raw", "parts"),
    [
        (b"", Sections(None, None, (0, 0), 0)),
        (BARE, Sections(None, None, (0, 0), 0)),
        (bytes.fromhex("00537045") + BARE, Sections(Header(), None, (0, 0), 4)),
        (bytes.fromhex("00537045"), Sections(Header(), None, (0, 0), 4)),
        (bytes.fromhex("005370c0020141") + BARE, Sections(Header(durable=True), None, (0, 0), 7)),
        (bytes.fromhex("005370c00c05415005700000003c425201") + BARE,
         Sections(Header(True, 5, 60, False, 1), None, (0, 0), 17)),
        (bytes.fromhex("005370d0000000050000000141") + BARE, Sections(Header(True), None, (0, 0), 13)),
        (bytes.fromhex("00800000000000000070") + b"\x45" + BARE, Sections(Header(), None, (0, 0), 11)),
        (b"\x00" + encoding.encode(Symbol("amqp:header:list")) + b"\x45" + BARE, Sections(Header(), None, (0, 0), 20)),
        (bytes.fromhex("005372c10100") + BARE, Sections(None, None, (0, 6), 6)),
        (bytes.fromhex("00537045005372c10100") + BARE, Sections(Header(), None, (4, 10), 10)),
        (bytes.fromhex("00537045005371c10100005372d10000000400000000") + BARE, Sections(Header(), {}, (10, 22), 22)),
        (bytes.fromhex("005372c10100"), Sections(None, None, (0, 6), 6)),
    ],
)  # fmt: skip
def test_the_shapes_of_a_head(raw: bytes, parts: Sections) -> None:
    assert split(raw) == parts


@pytest.mark.parametrize(
    "raw",
    [
        "ff", "00", "0053", "005370", "005370c0020150", "005370c1020140", "00537240", "005372c1ff00",
        "0053704500537045", "005372c10100005371c10100", "005379a00161", "005370c00606414142424242", "a10161",
        "00537041",
        "005372a00161", "005370c002014100a3",
    ],
)  # fmt: skip
def test_a_malformed_head(raw: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        split(bytes.fromhex(raw))
    assert caught.value.condition == "amqp:decode-error"


@given(st.binary(max_size=60))
def test_split_never_raises_anything_else(raw: bytes) -> None:
    for payload in (raw, b"\x00\x53\x70" + raw, b"\x00\x53\x72" + raw):
        try:
            parts = split(payload)
        except RemoteProtocolError:
            continue
        assert 0 <= parts.annotations[0] <= parts.annotations[1] <= parts.bare <= len(payload)


@given(st.binary(max_size=60))
def test_decode_never_raises_anything_else(raw: bytes) -> None:
    try:
        Message.decode(raw)
    except RemoteProtocolError:
        pass


@pytest.mark.parametrize("value", [None, 5, "x", [1, "a"], {"a": 1}, Described(Symbol("s"), "v")])
def test_a_value_body(value: Any) -> None:
    """CLIENTS 31: null is a body too."""
    assert Message.decode(Message(value=value).encode()).value == value
    assert Message.decode(b"").value is MISSING


def test_sequences_and_several_data_sections() -> None:
    assert Message.decode(Message(sequences=[[1], []]).encode()).sequences == [[1], []]
    assert Message.decode(Message(data=[b"a", b"b"]).encode()).body_bytes() == b"ab"
    assert Message(value="é").body_bytes() == "é".encode()
    assert Message(value=b"x").body_bytes() == b"x" and Message(value=5).body_bytes() == b""


@pytest.mark.parametrize("message_id", [Ulong(5), "5", b"5", UUID(int=5)])
def test_message_ids_keep_their_type(message_id: Any) -> None:
    """CLIENTS 30: "5" is not 5."""
    read = Message.decode(Message(properties=Properties(message_id=message_id)).encode()).properties
    assert read is not None and type(read.message_id) is type(message_id) and read.message_id == message_id


def test_annotations_keep_their_types() -> None:
    """CLIENTS 31: a byte stays a byte."""
    sent = Message(message_annotations={"x-opt-jms-msg-type": Byte(0), Symbol("n"): Uint(1), Ulong(9): Ubyte(2)})
    read = Message.decode(sent.encode()).message_annotations
    assert read is not None and [type(value) for value in read.values()] == [Byte, Uint, Ubyte]
    assert [type(key) for key in read] == [Symbol, Symbol, Ulong]


def test_two_bodies_are_a_mistake_of_ours() -> None:
    with pytest.raises(LocalProtocolError):
        Message(data=[b""], value=1).encode()


@pytest.mark.parametrize("raw", [
    "005375a00161005377a00161", "005377a00161005377a00161", "00537645005375a00161", "0053764500005375a00161",
    "005375a00161005373c00100", "005375a10161", "005376a00161", "005374a00161",
])  # fmt: skip
def test_malformed_messages(raw: str) -> None:
    with pytest.raises(RemoteProtocolError):
        Message.decode(bytes.fromhex(raw))


def test_the_bound_on_sections() -> None:
    section = bytes.fromhex("005375a000")
    decoded = Message.decode(section * SECTIONS_MAX).data
    assert decoded is not None and len(decoded) == SECTIONS_MAX
    with pytest.raises(RemoteProtocolError, match="sections"):
        Message.decode(section * (SECTIONS_MAX + 1))


def test_a_footer_before_the_body() -> None:
    """CLIENTS 41: rhea writes it there; once, and the body is none the less one."""
    footer = Message(footer={Symbol("a"): "b"}).encode()
    for body in (Message(data=[b"x", b"y"]), Message(value="z"), Message(sequences=[[1], [2]])):
        found = Message.decode(Message(properties=Properties(subject="s")).encode() + footer + body.encode())
        assert (found.data, found.value, found.sequences) == (body.data, body.value, body.sequences)
        assert found.footer == {Symbol("a"): "b"}
        for behind in (footer, Message(value=1).encode(), Message(properties=Properties()).encode()):
            with pytest.raises(RemoteProtocolError):
                Message.decode(footer + body.encode() + behind)
