"""Checks the framing of a message's sections, but not their contents: truncated or misplaced sections. AMQP 1.0 §3.2.

Rules of this file: work and memory depend on the number of sections, not on their contents; `check` of a whole payload
and `Framing` of one in parts give the same result for the same bytes, however they are split.
"""

from functools import lru_cache
from typing import Final

from holdfast.amqp.message.message import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SECTION_SYMBOLS,
    SECTIONS_MAX,
    SEQUENCE,
    VALUE,
    malformed,
)
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.decoding import READERS
from holdfast.amqp.wire.forms import DEPTH_MAX
from holdfast.errors import RemoteProtocolError

HEAD_BYTES_MAX: Final = 256
"""The maximum distance from a section's start to its value's constructor: the descriptors of the section and value."""

STARTS_MAX: Final = 1_024
"""For how many sizes of payload the start is cached."""

NAMES: Final = {
    HEADER: "header", DELIVERY_ANNOTATIONS: "delivery-annotations", MESSAGE_ANNOTATIONS: "message-annotations",
    PROPERTIES: "properties", APPLICATION_PROPERTIES: "application-properties", DATA: "data",
    SEQUENCE: "amqp-sequence", VALUE: "amqp-value", FOOTER: "footer",
}  # fmt: skip

_BODIES: Final = frozenset((DATA, SEQUENCE, VALUE))
_START: Final = 0
"""The code of the section before the first one."""


def _after(code: int) -> frozenset[int]:
    """The sections that may follow one of that code."""
    found = {later for later in NAMES if later > code}
    if code in _BODIES:
        found -= _BODIES
    if code in (DATA, SEQUENCE):
        found.add(code)
    return frozenset(found)


_EARLY: Final = 0x100
"""A flag in the code of the section before: the footer came before the body (CLIENTS 41)."""
_NEXT: Final = {code: _after(code) for code in (_START, *NAMES)} | {
    FOOTER | _EARLY: _BODIES, DATA | _EARLY: frozenset((DATA,)), SEQUENCE | _EARLY: frozenset((SEQUENCE,)),
    VALUE | _EARLY: frozenset(),
}  # fmt: skip
_LIST: Final = {0x45: (0, 0), 0xC0: (1, 1), 0xD0: (4, 4)}
_MAP: Final = {0xC1: (1, 1), 0xD1: (4, 4)}
_BINARY: Final = {0xA0: (1, 0), 0xB0: (4, 0)}
_FORMS: Final = {
    HEADER: ("list", _LIST), DELIVERY_ANNOTATIONS: ("map", _MAP), MESSAGE_ANNOTATIONS: ("map", _MAP),
    PROPERTIES: ("list", _LIST), APPLICATION_PROPERTIES: ("map", _MAP), DATA: ("binary", _BINARY),
    SEQUENCE: ("list", _LIST), FOOTER: ("map", _MAP),
}  # fmt: skip
"""What a section holds, and by constructor the bytes of its size, and how much it must be at least: of a list or map it
counts their number of elements too."""
_USUAL: Final = {
    code << 8 | form: sizes for code, (_, forms) in _FORMS.items() for form, sizes in forms.items() if sizes[0]
} | {VALUE << 8 | 0xA1: (1, 0), VALUE << 8 | 0xB1: (4, 0)}  # fmt: skip
"""The same for the usual encodings, by section code and constructor."""
_WIDTHS: Final = (None, None, None, None, 0, 1, 2, 4, 8, 16)
"""By the first half of a constructor: bytes of a value of a fixed width (§1.6); of all others the size comes first."""


def check(payload: bytes | memoryview, at: int = 0) -> None:
    """Checks the framing of the sections from `at` on. RemoteProtocolError: decode-error with the fault and its
    position, or resource-limit-exceeded beyond SECTIONS_MAX."""
    end = _walk(payload, at, 0, _START, 0)[0]
    if end != len(payload):
        raise _unfinished(end, len(payload), 0)


def fault(payload: bytes | memoryview, at: int = 0) -> str | None:
    """As `check`, but returns the fault; None if there is none."""
    try:
        end = _walk(payload, at, 0, _START, 0)[0]
    except RemoteProtocolError as error:
        return error.description
    return None if end == len(payload) else _unfinished(end, len(payload), 0).description


def _unfinished(end: int, size: int, base: int) -> RemoteProtocolError:
    """The fault of a message of `size` bytes after `base`, in which sections were found up to `end`."""
    if end < size:
        return malformed(f"byte {base + end}: the message ends in the head of a section")
    return malformed(f"byte {base + size}: the message ends, {end - size} bytes before its last section does")


@lru_cache(STARTS_MAX)
def data_starts(head: bytes, size: int) -> tuple[bytes, ...]:
    """The first bytes of a payload of `size` bytes that consists of `head` and one data section."""
    left = size - len(head)
    starts = []
    if 5 <= left < 5 + 256:
        starts.append(head + bytes((0x00, 0x53, DATA, 0xA0, left - 5)))
    if 8 <= left < 8 + (1 << 32):
        starts.append(head + bytes((0x00, 0x53, DATA, 0xB0)) + (left - 8).to_bytes(4, "big"))
    return tuple(starts)


class Framing:
    """As `check`, for a message in parts: `feed` takes its bytes, `end` follows the last."""

    __slots__ = ("_at", "_before", "_left", "_pending", "_sections")

    def __init__(self) -> None:
        self._at = 0
        """Bytes of the message before `_pending`."""
        self._left = 0
        """Bytes of the current section that are still to come."""
        self._pending = b""
        """The start of the next section, while it is too short to contain the section's size."""
        self._before = _START
        self._sections = 0

    def feed(self, data: bytes) -> None:
        """Checks the next bytes. Raises as `check` does."""
        if len(data) > self._left:
            if self._pending:
                data = self._pending + data
            end, self._before, self._sections = _walk(data, self._left, self._at, self._before, self._sections)
            self._pending = data[end:]
            self._at += min(end, len(data))
            self._left = max(0, end - len(data))
        else:
            self._left -= len(data)
            self._at += len(data)

    def end(self) -> None:
        """The message is complete. Raises as `check` does."""
        if self._left or self._pending:
            raise _unfinished(self._left, len(self._pending), self._at)


def _walk(data: bytes | memoryview, at: int, base: int, before: int, sections: int) -> tuple[int, int, int]:
    """Goes on from `at`, where a section begins that comes after one of the code `before`, the `sections`-th. Returns
    where the last one ends, its code and their count; an end before that of `data` is where the next one begins, of
    which too little is here. `base`: the place of `data` in the message."""
    size = len(data)
    accepted = _NEXT[before]
    try:
        while at < size:
            if data[at] == 0 and data[at + 1] == 0x53:
                code = data[at + 2]
                value_at = at + 3
            else:
                code, value_at = _descriptor(data, at, base)
            form = data[value_at]
            if code not in accepted:
                raise malformed(_out_of_order(base + at, code, before))
            sizes = _USUAL.get(code << 8 | form)
            if sizes is None:
                end = _end_of_value(data, value_at, base + at, code)
            else:
                width, least = sizes
                if width == 1:
                    length = data[value_at + 1]
                elif value_at + 5 > size:
                    break
                else:
                    length = int.from_bytes(data[value_at + 1 : value_at + 5], "big")
                if length < least:
                    raise malformed(f"byte {base + at}: the {NAMES[code]} section has no place for its count")
                end = value_at + 1 + width + length
            sections += 1
            if sections > SECTIONS_MAX:
                text = f"byte {base + at}: the message has too many sections; the limit is {SECTIONS_MAX}"
                raise RemoteProtocolError(conditions.RESOURCE_LIMIT_EXCEEDED, text)
            at = end
            before = code | _EARLY if before & _EARLY or (code == FOOTER and before not in _BODIES) else code
            accepted = _NEXT[before]
    except IndexError:
        pass  # too little of that section is here
    return at, before, sections


def _out_of_order(place: int, code: int, before: int) -> str:
    if code not in NAMES:
        return f"byte {place}: 0x{code:02x} is not a section of a message"
    return f"byte {place}: the {NAMES[code]} section cannot follow the {NAMES[before & ~_EARLY]} section"


def _descriptor(data: bytes | memoryview, at: int, base: int) -> tuple[int, int]:
    """(section code, offset of its value) in a rare encoding. IndexError if bytes are missing."""
    if data[at] != 0:
        raise malformed(f"byte {base + at}: 0x{data[at]:02x} does not begin a section")
    form = data[at + 1]
    start, end = at + 2, at + 10
    if form in (0xA3, 0xB3):
        start += 1 if form == 0xA3 else 4
        data[start - 1]
        end = start + int.from_bytes(data[at + 2 : start], "big")
    elif form != 0x80:
        raise malformed(f"byte {base + at}: expected the descriptor of a section")
    if end - at > HEAD_BYTES_MAX:
        raise malformed(f"byte {base + at}: expected the descriptor of a section")
    data[end - 1]
    found = bytes(data[start:end])
    code = int.from_bytes(found, "big") if form == 0x80 else SECTION_SYMBOLS.get(found.decode("ascii", "replace"))
    if code not in NAMES:
        raise malformed(f"byte {base + at}: expected the descriptor of a section")
    return code, end


def _end_of_value(data: bytes | memoryview, at: int, place: int, code: int) -> int:
    """Where the value of a section ends. IndexError if bytes are missing."""
    known = _FORMS.get(code)
    if known is None:
        return _end_of_any(data, at, at + HEAD_BYTES_MAX, place, 0)
    name, forms = known
    if data[at] not in forms:
        text = f"invalid value 0x{data[at]:02x} for the {NAMES[code]} section; expected a {name}"
        raise malformed(f"byte {place}: {text}")
    return at + 1  # the empty list; all other values have a size


def _end_of_any(data: bytes | memoryview, at: int, limit: int, place: int, depth: int) -> int:
    form = data[at]
    if form == 0:
        at = _end_of_any(data, at + 1, limit, place, depth + 1) if depth < DEPTH_MAX else limit + 1
        if at > limit:
            raise malformed(f"byte {place}: the descriptor of the value is too long or too deep")
        return _end_of_any(data, at, limit, place, depth + 1)
    if READERS[form] is None:
        raise malformed(f"byte {place}: the {NAMES[VALUE]} section holds 0x{form:02x}, which is not a constructor")
    kind = form >> 4
    if kind < len(_WIDTHS):
        return at + 1 + (_WIDTHS[kind] or 0)
    width = 4 if kind & 1 else 1
    start = at + 1 + width
    data[start - 1]
    length = int.from_bytes(data[at + 1 : start], "big")
    if kind >= 0xC and length < width:
        raise malformed(f"byte {place}: the {NAMES[VALUE]} section has no place for its count")
    return start + length
