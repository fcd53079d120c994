"""The type system on the wire. AMQP 1.0 part 1, §1.6.

Rules of this file: the plain path, complete and strict; `fast.py` shortens it for transfers, dispositions and
flows and must give the same. Decoding is bounded in depth and count, and raises RemoteProtocolError alone;
encoding raises LocalProtocolError alone. `decode` keeps the AMQP type of everything in the wrappers of types.py.
"""

import struct
from collections.abc import Callable, Collection
from typing import Any, Final
from uuid import UUID

from holdfast.amqp import conditions
from holdfast.amqp.types import (
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
from holdfast.errors import LocalProtocolError, RemoteProtocolError

DEPTH_MAX: Final = 32
"""Lists in lists, maps, arrays and descriptors: more than any known client nests, far from Python's own limit."""
ELEMENTS_MAX: Final = 1 << 20
"""Elements of one list, map or array."""
ALIKE_MAX: Final = 64
"""Keys of one map that Python's hash takes for each other: UUIDs can be made so by the thousand, and each of them is
compared with all that went before."""
EMPTY_ELEMENTS_MAX: Final = 1 << 12
"""Elements of an array whose elements take no bytes: a count alone must not fill the memory."""
NESTED_EMPTY_ELEMENTS_MAX: Final = 255
"""The same inside another value, of which there may be many."""

_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
_U64: Final = struct.Struct(">Q")
_I8: Final = struct.Struct(">b")
_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")
_I64: Final = struct.Struct(">q")
_F32: Final = struct.Struct(">f")
_F64: Final = struct.Struct(">d")

Reader = Callable[[bytes, int, int], tuple[Any, int]]
Writer = Callable[[Any, bytearray, int], None]


class _Malformed(Exception):
    """Inside this file only; the public functions turn it into RemoteProtocolError."""


# ------------------------------------------------------------------------------------------------- decoding


def decode(data: bytes, offset: int = 0, nesting_max: int = DEPTH_MAX) -> tuple[Any, int]:
    """The value at `offset` and the offset after it; RemoteProtocolError (decode-error) for anything else."""
    try:
        return _read(data, offset, DEPTH_MAX - nesting_max)
    except (_Malformed, struct.error, IndexError, ValueError, TypeError, OverflowError, LocalProtocolError) as error:
        raise RemoteProtocolError(conditions.DECODE_ERROR, f"no AMQP value at byte {offset}: {error}") from None


def _read(data: bytes, pos: int, depth: int) -> tuple[Any, int]:
    code = data[pos]
    if code:
        reader = READERS[code]
        if reader is None:
            raise _Malformed(f"0x{code:02x} is no format code")
        return reader(data, pos + 1, depth)
    if depth >= DEPTH_MAX:
        raise _Malformed("nested too deep")
    descriptor, pos = _read(data, pos + 1, depth + 1)
    value, pos = _read(data, pos, depth + 1)
    return Described(descriptor, value), pos


def _constant(value: Any) -> Reader:
    return lambda data, pos, depth: (value, pos)


def _fixed(form: struct.Struct, make: Callable[[Any], Any] | None) -> Reader:
    unpack, size = form.unpack_from, form.size
    if make is None:
        return lambda data, pos, depth: (unpack(data, pos)[0], pos + size)
    return lambda data, pos, depth: (make(unpack(data, pos)[0]), pos + size)


def _raw(make: Callable[[bytes], Any], size: int) -> Reader:
    def read(data: bytes, pos: int, depth: int) -> tuple[Any, int]:
        end = pos + size
        if end > len(data):
            raise _Malformed("cut short")
        return make(data[pos:end]), end

    return read


def _variable(make: Callable[[bytes], Any], wide: bool) -> Reader:
    def read(data: bytes, pos: int, depth: int) -> tuple[Any, int]:
        if wide:
            start = pos + 4
            end = start + _U32.unpack_from(data, pos)[0]
        else:
            start = pos + 1
            end = start + data[pos]
        if end > len(data):
            raise _Malformed("cut short")
        return make(data[start:end]), end

    return read


def _read_boolean(data: bytes, pos: int, depth: int) -> tuple[bool, int]:
    value = data[pos]
    if value > 1:
        raise _Malformed(f"0x{value:02x} is no boolean")
    return value == 1, pos + 1


def _head(data: bytes, pos: int, depth: int, wide: bool) -> tuple[int, int, int]:
    """(start of the elements, end of the whole, count) of a list, map or array whose size field is at `pos`."""
    if wide:
        size, count = _U32.unpack_from(data, pos)[0], _U32.unpack_from(data, pos + 4)[0]
        start, end = pos + 8, pos + 4 + size
    else:
        size, count = data[pos], data[pos + 1]
        start, end = pos + 2, pos + 1 + size
    if end > len(data) or start > end:
        raise _Malformed("cut short")
    if count > ELEMENTS_MAX:
        raise _Malformed(f"{count} elements, the limit is {ELEMENTS_MAX}")
    if depth >= DEPTH_MAX:
        raise _Malformed("nested too deep")
    return start, end, count


def _list(wide: bool) -> Reader:
    def read(data: bytes, pos: int, depth: int) -> tuple[list[Any], int]:
        pos, end, count = _head(data, pos, depth, wide)
        if count > end - pos:
            raise _Malformed(f"{count} elements in {end - pos} bytes")
        values = []
        for _ in range(count):
            value, pos = _read(data, pos, depth + 1)
            values.append(value)
        if pos != end:
            raise _Malformed("a list's size and its elements disagree")
        return values, end

    return read


def _map(wide: bool) -> Reader:
    def read(data: bytes, pos: int, depth: int) -> tuple[dict[Any, Any] | Pairs, int]:
        pos, end, count = _head(data, pos, depth, wide)
        if count & 1 or count > end - pos:
            raise _Malformed(f"a map of {count} elements in {end - pos} bytes")
        pairs = []
        for _ in range(count >> 1):
            key, pos = _read(data, pos, depth + 1)
            value, pos = _read(data, pos, depth + 1)
            pairs.append((key, value))
        if pos != end:
            raise _Malformed("a map's size and its elements disagree")
        if count > 2 * ALIKE_MAX:
            _check_keys(pairs)
        try:
            plain = dict(pairs)
        except TypeError:
            return _unusual(pairs), end
        return (plain if len(plain) == len(pairs) else _unusual(pairs)), end

    return read


def _check_keys(pairs: list[tuple[Any, Any]]) -> None:
    """Before a dict is made of so many."""
    hashes = set()
    count = 0
    try:
        for key, _ in pairs:
            hashes.add(hash(key))
            count += 1
    except TypeError:
        pass  # no dict is made of it, or of no more than those before
    if count - len(hashes) > ALIKE_MAX:
        raise _Malformed("a map's keys are alike")


def _unusual(pairs: list[tuple[Any, Any]]) -> Pairs:
    """A map that is no dict; two keys of one encoding are the peer's mistake (§1.6.23)."""
    if len({encode(key) for key, _ in pairs}) < len(pairs):
        raise _Malformed("a map has a key twice")
    return Pairs(pairs)


def _array(wide: bool) -> Reader:
    def read(data: bytes, pos: int, depth: int) -> tuple[Array, int]:
        pos, end, count = _head(data, pos, depth, wide)
        code = data[pos]
        pos += 1
        descriptors: list[Any] = []
        while code == 0:
            if depth + len(descriptors) >= DEPTH_MAX:
                raise _Malformed("nested too deep")
            descriptor, pos = _read(data, pos, depth + 1)
            descriptors.append(descriptor)
            code = data[pos]
            pos += 1
        reader = READERS[code]
        if reader is None:
            raise _Malformed(f"0x{code:02x} is no format code of an array's elements")
        limit = end - pos
        if code in _EMPTY_CODES:
            limit = NESTED_EMPTY_ELEMENTS_MAX if depth else EMPTY_ELEMENTS_MAX
        if count > limit:
            raise _Malformed(f"an array of {count} elements in {end - pos} bytes")
        values = []
        for _ in range(count):
            value, pos = reader(data, pos, depth + 1)
            values.append(value)
        if pos != end:
            raise _Malformed("an array's size and its elements disagree")
        described = Descriptors(descriptors) if len(descriptors) > 1 else descriptors[0] if descriptors else MISSING
        return Array(_WIDEST.get(code, code), tuple(values), described), end

    return read


def _text(raw: bytes) -> str:
    return raw.decode("utf-8")


def _symbol(raw: bytes) -> Symbol:
    return Symbol(raw.decode("ascii"))


def _uuid(raw: bytes) -> UUID:
    return UUID(bytes=raw)


def _char(number: int) -> Char:
    return Char(chr(number))


_EMPTY_CODES: Final = frozenset((0x40, 0x41, 0x42, 0x43, 0x44, 0x45))
_WIDEST: Final = {
    0x41: 0x56, 0x42: 0x56, 0x43: 0x70, 0x52: 0x70, 0x44: 0x80, 0x53: 0x80, 0x54: 0x71, 0x55: 0x81,
    0xA0: 0xB0, 0xA1: 0xB1, 0xA3: 0xB3, 0x45: 0xD0, 0xC0: 0xD0, 0xC1: 0xD1, 0xE0: 0xF0,
}  # fmt: skip
_U8: Final = struct.Struct(">B")

READERS: Final[list[Reader | None]] = [None] * 256
"""Format code → reader of what follows it; None where the specification has none."""
for _code, _reader in {
    0x40: _constant(None), 0x41: _constant(True), 0x42: _constant(False), 0x56: _read_boolean,
    0x43: _constant(Uint(0)), 0x44: _constant(Ulong(0)),
    0x50: _fixed(_U8, Ubyte), 0x60: _fixed(_U16, Ushort),
    0x52: _fixed(_U8, Uint), 0x70: _fixed(_U32, Uint), 0x53: _fixed(_U8, Ulong), 0x80: _fixed(_U64, Ulong),
    0x51: _fixed(_I8, Byte), 0x61: _fixed(_I16, Short), 0x54: _fixed(_I8, Int), 0x71: _fixed(_I32, Int),
    0x55: _fixed(_I8, Long), 0x81: _fixed(_I64, Long), 0x83: _fixed(_I64, Timestamp),
    0x72: _fixed(_F32, Float), 0x82: _fixed(_F64, None), 0x73: _fixed(_U32, _char),
    0x74: _raw(Decimal32, 4), 0x84: _raw(Decimal64, 8), 0x94: _raw(Decimal128, 16), 0x98: _raw(_uuid, 16),
    0xA0: _variable(bytes, False), 0xB0: _variable(bytes, True),
    0xA1: _variable(_text, False), 0xB1: _variable(_text, True),
    0xA3: _variable(_symbol, False), 0xB3: _variable(_symbol, True),
    0x45: lambda data, pos, depth: ([], pos), 0xC0: _list(False), 0xD0: _list(True),
    0xC1: _map(False), 0xD1: _map(True), 0xE0: _array(False), 0xF0: _array(True),
}.items():  # fmt: skip
    READERS[_code] = _reader


# ------------------------------------------------------------------------------------------------- encoding


def encode(value: Any) -> bytes:
    """The shortest encoding of `value`; LocalProtocolError if AMQP has none."""
    out = bytearray()
    try:
        _write(value, out, 0)
    except (struct.error, ValueError, OverflowError) as error:
        raise LocalProtocolError(f"{type(value).__name__} cannot be encoded: {error}") from None
    return bytes(out)


def register(kind: type, writer: Writer) -> None:
    """Teach `encode` a class of composites (performatives.py)."""
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
        _write(value, body, depth + 1)
    _compound(out, 0xC0, len(values), body)


def _compound(out: bytearray, code: int, count: int, body: bytearray) -> None:
    size = len(body)
    if size < 255 and count < 256:
        out += bytes((code, size + 1, count))
    else:
        out.append(code + 0x10)
        out += _U32.pack(size + 4)
        out += _U32.pack(count)
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
    for item in value.values:
        element(item, body, depth + 1)
    out += _U32.pack(len(body) + 4)
    out += _U32.pack(len(value.values))
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
            out += _U32.pack(size)
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
    out += _U32.pack(ord(value))


def _write_uuid(value: UUID, out: bytearray, depth: int) -> None:
    out.append(0x98)
    out += value.bytes


def _write_bool(value: bool, out: bytearray, depth: int) -> None:
    out.append(0x41 if value else 0x42)


def _write_null(value: None, out: bytearray, depth: int) -> None:
    out.append(0x40)


_LONG: Final = _signed(0x55, 0x81, _I64)
_BINARY: Final = _sized(0xA0, bytes)
_WRITERS: Final[dict[type, Writer]] = {
    type(None): _write_null, bool: _write_bool, int: _LONG, Long: _LONG, float: _whole(0x82, _F64),
    Float: _whole(0x72, _F32), str: _sized(0xA1, _utf8), Symbol: _sized(0xA3, _ascii), bytes: _BINARY,
    bytearray: _BINARY, memoryview: _BINARY, Char: _write_char, UUID: _write_uuid,
    Ubyte: _whole(0x50, _U8), Ushort: _whole(0x60, _U16), Uint: _unsigned(0x43, 0x52, 0x70, _U32),
    Ulong: _unsigned(0x44, 0x53, 0x80, _U64), Byte: _whole(0x51, _I8), Short: _whole(0x61, _I16),
    Int: _signed(0x54, 0x71, _I32), Timestamp: _whole(0x83, _I64), Decimal32: _exactly(4, 0x74),
    Decimal64: _exactly(8, 0x84), Decimal128: _exactly(16, 0x94), Described: _write_described,
    list: write_list, tuple: write_list, dict: _write_map, Pairs: _write_pairs, Array: _write_array,
}  # fmt: skip


def _element(form: struct.Struct) -> Writer:
    pack = form.pack

    def write(value: Any, out: bytearray, depth: int) -> None:
        out += pack(value)

    return write


def _element_char(value: str, out: bytearray, depth: int) -> None:
    out += _U32.pack(ord(value))


def _element_raw(size: int) -> Writer:
    def write(value: bytes, out: bytearray, depth: int) -> None:
        if len(value) != size:
            raise LocalProtocolError(f"an element of {size} bytes is due, not of {len(value)}")
        out += value

    return write


def _element_sized(to_bytes: Callable[[Any], bytes]) -> Writer:
    def write(value: Any, out: bytearray, depth: int) -> None:
        raw = to_bytes(value)
        out += _U32.pack(len(raw))
        out += raw

    return write


def _element_list(value: list[Any], out: bytearray, depth: int) -> None:
    body = bytearray()
    for item in value:
        _write(item, body, depth + 1)
    out += _U32.pack(len(body) + 4)
    out += _U32.pack(len(value))
    out += body


def _element_map(value: dict[Any, Any] | Pairs, out: bytearray, depth: int) -> None:
    pairs: Collection[tuple[Any, Any]] = value if isinstance(value, Pairs) else value.items()
    _element_list([part for pair in pairs for part in pair], out, depth)


def _element_null(value: None, out: bytearray, depth: int) -> None:
    return


def _element_uuid(value: UUID, out: bytearray, depth: int) -> None:
    out += value.bytes


_ELEMENT_WRITERS: Final[dict[int, Writer]] = {
    0x40: _element_null, 0x56: _element(_U8), 0x50: _element(_U8), 0x60: _element(_U16), 0x70: _element(_U32),
    0x80: _element(_U64), 0x51: _element(_I8), 0x61: _element(_I16), 0x71: _element(_I32),
    0x81: _element(_I64), 0x83: _element(_I64), 0x72: _element(_F32), 0x82: _element(_F64),
    0x73: _element_char, 0x74: _element_raw(4), 0x84: _element_raw(8), 0x94: _element_raw(16),
    0x98: _element_uuid, 0xB0: _element_sized(bytes), 0xB1: _element_sized(_utf8),
    0xB3: _element_sized(_ascii), 0xD0: _element_list, 0xD1: _element_map, 0xF0: _write_array_body,
}  # fmt: skip
