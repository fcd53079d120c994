"""The hot path of a client's messages: what is stored of a run whose messages have a header and no annotations.

Rules of this file: the same as of one message alone (`producer.py`), from the bytes as they came; a message that needs
more ends the run. A header is parsed once, and a beginning that was seen in the run is looked up.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from holdfast.amqp.message.expiry import expiry_of_whole
from holdfast.amqp.message.framing import data_starts, fault
from holdfast.amqp.message.message import BARE_STARTS, split
from holdfast.broker.entries import entry
from holdfast.broker.entries.annotate import VIEWED_BYTES
from holdfast.errors import RemoteProtocolError

PLAIN_HEADERS_MAX: Final = 64
"""Different headers that a link remembers."""

DATA_HEAD_BYTES: Final = 8
LONG_BYTES: Final = DATA_HEAD_BYTES + 256
"""Bytes before the data of a data section of 256 bytes and more, and of the least of these."""

HEADED_BYTES: Final = 5 + DATA_HEAD_BYTES
"""The same behind a header in the usual encoding, without the bytes that its fifth byte counts."""


class PlainHeader(NamedTuple):
    """A header that an entry keeps in its fixed part. `encoded`: as it was sent; `starts`: how payloads with it
    begin."""

    encoded: bytes
    starts: tuple[bytes, ...]
    durable: bool
    priority: int

    def head(self, heads: dict[bytes, bytes], wall_ms: int, message_format: int) -> bytes:
        """The part of an entry before its bare message; `heads` has those of this run."""
        head = heads.get(self.encoded)
        if head is None:
            head = heads[self.encoded] = entry.plain_head(self.durable, self.priority, wall_ms, message_format)
        return head


NO_PLAIN_HEADER: Final = PlainHeader(b"", (), False, entry.PRIORITY_DEFAULT)


def header_of(payload: bytes) -> bytes | None:
    """The header section (§3.2.1) at the beginning of a payload, in the usual encoding; b"" if it has none; None if
    only the codec can tell."""
    if payload[:3] != b"\x00\x53\x70":
        return b"" if payload[:2] == b"\x00\x53" else None
    if payload[3:4] != b"\xc0":
        return None
    return payload[: 5 + payload[4]] if len(payload) > 4 else None


class PlainRuns:
    """Of one link."""

    __slots__ = ("_annotation_bytes_max", "_headers", "_last")

    def __init__(self, annotation_bytes_max: int) -> None:
        self._annotation_bytes_max = annotation_bytes_max
        self._last = NO_PLAIN_HEADER
        """The header of the last message."""
        self._headers: dict[bytes, PlainHeader] = {}
        """The headers of earlier messages, by their encoding."""

    def values(self, payloads: Sequence[bytes], wall_ms: int, message_format: int) -> list[bytes]:
        """The entries of these messages, up to the first that is not plain."""
        plain = self._last
        at, starts = len(plain.encoded), plain.starts
        heads: dict[bytes, bytes] = {}
        head = plain.head(heads, wall_ms, message_format)
        values = []
        size, whole = -1, starts
        seen: dict[bytes, tuple[int, bytes, int]] = {}
        """By the first bytes of messages of one data section behind a header: their size, and as `mine` and `end`."""
        for payload in payloads:
            length, mine, end = len(payload), head, at
            if length != size or not payload.startswith(whole):
                known = seen.get(payload[: HEADED_BYTES + payload[4]]) if length > 4 else None
                if known is not None and known[0] == length:
                    mine, end = known[1:]
                else:
                    if not payload.startswith(starts):
                        plain = self._header(payload)
                        at, starts, size = len(plain.encoded), plain.starts, -1
                        head = plain.head(heads, wall_ms, message_format)
                    if length != size:
                        size = length
                        whole = data_starts(plain.encoded, length) if starts else ()
                    if payload.startswith(whole):
                        if length >= at + LONG_BYTES:
                            seen[payload[: at + DATA_HEAD_BYTES]] = length, head, at
                    elif not payload.startswith(starts) or fault(payload, at) or expiry_of_whole(payload, at):
                        break
                    mine, end = head, at
            # A slice of a large one would be one more copy of it.
            values.append(mine + payload[end:] if length < VIEWED_BYTES else mine + memoryview(payload)[end:])
        self._last = plain
        return values

    def _header(self, payload: bytes) -> PlainHeader:
        """The header before a bare message, if it is plain; parsed once and remembered."""
        headers = self._headers
        encoded = header_of(payload)
        known = None if encoded is None else headers.get(encoded)
        if known is not None and payload.startswith(known.starts):
            return known
        found = self._learn(payload)
        if encoded is not None and encoded == found.encoded and found.starts:
            if len(headers) >= PLAIN_HEADERS_MAX:
                headers.clear()
            headers[encoded] = found
        return found

    def _learn(self, payload: bytes) -> PlainHeader:
        try:
            sections = split(payload, self._annotation_bytes_max)
        except RemoteProtocolError:
            return NO_PLAIN_HEADER
        header = sections.header
        if sections.annotations[1] or sections.delivery_annotations is not None:
            return NO_PLAIN_HEADER
        if header is not None and header.ttl is not None:
            return NO_PLAIN_HEADER
        encoded = payload[: sections.bare]
        return PlainHeader(
            encoded,
            tuple([encoded + code for code in BARE_STARTS]),
            header is not None and header.durable,
            entry.PRIORITY_DEFAULT if header is None else header.priority,
        )
