"""The messages that selectors are tried on, by name."""

from collections.abc import Mapping
from uuid import UUID

import pytest

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Header, Properties
from holdfast.amqp.wire.types import (
    Byte,
    Char,
    Decimal64,
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
)
from holdfast.selectors.sections import Sections

ID = UUID("0123456789abcdef0123456789abcdef")

FLIGHT = Message(
    message_annotations={"x-opt-region": "eu", "x-opt-count": Uint(3), "x-opt-list": [1, 2], "a b": True},
    properties=Properties(
        message_id="ID:flight-1",
        user_id=b"anna",
        to="flights",
        subject="departure",
        reply_to="answers",
        correlation_id="c-1",
        content_type=Symbol("text/plain"),
        content_encoding=Symbol("gzip"),
        absolute_expiry_time=Timestamp(1_700_000_100_000),
        creation_time=Timestamp(1_700_000_000_000),
        group_id="g",
        group_sequence=Uint(7),
        reply_to_group_id="rg",
    ),
    application_properties={
        "origin": "JFK",
        "empty": "",
        "quote": "O'Hare",
        "percent": "50%_off",
        "lines": "one\ntwo",
        "symbol": Symbol("sym"),
        "letter": Char("x"),
        "number": Int(17),
        "text_number": "17",
        "delay": Short(-5),
        "zero": Byte(0),
        "octet": Ubyte(255),
        "long_max": Long(2**63 - 1),
        "long_min": Long(-(2**63)),
        "unsigned": Ulong(2**64 - 1),
        "stamp": Timestamp(1_000),
        "half": 0.5,
        "third": Float(1 / 3),
        "tenth": Float(0.1),
        "huge": 1e308,
        "nan": float("nan"),
        "infinite": float("inf"),
        "late": True,
        "early": False,
        "nothing": None,
        "raw": b"JFK",
        "uuid": ID,
        "decimal": Decimal64(bytes(8)),
        "listed": [1, [2, "JFK"], {}],
        "described": Described(Symbol("d"), "JFK"),
        "dotted.name": 1,
        "dotted.2nd": 2,
        "with blank": 3,
        'with "quotes"': 4,
        "null": 5,
        "$price": 6,
        "Größe": 7,
        "€": 8,
        "Origin": "LHR",
    },
    value=None,
)

MESSAGES: Mapping[str, Sections] = {
    "flight": Sections(FLIGHT.encode(), durable=True, priority=7),
    "empty": Sections(b""),
    "plain-id": Sections(Message(properties=Properties(message_id="m-1", correlation_id="ID:c")).encode()),
    "escaped-id": Sections(
        Message(properties=Properties(message_id="ID:AMQP_UUID:x", correlation_id="ID:AMQP_NO_PREFIX:y")).encode()
    ),
    "ulong-id": Sections(Message(properties=Properties(message_id=Ulong(42), correlation_id=Ulong(43))).encode()),
    "uuid-id": Sections(Message(properties=Properties(message_id=ID, correlation_id=ID)).encode()),
    "binary-id": Sections(
        Message(
            properties=Properties(message_id=b"\x00\xaf", correlation_id=b"\xff", user_id=b"\xff"), data=[b"body"]
        ).encode()
    ),
    "with-header": Sections(Message(header=Header(durable=True, priority=9), value=1).encode(), priority=2),
    # The second property is a string of bytes that are no UTF-8.
    "broken": Sections(
        Message(properties=Properties(subject="departure")).encode()
        + b"\x00\x53\x74\xc1\x0c\x04\xa1\x01a\xa1\x00\xa1\x01b\xa1\x01\xff"
        + b"\x00\x53\x77\x40"
    ),
    "cut": Sections(FLIGHT.encode()[:-100]),
}
"""What the tables name."""


@pytest.fixture(scope="session")
def messages() -> Mapping[str, Sections]:
    return MESSAGES
