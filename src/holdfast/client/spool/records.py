"""The records of a spool's file: how each is encoded, and how they are read up to the end or the first damage.

Rules of this file: no file is opened or written here.

The file is MAGIC, then records. A record is a length and a CRC-32 (4 bytes each, big-endian), and as many bytes of
content: a kind, then its body. BASE says in JSON whose spool it is and how its messages are numbered; the last one
counts. MESSAGE is a message's place in the spool and its payload. DONE is the first and the last place of a range of
messages that have their outcome. A place is 8 bytes, big-endian.
"""

import struct
from collections.abc import Callable, Generator
from typing import Final
from zlib import crc32

MAGIC: Final = b"holdfast spool 1\n"
BASE: Final = b"B"
MESSAGE: Final = b"M"
DONE: Final = b"D"

RECORD_BYTES_MAX: Final = 2**32 - 1
"""The longest content whose length can be encoded."""
READ_BYTES: Final = 256 * 1024
"""What is read of a file at once."""

_FRAME: Final = struct.Struct(">II")
_PLACE: Final = struct.Struct(">Q")
_RANGE: Final = struct.Struct(">QQ")

FRAME_BYTES: Final = _FRAME.size
"""Of each record, beside its content."""


def encode(content: bytes) -> bytes:
    """A record of `content`, which begins with its kind."""
    return _FRAME.pack(len(content), crc32(content)) + content


def encode_message(place: int, payload: bytes) -> bytes:
    """A record of a message."""
    return encode(MESSAGE + _PLACE.pack(place) + payload)


def message_bytes(payload_bytes: int) -> int:
    """Bytes of a message's record."""
    return FRAME_BYTES + len(MESSAGE) + _PLACE.size + payload_bytes


def encode_done(first: int, last: int) -> bytes:
    """A record of a range of messages that have their outcome."""
    return encode(DONE + _RANGE.pack(first, last))


def place_of(content: bytes) -> int:
    """The place in a message's content."""
    return int(_PLACE.unpack_from(content, 1)[0])


def payload_of(content: bytes) -> bytes:
    """The payload in a message's content."""
    return content[1 + _PLACE.size :]


def range_of(content: bytes) -> tuple[int, int]:
    """(first, last) in the content of a DONE record."""
    first, last = _RANGE.unpack(content[1:])
    return first, last


def read(read_bytes: Callable[[int, int], bytes], start: int, end: int) -> Generator[tuple[int, bytes], None, int]:
    """Yields (offset, content) of each record in [start, end), up to one that is damaged or incomplete. Returns the
    offset at which it ended. `read_bytes` takes an offset and a length.
    """
    while start < end:
        chunk = read_bytes(start, min(READ_BYTES, end - start))
        offset = 0
        while offset + FRAME_BYTES <= len(chunk):
            length, checksum = _FRAME.unpack_from(chunk, offset)
            after = offset + FRAME_BYTES + length
            if length < 1 or start + after > end:
                break
            if after > len(chunk):
                if offset:
                    break  # begins the next chunk
                chunk = read_bytes(start, after)
            content = chunk[offset + FRAME_BYTES : after]
            if crc32(content) != checksum:
                break
            yield start + offset, content
            offset = after
        if not offset:
            return start
        start += offset
    return start
