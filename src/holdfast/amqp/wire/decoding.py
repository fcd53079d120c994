"""Decoding of the type system. AMQP 1.0 part 1, §1.6.

Rules of this file: the plain path, complete and strict; `fast.py` is a short form for transfers, dispositions and flows
and must give the same results. Depth and count are bounded; it only raises RemoteProtocolError. `decode` keeps the AMQP
type of every value in the wrappers of types.py.
"""

import struct
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.encoding import encode
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
from holdfast.errors import LocalProtocolError, RemoteProtocolError

ELEMENTS_MAX: Final = 1 << 20
"""Elements of one list, map or array."""
ALIKE_MAX: Final = 64
"""Keys of one map with the same Python hash. A peer can make thousands of such UUIDs, and each one would be compared
with all earlier ones."""
EMPTY_ELEMENTS_MAX: Final = 1 << 12
"""Elements of an array whose elements take no bytes: a count alone must not fill the memory."""
NESTED_EMPTY_ELEMENTS_MAX: Final = 255
"""The same inside another value, of which there may be many."""

Reader = Callable[[bytes, int, int], tuple[Any, int]]


class _Malformed(Exception):
    """Only used inside this file; the public functions turn it into RemoteProtocolError."""


def decode(data: bytes, offset: int = 0, nesting_max: int = DEPTH_MAX) -> tuple[Any, int]:
    """The value at `offset` and the offset after it; RemoteProtocolError (decode-error) for anything else."""
    try:
        return _read(data, offset, DEPTH_MAX - nesting_max)
    except (_Malformed, struct.error, IndexError, ValueError, TypeError, OverflowError, LocalProtocolError) as error:
        raise RemoteProtocolError(conditions.DECODE_ERROR, f"invalid AMQP value at byte {offset}: {error}") from None


def _read(data: bytes, pos: int, depth: int) -> tuple[Any, int]:
    code = data[pos]
    if code:
        reader = READERS[code]
        if reader is None:
            raise _Malformed(f"0x{code:02x} is not a format code")
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
            end = start + U32.unpack_from(data, pos)[0]
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
        raise _Malformed(f"0x{value:02x} is not a boolean")
    return value == 1, pos + 1


def _head(data: bytes, pos: int, depth: int, wide: bool) -> tuple[int, int, int]:
    """(start of the elements, end of the whole, count) of a list, map or array whose size field is at `pos`."""
    if wide:
        size, count = U32.unpack_from(data, pos)[0], U32.unpack_from(data, pos + 4)[0]
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
    """Checks the keys of a map before a dict is made of them."""
    hashes = set()
    count = 0
    try:
        for key, _ in pairs:
            hashes.add(hash(key))
            count += 1
    except TypeError:
        pass  # no dict is made of it, or of no more than those before
    if count - len(hashes) > ALIKE_MAX:
        raise _Malformed("a map has a key twice")


def _unusual(pairs: list[tuple[Any, Any]]) -> Pairs:
    """A map that a dict cannot hold. Two keys with the same encoding are an error of the peer (§1.6.23)."""
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
            raise _Malformed(f"0x{code:02x} is not a format code of an array's elements")
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

READERS: Final[list[Reader | None]] = [None] * 256
"""Format code → reader of what follows it; None where the specification has none."""
for _code, _reader in {
    0x40: _constant(None), 0x41: _constant(True), 0x42: _constant(False), 0x56: _read_boolean,
    0x43: _constant(Uint(0)), 0x44: _constant(Ulong(0)),
    0x50: _fixed(U8, Ubyte), 0x60: _fixed(U16, Ushort),
    0x52: _fixed(U8, Uint), 0x70: _fixed(U32, Uint), 0x53: _fixed(U8, Ulong), 0x80: _fixed(U64, Ulong),
    0x51: _fixed(I8, Byte), 0x61: _fixed(I16, Short), 0x54: _fixed(I8, Int), 0x71: _fixed(I32, Int),
    0x55: _fixed(I8, Long), 0x81: _fixed(I64, Long), 0x83: _fixed(I64, Timestamp),
    0x72: _fixed(F32, Float), 0x82: _fixed(F64, None), 0x73: _fixed(U32, _char),
    0x74: _raw(Decimal32, 4), 0x84: _raw(Decimal64, 8), 0x94: _raw(Decimal128, 16), 0x98: _raw(_uuid, 16),
    0xA0: _variable(bytes, False), 0xB0: _variable(bytes, True),
    0xA1: _variable(_text, False), 0xB1: _variable(_text, True),
    0xA3: _variable(_symbol, False), 0xB3: _variable(_symbol, True),
    0x45: lambda data, pos, depth: ([], pos), 0xC0: _list(False), 0xD0: _list(True),
    0xC1: _map(False), 0xD1: _map(True), 0xE0: _array(False), 0xF0: _array(True),
}.items():  # fmt: skip
    READERS[_code] = _reader
