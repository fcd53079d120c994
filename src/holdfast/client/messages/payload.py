"""A message's bytes as the client cuts them: what it sends, and what it must know of a delivery at once.

Rules of this file: pure; the short forms that a node writes are read by hand, everything else by the codec, and a
property test holds both together. Annotations: `x-opt-sequence-number` (ulong), `x-opt-enqueued-time` (timestamp)
of a delivery, `x-opt-holdfast-number` (ulong) of a named producer's message (AMQP 1.0 §3.2.3).
"""

from struct import Struct
from typing import Any, Final, NamedTuple
from uuid import UUID

from holdfast.amqp.message.message import Message, split
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.decoding import decode
from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.extensions import NUMBER, ORIGIN, PATH
from holdfast.amqp.wire.performatives import Header
from holdfast.amqp.wire.types import MISSING, Described, Symbol, Timestamp, Ulong
from holdfast.client.messages.compose import of_body
from holdfast.errors import ConfigError, LocalProtocolError, RemoteProtocolError

SEQUENCE: Final = Symbol("x-opt-sequence-number")
ENQUEUED: Final = Symbol("x-opt-enqueued-time")

_NUMBER_KEY: Final = b"\xa3\x15x-opt-holdfast-number\x80"
_NUMBER_SECTION: Final = Struct(f">3sBBB{len(_NUMBER_KEY)}sQ")
_DURABLE: Final = b"\x00\x53\x70\xc0\x02\x01\x41"
_DURABLE_HEADER: Final = Header(durable=True)
_DATA8: Final = b"\x00\x53\x75\xa0"
DATA32: Final = b"\x00\x53\x75\xb0"
_TEXT8: Final = b"\x00\x53\x77\xa1"
_TEXT32: Final = b"\x00\x53\x77\xb1"
_VALUE: Final = b"\x00\x53\x77"
ANNOTATIONS32: Final = b"\x00\x53\x72\xd1"
SEQUENCE_KEY: Final = b"\xa3\x15x-opt-sequence-number\x80"
ENQUEUED_KEY: Final = b"\xa3\x13x-opt-enqueued-time\x83"
_FIRST_KEY_AT: Final = len(ANNOTATIONS32) + 8  # size and count
_FIRST_VALUE_AT: Final = _FIRST_KEY_AT + len(SEQUENCE_KEY)
_PAIR: Final = Struct(f">Q{len(ENQUEUED_KEY)}sq")
_PAIR_END: Final = _FIRST_VALUE_AT + _PAIR.size


def is_placed(annotations: dict[Any, Any]) -> bool:
    """Whether the two that a node writes of every delivery are all: so are those of most messages."""
    return (
        len(annotations) == 2
        and type(annotations.get(SEQUENCE)) is Ulong
        and type(annotations.get(ENQUEUED)) is Timestamp
    )


class Way(NamedTuple):
    """Where a message from another node comes from: its origin's store and its number from there, and the nodes that it
    passed. None: the annotation is missing."""

    origin: UUID | None
    number: int | None
    path: list[str] | None


NO_WAY: Final = Way(None, None, None)


def way_of(annotations: dict[Any, Any] | None) -> Way:
    """Set if the reader asked for paths (docs/amqp.md, "Paths")."""
    if annotations is None or PATH not in annotations:
        return NO_WAY
    origin, number, path = annotations.get(ORIGIN), annotations.get(NUMBER), annotations.get(PATH)
    return Way(
        origin if isinstance(origin, UUID) else None,
        int(number) if isinstance(number, int) and 0 < number < 2**63 else None,
        [str(name) for name in path] if isinstance(path, list) else None,
    )


class Cut(NamedTuple):
    """A message as it is sent: `head` (header and delivery annotations), annotations as a map, the bare message."""

    head: bytes
    annotations: dict[Any, Any] | None
    bare: bytes

    def parts(self, number: int | None) -> tuple[bytes, ...]:
        """What goes out, in order, with the producer's `number` if it has one."""
        if number is None:
            if self.annotations is None:
                return (self.head, self.bare)
            return (self.head, Message(message_annotations=self.annotations).encode(), self.bare)
        if self.annotations is None:
            return (self.head, number_section(number), self.bare)
        told = {**self.annotations, NUMBER: Ulong(number)}
        return (self.head, Message(message_annotations=told).encode(), self.bare)


def number_section(number: int) -> bytes:
    """A message-annotations section that holds the producer's number alone."""
    size = 1 + len(_NUMBER_KEY) + 8
    return _NUMBER_SECTION.pack(b"\x00\x53\x72", 0xC1, size, 2, _NUMBER_KEY, number)


def cut(message: Message | object) -> Cut:
    """`message` ready to be sent. A body becomes a durable message: bytes one data section, all else one AMQP value.

    Raises ConfigError for a body that AMQP cannot carry.
    """
    if isinstance(message, bytes):
        return Cut(_DURABLE, None, _sized(_DATA8, DATA32, message))
    if not isinstance(message, Message):
        return Cut(_DURABLE, None, _body_of(message))
    head = b""
    if message.header == _DURABLE_HEADER and message.delivery_annotations is None:
        head = _DURABLE
    elif message.header is not None or message.delivery_annotations is not None:
        head = Message(header=message.header, delivery_annotations=message.delivery_annotations).encode()
    if _is_one_section(message):
        assert message.data is not None
        return Cut(head, message.message_annotations or None, _sized(_DATA8, DATA32, message.data[0]))
    bare = Message(
        properties=message.properties,
        application_properties=message.application_properties,
        data=message.data,
        sequences=message.sequences,
        value=message.value,
        footer=message.footer,
    ).encode()
    return Cut(head, message.message_annotations or None, bare)


def _is_one_section(message: Message) -> bool:
    """Whether the bare message is one data section."""
    return (
        message.data is not None
        and len(message.data) == 1
        and type(message.data[0]) is bytes
        and message.properties is None
        and message.application_properties is None
        and message.sequences is None
        and message.footer is None
        and message.value is MISSING
    )


def whole(message: Message | object) -> Message:
    """`message`, or a durable one with this body."""
    return message if isinstance(message, Message) else of_body(message)


def _sized(short: bytes, long: bytes, data: bytes) -> bytes:
    size = len(data)
    return b"".join((short, bytes((size,)), data) if size < 256 else (long, size.to_bytes(4, "big"), data))


def _body_of(body: object) -> bytes:
    """The body section of what is not bytes."""
    if type(body) is str:
        return _sized(_TEXT8, _TEXT32, body.encode())
    if isinstance(body, bytearray | memoryview):
        return _sized(_DATA8, DATA32, bytes(body))
    try:
        return _VALUE + encode(body)
    except LocalProtocolError as error:
        expected = "bytes, str, int, float, bool, None, UUID, or a list or dict of these"
        raise ConfigError(f"invalid body ({error}); expected {expected}") from None


def cut_payload(payload: bytes) -> Cut:
    """An encoded message (from the spool) as it was cut before."""
    sections = split(payload)
    first, last = sections.annotations
    if first == last:
        return Cut(payload[: sections.bare], None, payload[sections.bare :])
    return Cut(payload[:first], _annotations(payload, first), payload[last:])


def placed(payload: bytes) -> tuple[int, int]:
    """(sequence, enqueued time in ms since the epoch) of a delivery; 0 for missing annotations.

    Bytes that are no message tell nothing either: whoever decodes them learns of it.
    """
    at = payload[4] + 5 if payload[:4] == b"\x00\x53\x70\xc0" and len(payload) > 4 else 0
    if (
        payload[at : at + 4] == ANNOTATIONS32
        and payload[at + _FIRST_KEY_AT : at + _FIRST_VALUE_AT] == SEQUENCE_KEY
        and len(payload) >= at + _PAIR_END
    ):
        sequence, key, enqueued_ms = _PAIR.unpack_from(payload, at + _FIRST_VALUE_AT)
        if key == ENQUEUED_KEY:
            return sequence, enqueued_ms
    return _placed_slowly(payload)


def _placed_slowly(payload: bytes) -> tuple[int, int]:
    try:
        first, last = split(payload).annotations
        if first == last:
            return 0, 0
        fields = _annotations(payload, first)
    except RemoteProtocolError:
        return 0, 0
    sequence, enqueued_ms = fields.get(SEQUENCE), fields.get(ENQUEUED)
    return (
        sequence if isinstance(sequence, int) else 0,
        enqueued_ms if isinstance(enqueued_ms, int) else 0,
    )


def _annotations(payload: bytes, at: int) -> dict[Any, Any]:
    section, _ = decode(payload, at)
    fields = section.value if isinstance(section, Described) else None
    if not isinstance(fields, dict):
        raise RemoteProtocolError(conditions.DECODE_ERROR, "message-annotations are no map")
    return fields
