"""The body of a message that is sent in parts: where it is read from, and the data sections that it becomes.

Rules of this file: memory holds a part; what may wait (a file, an ordinary iterable) is read in a thread, one read at
a time. Source: AMQP 1.0 §3.2.6.
"""

import asyncio
import io
import stat
import threading
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from holdfast.client.errors import BodyGone, unreadable
from holdfast.errors import ConfigError
from holdfast.units import KIB, MIB

Opened = Path | Iterable[bytes] | AsyncIterable[bytes]
Parts = Opened | Callable[[], Opened]
"""A file, bytes as they come, or a function that returns one of these as often as it is asked."""

PART_BYTES: Final = 256 * KIB
"""What is read at once; smaller items of an iterable are joined up to it."""

SECTION_BYTES: Final = MIB
"""Of a body whose size is not known each part is a section of its own, of about so many bytes."""

SECTION_BYTES_MAX: Final = 0xFFFFFFFF
_HEAD_BYTES: Final = 8


class Body:
    """One body. `size` in bytes, None where it is not known before its end. Raises ConfigError for no such file."""

    def __init__(self, parts: Parts, size: int | None = None) -> None:
        if size is not None and size < 0:
            raise ConfigError(f"invalid value {size} for size; expected at least 0")
        self._parts = parts
        self._begun = False
        if isinstance(parts, Path):
            try:
                found = parts.stat()
            except OSError as error:
                raise unreadable(parts, error) from None
            if size is None:
                if not stat.S_ISREG(found.st_mode):
                    raise ConfigError(f"{parts} is no regular file; give one, or the size of the body")
                size = found.st_size
        self.size = size

    def length(self, head_bytes: int) -> int | None:
        """Bytes of the whole message, whose sections before the body have `head_bytes`."""
        if self.size is None:
            return None
        return head_bytes + self.size + _HEAD_BYTES * max(1, -(-self.size // SECTION_BYTES_MAX))

    async def sections(self) -> AsyncGenerator[bytes, None]:
        """The encoded body from its beginning, in pieces of about PART_BYTES.

        Raises BodyGone where it cannot begin anew, ConfigError where `size` turns out to be another, and what reading
        raises.
        """
        left, in_section = self.size, 0
        is_empty = not self.size
        async for part in self._read():
            if left is None:
                for at in range(0, len(part), SECTION_BYTES_MAX):
                    piece = part[at : at + SECTION_BYTES_MAX]
                    yield _section(len(piece)) + piece
                is_empty = False
                continue
            if len(part) > left:
                raise self._wrong_size("more")
            at = 0
            while at < len(part):
                head = b""
                if not in_section:
                    in_section = min(left, SECTION_BYTES_MAX)
                    head = _section(in_section)
                piece = part[at : at + in_section]
                at += len(piece)
                left -= len(piece)
                in_section -= len(piece)
                yield head + piece
        if left:
            raise self._wrong_size(f"{(self.size or 0) - left}")
        if is_empty:
            yield _section(0)

    def _wrong_size(self, count: str) -> ConfigError:
        what = f"{self._parts}" if isinstance(self._parts, Path) else "body"
        return ConfigError(f"{what} has {count} bytes; expected {self.size}, the size that was given")

    async def _read(self) -> AsyncGenerator[bytes, None]:
        """The body's bytes; none of the parts is empty."""
        parts = self._parts
        if callable(parts):
            parts = parts()
        elif not isinstance(parts, Path):
            if self._begun:
                raise BodyGone("body is an iterator that was begun; give a function that returns a new one")
            self._begun = True
        size = SECTION_BYTES if self.size is None else PART_BYTES
        if isinstance(parts, Path):
            file = await asyncio.to_thread(_File, parts)
            try:
                while part := await asyncio.to_thread(file.read, size):
                    yield part
            finally:
                file.close()
        elif isinstance(parts, AsyncIterable):
            joined = bytearray()
            async for item in parts:
                joined += _checked(item)
                if len(joined) >= size:
                    yield bytes(joined)
                    joined.clear()
            if joined:
                yield bytes(joined)
        else:
            items = iter(parts)
            while part := await asyncio.to_thread(_joined, items, size):
                yield part


class _File:
    """A file that one thread reads and another closes, which waits for no read."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = io.FileIO(path)
        except OSError as error:
            raise unreadable(path, error) from None
        self._lock = threading.Lock()
        self._closing = False

    def read(self, size: int) -> bytes:
        """b"" at the end."""
        try:
            with self._lock:
                return b"" if self._closing else self._file.read(size) or b""
        finally:
            if self._closing:
                self._file.close()

    def close(self) -> None:
        self._closing = True
        if self._lock.acquire(blocking=False):  # else who reads closes it
            self._file.close()
            self._lock.release()


def _section(size: int) -> bytes:
    """The start of a data section of `size` bytes."""
    return b"\x00\x53\x75\xb0" + size.to_bytes(4, "big")


def _joined(items: Iterator[bytes], size: int) -> bytes:
    joined = bytearray()
    while len(joined) < size:
        try:
            joined += _checked(next(items))
        except StopIteration:
            break
    return bytes(joined)


def _checked(item: object) -> bytes:
    if not isinstance(item, bytes | bytearray | memoryview):
        raise ConfigError(f"invalid {type(item).__name__} in body; expected bytes")
    return bytes(item)
