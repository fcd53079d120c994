"""What selectors look into, of an entry (docs/selectors.md).

Rules of this file: pure, but for the first piece of a large message, which is read from the store.
"""

from typing import Final

from holdfast.broker.entries import entry, packed
from holdfast.engine.port import EntryReader
from holdfast.selectors.layouts import Layouts
from holdfast.selectors.sections import Sections

SUBJECT_FIELD: Final = 3
"""Of the properties (§3.2.4)."""


def sections_of(value: bytes, store: EntryReader, layouts: Layouts | None = None) -> Sections:
    """What selectors look into, of an entry; of a large message as far as its first piece has it. `layouts` as
    `Sections` has it."""
    flags = value[1]
    durable, priority = flags & entry.DURABLE > 0, value[2]
    notes = packed.annotations_of(value) if value[24:28] != b"\0\0\0\0" else None
    if not flags & entry.BLOB:
        return Sections(value, packed.bare_at(value), durable, priority, notes, layouts=layouts)
    blob, length = entry.blob_of(value)
    piece = store.piece(blob, 0) or b""
    return Sections(piece, 0, durable, priority, notes, whole=len(piece) >= length)
