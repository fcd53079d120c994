"""A delivery's payload as a Message, by hand for the shapes that come in their thousands (AMQP 1.0 §3.2, §1.6).

Rules of this file: optimised forms of `Message.decode`, which is called for everything that is out of the
ordinary, malformed bytes among it; property tests hold all to the same answer, types included.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any, Final, NamedTuple

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Header, Properties
from holdfast.amqp.wire.types import Int, Long, Symbol, Timestamp, Uint, Ulong
from holdfast.client.messages.payload import ANNOTATIONS32, DATA32, ENQUEUED, ENQUEUED_KEY, SEQUENCE, SEQUENCE_KEY
from holdfast.errors import RemoteProtocolError

HEADERS_MAX: Final = 256
"""Different headers remembered; they are few and short."""

_PLACE: Final = Struct(f">II{len(SEQUENCE_KEY)}sQ{len(ENQUEUED_KEY)}sq")
_PLACE_BYTES: Final = _PLACE.size - 4
_HEADER: Final = b"\x00\x53\x70"
_HEADER_BYTES: Final = 8
"""Of the header that a node writes where a message has no time to live, behind its code."""
_BEFORE_SEQUENCE: Final = b"".join((ANNOTATIONS32, _PLACE_BYTES.to_bytes(4, "big"), b"\x00\x00\x00\x04", SEQUENCE_KEY))
_FRONT: Final = Struct(f">3s{_HEADER_BYTES}s{len(_BEFORE_SEQUENCE)}sQ{len(ENQUEUED_KEY)}sq")
_DOUBLE: Final = Struct(">d")

_TEXT: Final = frozenset((0x40, 0xA1, 0xB1))
_SYMBOL: Final = frozenset((0x40, 0xA3, 0xB3))
_BINARY: Final = frozenset((0x40, 0xA0, 0xB0))
_TIME: Final = frozenset((0x40, 0x83))
_ID: Final = _TEXT | _BINARY | {0x44, 0x53, 0x80}
_UINT: Final = frozenset((0x40, 0x43, 0x52, 0x70))
# The fields of properties in their order, each with the constructors that are read here (§3.2.4).
_FIELDS: Final = (
    _ID, _BINARY, _TEXT, _TEXT, _TEXT, _ID, _SYMBOL, _SYMBOL, _TIME, _TIME, _TEXT, _UINT, _TEXT,
)  # fmt: skip


HeaderFields = tuple[Any, ...]
"""The fields of a header section, in their order."""


class PlainDelivery(NamedTuple):
    """A delivery of the commonest kind: it has at most a header, the two annotations that a node writes, properties,
    application properties, and one data section. `header`: None where there is no such section."""

    sequence: int
    enqueued_ms: int
    header: HeaderFields | None
    properties: Properties | None
    application_properties: dict[Any, Any] | None
    data: bytes


class _Unusual(Exception):
    """Not one of the shapes below: the codec reads it."""


def _text(data: bytes) -> str:
    return data.decode()


def _ascii(data: bytes) -> Symbol:
    return Symbol(data.decode("ascii"))


def _same(data: bytes) -> bytes:
    return data


def _unsigned(kind: type[int]) -> Callable[[bytes], int]:
    return lambda data: kind(int.from_bytes(data, "big"))


def _signed(kind: type[int]) -> Callable[[bytes], int]:
    return lambda data: kind(int.from_bytes(data, "big", signed=True))


_ZERO: Final[dict[int, Any]] = {
    0x40: None, 0x41: True, 0x42: False, 0x43: Uint(0), 0x44: Ulong(0),
}  # fmt: skip
_FIXED: Final[dict[int, tuple[int, Callable[[bytes], Any]]]] = {
    0x52: (1, _unsigned(Uint)), 0x53: (1, _unsigned(Ulong)), 0x54: (1, _signed(Int)), 0x55: (1, _signed(Long)),
    0x70: (4, _unsigned(Uint)), 0x71: (4, _signed(Int)), 0x80: (8, _unsigned(Ulong)), 0x81: (8, _signed(Long)),
    0x82: (8, lambda data: _DOUBLE.unpack(data)[0]), 0x83: (8, _signed(Timestamp)),
}  # fmt: skip
_VARIABLE: Final[dict[int, Callable[[bytes], Any]]] = {
    0xA0: _same, 0xA1: _text, 0xA3: _ascii, 0xB0: _same, 0xB1: _text, 0xB3: _ascii,
}  # fmt: skip

_headers: dict[bytes, tuple[Any, ...]] = {}


def read_message(payload: bytes) -> Message:
    """As `Message.decode(payload)`: RemoteProtocolError (decode-error) for what is no message."""
    try:
        return _read(payload)
    except (_Unusual, IndexError, ValueError):
        return Message.decode(payload)


def read_plain(payload: bytes) -> PlainDelivery | None:
    """For readers that need no Message: takes half the time. None for any other delivery, and for bytes that are no
    message: `read_message` reads those."""
    header: HeaderFields | None = None
    size, at = len(payload), 0
    try:
        if size > _FRONT.size:  # the front that most messages have is read at once
            code, fields, before, sequence, between, enqueued_ms = _FRONT.unpack_from(payload)
            header = _headers.get(fields)
            if header is not None and code == _HEADER and before == _BEFORE_SEQUENCE and between == ENQUEUED_KEY:
                at = _FRONT.size
        if not at:
            header, at = _header_fields(payload, 3) if payload[:3] == _HEADER else (None, 0)
            placed = _placed_at(payload, at + 4) if payload[at : at + 4] == ANNOTATIONS32 else None
            if placed is None:
                return None
            sequence, enqueued_ms = placed
            at += 4 + _PLACE.size
        if payload[at : at + 4] == DATA32 and int.from_bytes(payload[at + 4 : at + 8], "big") == size - at - 8:
            return PlainDelivery(sequence, enqueued_ms, header, None, None, payload[at + 8 :])
        properties = told = None
        if payload[at : at + 3] == b"\x00\x53\x73":
            properties, at = _properties(payload, at + 3)
        if payload[at : at + 3] == b"\x00\x53\x74":
            told, at = _map(payload, at + 3)
        if payload[at : at + 3] != b"\x00\x53\x75":
            return None
        data, end = _data(payload, at + 3, size)
    except (_Unusual, IndexError, ValueError, RemoteProtocolError):
        return None
    return PlainDelivery(sequence, enqueued_ms, header, properties, told, data) if end == size else None


def _read(payload: bytes) -> Message:
    message = Message()
    at, size = 0, len(payload)
    before = 0x6F
    while at < size:
        if payload[at : at + 2] != b"\x00\x53":
            raise _Unusual
        code = payload[at + 2]
        at += 3
        if code <= before:
            raise _Unusual  # several data sections, or none that may follow
        before = code
        if code == 0x75:
            data, at = _data(payload, at, size)
            message.data = [data]
        elif code == 0x73:
            message.properties, at = _properties(payload, at)
        elif code == 0x74:
            message.application_properties, at = _map(payload, at)
        elif code == 0x72:
            message.message_annotations, at = _annotations(payload, at)
        elif code == 0x70:
            fields, at = _header_fields(payload, at)
            message.header = Header(*fields)
        else:
            raise _Unusual
    if at != size:
        raise _Unusual
    return message


def _data(payload: bytes, at: int, size: int) -> tuple[bytes, int]:
    code = payload[at]
    if code == 0xB0:
        start = at + 5
        end = start + int.from_bytes(payload[at + 1 : start], "big")
    elif code == 0xA0:
        start = at + 2
        end = start + payload[at + 1]
    else:
        raise _Unusual
    if end > size:
        raise _Unusual
    return payload[start:end], end


def fields_of(header: Header) -> HeaderFields:
    """The fields of the section, in their order."""
    return header.durable, header.priority, header.ttl, header.first_acquirer, header.delivery_count


def _header_fields(payload: bytes, at: int) -> tuple[HeaderFields, int]:
    if payload[at] != 0xC0:
        raise _Unusual
    end = at + 2 + payload[at + 1]
    key = payload[at:end]
    fields = _headers.get(key)
    if fields is None:
        header = Message.decode(b"\x00\x53\x70" + key).header
        if header is None:
            raise _Unusual
        fields = fields_of(header)
        if len(_headers) < HEADERS_MAX:
            _headers[key] = fields
    return fields, end


def _annotations(payload: bytes, at: int) -> tuple[dict[Any, Any], int]:
    """The two that a node writes, in its form; else any short map."""
    if payload[at] == 0xD1:
        placed = _placed_at(payload, at + 1)
        if placed is not None:
            return {SEQUENCE: Ulong(placed[0]), ENQUEUED: Timestamp(placed[1])}, at + 1 + _PLACE.size
    return _map(payload, at)


def _placed_at(payload: bytes, at: int) -> tuple[int, int] | None:
    """(sequence, enqueued time) where a map of just these two, in the form that a node writes, begins behind its
    constructor."""
    if len(payload) < at + _PLACE.size:
        return None
    size, count, first, sequence, second, enqueued_ms = _PLACE.unpack_from(payload, at)
    if size == _PLACE_BYTES and count == 4 and first == SEQUENCE_KEY and second == ENQUEUED_KEY:
        return sequence, enqueued_ms
    return None


def _properties(payload: bytes, at: int) -> tuple[Properties, int]:
    count, at, end = _compound(payload, at, 0xC0, 0xD0)
    if count > len(_FIELDS):
        raise _Unusual
    values = []
    for accepted in _FIELDS[:count]:
        if payload[at] not in accepted:
            raise _Unusual
        value, at = _value(payload, at)
        values.append(value)
    if at != end:
        raise _Unusual
    return Properties(*values), end


def _map(payload: bytes, at: int) -> tuple[dict[Any, Any], int]:
    count, at, end = _compound(payload, at, 0xC1, 0xD1)
    found: dict[Any, Any] = {}
    for _ in range(count // 2):
        if payload[at] not in _KEYS:
            raise _Unusual
        key, at = _value(payload, at)
        found[key], at = _value(payload, at)
    if at != end or count != 2 * len(found):
        raise _Unusual
    return found, end


_KEYS: Final = frozenset((0xA1, 0xB1, 0xA3, 0xB3))


def _compound(payload: bytes, at: int, short: int, long: int) -> tuple[int, int, int]:
    """(count of elements, offset of the first, end) of the list or map at `at`."""
    code = payload[at]
    if code == short:
        count, first, end = payload[at + 2], at + 3, at + 2 + payload[at + 1]
    elif code == long:
        first = at + 9
        end = at + 5 + int.from_bytes(payload[at + 1 : at + 5], "big")
        count = int.from_bytes(payload[at + 5 : first], "big")
    else:
        raise _Unusual
    if end > len(payload) or count > end - at:
        raise _Unusual
    return count, first, end


def _value(payload: bytes, at: int) -> tuple[Any, int]:
    code = payload[at]
    variable = _VARIABLE.get(code)
    if variable is not None:
        if code < 0xB0:
            start = at + 2
            end = start + payload[at + 1]
        else:
            start = at + 5
            end = start + int.from_bytes(payload[at + 1 : start], "big")
        if end > len(payload):
            raise _Unusual
        return variable(payload[start:end]), end
    fixed = _FIXED.get(code)
    if fixed is not None:
        width, make = fixed
        end = at + 1 + width
        if end > len(payload):
            raise _Unusual
        return make(payload[at + 1 : end]), end
    if code not in _ZERO:
        raise _Unusual
    return _ZERO[code], at + 1
