"""absolute-expiry-time is found in any encoding that AMQP allows, and hostile properties cost nothing."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.amqp.message.expiry import TIME_MAX, expiry_of, expiry_of_whole
from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Properties
from holdfast.amqp.wire.types import Symbol, Timestamp

BODY = b"\x00\x53\x75\xa0\x01x"


def encoded(**fields: Any) -> bytes:
    return Message(properties=Properties(**fields), data=[b"x"]).encode()


texts = st.one_of(st.none(), st.text(max_size=300))


def reads_in_part(payload: bytes, expected: int) -> None:
    """Each prefix says as much, or that more of it must be known."""
    for cut in range(len(payload) - len(BODY)):
        try:
            assert expiry_of(payload[:cut], 0) == expected, cut
        except IndexError:
            pass


def test_a_long_list_of_which_the_header_has_not_come_whole_says_nothing_yet() -> None:
    reads_in_part(encoded(absolute_expiry_time=Timestamp(77), correlation_id="x" * 300), 77)


@given(
    st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
    st.fixed_dictionaries(
        {
            "message_id": st.one_of(st.none(), st.text(max_size=300), st.binary(max_size=300), st.uuids()),
            "user_id": st.one_of(st.none(), st.binary(max_size=300)),
            "to": texts, "subject": texts, "reply_to": texts, "correlation_id": texts,
            "content_type": st.one_of(st.none(), st.just(Symbol("text/plain"))),
            "creation_time": st.one_of(st.none(), st.just(Timestamp(5))),
        }
    ),
)  # fmt: skip
def test_it_is_what_the_decoder_reads(at_ms: int | None, fields: dict[str, Any]) -> None:
    payload = encoded(absolute_expiry_time=None if at_ms is None else Timestamp(at_ms), **fields)
    expected = 0 if at_ms is None else max(1, at_ms)
    assert expiry_of_whole(payload, 0) == expected
    assert expiry_of_whole(b"head" + payload, 4) == expected
    reads_in_part(payload, expected)


@pytest.mark.parametrize("descriptor", [b"\x00\x80" + (0x73).to_bytes(8, "big"), b"\x00\xa3\x14amqp:properties:list"])
@pytest.mark.parametrize("form", ["short", "long"])
def test_unusual_encodings(descriptor: bytes, form: str) -> None:
    items = b"\x40" * 8 + b"\x83" + (77).to_bytes(8, "big")
    if form == "short":
        section = descriptor + b"\xc0" + bytes((len(items) + 1, 9)) + items
    else:
        section = descriptor + b"\xd0" + (len(items) + 4).to_bytes(4, "big") + (9).to_bytes(4, "big") + items
    assert expiry_of_whole(section + BODY, 0) == 77


@pytest.mark.parametrize(
    ("section", "why"),
    [
        (b"\x00\x53\x73\x45", "empty"),
        (b"\x00\x53\x73\xc0\x09\x08" + b"\x40" * 8, "too short a list"),
        (b"\x00\x53\x73\xc0\x0a\x09" + b"\x40" * 9, "null"),
        (b"\x00\x53\x73\xc0\x0b\x09" + b"\x40" * 8 + b"\x53\x07", "no timestamp"),
        (b"\x00\x53\x73\xc0\x0a\x09" + b"\x40" * 8 + b"\x83" + bytes(8), "beyond the list"),
        (b"\x00\x53\x73\xc0\x0a\x09" + b"\x00" * 9, "described values"),
        (b"\x00\x53\x73\xc0\x0a\x09\xb0\xff\xff\xff\xff" + b"\x40" * 8, "a size beyond all"),
        (b"\x00\x53\x73\xd0\xff\xff\xff\xff\xff\xff\xff\xff", "a list beyond all"),
        (b"\x00\x53\x74\xc1\x01\x00", "application properties"),
        (b"\x00\x53", "cut off"),
        (b"", "nothing"),
        (b"\x01\x02\x03", "no section"),
    ],
)
def test_what_says_none(section: bytes, why: str) -> None:
    assert expiry_of_whole(section, 0) == 0, why


def test_the_latest_time_is_kept() -> None:
    assert expiry_of_whole(encoded(absolute_expiry_time=Timestamp(TIME_MAX)), 0) == TIME_MAX
