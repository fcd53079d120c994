"""What selectors look into, of an entry (docs/selectors.md).

Rules of this file: pure, but for the first piece of a large message, which is read from the store.
"""

from typing import Final

from holdfast.amqp.wire.extensions import SUBJECT
from holdfast.broker.entries import entry, packed
from holdfast.engine.port import EntryReader
from holdfast.selectors.layouts import MAP_BYTES_MAX, Layouts
from holdfast.selectors.sections import Sections

SUBJECT_FIELD: Final = 3
"""Of the properties (§3.2.4)."""

_PROPERTIES: Final = b"\x00\x53\x73\xc0"
_MAP: Final = b"\x00\x53\x74\xc1"
_LONG_MAP: Final = b"\x00\x53\x74\xd1"


def sections_of(value: bytes, store: EntryReader, layouts: Layouts | None = None, content: bytes = b"") -> Sections:
    """What selectors look into, of an entry; of a large message as far as its first piece has it. `layouts` and
    `content` as `Sections` has them."""
    flags = value[1]
    durable, priority = flags & entry.DURABLE > 0, value[2]
    notes = packed.annotations_of(value) if value[24:28] != b"\0\0\0\0" else None
    if not flags & entry.BLOB:
        return Sections(value, packed.bare_at(value), durable, priority, notes, layouts=layouts, content=content)
    blob, length = entry.blob_of(value)
    piece = store.piece(blob, 0) or b""
    return Sections(piece, 0, durable, priority, notes, whole=len(piece) >= length)


def subject_of(sections: Sections) -> str | None:
    """The subject of a message, or the one that its address gave it; "" if there is none. None if it cannot be read: it
    is not in the first piece of a large message, or no string."""
    found = sections.property_field(SUBJECT_FIELD)
    if found is None:
        found = sections.annotation(SUBJECT)
    return "" if found is None else found if isinstance(found, str) else None


def usual_properties(value: bytes) -> bytes:
    """The map of an entry's application properties, if it is where most clients have it: first in the bare message, or
    behind properties that are a short list. b"" if it is not, or is longer than MAP_BYTES_MAX."""
    if value[1] & entry.BLOB:
        return b""
    at = packed.bare_at(value)
    try:
        if value[at : at + 4] == _PROPERTIES:
            at += 5 + value[at + 4]
        head = value[at : at + 4]
        if head == _MAP:
            return value[at + 3 : at + 5 + value[at + 4]]
    except IndexError:
        return b""
    if head != _LONG_MAP:
        return b""
    size = 5 + int.from_bytes(value[at + 4 : at + 8], "big")
    return value[at + 3 : at + 3 + size] if size <= MAP_BYTES_MAX else b""
