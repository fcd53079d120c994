"""Message-ids of all four types, found in bare messages without decoding them (AMQP 1.0 §3.2.4, §3.2.11).

Rules of this file: pure. A message-id is compared by type and value, in any encoding; it is the first field of the
properties, which are the first section of a bare message.
"""

from typing import Any, Final
from uuid import UUID

from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.types import Symbol, Ulong

MessageId = str | int | UUID | bytes

ID_BYTES_MAX: Final = 512
"""A message-id that is asked for, in UTF-8."""

HEAD_BYTES: Final = ID_BYTES_MAX + 64
"""Of a bare message, what holds such an id."""

_PROPERTIES: Final = (b"\x00\x53\x73", b"\x00\x80\0\0\0\0\0\0\0\x73", b"\x00" + encode(Symbol("amqp:properties:list")))


def checked(value: Any) -> MessageId | None:
    """`value`, as decoded from AMQP, if it is a message-id that may be searched for; otherwise None."""
    if isinstance(value, str):
        return str(value) if len(value.encode("utf-8", "replace")) <= ID_BYTES_MAX else None
    if isinstance(value, bytes):
        return value if len(value) <= ID_BYTES_MAX else None
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value) if 0 <= value < 2**64 else None
    return value if isinstance(value, UUID) else None


def encodings(message_id: MessageId) -> list[bytes]:
    """All its encodings; none of them is a prefix of another message-id's."""
    if isinstance(message_id, UUID):
        return [b"\x98" + message_id.bytes]
    if isinstance(message_id, int):
        ways = [b"\x80" + message_id.to_bytes(8, "big")]
        if message_id < 256:
            ways.append(bytes((0x53, message_id)))
        return [*ways, b"\x44"] if message_id == 0 else ways
    data = message_id.encode("utf-8", "replace") if isinstance(message_id, str) else message_id
    short, long = (b"\xa1", b"\xb1") if isinstance(message_id, str) else (b"\xa0", b"\xb0")
    ways = [long + len(data).to_bytes(4, "big") + data]
    return [short + bytes((len(data),)) + data, *ways] if len(data) < 256 else ways


def as_sent(message_id: MessageId) -> Any:
    """As the codec takes it."""
    return Ulong(message_id) if isinstance(message_id, int) else message_id


def first_field(head: bytes) -> bytes:
    """The beginning of a bare message from its message-id on; empty if it has no properties."""
    for start in _PROPERTIES:
        if head.startswith(start):
            at = len(start)
            return (
                head[at + 3 :]
                if head[at : at + 1] == b"\xc0"
                else head[at + 9 :]
                if head[at : at + 1] == b"\xd0"
                else b""
            )
    return b""
