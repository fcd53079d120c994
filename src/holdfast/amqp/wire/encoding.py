"""Encoding of the type system. AMQP 1.0 part 1, §1.6.

Rules of this file: each value is encoded in its shortest form; it only raises LocalProtocolError. Composites register
their encoders (composites.py); `fast.py` has the usual ones prepared.
"""

import struct
from collections.abc import Callable, Collection
from typing import Any, Final
from uuid import UUID

from holdfast.amqp.wire.forms import DEPTH_MAX, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64
from holdfast.amqp.wire.types import (
    MISSING,
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
)
from holdfast.errors import LocalProtocolError

Writer = Callable[[Any, bytearray, int], None]


def encode(value: Any) -> bytes:
    """The shortest encoding of `value`; LocalProtocolError if AMQP has none."""
    out = bytearray()
    try:
        _write(value, out, 0)
    except (struct.error, ValueError, OverflowError) as error:
        raise LocalProtocolError(f"{type(value).__name__} cannot be encoded: {error}") from None
    return bytes(out)


def register(kind: type, writer: Writer) -> None:
    """Makes `encode` accept a class of composites."""
    _WRITERS[kind] = writer


def _write(value: Any, out: bytearray, depth: int) -> None:
    if depth > DEPTH_MAX:
        raise LocalProtocolError(f"nested deeper than {DEPTH_MAX}")
    for kind in type(value).__mro__:
        writer = _WRITERS.get(kind)
        if writer is not None:
            writer(value, out, depth)
            return
    raise LocalProtocolError(f"{type(value).__name__} has no AMQP encoding")


def write_list(values: list[Any] | tuple[Any, ...], out: bytearray, depth: int) -> None:
    """Append the list of `values`, each encoded as `encode` would."""
    if not values:
        out.append(0x45)
        return
    body = bytearray()
    for value in values:
        if value is None:  # most fields of a performative
            body.append(0x40)
        else:
            _write(value, body, depth + 1)
    _compound(out, 0xC0, len(values), body)


def _compound(out: bytearray, code: int, count: int, body: bytearray) -> None:
    size = len(body)
    if size < 255 and count < 256:
        out += bytes((code, size + 1, count))
    else:
        out.append(code + 0x10)
        out += U32.pack(size + 4)
        out += U32.pack(count)
    out += body


def _write_map(value: dict[Any, Any], out: bytearray, depth: int) -> None:
    _write_pairs(value.items(), out, depth)


def _write_pairs(value: Collection[tuple[Any, Any]], out: bytearray, depth: int) -> None:
    body = bytearray()
    for key, item in value:
        _write(key, body, depth + 1)
        _write(item, body, depth + 1)
    _compound(out, 0xC1, 2 * len(value), body)


def _write_described(value: Described, out: bytearray, depth: int) -> None:
    out.append(0)
    _write(value.descriptor, out, depth + 1)
    _write(value.value, out, depth + 1)


def _write_array(value: Array, out: bytearray, depth: int) -> None:
    out.append(0xF0)
    _write_array_body(value, out, depth)


def _write_array_body(value: Array, out: bytearray, depth: int) -> None:
    body = bytearray()
    if value.descriptor is not MISSING:
        for descriptor in value.descriptor if isinstance(value.descriptor, Descriptors) else (value.descriptor,):
            body.append(0)
            _write(descriptor, body, depth + 1)
    body.append(value.code)
    element = _ELEMENT_WRITERS.get(value.code)
    if element is None:
        raise LocalProtocolError(f"0x{value.code:02x} is not the widest format code of any type")
    try:
        for item in value.values:
            element(item, body, depth + 1)
    except (TypeError, AttributeError):
        text = f"an array of format code 0x{value.code:02x} has an element of another type"
        raise LocalProtocolError(text) from None
    out += U32.pack(len(body) + 4)
    out += U32.pack(len(value.values))
    out += body


def _whole(code: int, form: struct.Struct) -> Writer:
    prefix, pack = bytes((code,)), form.pack

    def write(value: Any, out: bytearray, depth: int) -> None:
        out += prefix
        out += pack(value)

    return write


def _unsigned(zero: int, small: int, wide: int, form: struct.Struct) -> Writer:
    def write(value: int, out: bytearray, depth: int) -> None:
        if value == 0:
            out.append(zero)
        elif 0 < value < 256:
            out += bytes((small, value))
        else:
            out.append(wide)
            out += form.pack(value)

    return write


def _signed(small: int, wide: int, form: struct.Struct) -> Writer:
    def write(value: int, out: bytearray, depth: int) -> None:
        if -128 <= value < 128:
            out += bytes((small, value & 0xFF))
        else:
            out.append(wide)
            out += form.pack(value)

    return write


def _sized(small: int, to_bytes: Callable[[Any], bytes]) -> Writer:
    def write(value: Any, out: bytearray, depth: int) -> None:
        raw = to_bytes(value)
        size = len(raw)
        if size < 256:
            out += bytes((small, size))
        else:
            out.append(small + 0x10)
            out += U32.pack(size)
        out += raw

    return write


def _exactly(size: int, code: int) -> Writer:
    def write(value: bytes, out: bytearray, depth: int) -> None:
        if len(value) != size:
            raise LocalProtocolError(f"{type(value).__name__} takes {size} bytes, not {len(value)}")
        out.append(code)
        out += value

    return write


def _utf8(value: str) -> bytes:
    return value.encode("utf-8")


def _ascii(value: str) -> bytes:
    return value.encode("ascii")


def _write_char(value: str, out: bytearray, depth: int) -> None:
    if len(value) != 1:
        raise LocalProtocolError(f"a char is one code point, not {len(value)}")
    out.append(0x73)
    out += U32.pack(ord(value))


def _write_uuid(value: UUID, out: bytearray, depth: int) -> None:
    out.append(0x98)
    out += value.bytes


def _write_bool(value: bool, out: bytearray, depth: int) -> None:
    out.append(0x41 if value else 0x42)


def _write_null(value: None, out: bytearray, depth: int) -> None:
    out.append(0x40)


_LONG: Final = _signed(0x55, 0x81, I64)
_BINARY: Final = _sized(0xA0, bytes)
_WRITERS: Final[dict[type, Writer]] = {
    type(None): _write_null, bool: _write_bool, int: _LONG, Long: _LONG, float: _whole(0x82, F64),
    Float: _whole(0x72, F32), str: _sized(0xA1, _utf8), Symbol: _sized(0xA3, _ascii), bytes: _BINARY,
    bytearray: _BINARY, memoryview: _BINARY, Char: _write_char, UUID: _write_uuid,
    Ubyte: _whole(0x50, U8), Ushort: _whole(0x60, U16), Uint: _unsigned(0x43, 0x52, 0x70, U32),
    Ulong: _unsigned(0x44, 0x53, 0x80, U64), Byte: _whole(0x51, I8), Short: _whole(0x61, I16),
    Int: _signed(0x54, 0x71, I32), Timestamp: _whole(0x83, I64), Decimal32: _exactly(4, 0x74),
    Decimal64: _exactly(8, 0x84), Decimal128: _exactly(16, 0x94), Described: _write_described,
    list: write_list, tuple: write_list, dict: _write_map, Pairs: _write_pairs, Array: _write_array,
}  # fmt: skip


def _element(form: struct.Struct) -> Writer:
    pack = form.pack

    def write(value: Any, out: bytearray, depth: int) -> None:
        out += pack(value)

    return write


def _element_char(value: str, out: bytearray, depth: int) -> None:
    out += U32.pack(ord(value))


def _element_raw(size: int) -> Writer:
    def write(value: bytes, out: bytearray, depth: int) -> None:
        if len(value) != size:
            raise LocalProtocolError(f"an element of {size} bytes is due, not of {len(value)}")
        out += value

    return write


def _element_sized(to_bytes: Callable[[Any], bytes]) -> Writer:
    def write(value: Any, out: bytearray, depth: int) -> None:
        raw = to_bytes(value)
        out += U32.pack(len(raw))
        out += raw

    return write


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError  # `bytes` would make zeros of a number
    return bytes(value)


def _element_list(value: list[Any], out: bytearray, depth: int) -> None:
    body = bytearray()
    for item in value:
        _write(item, body, depth + 1)
    out += U32.pack(len(body) + 4)
    out += U32.pack(len(value))
    out += body


def _element_map(value: dict[Any, Any] | Pairs, out: bytearray, depth: int) -> None:
    pairs: Collection[tuple[Any, Any]] = value if isinstance(value, Pairs) else value.items()
    _element_list([part for pair in pairs for part in pair], out, depth)


def _element_null(value: None, out: bytearray, depth: int) -> None:
    return


def _element_uuid(value: UUID, out: bytearray, depth: int) -> None:
    out += value.bytes


_ELEMENT_WRITERS: Final[dict[int, Writer]] = {
    0x40: _element_null, 0x56: _element(U8), 0x50: _element(U8), 0x60: _element(U16), 0x70: _element(U32),
    0x80: _element(U64), 0x51: _element(I8), 0x61: _element(I16), 0x71: _element(I32),
    0x81: _element(I64), 0x83: _element(I64), 0x72: _element(F32), 0x82: _element(F64),
    0x73: _element_char, 0x74: _element_raw(4), 0x84: _element_raw(8), 0x94: _element_raw(16),
    0x98: _element_uuid, 0xB0: _element_sized(_bytes), 0xB1: _element_sized(_utf8),
    0xB3: _element_sized(_ascii), 0xD0: _element_list, 0xD1: _element_map, 0xF0: _write_array_body,
}  # fmt: skip
