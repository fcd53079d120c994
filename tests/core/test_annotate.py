"""Message annotations from the wire into an entry: as their sender encoded them, but for what is ours."""

from struct import pack
from typing import Any

import pytest

from holdfast.amqp.message.message import Message, split
from holdfast.amqp.wire.decoding import decode
from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.extensions import NUMBER
from holdfast.amqp.wire.performatives import Header
from holdfast.amqp.wire.types import Symbol, Ulong
from holdfast.broker.entries import annotate

BODY = b"\x00\x53\x75\xa0\x01x"
LONG = b"\xa3\x03x-a" + b"\xb1\x00\x00\x00\x01z"
"""A key, and a string of one character in its long encoding, which our own encoder never writes."""


def stripped(section: bytes) -> annotate.Annotations:
    payload = section + BODY
    return annotate.strip(payload, split(payload), 65_536)


def map32(items: bytes, count: int) -> bytes:
    return b"\x00\x53\x72\xd1" + pack(">II", 4 + len(items), count) + items


def items_of(found: annotate.Annotations) -> dict[Any, Any]:
    fields = decode(b"\xd1" + pack(">II", 4 + len(found.items), found.item_count) + found.items, 0)[0]
    assert isinstance(fields, dict)
    return fields


@pytest.mark.parametrize("section", [b"\x00\x53\x72\xc1" + bytes([1 + len(LONG), 2]) + LONG, map32(LONG, 2)])
def test_what_a_client_adds_is_kept_as_it_was_encoded(section: bytes) -> None:
    assert stripped(section) == (2, LONG, None)


@pytest.mark.parametrize("name", [NUMBER, "x-opt-holdfast-path", "x-opt-sequence-number", "x-opt-enqueued-time"])
def test_what_is_ours_is_not_kept(name: str) -> None:
    found = stripped(map32(LONG + encode(Symbol(name)) + encode(Ulong(7)), 4))
    assert items_of(found) == {"x-a": "z"}
    assert found.number == (7 if name == NUMBER else None)


def test_a_name_of_ours_in_a_value_is_no_key() -> None:
    found = stripped(map32(encode(Symbol("x-a")) + encode("x-opt-holdfast-number"), 2))
    assert items_of(found) == {"x-a": "x-opt-holdfast-number"}


def test_a_key_that_is_there_twice_is_refused() -> None:
    with pytest.raises(annotate.RemoteProtocolError, match="twice"):
        stripped(map32(LONG + encode(Symbol("x-a")) + encode("y"), 4))


def test_a_descriptor_in_another_encoding_is_the_same() -> None:
    section = b"\x00\x80" + pack(">Q", 0x72) + map32(LONG, 2)[3:]
    assert items_of(stripped(section)) == {"x-a": "z"}


def test_a_count_that_is_wrong_is_refused() -> None:
    with pytest.raises(annotate.RemoteProtocolError):
        stripped(map32(LONG, 4))


@pytest.mark.parametrize(
    ("ttl_ms", "told"), [(0, 0), (5, 5), (2**32 - 1, 2**32 - 1), (2**32, 2**32 - 1), (2**63, 2**32 - 1)]
)
def test_a_time_to_live_that_fits_no_header_is_told_as_the_longest(ttl_ms: int, told: int) -> None:
    header = Message.decode(annotate.encode_header(True, 7, ttl_ms, False, 3) + BODY).header
    assert header == Header(durable=True, priority=7, ttl=told, first_acquirer=False, delivery_count=3)
