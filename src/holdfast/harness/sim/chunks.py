"""What crosses a simulated link: bytes or decoded frames, whole or in part, and how writes are cut.

Rules of this file: bytes and decoded frames of one write are cut at the same places, so that both depths are one run.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

Chunks = Sequence[Any]

END_OF_STREAM: Final[tuple[bytes, ...]] = (b"FIN!" * 10,)
"""A segment that stands for the end of the stream; 40 bytes, as a FIN's packet has."""


class Part:
    """Some bytes of a decoded frame: `frame` where they are its last, and it is whole with them."""

    __slots__ = ("frame", "size")

    def __init__(self, size: int, frame: Any) -> None:
        self.size = size
        self.frame = frame

    def __len__(self) -> int:
        return self.size


def whole(chunks: list[Any]) -> list[Any]:
    """The decoded frames that are whole with these chunks. Only the first and the last of them may be parts."""
    if not (isinstance(chunks[0], Part) or isinstance(chunks[-1], Part)):
        return chunks
    frames = [chunk.frame if isinstance(chunk, Part) else chunk for chunk in chunks]
    return [frame for frame in frames if frame is not None]


def head_of(chunks: Chunks, size: int, *, decoded: bool) -> list[Any]:
    """The first `size` bytes."""
    found: list[Any] = []
    for chunk in chunks:
        found.append(chunk if len(chunk) <= size else _cut(chunk, 0, size, decoded=decoded))
        if len(chunk) >= size:
            break
        size -= len(chunk)
    return found


def cut_anywhere(chunks: Chunks, next_size: Callable[[], int], *, decoded: bool) -> list[list[Any]]:
    """The chunks in pieces of the sizes that `next_size` gives, cut at any byte; the same of bytes and of decoded
    frames."""
    pieces: list[list[Any]] = []
    piece: list[Any] = []
    left = next_size()
    # Bytes come before the first frame, several frames of SASL in one chunk.
    for chunk in _units_of(chunks) if decoded else chunks:
        at, size = 0, len(chunk)
        while size - at >= left:
            piece.append(_cut(chunk, at, at + left, decoded=decoded))
            at += left
            pieces.append(piece)
            piece, left = [], next_size()
        if at < size:
            piece.append(_cut(chunk, at, size, decoded=decoded))
            left -= size - at
    if piece:
        pieces.append(piece)
    return pieces


def _cut(chunk: Any, start: int, end: int, *, decoded: bool) -> Any:
    """Those bytes of the chunk."""
    if end - start == len(chunk):
        return chunk
    if not decoded:
        return chunk[start:end]
    frame = chunk.frame if isinstance(chunk, Part) else chunk
    return Part(end - start, frame if end == len(chunk) else None)


def cut_at_frames(chunks: Chunks, most: int) -> list[list[Any]]:
    """The chunks as segments of about `most` bytes, cut between AMQP frames (AMQP 1.0 §2.3.1): whole frames are
    gathered until one reaches `most`. Bytes and decoded frames of one write are cut at the same places."""
    segments: list[list[Any]] = [[]]
    size = 0
    for unit in _units_of(chunks):
        if size >= most:
            segments.append([])
            size = 0
        segments[-1].append(unit)
        size += len(unit)
    return segments


def _units_of(chunks: Chunks) -> list[Any]:
    """The frames one by one, those in bytes too."""
    units: list[Any] = []
    pending = bytearray()
    for chunk in chunks:
        if isinstance(chunk, (bytes, bytearray, memoryview)):
            pending += chunk
            continue
        units += _frames_of(pending)
        pending = bytearray()
        units.append(chunk)
    return units + _frames_of(pending)


def _frames_of(data: bytearray) -> list[bytes]:
    found = []
    at = 0
    while at < len(data):
        size = 8 if data[at : at + 4] == b"AMQP" else int.from_bytes(data[at : at + 4], "big")
        found.append(bytes(data[at : at + max(size, 8)]))
        at += max(size, 8)
    return found
