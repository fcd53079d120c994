"""Every type, every encoding (§1.6); what is malformed, and the bounds."""

import struct
import tracemalloc
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.amqp.wire import decoding, encoding, forms
from holdfast.amqp.wire.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Descriptors,
    Float,
    Int,
    Long,
    Pairs,
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
from holdfast.units import MIB
from support.amqp_values import VALUES, same

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


ARRAYS: list[tuple[int, str, str, Any]] = [
    # no elements; the constructor is there all the same
    (0, "70", "", Array(0x70, ())), (0, "a1", "", Array(0xB1, ())), (0, "c0", "", Array(0xD0, ())),
    (0, "e0", "", Array(0xF0, ())), (0, "00531f45", "", Array(0xD0, (), Ulong(0x1F))),
    # elements without bytes
    (3, "40", "", Array(0x40, (None, None, None))), (2, "41", "", Array(0x56, (True, True))),
    (2, "42", "", Array(0x56, (False, False))), (2, "43", "", Array(0x70, (Uint(0), Uint(0)))),
    (2, "44", "", Array(0x80, (Ulong(0), Ulong(0)))), (2, "45", "", Array(0xD0, ([], []))),
    (2, "00532445", "", Array(0xD0, ([], []), Ulong(0x24))),
    # every width of every type
    (2, "56", "01 00", Array(0x56, (True, False))), (2, "50", "07 ff", Array(0x50, (Ubyte(7), Ubyte(255)))),
    (2, "60", "0001 ffff", Array(0x60, (Ushort(1), Ushort(65535)))),
    (2, "52", "07 ff", Array(0x70, (Uint(7), Uint(255)))), (1, "70", "ffffffff", Array(0x70, (Uint(2**32 - 1),))),
    (2, "53", "07 ff", Array(0x80, (Ulong(7), Ulong(255)))), (1, "80", "ff" * 8, Array(0x80, (Ulong(2**64 - 1),))),
    (2, "51", "80 ff", Array(0x51, (Byte(-128), Byte(-1)))),
    (2, "61", "8000 ffff", Array(0x61, (Short(-32768), Short(-1)))),
    (2, "54", "80 ff", Array(0x71, (Int(-128), Int(-1)))), (1, "71", "80000000", Array(0x71, (Int(-(2**31)),))),
    (2, "55", "80 ff", Array(0x81, (Long(-128), Long(-1)))), (1, "81", "ff" * 8, Array(0x81, (Long(-1),))),
    (1, "72", "3f800000", Array(0x72, (Float(1.0),))), (1, "82", "3ff0000000000000", Array(0x82, (1.0,))),
    (1, "74", "00000001", Array(0x74, (Decimal32(b"\0\0\0\1"),))),
    (1, "84", "00" * 8, Array(0x84, (Decimal64(bytes(8)),))),
    (1, "94", "00" * 16, Array(0x94, (Decimal128(bytes(16)),))),
    (1, "73", "0001f600", Array(0x73, (Char("😀"),))), (1, "83", "ff" * 8, Array(0x83, (Timestamp(-1),))),
    (1, "98", ID.hex, Array(0x98, (ID,))),
    (2, "a0", "00 03000102", Array(0xB0, (b"", b"\0\1\2"))), (1, "b0", "0000000161", Array(0xB0, (b"a",))),
    (2, "a1", "00 02c3a9", Array(0xB1, ("", "é"))), (1, "b1", "00000002c3a9", Array(0xB1, ("é",))),
    (2, "a3", "0161 0162", symbols(("a", "b"))), (1, "b3", "0000000161", symbols(("a",))),
    # lists, maps and arrays as elements, and described ones
    (2, "c0", "0100 020140", Array(0xD0, ([], [None]))), (1, "d0", "00000005 00000001 40", Array(0xD0, ([None],))),
    (1, "c1", "03 02 43 41", Array(0xD1, ({Uint(0): True},))),
    (1, "d1", "00000006 00000002 43 41", Array(0xD1, ({Uint(0): True},))),
    (1, "e0", "04 02 a1 00 00", Array(0xF0, (Array(0xB1, ("", "")),))),
    (2, "f0", "00000005 00000002 41 00000005 00000000 40", Array(0xF0, (Array(0x56, (True, True)), Array(0x40, ())))),
    (2, "00a3016152", "07 08", Array(0x70, (Uint(7), Uint(8)), Symbol("a"))),
    (1, "00a30161c0", "03 02 43 41", Array(0xD0, ([Uint(0), True],), Symbol("a"))),
    (1, "00a3016100530556", "01", Array(0x56, (True,), Descriptors((Symbol("a"), Ulong(5))))),
    (1, "00c00302434156", "00", Array(0x56, (False,), [Uint(0), True])),
]  # fmt: skip


def array(count: int, rest: bytes, *, wide: bool) -> bytes:
    """An array of `count` elements, `rest` its constructor and they."""
    if wide:
        return b"\xf0" + struct.pack(">II", len(rest) + 4, count) + rest
    return bytes((0xE0, len(rest) + 1, count)) + rest


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(("count", "constructor", "elements", "value"), ARRAYS)
def test_every_array_is_read_with_its_type(count: int, constructor: str, elements: str, value: Any, wide: bool) -> None:
    data = array(count, bytes.fromhex(constructor + elements), wide=wide)
    read, end = decoding.decode(data)
    assert end == len(data) and same(read, value)
    again, _ = decoding.decode(encoding.encode(read))
    assert same(again, value)


def test_the_tables_hold_every_format_code() -> None:
    """§1.6 names these, and no others."""
    named = {code for code, reader in enumerate(decoding.READERS) if reader is not None}
    assert named == {
        0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x60, 0x61, 0x70, 0x71, 0x72,
        0x73, 0x74, 0x80, 0x81, 0x82, 0x83, 0x84, 0x94, 0x98, 0xA0, 0xA1, 0xA3, 0xB0, 0xB1, 0xB3, 0xC0, 0xC1, 0xD0,
        0xD1, 0xE0, 0xF0,
    }  # fmt: skip
    assert named == {bytes.fromhex(raw)[0] for raw, _ in ENCODINGS} - {0}
    assert named == {bytes.fromhex(constructor)[0] for _, constructor, _, _ in ARRAYS} - {0}


DESCRIBED: list[tuple[str, Any]] = [
    ("00 80ffffffffffffffff 40", Described(Ulong(2**64 - 1), None)),
    ("00 a30161 45", Described(Symbol("a"), [])),
    ("00 a10161 40", Described("a", None)),
    ("00 40 41", Described(None, True)),
    ("00 c003024341 40", Described([Uint(0), True], None)),
    ("00 e0020340 40", Described(Array(0x40, (None, None, None)), None)),
    ("00 00 a30161 43 40", Described(Described(Symbol("a"), Uint(0)), None)),
    ("00 a30161 00 a30162 c10100", Described(Symbol("a"), Described(Symbol("b"), {}))),
    ("00 98" + ID.hex + "40", Described(ID, None)),
]


@pytest.mark.parametrize(("raw", "value"), DESCRIBED)
def test_any_value_may_describe_any_other(raw: str, value: Any) -> None:
    data = bytes.fromhex(raw)
    read, end = decoding.decode(data)
    assert end == len(data) and same(read, value)
    assert same(decoding.decode(encoding.encode(read))[0], value)


MAPS: list[tuple[int, str, Any]] = [
    (0, "", {}), (4, "40 41 41 40", {None: True, True: None}),
    (6, f"98{ID.hex} 40 a00161 40 730001f600 40", {ID: None, b"a": None, Char("😀"): None}),
    (4, "0053014340 e00200a140",
     {Described(Ulong(1), Uint(0)): None, Array(0xB1, ()): None}),
    # keys that Python holds for equal: 0 as uint, ulong, false; "a" as string and symbol
    (6, "43 40 44 41 42 42", Pairs(((Uint(0), None), (Ulong(0), True), (False, False)))),
    (4, "a10161 40 a30161 41", Pairs((("a", None), (Symbol("a"), True)))),
    # keys that a dict cannot hold: lists, maps, and what has them inside
    (4, "45 40 43 41", Pairs((([], None), (Uint(0), True)))),
    (2, "c10100 40", Pairs((({}, None),))), (2, "00 43 45 40", Pairs(((Described(Uint(0), []), None),))),
    (2, "45 c103024540", Pairs((([], Pairs((([], None),))),))),
]  # fmt: skip


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(("count", "elements", "value"), MAPS)
def test_any_value_may_be_a_key(count: int, elements: str, value: Any, wide: bool) -> None:
    body = bytes.fromhex(elements)
    head = b"\xd1" + struct.pack(">II", len(body) + 4, count) if wide else bytes((0xC1, len(body) + 1, count))
    data = head + body
    read, end = decoding.decode(data)
    assert end == len(data) and same(read, value)
    assert same(decoding.decode(encoding.encode(read))[0], value)


@pytest.mark.parametrize("elements", ["43 40 43 41", "45 40 45 40", "a10161 40 a10161 40", "5201 40 7000000001 40"])
def test_a_key_that_comes_twice_is_a_mistake(elements: str) -> None:
    body = bytes.fromhex(elements)
    with pytest.raises(RemoteProtocolError, match="twice"):
        decoding.decode(bytes((0xC1, len(body) + 1, 4)) + body)


@pytest.mark.parametrize(("raw", "value"), ENCODINGS, ids=[raw[:12] for raw, _ in ENCODINGS])
def test_every_encoding_is_read_with_its_type(raw: str, value: Any) -> None:
    data = bytes.fromhex(raw)
    read, end = decoding.decode(b"xx" + data + b"yy", 2)
    assert end == 2 + len(data)
    assert same(read, value)
    again, _ = decoding.decode(encoding.encode(read))
    assert same(again, value)


@given(VALUES)
def test_what_is_encoded_is_read_back_with_its_types(value: Any) -> None:
    raw = encoding.encode(value)
    read, end = decoding.decode(raw)
    assert end == len(raw)
    assert same(read, value)


@pytest.mark.parametrize(
    ("plain", "kind"),
    [(None, type(None)), (True, bool), (5, Long), (5.0, float), ("a", str), (b"a", bytes), (ID, UUID), ({}, dict)],
)
def test_plain_python_values_have_their_types(plain: Any, kind: type) -> None:
    assert type(decoding.decode(encoding.encode(plain))[0]) is kind


@given(VALUES, st.data())
def test_a_value_cut_short_is_an_error(value: Any, data: st.DataObject) -> None:
    raw = encoding.encode(value)
    at = data.draw(st.integers(0, len(raw) - 1))
    with pytest.raises(RemoteProtocolError) as caught:
        decoding.decode(raw[:at])
    assert caught.value.condition == "amqp:decode-error"


@given(st.binary(max_size=200))
def test_any_bytes_give_a_value_or_a_decode_error(raw: bytes) -> None:
    try:
        value, end = decoding.decode(raw)
    except RemoteProtocolError as error:
        assert error.condition == "amqp:decode-error"
    else:
        assert 0 < end <= len(raw)
        encoding.encode(value)


@pytest.mark.parametrize(
    "raw",
    [
        "5602", "3f", "a10180", "a30180", "7300110000", "c0030240", "c0020240",
        "c1020140", "c10402454040", "e0020170", "e003013f00",
    ],
)  # fmt: skip
def test_malformed_values(raw: str) -> None:
    with pytest.raises(RemoteProtocolError):
        decoding.decode(bytes.fromhex(raw))


def nested(depth: int) -> bytes:
    raw = b"\x45"
    for _ in range(depth):
        raw = b"\xd0" + struct.pack(">II", len(raw) + 4, 1) + raw
    return raw


def test_the_bound_on_depth() -> None:
    decoding.decode(nested(forms.DEPTH_MAX))
    with pytest.raises(RemoteProtocolError, match="nested"):
        decoding.decode(nested(forms.DEPTH_MAX + 1))


def test_deep_descriptors_are_bounded_too() -> None:
    with pytest.raises(RemoteProtocolError, match="nested"):
        decoding.decode(b"\x00" * 5000 + b"\x40")


@pytest.mark.parametrize("code", ["40", "41", "42", "43", "44", "45", "00a3016140"])
@pytest.mark.parametrize(
    ("count", "nested", "fine"),
    [
        (decoding.EMPTY_ELEMENTS_MAX, False, True),
        (decoding.EMPTY_ELEMENTS_MAX + 1, False, False),
        (2**32 - 1, False, False),
        (decoding.NESTED_EMPTY_ELEMENTS_MAX, True, True),
        (decoding.NESTED_EMPTY_ELEMENTS_MAX + 1, True, False),
    ],
)
def test_the_bound_on_elements_without_bytes(code: str, count: int, nested: bool, fine: bool) -> None:
    raw = array(count, bytes.fromhex(code), wide=True)
    if nested:
        raw = bytes((0xC0, len(raw) + 1, 1)) + raw
    if fine:
        read = decoding.decode(raw)[0]
        assert len((read[0] if nested else read).values) == count
    else:
        with pytest.raises(RemoteProtocolError):
            decoding.decode(raw)


def test_many_arrays_without_bytes_take_little_memory() -> None:
    """What a frame of 64 kB can make of itself at most."""
    inner = array(decoding.NESTED_EMPTY_ELEMENTS_MAX, b"\x40", wide=False)
    count = 65_000 // len(inner)
    raw = b"\xd0" + struct.pack(">II", 4 + count * len(inner), count) + inner * count
    tracemalloc.start()
    try:
        decoding.decode(raw)
        assert tracemalloc.get_traced_memory()[1] < 64 * MIB
    finally:
        tracemalloc.stop()


def test_unusual_maps_in_maps_are_read_once() -> None:
    raw = b"\x40"
    for _ in range(forms.DEPTH_MAX):
        body = b"\x45" + raw
        raw = b"\xd1" + struct.pack(">II", 4 + len(body), 2) + body
    assert decoding.decode(raw)[1] == len(raw)  # in a moment, not in 2**32 steps


def test_descriptors_of_an_array_are_bounded() -> None:
    fine = array(0, b"\x00\x43" * forms.DEPTH_MAX + b"\x40", wide=True)
    assert len(decoding.decode(fine)[0].descriptor) == forms.DEPTH_MAX
    with pytest.raises(RemoteProtocolError, match="nested"):
        decoding.decode(array(0, b"\x00\x43" * (forms.DEPTH_MAX + 1) + b"\x40", wide=True))


@pytest.mark.parametrize(("count", "fine"), [(decoding.ELEMENTS_MAX, True), (decoding.ELEMENTS_MAX + 1, False)])
def test_the_bound_on_elements(count: int, fine: bool) -> None:
    raw = b"\xd0" + struct.pack(">II", 4 + count, count) + b"\x40" * count
    if fine:
        assert len(decoding.decode(raw)[0]) == count
    else:
        with pytest.raises(RemoteProtocolError, match="limit"):
            decoding.decode(raw)


@pytest.mark.parametrize(
    ("code", "item"),
    [
        (0xB0, 10**15), (0xB0, "x"), (0xB1, 5), (0xB3, b"x"), (0x98, 5), (0x73, 5), (0x74, None), (0x80, "x"),
        (0xD0, 5), (0xD1, [5]), (0xF0, 5), (0x82, "x"),
    ],
)  # fmt: skip
def test_an_array_of_another_type_is_our_mistake(code: int, item: object) -> None:
    with pytest.raises(LocalProtocolError):
        encoding.encode(Array(code, (item,)))


@pytest.mark.parametrize(
    "value", [2**63, Ubyte(256), Uint(-1), Float(1e300), Symbol("é"), Char("ab"), object(), Decimal32(b"1"), "\ud800"]
)
def test_what_has_no_encoding(value: Any) -> None:
    with pytest.raises(LocalProtocolError):
        encoding.encode(value)
