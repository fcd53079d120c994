"""AMQP values of all types, drawn, and whether two are the same, types included.

Rules of this file: strategies alone; what is drawn can be encoded, and is read back as it is.
"""

import struct
from typing import Any

from hypothesis import strategies as st

from holdfast.amqp.wire import encoding
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
)


def same(left: Any, right: Any) -> bool:
    """Equal in value and type, all the way down; NaN is itself."""
    if type(left) is not type(right):
        return False
    if isinstance(left, list | tuple):  # Pairs and Descriptors too
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
DESCRIPTORS = DESCRIPTOR | st.lists(DESCRIPTOR, min_size=2, max_size=3).map(Descriptors)


@st.composite
def arrays(draw: st.DrawFn) -> Array:
    code = draw(st.sampled_from(sorted(SCALARS)))
    values = draw(st.lists(SCALARS[code], max_size=20))
    if draw(st.booleans()):
        return Array(code, tuple(values), draw(DESCRIPTORS))
    return Array(code, tuple(values))


def mapped(pairs: list[tuple[Any, Any]]) -> Any:
    """What a map of those pairs is read as; of keys with one encoding the first counts."""
    kept = list({encoding.encode(key): (key, item) for key, item in reversed(pairs)}.values())
    try:
        plain = dict(kept)
    except TypeError:
        return Pairs(kept)
    return plain if len(plain) == len(kept) else Pairs(kept)


VALUES = st.recursive(
    st.one_of(SCALAR, arrays()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(SCALARS[0xB3], inner, max_size=5),
        st.dictionaries(SCALARS[0x80], inner, max_size=5),
        st.lists(st.tuples(inner, inner), max_size=4).map(mapped),
        st.builds(Described, DESCRIPTOR | inner, inner),
        st.lists(st.lists(st.tuples(inner, inner), max_size=2).map(mapped), max_size=3).map(
            lambda maps: Array(0xD1, tuple(maps))
        ),
        st.lists(arrays(), max_size=3).map(lambda rows: Array(0xF0, tuple(rows))),
        st.lists(st.lists(inner, max_size=3), max_size=3).map(lambda rows: Array(0xD0, tuple(rows))),
    ),
    max_leaves=20,
)
