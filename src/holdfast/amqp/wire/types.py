"""Python forms of the AMQP types that Python's own types do not distinguish. AMQP 1.0 §1.6.

Rules of this file: every wrapper is a subclass of its builtin type, so that `Ulong(5) == 5`; the wrapper's class is the
AMQP type. Ranges are checked when a value is encoded, not when it is made.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final


class Symbol(str):
    """ASCII name from a constrained domain (§1.6.21)."""

    __slots__ = ()


class Char(str):
    """One Unicode code point (§1.6.16)."""

    __slots__ = ()


class Ubyte(int):
    """0 to 2**8 - 1."""

    __slots__ = ()


class Ushort(int):
    """0 to 2**16 - 1."""

    __slots__ = ()


class Uint(int):
    """0 to 2**32 - 1."""

    __slots__ = ()


class Ulong(int):
    """0 to 2**64 - 1."""

    __slots__ = ()


class Byte(int):
    """-2**7 to 2**7 - 1."""

    __slots__ = ()


class Short(int):
    """-2**15 to 2**15 - 1."""

    __slots__ = ()


class Int(int):
    """-2**31 to 2**31 - 1."""

    __slots__ = ()


class Long(int):
    """-2**63 to 2**63 - 1; a plain `int` is encoded the same."""

    __slots__ = ()


class Float(float):
    """IEEE 754 binary32; a plain `float` is a double."""

    __slots__ = ()


class Timestamp(int):
    """Milliseconds since the Unix epoch, UTC, signed 64 bits (§1.6.17)."""

    __slots__ = ()


class Decimal32(bytes):
    """The 4 bytes of an IEEE 754 decimal32, as on the wire."""

    __slots__ = ()


class Decimal64(bytes):
    """The 8 bytes of an IEEE 754 decimal64, as on the wire."""

    __slots__ = ()


class Decimal128(bytes):
    """The 16 bytes of an IEEE 754 decimal128, as on the wire."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Described:
    """A value with a descriptor (§1.2), commonly a Symbol or Ulong."""

    descriptor: object
    value: object


class _Missing:
    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()
"""No value at all, where None is a value (AMQP null)."""


class Pairs(tuple[tuple[object, object], ...]):
    """A map, as (key, value) in order, whose keys a dict cannot hold or keep apart: lists, maps, or 1 beside 1.0.

    Any other map is a dict (§1.6.23).
    """

    __slots__ = ()


class Descriptors(tuple[object, ...]):
    """The descriptors of an array whose elements are described more than once, the outermost first (§1.2)."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Array:
    """Elements of one type (§1.6.24).

    `code` is the widest format code of the element type (0xb3 for symbols, 0x70 for uints): of the encodings of
    one type the array keeps no trace. `descriptor` is MISSING unless the elements are described; the values then
    are the bare ones. Elements described several times over have Descriptors.
    """

    code: int
    values: tuple[object, ...]
    descriptor: object = MISSING


SYMBOL_CODE: Final = 0xB3


def symbols(names: Iterable[str]) -> Array:
    """An array of symbols, the usual form of a field that holds several (§1.4)."""
    return Array(SYMBOL_CODE, tuple(Symbol(name) for name in names))
