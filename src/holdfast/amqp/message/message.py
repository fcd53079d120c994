"""Messages: `split` for a node, which never decodes the bare message; `Message` for programs that write and read them.
AMQP 1.0 §3.2.

Rules of this file: `split` copies nothing and parses only header and delivery annotations; what its short form does not
cover it does with the codec. Malformed bytes raise RemoteProtocolError (decode-error).
"""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from holdfast.amqp.wire import conditions, decoding, encoding
from holdfast.amqp.wire.composites import from_described
from holdfast.amqp.wire.performatives import Header, Properties
from holdfast.amqp.wire.types import MISSING, Described, Symbol, Ulong
from holdfast.errors import LocalProtocolError, RemoteProtocolError

HEADER: Final = 0x70
DELIVERY_ANNOTATIONS: Final = 0x71
MESSAGE_ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
SEQUENCE: Final = 0x76
VALUE: Final = 0x77
FOOTER: Final = 0x78

SECTION_SYMBOLS: Final = {
    "amqp:header:list": HEADER, "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": MESSAGE_ANNOTATIONS, "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES, "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE, "amqp:amqp-value:*": VALUE, "amqp:footer:map": FOOTER,
}  # fmt: skip

_BODIES: Final = (DATA, SEQUENCE, VALUE)

SECTION_BYTES_MAX: Final = 1 << 24
"""The default maximum size of a section before the bare message that is decoded."""
SECTIONS_MAX: Final = 1 << 16
"""Sections of one message (data sections, mostly)."""


class Sections(NamedTuple):
    """Where a payload's parts lie: `annotations` start and end of the whole message-annotations section, (0, 0)
    if there is none; `bare` where the bare message starts (the payload's length if it is empty)."""

    header: Header | None
    delivery_annotations: dict[Any, Any] | None
    annotations: tuple[int, int]
    bare: int


_NONE: Final = (0, 0)
_BARE_ONLY: Final = Sections(None, None, _NONE, 0)
_BARE: Final = (DATA, PROPERTIES, VALUE, APPLICATION_PROPERTIES, SEQUENCE, FOOTER)
_BARE_CODES: Final = frozenset(_BARE)
BARE_STARTS: Final = tuple([b"\x00\x53" + bytes((code,)) for code in _BARE])
"""The first bytes of a bare message in its usual encoding."""


def malformed(text: str) -> RemoteProtocolError:
    """The error for a message that cannot be read, with that reason."""
    return RemoteProtocolError(conditions.DECODE_ERROR, text)


def split(payload: bytes, section_bytes_max: int = SECTION_BYTES_MAX) -> Sections:
    """The parts of a message in transit; see Sections. Raises RemoteProtocolError (decode-error).

    A section that must be decoded to find its end has at most `section_bytes_max` bytes; otherwise RemoteProtocolError
    (resource-limit-exceeded).
    """
    try:
        if payload[0] == 0 and payload[1] == 0x53:
            code = payload[2]
            if code in _BARE_CODES:
                return _BARE_ONLY
            if code == HEADER:
                header, at = _quick_header(payload)
                if at:
                    if at == len(payload):
                        return Sections(header, None, _NONE, at)
                    if payload[at] == 0 and payload[at + 1] == 0x53:
                        code = payload[at + 2]
                        if code in _BARE_CODES:
                            return Sections(header, None, _NONE, at)
                        if code == MESSAGE_ANNOTATIONS:
                            end = _skip_map(payload, at + 3)
                            if payload[end : end + 2] == b"\x00\x53" and payload[end + 2] in _BARE_CODES:
                                return Sections(header, None, (at, end), end)
            elif code == MESSAGE_ANNOTATIONS:
                end = _skip_map(payload, 3)
                if payload[end : end + 2] == b"\x00\x53" and payload[end + 2] in _BARE_CODES:
                    return Sections(None, None, (0, end), end)
    except IndexError:
        pass
    return _split_slowly(payload, section_bytes_max)


def _skip_map(payload: bytes, at: int) -> int:
    """The offset after the map at `at`, its elements unread; past the payload's end if it is no map."""
    code = payload[at]
    if code == 0xC1:
        return at + 2 + payload[at + 1]
    if code == 0xD1:
        return at + 5 + int.from_bytes(payload[at + 1 : at + 5], "big")
    return len(payload) + 1


def _quick_header(payload: bytes) -> tuple[Header | None, int]:
    """A header whose fields are booleans, ubytes and short uints, and the offset after it; else (None, 0)."""
    if payload[3] == 0x45:
        return Header(), 4
    if payload[3] != 0xC0:
        return None, 0
    end = 5 + payload[4]
    count = payload[5]
    if count > 5 or end > len(payload):
        return None, 0
    values: list[Any] = [False, 4, None, False, 0]
    at = 6
    for index in range(count):
        code = payload[at]
        at += 1
        if code == 0x40:
            continue
        if code == 0x41 or code == 0x42:
            if index != 0 and index != 3:
                return None, 0
            values[index] = code == 0x41
            continue
        if code == 0x50:
            if index != 1:
                return None, 0
            values[1] = payload[at]
            at += 1
            continue
        if index != 2 and index != 4:
            return None, 0
        if code == 0x43:
            values[index] = 0
        elif code == 0x52:
            values[index] = payload[at]
            at += 1
        elif code == 0x70:
            values[index] = int.from_bytes(payload[at : at + 4], "big")
            at += 4
        else:
            return None, 0
    return (Header(*values), end) if at == end else (None, 0)


def section_at(payload: bytes, at: int) -> tuple[int, int]:
    """(section code, offset of its value) at `at`; raises if there is no section."""
    if payload[at] != 0:
        raise malformed(f"byte {at} of the message does not begin a section")
    descriptor, value_at = decoding.decode(payload, at + 1)
    code: int | None = None
    if isinstance(descriptor, Symbol):
        code = SECTION_SYMBOLS.get(descriptor)
    elif isinstance(descriptor, Ulong) and HEADER <= descriptor <= FOOTER:
        code = int(descriptor)
    if code is None:
        raise malformed(f"{descriptor!r:.80} is not a section of a message")
    return code, value_at


COMPOUNDS: Final = {0x45: (0, 1), 0xC0: (1, 2), 0xC1: (1, 2), 0xD0: (4, 5), 0xD1: (4, 5)}
"""Format code of a list or map → bytes of its size field, and of all that the size does not count."""


def _check_size(payload: bytes, at: int, bytes_max: int) -> None:
    """Checks the list or map at `at` before it is decoded: in memory it may need 60 times its bytes."""
    form = COMPOUNDS.get(payload[at])
    if form is None:
        raise malformed("invalid section before the body; expected a list or a map")
    width, beside = form
    size = beside + int.from_bytes(payload[at + 1 : at + 1 + width], "big")
    if size > bytes_max:
        text = f"a section before the body has {size} bytes; the limit is {bytes_max}"
        raise RemoteProtocolError(conditions.RESOURCE_LIMIT_EXCEEDED, text)


def _split_slowly(payload: bytes, section_bytes_max: int) -> Sections:
    header: Header | None = None
    delivery_annotations: dict[Any, Any] | None = None
    annotations = _NONE
    at, size, before = 0, len(payload), HEADER - 1
    while at < size:
        code, value_at = section_at(payload, at)
        if code > MESSAGE_ANNOTATIONS:
            break
        if code <= before:
            raise malformed("the sections of the message are out of order")
        before = code
        if value_at >= size:
            raise malformed("the message ends within a section")
        _check_size(payload, value_at, section_bytes_max)
        value, end = decoding.decode(payload, value_at)
        if code == HEADER:
            header = from_described(Described(Ulong(HEADER), value))
        elif not isinstance(value, dict):
            raise malformed("invalid annotations; expected a map")
        elif code == DELIVERY_ANNOTATIONS:
            delivery_annotations = value
        else:
            annotations = (at, end)
        at = end
    return Sections(header, delivery_annotations, annotations, at)


def to_of(payload: bytes, section_bytes_max: int = SECTION_BYTES_MAX) -> Any:
    """The field `to` of the properties, None where there is none. Raises RemoteProtocolError as `split` does; the
    properties are decoded, too."""
    at = split(payload, section_bytes_max).bare
    if at >= len(payload):
        return None
    code, value_at = section_at(payload, at)
    if code != PROPERTIES:
        return None
    if value_at < len(payload):
        _check_size(payload, value_at, section_bytes_max)
    value, _ = decoding.decode(payload, value_at)
    return from_described(Described(Ulong(PROPERTIES), value)).to


def count_sections(payload: bytes) -> int:
    """How many sections a whole message has (for the state received, §3.4.1); RemoteProtocolError if it is not a
    message."""
    at = count = 0
    while at < len(payload):
        _, value_at = section_at(payload, at)
        _, at = decoding.decode(payload, value_at)
        count += 1
    return count


@dataclass(slots=True)
class Message:
    """A message in memory. AMQP 1.0 §3.2.

    Its body is one of `data` (one or more binaries), `sequences` (one or more lists) and `value` (any AMQP value, None
    for null), or none of them. Strings as keys of annotations and of the footer are sent as symbols.
    """

    header: Header | None = None
    delivery_annotations: dict[Any, Any] | None = None
    message_annotations: dict[Any, Any] | None = None
    properties: Properties | None = None
    application_properties: dict[str, Any] | None = None
    data: list[bytes] | None = None
    sequences: list[list[Any]] | None = None
    value: Any = MISSING
    footer: dict[Any, Any] | None = None

    def encode(self) -> bytes:
        """The bytes of the message. Raises LocalProtocolError if two bodies are set or a value has no AMQP type."""
        bodies = (self.data is not None) + (self.sequences is not None) + (self.value is not MISSING)
        if bodies > 1:
            raise LocalProtocolError("a message has one body: data, sequences or value")
        out = []
        if self.header is not None:
            out.append(encoding.encode(self.header))
        for code, pairs in (
            (DELIVERY_ANNOTATIONS, self.delivery_annotations),
            (MESSAGE_ANNOTATIONS, self.message_annotations),
        ):
            if pairs is not None:
                out.append(_encoded(code, _symbol_keys(pairs)))
        if self.properties is not None:
            out.append(encoding.encode(self.properties))
        if self.application_properties is not None:
            out.append(_encoded(APPLICATION_PROPERTIES, self.application_properties))
        if self.data is not None:
            out.extend(_encoded(DATA, part) for part in self.data)
        elif self.sequences is not None:
            out.extend(_encoded(SEQUENCE, part) for part in self.sequences)
        elif self.value is not MISSING:
            out.append(_encoded(VALUE, self.value))
        if self.footer is not None:
            out.append(_encoded(FOOTER, _symbol_keys(self.footer)))
        return b"".join(out)

    @staticmethod
    def decode(payload: bytes) -> "Message":
        """Reads the bytes of a message. Raises RemoteProtocolError (`amqp:decode-error`) if they are not a message."""
        message = Message()
        at, size, before, sections = 0, len(payload), HEADER - 1, 0
        while at < size:
            code, value_at = section_at(payload, at)
            if before == FOOTER and code in _BODIES and not message._has_body:
                before = PROPERTIES  # rhea writes the footer first (CLIENTS 41)
            if not (code > before or (code == before and code in (DATA, SEQUENCE))) or (
                code in _BODIES and before in _BODIES and code != before
            ):
                raise malformed("the sections of the message are out of order")
            if code == FOOTER and message.footer is not None:
                raise malformed("the message has two footers")
            sections += 1
            if sections > SECTIONS_MAX:
                raise malformed(f"the message has too many sections; the limit is {SECTIONS_MAX}")
            value, at = decoding.decode(payload, value_at)
            before = code
            message._take(code, value)
        return message

    @property
    def _has_body(self) -> bool:
        return self.data is not None or self.sequences is not None or self.value is not MISSING

    def _take(self, code: int, value: Any) -> None:
        if code == HEADER:
            self.header = from_described(Described(Ulong(HEADER), value))
        elif code == PROPERTIES:
            self.properties = from_described(Described(Ulong(PROPERTIES), value))
        elif code == DATA:
            if not isinstance(value, bytes):
                raise malformed("invalid data section; expected a binary")
            if self.data is None:
                self.data = []
            self.data.append(value)
        elif code == SEQUENCE:
            if not isinstance(value, list):
                raise malformed("invalid sequence section; expected a list")
            if self.sequences is None:
                self.sequences = []
            self.sequences.append(value)
        elif code == VALUE:
            self.value = value
        elif not isinstance(value, dict):
            raise malformed("invalid section of annotations or properties; expected a map")
        elif code == DELIVERY_ANNOTATIONS:
            self.delivery_annotations = value
        elif code == MESSAGE_ANNOTATIONS:
            self.message_annotations = value
        elif code == APPLICATION_PROPERTIES:
            self.application_properties = value
        else:
            self.footer = value

    def body_bytes(self) -> bytes:
        """The data sections joined, or a binary or string value as bytes; `b""` for any other body."""
        if self.data is not None:
            return b"".join(self.data)
        if isinstance(self.value, str):
            return self.value.encode()
        return bytes(self.value) if isinstance(self.value, bytes) else b""


def _encoded(code: int, value: Any) -> bytes:
    return bytes((0x00, 0x53, code)) + encoding.encode(value)


def _symbol_keys(pairs: dict[Any, Any]) -> dict[Any, Any]:
    return {Symbol(key) if type(key) is str else key: value for key, value in pairs.items()}
