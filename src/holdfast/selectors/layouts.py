"""Layouts of maps: maps with the same keys, and values of the same types and lengths, at the same positions.

Messages of one publisher mostly differ in values alone. What a map looks like is learnt once, as a pattern of its
bytes; of the next map that fits it the values are read where they are, without a walk over all pairs. A map that fits
no layout is walked. Both ways give the same answers.

Rules of this file: what is learnt is bounded (LAYOUTS_MAX), and so is the work of learning it (COST): maps that are
never alike cost little more than a walk each. A layout has ASCII strings only, and numbers of which all bytes are
valid.
"""

import re
from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from holdfast.amqp.wire.types import Byte, Float, Short, Timestamp, Ubyte, Uint, Ulong, Ushort

HEADS: Final = {0xC1: 3, 0xD1: 9}
"""Format code of a map (AMQP 1.0 §1.6.23) → the bytes of the format code, size and count."""
MAP_BYTES_MAX: Final = 1_024
"""A larger map has no layout."""
LAYOUTS_MAX: Final = 64
"""The maximum number of layouts; beyond it the oldest is removed."""
COST: Final = 256
"""Learning a layout takes about as long as walking a few dozen maps, so this many maps must arrive for each."""
SAVED_MAX: Final = 16 * COST

_STR8: Final = 0xA1

Value = Callable[[bytes], Any]


SINGLES: Final[dict[int, Any]] = {0x40: None, 0x41: True, 0x42: False}
"""Values that consist of their format code only; in a layout they are interchangeable."""

NUMBERS: Final = {
    code: (Struct(form).unpack_from, 1 + Struct(form).size)
    for code, form in ((0x54, ">b"), (0x55, ">b"), (0x71, ">i"), (0x81, ">q"), (0x82, ">d"))
}
"""Numbers that decode to plain Python types: int, long and double (AMQP 1.0 §1.6) → their bytes with the format
code."""

TYPED: Final[dict[int, tuple[Struct, type]]] = {
    code: (Struct(form), kind)
    for code, form, kind in (
        (0x50, ">B", Ubyte), (0x51, ">b", Byte), (0x52, ">B", Uint), (0x53, ">B", Ulong), (0x60, ">H", Ushort),
        (0x61, ">h", Short), (0x70, ">I", Uint), (0x72, ">f", Float), (0x80, ">Q", Ulong), (0x83, ">q", Timestamp),
    )
}  # fmt: skip
"""The other numbers, which keep their type."""


def _text(first: int, end: int) -> Value:
    return lambda data: data[first:end].decode()


def _single(at: int) -> Value:
    return lambda data: SINGLES[data[at]]


def _number(unpack: Callable[[bytes, int], tuple[Any, ...]], at: int) -> Value:
    return lambda data: unpack(data, at)[0]


def _typed(kind: type, unpack: Callable[[bytes, int], tuple[Any, ...]], at: int) -> Value:
    return lambda data: kind(unpack(data, at)[0])


def _missing(data: bytes) -> None:
    return None


class Layout:
    """The positions of the values in a map, and the bytes that a map must have for them to apply."""

    __slots__ = ("_values", "fits", "texts")

    def __init__(self, fits: bytes, values: dict[str, Value], texts: dict[str, tuple[int, int]]) -> None:
        self.fits = re.compile(fits, re.DOTALL).fullmatch
        """Whether a map, all of its bytes, is laid out so: something true, or None."""
        self._values = values
        self.texts = texts
        """Of each string: its first byte, and the last one's next."""

    def value(self, name: str) -> Value:
        """What reads it from a map that is laid out so: None where it is missing or null."""
        return self._values.get(name, _missing)


class Laid:
    """The values of one map, by name."""

    __slots__ = ("_data", "_layout")

    def __init__(self, data: bytes, layout: Layout) -> None:
        self._data = data
        self._layout = layout

    def get(self, name: str) -> Any:
        """None where it is missing or null."""
        return self._layout.value(name)(self._data)


class Layouts:
    """The layouts learnt from earlier maps. For one thread; its answers do not depend on earlier maps."""

    __slots__ = ("_by_head", "_saved")

    def __init__(self) -> None:
        self._by_head: dict[bytes, Layout] = {}
        self._saved = SAVED_MAX
        """The allowance for learning, in maps that have arrived."""

    def find(self, data: bytes) -> Layout | None:
        """The one of a map; None if it is not known."""
        if self._saved < SAVED_MAX:
            self._saved += 1
        layout = self._by_head.get(data[: HEADS.get(data[0], 0)])
        return layout if layout is not None and layout.fits(data) else None

    def learn(self, data: bytes) -> None:
        """From a map that was walked, and is valid."""
        if self._saved < COST:
            return
        self._saved -= COST
        layout = layout_of(data)
        if layout is None:
            return
        head = data[: HEADS[data[0]]]
        self._by_head.pop(head, None)
        if len(self._by_head) >= LAYOUTS_MAX:
            del self._by_head[next(iter(self._by_head))]
        self._by_head[head] = layout


def layout_of(data: bytes) -> Layout | None:
    """The layout of a valid map; None if it has a key or a value that layouts do not support."""
    at = HEADS[data[0]]
    fits, values, texts = [re.escape(data[:at])], dict[str, Value](), dict[str, tuple[int, int]]()
    while at < len(data):
        if data[at] != _STR8:
            return None
        first = at + 2
        end = first + data[at + 1]
        key = data[first:end]
        if not key.isascii():
            return None
        fits.append(re.escape(data[at:end]))
        at, code = end, data[end]
        if code == _STR8:
            first, end = at + 2, at + 2 + data[at + 1]
            if not data[first:end].isascii():
                return None
            fits.append(re.escape(data[at:first]) + b"[\\x00-\\x7f]{%d}" % (end - first))
            texts[key.decode()] = (first, end)
            values[key.decode()] = _text(first, end)
        elif code in SINGLES:
            end = at + 1
            fits.append(b"[\\x40-\\x42]")
            values[key.decode()] = _single(at)
        elif code in NUMBERS:
            unpack, width = NUMBERS[code]
            end = at + width
            fits.append(re.escape(data[at : at + 1]) + b".{%d}" % (width - 1))
            values[key.decode()] = _number(unpack, at + 1)
        elif code in TYPED:
            form, kind = TYPED[code]
            end = at + 1 + form.size
            fits.append(re.escape(data[at : at + 1]) + b".{%d}" % form.size)
            values[key.decode()] = _typed(kind, form.unpack_from, at + 1)
        else:
            return None
        at = end
    return Layout(b"".join(fits), values, texts)
