"""Every type, every encoding (§1.6); what is malformed, and the bounds."""

import struct
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.amqp import codec
from holdfast.amqp.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
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
    Ushort,
    symbols,
)
from holdfast.errors import LocalProtocolError, RemoteProtocolError

ID = UUID("01234567-89ab-cdef-0123-456789abcdef")

ENCODINGS: list[tuple[str, Any]] = [
    ("40", None),
    ("41", True), ("42", False), ("5600", False), ("5601", True),
    ("50ff", Ubyte(255)), ("60ffff", Ushort(65535)),
    ("43", Uint(0)), ("5207", Uint(7)), ("70ffffffff", Uint(2**32 - 1)),
    ("44", Ulong(0)), ("5307", Ulong(7)), ("80ffffffffffffffff", Ulong(2**64 - 1)),
    ("5180", Byte(-128)), ("618000", Short(-32768)),
    ("54ff", Int(-1)), ("7180000000", Int(-(2**31))),
    ("55ff", Long(-1)), ("818000000000000000", Long(-(2**63))),
    ("723f800000", Float(1.0)), ("823ff0000000000000", 1.0),
    ("7400000001", Decimal32(b"\0\0\0\1")), ("840000000000000001", Decimal64(bytes(7) + b"\1")),
    ("94" + "00" * 15 + "01", Decimal128(bytes(15) + b"\1")),
    ("730001f600", Char("😀")), ("83ffffffffffffffff", Timestamp(-1)), ("98" + ID.hex, ID),
    ("a00161", b"a"), ("b00000000161", b"a"), ("a102c3a9", "é"), ("b100000002c3a9", "é"),
    ("a30161", Symbol("a")), ("b30000000161", Symbol("a")),
    ("45", []), ("c0020140", [None]), ("d0000000050000000140", [None]),
    ("c10402520141", {Uint(1): True}),
    ("d10000000700000002520141", {Uint(1): True}),
    ("e006017000000001", Array(0x70, (Uint(1),))),
    ("f00000000900000001700000000a", Array(0x70, (Uint(10),))),
    ("e00602a301610162", symbols(("a", "b"))),
    ("00a3016155ff", Described(Symbol("a"), Long(-1))),
    ("e00702005301500708", Array(0x50, (Ubyte(7), Ubyte(8)), Ulong(1))),
]  # fmt: skip


@pytest.mark.parametrize(("raw", "value"), ENCODINGS, ids=[raw[:12] for raw, _ in ENCODINGS])
def test_every_encoding_is_read_with_its_type(raw: str, value: Any) -> None:
    data = bytes.fromhex(raw)
    read, end = codec.decode(b"xx" + data + b"yy", 2)
    assert end == 2 + len(data)
    assert same(read, value)
    again, _ = codec.decode(codec.encode(read))
    assert same(again, value)


def same(left: Any, right: Any) -> bool:
    """Equal in value and type, all the way down; NaN is itself."""
    if type(left) is not type(right):
        return False
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return same(list(left.items()), list(right.items()))
    if isinstance(left, Described):
        return same(left.descriptor, right.descriptor) and same(left.value, right.value)
    if isinstance(left, Array):
        return left.code == right.code and same(left.values, right.values) and same(left.descriptor, right.descriptor)
    if isinstance(left, float):
        return struct.pack(">d", left) == struct.pack(">d", right)
    return bool(left == right)


def whole(kind: type, low: int, high: int) -> st.SearchStrategy[Any]:
    return st.integers(low, high).map(kind)


SCALARS: dict[int, st.SearchStrategy[Any]] = {
    0x40: st.none(), 0x56: st.booleans(), 0x50: whole(Ubyte, 0, 2**8 - 1), 0x60: whole(Ushort, 0, 2**16 - 1),
    0x70: whole(Uint, 0, 2**32 - 1), 0x80: whole(Ulong, 0, 2**64 - 1), 0x51: whole(Byte, -(2**7), 2**7 - 1),
    0x61: whole(Short, -(2**15), 2**15 - 1), 0x71: whole(Int, -(2**31), 2**31 - 1),
    0x81: whole(Long, -(2**63), 2**63 - 1), 0x83: whole(Timestamp, -(2**63), 2**63 - 1),
    0x72: st.floats(width=32, allow_nan=False).map(Float), 0x82: st.floats(allow_nan=False),
    0x73: st.characters(codec="utf-8").map(Char), 0x74: st.binary(min_size=4, max_size=4).map(Decimal32),
    0x84: st.binary(min_size=8, max_size=8).map(Decimal64), 0x94: st.binary(min_size=16, max_size=16).map(Decimal128),
    0x98: st.uuids(), 0xB0: st.binary(max_size=300), 0xB1: st.text(st.characters(codec="utf-8"), max_size=300),
    0xB3: st.text(st.characters(codec="ascii"), max_size=20).map(Symbol),
}  # fmt: skip
SCALAR = st.one_of(*SCALARS.values())
DESCRIPTOR = st.one_of(SCALARS[0x80], SCALARS[0xB3])


@st.composite
def arrays(draw: st.DrawFn) -> Array:
    code = draw(st.sampled_from(sorted(SCALARS)))
    values = draw(st.lists(SCALARS[code], max_size=20))
    if draw(st.booleans()):
        return Array(code, tuple(values), draw(DESCRIPTOR))
    return Array(code, tuple(values))


# Keys that are equal in Python but not in AMQP (1, 1.0, True) share a place in a dict: not drawn together.
VALUES = st.recursive(
    st.one_of(SCALAR, arrays()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(SCALARS[0xB3], inner, max_size=5),
        st.dictionaries(SCALARS[0x80], inner, max_size=5),
        st.builds(Described, DESCRIPTOR, inner),
        st.lists(st.lists(inner, max_size=3), max_size=3).map(lambda rows: Array(0xD0, tuple(rows))),
    ),
    max_leaves=20,
)


@given(VALUES)
def test_what_is_encoded_is_read_back_with_its_types(value: Any) -> None:
    raw = codec.encode(value)
    read, end = codec.decode(raw)
    assert end == len(raw)
    assert same(read, value)


@pytest.mark.parametrize(
    ("plain", "kind"),
    [(None, type(None)), (True, bool), (5, Long), (5.0, float), ("a", str), (b"a", bytes), (ID, UUID), ({}, dict)],
)
def test_plain_python_values_have_their_types(plain: Any, kind: type) -> None:
    assert type(codec.decode(codec.encode(plain))[0]) is kind


@given(VALUES, st.data())
def test_a_value_cut_short_is_an_error(value: Any, data: st.DataObject) -> None:
    raw = codec.encode(value)
    at = data.draw(st.integers(0, len(raw) - 1))
    with pytest.raises(RemoteProtocolError) as caught:
        codec.decode(raw[:at])
    assert caught.value.condition == "amqp:decode-error"


@given(st.binary(max_size=200))
def test_any_bytes_give_a_value_or_a_decode_error(raw: bytes) -> None:
    try:
        value, end = codec.decode(raw)
    except RemoteProtocolError as error:
        assert error.condition == "amqp:decode-error"
    else:
        assert 0 < end <= len(raw)
        codec.encode(value)


@pytest.mark.parametrize(
    "raw",
    [
        "5602", "3f", "a10180", "a30180", "7300110000", "c0030240", "c0020240",
        "c1020140", "c10402454040", "e0020170", "e003013f00",
    ],
)  # fmt: skip
def test_malformed_values(raw: str) -> None:
    with pytest.raises(RemoteProtocolError):
        codec.decode(bytes.fromhex(raw))


def nested(depth: int) -> bytes:
    raw = b"\x45"
    for _ in range(depth):
        raw = b"\xd0" + struct.pack(">II", len(raw) + 4, 1) + raw
    return raw


def test_the_bound_on_depth() -> None:
    codec.decode(nested(codec.DEPTH_MAX))
    with pytest.raises(RemoteProtocolError, match="nested"):
        codec.decode(nested(codec.DEPTH_MAX + 1))


def test_deep_descriptors_are_bounded_too() -> None:
    with pytest.raises(RemoteProtocolError, match="nested"):
        codec.decode(b"\x00" * 5000 + b"\x40")


@pytest.mark.parametrize(("count", "fine"), [(codec.EMPTY_ELEMENTS_MAX, True), (codec.EMPTY_ELEMENTS_MAX + 1, False)])
def test_the_bound_on_elements_without_bytes(count: int, fine: bool) -> None:
    raw = b"\xf0" + struct.pack(">II", 5, count) + b"\x45"
    if fine:
        assert len(codec.decode(raw)[0].values) == count
    else:
        with pytest.raises(RemoteProtocolError):
            codec.decode(raw)


@pytest.mark.parametrize(("count", "fine"), [(codec.ELEMENTS_MAX, True), (codec.ELEMENTS_MAX + 1, False)])
def test_the_bound_on_elements(count: int, fine: bool) -> None:
    raw = b"\xd0" + struct.pack(">II", 4 + count, count) + b"\x40" * count
    if fine:
        assert len(codec.decode(raw)[0]) == count
    else:
        with pytest.raises(RemoteProtocolError, match="limit"):
            codec.decode(raw)


@pytest.mark.parametrize(
    "value", [2**63, Ubyte(256), Uint(-1), Float(1e300), Symbol("é"), Char("ab"), object(), Decimal32(b"1"), "\ud800"]
)
def test_what_has_no_encoding(value: Any) -> None:
    with pytest.raises(LocalProtocolError):
        codec.encode(value)
