"""Messages of Qpid Proton through a node: what came is what was sent, byte for byte (CLIENTS 27, 29 to 31)."""

import datetime
import uuid
from typing import Any

import pytest

proton = pytest.importorskip("proton", reason="Qpid Proton (python-qpid-proton) is not installed")

from proton import (  # noqa: E402
    UNDESCRIBED,
    Array,
    Data,
    Delivery,
    Described,
    Message,
    byte,
    char,
    decimal32,
    decimal64,
    decimal128,
    float32,
    int32,
    short,
    symbol,
    timestamp,
    ubyte,
    uint,
    ulong,
    ushort,
)

from interop.proton_peer import Arrival, Client, bare, sections  # noqa: E402

pytestmark = pytest.mark.interop

SIZES = (0, 1, 255, 256, 65_535, 65_536, 65_537, 1024 * 1024, 10 * 1024 * 1024)

VALUES: dict[str, Any] = {
    "null": None,
    "true": True,
    "false": False,
    "ubyte": ubyte(255),
    "ushort": ushort(65_535),
    "uint-0": uint(0),
    "uint-small": uint(7),
    "uint": uint(2**32 - 1),
    "ulong-0": ulong(0),
    "ulong-small": ulong(200),
    "ulong": ulong(2**64 - 1),
    "byte": byte(-128),
    "short": short(-32_768),
    "int-small": int32(-1),
    "int": int32(-(2**31)),
    "long-small": -1,
    "long": -(2**63),
    "float": float32(0.5),
    "double": 0.1,
    "decimal32": decimal32(0x22500001),
    "decimal64": decimal64(0x2234000000000001),
    "decimal128": decimal128(bytes(range(16))),
    "char": char("\U0001f6e9"),
    "timestamp": timestamp(int(datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc).timestamp() * 1000)),
    "uuid": uuid.UUID(int=0x1234567890ABCDEF),
    "string-empty": "",
    "string": "é" * 200,
    "symbol": symbol("holdfast:symbol"),
    "list-empty": [],
    "list": [ulong(1), None, [True, "deep", [b"deeper"]]],
    "map-empty": {},
    "map": {"a": int32(1), ulong(2): {symbol("s"): [1, 2]}, True: None},
    "described": Described(symbol("example:thing:list"), [1, "two"]),
    "described-number": Described(ulong(0x1234_5678_9ABC), {"k": "v"}),
    "array": Array(UNDESCRIBED, Data.INT, 1, 2, 3),
    "array-described": Array(symbol("a:b"), Data.STRING, "x", "y"),
}

DATA_1 = b"\x00\x53\x75\xa0\x03one"
DATA_2 = b"\x00\x53\x75\xb0\x00\x00\x00\x03two"
SEQUENCE_1 = b"\x00\x53\x76\xc0\x05\x02\x54\x01\x54\x02"
SEQUENCE_2 = b"\x00\x53\x76\x45"
SEQUENCE_3 = b"\x00\x53\x76\xd0\x00\x00\x00\x06\x00\x00\x00\x01\x54\x03"
VALUE = b"\x00\x53\x77\xa1\x05hello"
VALUE_NULL = b"\x00\x53\x77\x40"
PROPERTIES_NULLS = b"\x00\x53\x73\xc0\x0e\x0d" + 13 * b"\x40"
PROPERTIES_32 = b"\x00\x53\x73\xd0\x00\x00\x00\x06\x00\x00\x00\x01\x53\x05"
PROPERTIES_SYMBOLIC = b"\x00\xa3\x14amqp:properties:list\xc0\x03\x01\x53\x05"
PROPERTIES_LONG = b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x73\xc0\x03\x01\x53\x05"
APPLICATION_32 = b"\x00\x53\x74\xd1\x00\x00\x00\x0c\x00\x00\x00\x02\xb1\x00\x00\x00\x01k\x53\x01"
APPLICATION_EMPTY = b"\x00\x53\x74\xc1\x01\x00"
FOOTER = b"\x00\x53\x78\xc1\x0f\x02\xa3\x03crc\x80\x00\x00\x00\x00\x00\x00\x00\x01"

BARE = {
    "data": DATA_1,
    "data-of-32-bits": DATA_2,
    "several-data": DATA_1 + DATA_2 + DATA_1,
    "sequence": SEQUENCE_1,
    "several-sequences": SEQUENCE_1 + SEQUENCE_2 + SEQUENCE_3,
    "value": VALUE,
    "value-null": VALUE_NULL,
    "no-body": PROPERTIES_32,
    "properties-of-nulls": PROPERTIES_NULLS + VALUE,
    "properties-of-32-bits": PROPERTIES_32 + DATA_1,
    "properties-symbolic": PROPERTIES_SYMBOLIC + DATA_1,
    "properties-long-descriptor": PROPERTIES_LONG + DATA_1,
    "application-of-32-bits": APPLICATION_32 + DATA_1,
    "application-empty": APPLICATION_EMPTY + DATA_1,
    "all-with-footer": PROPERTIES_32 + APPLICATION_32 + DATA_1 + DATA_2 + FOOTER,
}

HEADERS = {
    "absent": (b"", (False, 4)),
    "empty": (b"\x00\x53\x70\x45", (False, 4)),
    "durable-alone": (b"\x00\x53\x70\xc0\x02\x01\x41", (True, 4)),
    "durable-wide": (b"\x00\x53\x70\xc0\x03\x01\x56\x01", (True, 4)),
    "all-fields": (b"\x00\x53\x70\xc0\x0c\x05\x41\x50\x09\x70\x00\x36\xee\x80\x42\x52\x00", (True, 9)),
    "list-of-32-bits": (b"\x00\x53\x70\xd0\x00\x00\x00\x07\x00\x00\x00\x02\x42\x50\x02", (False, 2)),
    "symbolic": (b"\x00\xa3\x10amqp:header:list\xc0\x02\x01\x41", (True, 4)),
}


def through(client: Client, address: str, payload: bytes) -> Arrival:
    """`payload` as the node hands it on."""
    sender = client.sender(address)
    assert client.stream(sender, payload).remote_state == Delivery.ACCEPTED
    receiver = client.receiver(address)
    arrival = receiver.one()
    arrival.accept()
    return arrival


def decoded(payload: bytes) -> tuple[type, str]:
    """The body as Proton reads it; as text, because its views of binaries compare by what they view."""
    body = Message()
    body.decode(payload)
    found = body.body
    return type(found), repr(bytes(found) if isinstance(found, memoryview) else found)


@pytest.mark.parametrize("size", SIZES)
def test_data_of_any_size(client: Client, address: str, size: int) -> None:
    body = (b"0123456789abcdef" * (size // 16 + 1))[:size]
    sent = Message(body=body, inferred=True, id="m").encode()
    arrival = through(client, address, sent)
    assert bare(arrival.payload) == bare(sent)
    message = arrival.message
    assert bytes(message.body) == body


@pytest.mark.parametrize("size", SIZES)
def test_value_of_any_size(client: Client, address: str, size: int) -> None:
    sent = Message(body="x" * size).encode()
    arrival = through(client, address, sent)
    assert bare(arrival.payload) == bare(sent)


@pytest.mark.parametrize("name", VALUES)
def test_value_of_any_type(client: Client, address: str, name: str) -> None:
    message = Message()
    message.body = VALUES[name]
    sent = message.encode()
    arrival = through(client, address, sent)
    assert bare(arrival.payload) == bare(sent)
    assert decoded(arrival.payload) == decoded(sent)


@pytest.mark.parametrize("name", BARE)
def test_bare_message_is_not_touched(client: Client, address: str, name: str) -> None:
    arrival = through(client, address, BARE[name])
    assert bare(arrival.payload) == BARE[name]


@pytest.mark.parametrize("name", HEADERS)
def test_header_as_it_was(client: Client, address: str, name: str) -> None:
    raw, (durable, priority) = HEADERS[name]
    arrival = through(client, address, raw + DATA_1)
    assert bare(arrival.payload) == DATA_1
    assert (arrival.message.durable, arrival.message.priority) == (durable, priority)
    assert (arrival.message.first_acquirer, arrival.message.delivery_count) == (True, 0)


def test_delivery_annotations_do_not_travel_on(client: Client, address: str) -> None:
    annotations = b"\x00\x53\x71\xc1\x09\x02\xa3\x05x-foo\x41"
    arrival = through(client, address, annotations + DATA_1)
    assert bare(arrival.payload) == DATA_1
    assert 0x71 not in [code for code, _ in sections(arrival.payload)]


@pytest.mark.parametrize("number", [ulong(5), ulong(2**63), uuid.UUID(int=5), b"\x05\x00", "5"], ids=repr)
def test_message_ids_keep_their_type(client: Client, address: str, number: Any) -> None:
    sent = Message(id=number, correlation_id=number, body="x").encode()
    arrival = through(client, address, sent)
    assert bare(arrival.payload) == bare(sent)
    assert arrival.message.id == arrival.message.correlation_id == number


def test_properties_all_of_them(client: Client, address: str) -> None:
    message = Message(
        id="id-1", user_id=b"me", address="somewhere/else", subject="about", reply_to="back", correlation_id=ulong(1),
        content_type=symbol("text/plain"), content_encoding=symbol("gzip"), expiry_time=4_000_000_000.0,
        creation_time=1_700_000_000.0, group_id="g", group_sequence=7, reply_to_group_id="rg", body="x",
    )  # fmt: skip
    sent = message.encode()
    arrival = through(client, address, sent)
    assert bare(arrival.payload) == bare(sent)
    assert arrival.message.subject == "about"
    assert arrival.message.group_sequence == 7


def test_application_properties_keep_their_types(client: Client, address: str) -> None:
    skipped = ("list", "map", "array", "described")
    properties = {name: value for name, value in VALUES.items() if not name.startswith(skipped)}
    sent = Message(body="x", properties=properties).encode()
    arrival = through(client, address, sent)
    assert bare(arrival.payload) == bare(sent)
    found = arrival.message.properties
    assert found == properties
    assert {name: type(value) for name, value in found.items()} == {
        name: type(value) for name, value in properties.items()
    }


@pytest.mark.parametrize("kind", range(6))
def test_jms_message_type_stays_a_byte(client: Client, address: str, kind: int) -> None:
    message = Message(body="x")
    message.annotations = {
        symbol("x-opt-jms-msg-type"): byte(kind),
        symbol("x-opt-jms-dest"): byte(0),
        symbol("x-opt-jms-reply-to"): byte(1),
    }
    found = through(client, address, message.encode()).message.annotations
    for key, value in message.annotations.items():
        assert (type(found[key]), found[key]) == (byte, value)


def test_annotations_of_any_type(client: Client, address: str) -> None:
    message = Message(body="x")
    message.annotations = {
        symbol(f"x-opt-{name}"): value for name, value in VALUES.items() if not name.startswith(("array", "list"))
    }
    found = through(client, address, message.encode()).message.annotations
    assert {key: repr(found[key]) for key in message.annotations} == {
        key: repr(value) for key, value in message.annotations.items()
    }


def test_consumers_are_told_sequence_and_time(client: Client, address: str) -> None:
    client.send_bodies(address, "a", "b")
    receiver = client.receiver(address).flow(2)
    annotations = [arrival.message.annotations for arrival in receiver.take(2)]
    assert [notes["x-opt-sequence-number"] for notes in annotations] == [ulong(1), ulong(2)]
    assert all(type(notes["x-opt-sequence-number"]) is ulong for notes in annotations)
    assert all(type(notes["x-opt-enqueued-time"]) is timestamp for notes in annotations)


def test_a_node_s_own_annotations_are_not_taken_from_a_client(client: Client, address: str) -> None:
    message = Message(body="x")
    message.annotations = {symbol("x-opt-holdfast-number"): ulong(1), symbol("x-opt-mine"): "kept"}
    found = through(client, address, message.encode()).message.annotations
    assert "x-opt-holdfast-number" not in found
    assert found["x-opt-mine"] == "kept"


def test_time_to_live_counts_down(client: Client, address: str) -> None:
    arrival = through(client, address, Message(body="x", ttl=600.0).encode())
    assert 0 < arrival.message.ttl <= 600.0


@pytest.mark.parametrize("payload", [b"\x00\x53\x70", b"\xff\xff\xff\xff", b"\x00\x53\x72\x40"], ids=bytes.hex)
def test_what_is_no_message_is_rejected_and_the_link_lives(client: Client, address: str, payload: bytes) -> None:
    sender = client.sender(address)
    delivery = client.stream(sender, payload)
    assert delivery.remote_state == Delivery.REJECTED
    assert delivery.remote.condition.name == "amqp:decode-error"
    assert client.stream(sender, DATA_1).remote_state == Delivery.ACCEPTED
