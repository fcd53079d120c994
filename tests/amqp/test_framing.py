"""The framing of a message's sections (§3.2): what is no message, and at which byte."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.amqp.test_message import MESSAGES

from holdfast.amqp.message.framing import Framing, check, data_starts
from holdfast.amqp.message.message import SECTIONS_MAX, Message
from holdfast.amqp.wire.types import Array, Described, Symbol, Uint, Ulong
from holdfast.errors import RemoteProtocolError

DATA = "005375a00161"
VALUES: tuple[Any, ...] = (
    None, True, 5, 5.0, "x" * 300, b"", [1, [2]], [], {"a": {}}, Symbol("s"), Ulong(1 << 40), Array(0x70, (Uint(1),)),
    Described(Symbol("s"), Described(Ulong(3), ["v"])),
)  # fmt: skip


def refusal(payload: bytes) -> str:
    """Why `check` refuses it; "" where it does not."""
    try:
        check(payload)
    except RemoteProtocolError as error:
        return str(error)
    return ""


def refusal_in_parts(payload: bytes, sizes: list[int]) -> str:
    """The same of `Framing`, fed in parts of those sizes, round and round."""
    framing = Framing()
    at = turn = 0
    try:
        while at < len(payload):
            size = sizes[turn % len(sizes)]
            framing.feed(payload[at : at + size])
            at += size
            turn += 1
        framing.end()
    except RemoteProtocolError as error:
        return str(error)
    return ""


@given(MESSAGES)
def test_what_can_be_read_is_well_framed(message: Message) -> None:
    payload = message.encode()
    check(payload)
    check(memoryview(payload))


@pytest.mark.parametrize("value", VALUES)
def test_any_value_is_a_body_and_cut_short_none(value: Any) -> None:
    payload = Message(value=value, footer={"a": 1}).encode()
    check(payload)
    whole = len(Message(value=value).encode())
    assert [at for at in range(len(payload)) if not refusal(payload[:at])] == [0, whole]


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ("005375b07fffffff", "byte 8: the message ends, 2147483647 bytes before its last section does"),
        (DATA + "005375a00261", "byte 12: the message ends, 1 bytes before its last section does"),
        ("005375b07fff", "byte 0: the message ends in the head of a section"),
        ("00", "byte 0: the message ends in the head of a section"),
        (DATA + "005375", "byte 6: the message ends in the head of a section"),
        (DATA + "74", "byte 6: 0x74 does not begin a section"),
        ("005379a00161", "byte 0: 0x79 is not a section of a message"),
        (DATA + "00537045", "byte 6: the header section cannot follow the data section"),
        (DATA + "005377a00161", "byte 6: the amqp-value section cannot follow the data section"),
        ("00537740" * 2, "byte 4: the amqp-value section cannot follow the amqp-value section"),
        (
            "005372c10100005371c10100" + DATA,
            "byte 6: the delivery-annotations section cannot follow the message-annotations section",
        ),
        ("00537345" * 2, "byte 4: the properties section cannot follow the properties section"),
        (DATA + "005378c10100" + DATA, "byte 12: the data section cannot follow the footer section"),
        ("005378c10100" * 2, "byte 6: the footer section cannot follow the footer section"),
        ("005378c10100" + DATA + "005378c10100", "byte 12: the footer section cannot follow the data section"),
        ("005378c10100" + DATA + "00537740", "byte 12: the amqp-value section cannot follow the data section"),
        ("005373a10178" + DATA, "byte 0: invalid value 0xa1 for the properties section; expected a list"),
        ("005370c10100" + DATA, "byte 0: invalid value 0xc1 for the header section; expected a list"),
        ("00537445" + DATA, "byte 0: invalid value 0x45 for the application-properties section; expected a map"),
        ("005378a00161", "byte 0: invalid value 0xa0 for the footer section; expected a map"),
        ("005375a10161", "byte 0: invalid value 0xa1 for the data section; expected a binary"),
        ("00537540", "byte 0: invalid value 0x40 for the data section; expected a binary"),
        ("005376a00161", "byte 0: invalid value 0xa0 for the amqp-sequence section; expected a list"),
        ("005376c000", "byte 0: the amqp-sequence section has no place for its count"),
        ("005373d00000000300", "byte 0: the properties section has no place for its count"),
        ("0053773f", "byte 0: the amqp-value section holds 0x3f, which is not a constructor"),
        ("005377d00000000100", "byte 0: the amqp-value section has no place for its count"),
        ("005377" + "005301" * 40 + "40", "byte 0: the descriptor of the value is too long or too deep"),
        ("00537700a3f0" + "61" * 240 + "00a3f0" + "61" * 240 + "40",
         "byte 0: the descriptor of the value is too long or too deep"),
        ("005200a00161", "byte 0: expected the descriptor of a section"),
        ("00800000000000000079a00161", "byte 0: expected the descriptor of a section"),
        ("00a3036162634540", "byte 0: expected the descriptor of a section"),
        ("00b30000ffff61", "byte 0: expected the descriptor of a section"),
    ],
)  # fmt: skip
def test_what_is_no_message(raw: str, why: str) -> None:
    payload = bytes.fromhex(raw)
    assert refusal(payload) == f"amqp:decode-error: {why}"
    for size in (1, 2, 3, 7):
        assert refusal_in_parts(payload, [size]) == f"amqp:decode-error: {why}"


@pytest.mark.parametrize(
    "raw",
    [
        "", DATA, DATA * 2, "005378c10100" + DATA * 2, "00537345005378c1010000537740",
        "00537045", "00537345" + DATA, "00537645" * 2, "005377a00161005378c10100",
        "00800000000000000075a00161", "00a310616d71703a646174613a62696e617279a00161",
        "00b300000010616d71703a646174613a62696e617279a00161",
    ],
)  # fmt: skip
def test_what_is_one(raw: str) -> None:
    check(bytes.fromhex(raw))
    assert not refusal_in_parts(bytes.fromhex(raw), [1])


@given(MESSAGES, st.lists(st.integers(1, 400), min_size=1, max_size=4), st.data())
def test_the_cut_changes_nothing(message: Message, sizes: list[int], data: st.DataObject) -> None:
    payload = bytearray(message.encode())
    for _ in range(data.draw(st.integers(0, 3))):
        if payload:
            payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    raw = bytes(payload[: data.draw(st.integers(0, len(payload)))])
    assert refusal_in_parts(raw, sizes) == refusal(raw)


@given(st.binary(max_size=80), st.integers(1, 9))
def test_nothing_else_is_raised(raw: bytes, size: int) -> None:
    assert refusal_in_parts(raw, [size]) == refusal(raw)


def test_sections_are_counted() -> None:
    empty = bytes.fromhex("005375a000")
    check(empty * SECTIONS_MAX)
    text = f"byte {5 * SECTIONS_MAX}: the message has too many sections; the limit is {SECTIONS_MAX}"
    why = f"amqp:resource-limit-exceeded: {text}"
    assert refusal(empty * (SECTIONS_MAX + 1)) == refusal_in_parts(empty * (SECTIONS_MAX + 1), [999]) == why


@given(st.binary(max_size=20), st.integers(0, 700))
def test_how_one_data_section_begins(head: bytes, size: int) -> None:
    payload = head + Message(data=[bytes(size)]).encode()
    assert payload.startswith(data_starts(head, len(payload)))
    assert not (payload + b"x").startswith(data_starts(head, len(payload) + 1))
    assert all(len(start) <= len(payload) for start in data_starts(head, len(payload)))


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 65_536])
def test_how_a_data_section_begins_at_the_bounds_of_its_short_form(size: int) -> None:
    """A payload of any size may come, also one that no section with a size of one byte fills."""
    for usual in (b"\x00\x53\x75\xa0" + bytes([size & 0xFF]), b"\x00\x53\x75\xb0" + size.to_bytes(4, "big")):
        starts = data_starts(b"", len(usual) + size)
        assert (usual in starts) == (usual[3] == 0xB0 or size <= 0xFF)
        for start in starts:
            check(start + bytes(len(usual) + size - len(start)))
