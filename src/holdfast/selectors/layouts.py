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

Value = Callable[[bytes, int], Any]


SINGLES: Final[dict[int, Any]] = {0x40: None, 0x41: True, 0x42: False}
"""Values that consist of their format code only; in a layout they are interchangeable."""

NUMBERS: Final = {
    code: (Struct(form).unpack_from, 1 + Struct(form).size)
    for code, form in ((0x54, ">b"), (0x55, ">b"), (0x71, ">i"), (0x81, ">q"), (0x82, ">d"))
}
"""Numbers that decode to plain Python types: int, long and double (AMQP 1.0 §1.6) → their bytes with the format
code."""


def _single(data: bytes, at: int) -> Any:
    return SINGLES[data[at]]


def _number(unpack: Callable[[bytes, int], tuple[Any, ...]]) -> Value:
    return lambda data, at: unpack(data, at)[0]


class Layout:
    """The positions of the values in a map, and the bytes that a map must have for them to apply."""

    __slots__ = ("_fits", "places")

    def __init__(self, fits: bytes, places: "dict[str, tuple[int, int, Value | None]]") -> None:
        self._fits = re.compile(fits, re.DOTALL).fullmatch
        self.places = places
        """By name: the first byte of the value, from the map's own, and the last one's next; what reads it, None for
        a string."""

    def of(self, data: bytes, at: int, end: int) -> "Laid | None":
        """The map from `at` to `end`; None if it does not have this layout."""
        return None if self._fits(data, at, end) is None else Laid(data, at, self.places)


class Laid:
    """The values of one map, by name."""

    __slots__ = ("_at", "_data", "_places")

    def __init__(self, data: bytes, at: int, places: "dict[str, tuple[int, int, Value | None]]") -> None:
        self._data = data
        self._at = at
        self._places = places

    def get(self, name: str) -> Any:
        """The value; None if it is missing or null."""
        place = self._places.get(name)
        if place is None:
            return None
        first, end, read = place
        at = self._at
        return self._data[at + first : at + end].decode() if read is None else read(self._data, at + first)


class Layouts:
    """The layouts learnt from earlier maps. For one thread; its answers do not depend on earlier maps."""

    __slots__ = ("_by_head", "_saved")

    def __init__(self) -> None:
        self._by_head: dict[bytes, Layout] = {}
        self._saved = SAVED_MAX
        """The allowance for learning, in maps that have arrived."""

    def find(self, data: bytes, at: int, end: int) -> Laid | None:
        """The map from `at` to `end` by a known layout; None if no layout fits."""
        if self._saved < SAVED_MAX:
            self._saved += 1
        layout = self._by_head.get(data[at : at + HEADS.get(data[at], 0)])
        return None if layout is None else layout.of(data, at, end)

    def learn(self, data: bytes, at: int, end: int) -> None:
        """Learns a layout from a valid map that was walked."""
        if self._saved < COST or end - at > MAP_BYTES_MAX:
            return
        self._saved -= COST
        layout = layout_of(data[at:end])
        if layout is None:
            return
        head = data[at : at + HEADS[data[at]]]
        self._by_head.pop(head, None)
        if len(self._by_head) >= LAYOUTS_MAX:
            del self._by_head[next(iter(self._by_head))]
        self._by_head[head] = layout


def layout_of(data: bytes) -> Layout | None:
    """The layout of a valid map; None if it has a key or a value that layouts do not support."""
    at = HEADS[data[0]]
    fits, places = [re.escape(data[:at])], dict[str, tuple[int, int, Value | None]]()
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
            places[key.decode()] = (first, end, None)
        elif code in SINGLES:
            end = at + 1
            fits.append(b"[\\x40-\\x42]")
            places[key.decode()] = (at, end, _single)
        elif code in NUMBERS:
            unpack, width = NUMBERS[code]
            end = at + width
            fits.append(re.escape(data[at : at + 1]) + b".{%d}" % (width - 1))
            places[key.decode()] = (at + 1, end, _number(unpack))
        else:
            return None
        at = end
    return Layout(b"".join(fits), places)
