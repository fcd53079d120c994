"""The sections of a message that selectors read, decoded on demand. AMQP 1.0 §3.2.

Rules of this file: no content of a message raises. A value that cannot be decoded is UNDECODABLE, which is neither null
nor a value. Work and memory are bounded by the size of the payload, and by PAIRS_MAX; the body is never looked at.
"""

from struct import error as StructError
from typing import Any, Final

from holdfast.amqp.message.message import (
    APPLICATION_PROPERTIES,
    COMPOUNDS,
    DATA,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SECTION_SYMBOLS,
)
from holdfast.amqp.wire.decoding import decode
from holdfast.amqp.wire.types import Symbol, Ulong
from holdfast.errors import RemoteProtocolError
from holdfast.selectors.layouts import MAP_BYTES_MAX, NUMBERS, SINGLES, Laid, Layouts

PAIRS_MAX: Final = 16_384
"""The maximum number of pairs in a map of properties or annotations; a map with more is not decoded."""
FIELDS_MAX: Final = 13
"""The number of fields of the properties (§3.2.4), the longest list that is read here."""
PRIORITY_DEFAULT: Final = 4

_DESCRIPTOR_BYTES_MAX: Final = 64
_SINGLE_MAX: Final = 0xBF
"""Format codes up to this one, except 0 and 0x45, mean single values."""


class _Undecodable:
    """Represents a value that cannot be decoded, and a map of such values."""

    __slots__ = ()

    def get(self, key: str) -> "_Undecodable":
        return self

    def __repr__(self) -> str:
        return "UNDECODABLE"


class _Compound:
    """Represents a list, map, array or described value: it exists, and equals nothing."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "COMPOUND"


UNDECODABLE: Final = _Undecodable()
COMPOUND: Final = _Compound()

Map = dict[str, Any] | Laid | _Undecodable
_EMPTY: Final[dict[str, Any]] = {}


class _Malformed(Exception):
    """Inside this file only."""


class Sections:
    """A view over the bytes of a message from `start` on, its first section or the bare message; it keeps them.

    `durable` and `priority` are what the node stores of the header (None: the default, 4); a header in the payload
    counts more. `annotations`: message annotations that are kept apart, as how many items, keys and values, there are
    and their encoding (`broker.entries.entry.annotations_of`); those in the payload count more. `whole`: False where
    the payload may be cut, as the first piece of a large message is; a section that did not come is then UNDECODABLE,
    not missing. `layouts`: what is known of maps that came before, which makes it quicker; so does `content`: the map
    of application properties, where the caller has found it, at most MAP_BYTES_MAX.
    """

    __slots__ = ("_annotation_items", "_annotations", "_application", "_broken", "_content", "_durable", "_layouts",
                 "_payload", "_places", "_priority", "_properties", "_start", "_whole")  # fmt: skip

    def __init__(
        self,
        payload: bytes,
        start: int = 0,
        durable: bool = False,
        priority: int | None = None,
        annotations: tuple[int, bytes | memoryview] | None = None,
        *,
        whole: bool = True,
        layouts: Layouts | None = None,
        content: bytes = b"",
    ) -> None:
        self._layouts = layouts
        self._content = content
        self._payload = payload
        self._start = start
        self._durable: Any = durable
        self._priority: Any = PRIORITY_DEFAULT if priority is None else priority
        self._annotation_items = annotations
        self._whole = whole
        self._broken = False
        self._places: dict[int, tuple[int, int]] | None = None
        self._application: Map | None = None
        self._annotations: Map | None = None
        self._properties: list[Any] | _Undecodable | None = None

    @property
    def durable(self) -> Any:
        """True, False or UNDECODABLE."""
        if self._places is None:
            self._locate()
        return self._durable

    @property
    def priority(self) -> Any:
        """From 0 to 255, or UNDECODABLE."""
        if self._places is None:
            self._locate()
        return self._priority

    def property_field(self, index: int) -> Any:
        """A field of the properties; None if it is null or missing. See COMPOUND and UNDECODABLE."""
        fields = self._properties
        if fields is None:
            fields = self._properties = self._fields(PROPERTIES)
        if isinstance(fields, _Undecodable):
            return fields
        return fields[index] if index < len(fields) else None

    def application_property(self, name: str) -> Any:
        """As `property_field`, by name."""
        pairs = self._application
        if pairs is None:
            pairs = self._application = self._application_properties()
        return pairs.get(name)

    def annotation(self, key: str) -> Any:
        """A message annotation, as `application_property`."""
        pairs = self._annotations
        if pairs is None:
            pairs = self._pairs(MESSAGE_ANNOTATIONS)
            if not pairs and self._annotation_items is not None:
                count, items = self._annotation_items
                pairs = _read_pairs(bytes(items), 0, len(items), count)
            self._annotations = pairs
        return pairs.get(key)

    def _application_properties(self) -> Map:
        layouts, content = self._layouts, self._content
        if not content:
            at, end = (self._places or self._locate()).get(APPLICATION_PROPERTIES, (0, 0))
            if layouts is None or not 0 < end - at <= MAP_BYTES_MAX:
                return self._pairs(APPLICATION_PROPERTIES)
            content = self._payload[at:end]
        if layouts is None:
            return _read_map(content, 0, len(content))
        layout = layouts.find(content)
        if layout is not None:
            return Laid(content, layout)
        found = _read_map(content, 0, len(content))
        if not isinstance(found, _Undecodable):
            layouts.learn(content)
        return found

    def _fields(self, code: int) -> list[Any] | _Undecodable:
        places = self._places or self._locate()
        if code not in places:
            return UNDECODABLE if self._broken else []
        return _read_fields(self._payload, *places[code])

    def _pairs(self, code: int) -> Map:
        places = self._places or self._locate()
        if code not in places:
            return UNDECODABLE if self._broken else _EMPTY
        return _read_map(self._payload, *places[code])

    def _locate(self) -> dict[int, tuple[int, int]]:
        """Finds the sections up to the body by their sizes: the start and the end of each section's value."""
        places: dict[int, tuple[int, int]] = {}
        self._places = places
        payload, size = self._payload, len(self._payload)
        at, before = self._start, HEADER - 1
        try:
            while at < size:
                code = payload[at + 2]
                if payload[at + 1] == 0x53 and payload[at] == 0 and HEADER <= code <= FOOTER:  # the usual descriptor
                    value_at = at + 3
                else:
                    code, value_at = _descriptor(payload, at)
                if code >= DATA:
                    break
                form = payload[value_at]
                if code <= before:
                    raise _Malformed
                if form == 0xC1 or form == 0xC0:
                    end = value_at + 2 + payload[value_at + 1]
                else:
                    width, beside = COMPOUNDS[form]
                    end = value_at + beside + int.from_bytes(payload[value_at + 1 : value_at + 1 + width], "big")
                if end > size:
                    raise _Malformed
                places[code] = (value_at, end)
                at, before = end, code
            else:
                self._broken = not self._whole
        except (_Malformed, RemoteProtocolError, IndexError, KeyError):
            self._broken = True
        if HEADER in places:
            self._take_header(_read_fields(payload, *places[HEADER]))
        return places

    def _take_header(self, fields: list[Any] | _Undecodable) -> None:
        """Reads the first two fields of the header (§3.2.1)."""
        if isinstance(fields, _Undecodable):
            self._durable = self._priority = fields
            return
        durable = fields[0] if fields else None
        priority = fields[1] if len(fields) > 1 else None
        self._durable = bool(durable) if durable is None or type(durable) is bool else UNDECODABLE
        self._priority = PRIORITY_DEFAULT if priority is None else priority


def _descriptor(payload: bytes, at: int) -> tuple[int, int]:
    """(code of the section, offset of its value) at `at`."""
    if payload[at] != 0:
        raise _Malformed
    if payload[at + 1] == 0x53:
        code = payload[at + 2]
        if HEADER <= code <= FOOTER:
            return code, at + 3
        raise _Malformed
    descriptor, length = decode(bytes(payload[at + 1 : at + 1 + _DESCRIPTOR_BYTES_MAX]), nesting_max=1)
    if isinstance(descriptor, Symbol):
        code = SECTION_SYMBOLS.get(descriptor, 0)
    else:
        code = int(descriptor) if isinstance(descriptor, Ulong) else 0
    if not HEADER <= code <= FOOTER:
        raise _Malformed
    return code, at + 1 + length


def _read_fields(data: bytes, at: int, end: int) -> list[Any] | _Undecodable:
    """The elements of the list that is encoded from `at` to `end`."""
    try:
        form = data[at]
        if form == 0x45:
            return []
        if form == 0xC0:
            count, at = data[at + 2], at + 3
        elif form == 0xD0:
            count, at = int.from_bytes(data[at + 5 : at + 9], "big"), at + 9
        else:
            return UNDECODABLE
        if count > FIELDS_MAX:
            return UNDECODABLE
        fields = []
        for _ in range(count):
            value, at = _value(data, at)
            fields.append(value)
    except (RemoteProtocolError, IndexError, UnicodeDecodeError):
        return UNDECODABLE
    return fields if at == end else UNDECODABLE


def _read_map(data: bytes, at: int, end: int) -> Map:
    """The map that is encoded from `at` to `end`, by its names."""
    form = data[at]
    if form == 0xC1 and end > at + 2 and end == at + 2 + data[at + 1]:
        return _read_pairs(data, at + 3, end, data[at + 2])
    if form == 0xD1 and end == at + 5 + int.from_bytes(data[at + 1 : at + 5], "big"):
        return _read_pairs(data, at + 9, end, int.from_bytes(data[at + 5 : at + 9], "big"))
    return UNDECODABLE


def _read_pairs(data: bytes, at: int, end: int, count: int) -> Map:
    """The `count` items, keys and values, from `at` to `end`. Keys that are not names are ignored."""
    if count & 1 or count > 2 * PAIRS_MAX:
        return UNDECODABLE
    pairs: dict[str, Any] = {}
    try:
        for _ in range(count >> 1):
            key: Any
            code = data[at]
            if code == 0xA1:  # the usual key, and value, without detours
                start = at + 2
                at = start + data[at + 1]
                key = data[start:at].decode()
            else:
                key, at = _value(data, at)
            code = data[at]
            if code == 0xA1:
                start = at + 2
                at = start + data[at + 1]
                value = data[start:at].decode()
            elif code in SINGLES:
                value, at = SINGLES[code], at + 1
            elif code in NUMBERS:
                unpack, width = NUMBERS[code]
                value = unpack(data, at + 1)[0]
                at += width
            else:
                value, at = _value(data, at)
            if isinstance(key, str):
                if key in pairs:
                    return UNDECODABLE  # no map has a key twice (§1.6.23)
                pairs[key] = value
    except (RemoteProtocolError, IndexError, UnicodeDecodeError, StructError):
        return UNDECODABLE
    return pairs if at == end else UNDECODABLE


def _value(data: bytes, at: int) -> tuple[Any, int]:
    """The value at `at` and the offset after it. What is not a single value is skipped, whatever is in it."""
    code = data[at]
    if code == 0xA1:
        start = at + 2
        end = start + data[at + 1]
        return data[start:end].decode(), end
    if code and code != 0x45 and code <= _SINGLE_MAX:
        return decode(data, at)
    pending = 1  # values that are still to be skipped: a described one is two
    while pending:
        code = data[at]
        if code == 0:
            pending += 1
            at += 1
            continue
        width = _WIDTHS[code >> 4]
        if width is None:
            size = 1 if code & 0x10 == 0 else 4
            at += 1 + size + int.from_bytes(data[at + 1 : at + 1 + size], "big")
        else:
            at += 1 + width
        pending -= 1
    return COMPOUND, at


_WIDTHS: Final = (None, None, None, None, 0, 1, 2, 4, 8, 16, None, None, None, None, None, None)
"""Bytes of a value by the upper half of its format code (§1.6.26); None where a size comes first."""
