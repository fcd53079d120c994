"""How far a file has been read, in a form that survives a crash, a rename and an inode that is used again.

Rules of this file: pure. A place is an inode, an offset behind a line's end, and a mark of the bytes before it: where
those are others now, the file is another one.
"""

import struct
from hashlib import blake2b
from typing import Final, NamedTuple

MARK_OF_BYTES: Final = 1024
"""So many bytes before an offset are marked, or all that there are."""
_PLACE: Final = struct.Struct(">QQQ8s")
PLACE_BYTES: Final = _PLACE.size

FileId = tuple[int, int]
"""Device and inode."""


class Place(NamedTuple):
    """`offset`: the first byte that was not taken. `mark`: `mark_of` the bytes before it."""

    device: int
    inode: int
    offset: int
    mark: bytes

    @property
    def file(self) -> FileId:
        return self.device, self.inode

    def encode(self) -> bytes:
        return _PLACE.pack(self.device, self.inode, self.offset, self.mark)


def decode(data: bytes) -> Place:
    """Raises struct.error for bytes of another length."""
    return Place(*_PLACE.unpack(data))


def mark_of(before: bytes) -> bytes:
    """Of what ends at an offset; its last MARK_OF_BYTES count."""
    return blake2b(before[-MARK_OF_BYTES:], digest_size=8).digest()
