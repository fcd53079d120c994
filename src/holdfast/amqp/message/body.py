"""A message that is read while its bytes arrive: the sections before its body, then the body, piece by piece. AMQP 1.0
§3.2.

Rules of this file: memory holds the head, at most HEAD_BYTES_MAX, and nothing of the body, which is handed out as it is
fed. A body must be data sections, or one binary or text value; other kinds are refused.
"""

from typing import Final

from holdfast.amqp.message.message import (
    COMPOUNDS,
    DATA,
    FOOTER,
    HEADER,
    PROPERTIES,
    SECTION_SYMBOLS,
    SECTIONS_MAX,
    VALUE,
    Message,
    malformed,
)
from holdfast.amqp.wire import conditions
from holdfast.errors import RemoteProtocolError
from holdfast.units import MIB

HEAD_BYTES_MAX: Final = MIB
"""Header, annotations and properties together; a footer likewise."""

_BINARY: Final = {0xA0: 1, 0xB0: 4}
_TEXT: Final = {0xA1: 1, 0xB1: 4}


class _Incomplete(Exception):
    """More bytes are needed."""


class BodyReader:
    """One message. `feed` takes its bytes, `end` follows the last; `head` is the message without body and footer."""

    def __init__(self) -> None:
        self.head: Message | None = None
        """None until the body begins, or the message ends."""
        self.head_bytes = b""
        """The sections of the head as they arrived; if the message turned out to be invalid, those that were
        complete."""
        self._pending = bytearray()
        self._left = 0
        """Bytes of the body's section that are still to come."""
        self._before = HEADER - 1
        self._sections = 0
        self._has_body = self._has_footer = False
        self._at = 0
        """In `_pending`: behind the last section of the head that is whole."""

    def feed(self, data: bytes) -> list[bytes]:
        """The pieces of the body in `data`. RemoteProtocolError (decode-error, not-implemented) if the message cannot
        be read."""
        if self._left >= len(data) and not self._pending:
            self._left -= len(data)
            return [data] if data else []
        self._pending += data
        pieces: list[bytes] = []
        try:
            while self._pending:
                if self._left:
                    piece = bytes(self._pending[: self._left])
                    del self._pending[: len(piece)]
                    self._left -= len(piece)
                    pieces.append(piece)
                else:
                    self._next_section()
        except RemoteProtocolError:
            if self.head is None:
                self.head_bytes = bytes(self._pending[: self._at])
            raise
        except _Incomplete:
            if len(self._pending) > HEAD_BYTES_MAX:
                text = f"the sections other than the body are too large; the limit is {HEAD_BYTES_MAX} bytes"
                raise RemoteProtocolError(conditions.RESOURCE_LIMIT_EXCEEDED, text) from None
        return pieces

    def end(self) -> None:
        """The message is complete. RemoteProtocolError in the middle of a section."""
        if self._left or self._at < len(self._pending):
            raise malformed("the message ends in the middle of a section")
        if self.head is None:
            self._begin_body()

    def _next_section(self) -> None:
        """Removes the start of the next section from `_pending`; a section of the head stays until the body begins."""
        code, at = self._descriptor(self._at)
        constructor = self._byte(at)
        if self._sections >= SECTIONS_MAX:
            raise malformed(f"the message has too many sections; the limit is {SECTIONS_MAX}")
        if self._before == FOOTER and code in (DATA, VALUE) and not self._has_body:
            self._before = PROPERTIES  # rhea writes the footer first (CLIENTS 41)
        repeated = code == self._before == DATA
        if not (repeated or code > self._before) or (self._before == DATA < code < FOOTER):
            raise malformed("the sections of the message are out of order")
        if code < DATA or code == FOOTER:
            if code == FOOTER and self._has_footer:
                raise malformed("the message has two footers")
            if constructor not in COMPOUNDS:
                raise malformed("invalid section other than the body; expected a list or a map")
            width, _ = COMPOUNDS[constructor]
            end = at + 1 + width + self._size(at + 1, width)
            if end > len(self._pending):
                raise _Incomplete
            if code == FOOTER:
                self._has_footer = True
                end -= self._at
                self._begin_body()
                del self._pending[:end]
            else:
                self._at = end
        else:
            width = _BINARY.get(constructor, 0)
            if code == VALUE and not width:
                width = _TEXT.get(constructor, 0)
            if not width:
                if code == DATA:
                    raise malformed("invalid data section; expected a binary")
                text = "this body cannot be read in parts; expected data sections, or a value that is binary or text"
                raise RemoteProtocolError(conditions.NOT_IMPLEMENTED, text)
            size = self._size(at + 1, width)
            start = at + 1 + width - self._at
            self._begin_body()
            del self._pending[:start]
            self._left = size
            self._has_body = True
        self._sections += 1
        self._before = code

    def _begin_body(self) -> None:
        if self.head is None:
            self.head_bytes = bytes(self._pending[: self._at])
            self.head = Message.decode(self.head_bytes)
            del self._pending[: self._at]
            self._at = 0

    def _descriptor(self, at: int) -> tuple[int, int]:
        """(section code, offset of its value's constructor)."""
        if self._byte(at) != 0:
            raise malformed("a section of the message does not begin with a descriptor")
        form = self._byte(at + 1)
        if form == 0x53:
            code, end = self._byte(at + 2), at + 3
        elif form == 0x80:
            code, end = self._size(at + 2, 8), at + 10
        elif form in (0xA3, 0xB3):
            width = 1 if form == 0xA3 else 4
            size = self._size(at + 2, width)
            if size > 64:
                raise malformed("invalid descriptor of a section of the message")
            end = at + 2 + width + size
            if end > len(self._pending):
                raise _Incomplete
            code = SECTION_SYMBOLS.get(str(self._pending[end - size : end], "ascii", "replace"), 0)
        else:
            code, end = 0, 0
        if not HEADER <= code <= FOOTER:
            raise malformed("invalid descriptor of a section of the message")
        return code, end

    def _byte(self, at: int) -> int:
        if at >= len(self._pending):
            raise _Incomplete
        return self._pending[at]

    def _size(self, at: int, width: int) -> int:
        if at + width > len(self._pending):
            raise _Incomplete
        return int.from_bytes(self._pending[at : at + width], "big")
