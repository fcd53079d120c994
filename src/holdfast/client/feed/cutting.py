"""Bytes into lines, of bounded length.

Rules of this file: pure. A line ends with a line feed; what has none is not a line yet.
"""

from typing import NamedTuple


class Cut(NamedTuple):
    """A line without its end, and the number of bytes up to behind it; `line` is None of one that was too long."""

    line: bytes | None
    end: int


class Cutter:
    """Lines of one stream, of at most `line_bytes_max` bytes. `end` counts the stream's bytes, from `start`."""

    def __init__(self, line_bytes_max: int, start: int = 0) -> None:
        self.line_bytes_max = line_bytes_max
        self._pending = bytearray()
        self._end = start
        self._skips = False

    @property
    def pending(self) -> int:
        """Bytes that came behind the last line's end."""
        return len(self._pending)

    def cut(self, data: bytes) -> list[Cut]:
        """The lines that end in `data`, and one without text for each that is too long, once it is known to be."""
        found: list[Cut] = []
        at = 0
        while (feed := data.find(b"\n", at)) >= 0:
            piece = data[at : feed + 1]
            at = feed + 1
            self._end += len(piece)
            if self._skips:
                self._skips = False
                found.append(Cut(None, self._end))
                continue
            line = bytes(self._pending) + piece if self._pending else piece
            self._pending.clear()
            line = line[:-2] if line.endswith(b"\r\n") else line[:-1]
            found.append(Cut(line if len(line) <= self.line_bytes_max else None, self._end))
        self._end += len(data) - at
        if not self._skips:
            self._pending += data[at:]
            if len(self._pending) > self.line_bytes_max + 1:
                self._pending.clear()
                self._skips = True
        return found

    @property
    def skips(self) -> bool:
        """Whether the line that comes is known to be too long."""
        return self._skips
