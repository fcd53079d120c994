"""Protocol headers and frames. AMQP 1.0 §2.2, §2.3, §5.3.1.

Rules of this file: bytes only, no state. A frame is size (4 bytes, itself included), data offset (in words of
4 bytes), type, channel, then the body.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from holdfast.amqp.wire import conditions, encoding
from holdfast.amqp.wire.performatives import Error, Modified, Rejected
from holdfast.amqp.wire.types import Symbol
from holdfast.errors import RemoteProtocolError

AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
HEADER_BYTES: Final = 8

AMQP_FRAME: Final = 0
SASL_FRAME: Final = 1

FRAME_SIZE_MIN: Final = 512
"""Every peer takes frames of this size (§2.8.19)."""
SASL_FRAME_SIZE_MAX: Final = 8192
"""The specification says 512; tokens used as passwords are longer."""

EMPTY_FRAME: Final = b"\x00\x00\x00\x08\x02\x00\x00\x00"

EMPTY_RUN: Final = re.compile(rb"(?:\x00\x00\x00\x08\x02\x00..)+", re.DOTALL)
"""A pattern of consecutive empty frames, on any channels."""

FRAME_HEAD: Final = struct.Struct(">IBBH")


def frame(channel: int, body: bytes, kind: int = AMQP_FRAME) -> bytes:
    """One frame around an encoded performative (and its payload)."""
    return FRAME_HEAD.pack(8 + len(body), 2, kind, channel) + body


def frame_with_payload(channel: int, body: bytes, payload: bytes) -> bytes:
    """One AMQP frame around an encoded transfer and its payload."""
    return b"".join((FRAME_HEAD.pack(8 + len(body) + len(payload), 2, AMQP_FRAME, channel), body, payload))


_CUTS: Final = (1024, 256, 0)
_CONDITION_CUT: Final = 100


def bounded(performative: Any, body_bytes_max: int) -> bytes:
    """`performative` encoded in at most that many bytes. Informative parts are left out, the least important first: an
    error loses its info, then its description, then the end of its condition; a state loses its annotations, and at
    last is left out itself. So a peer that accepts only frames of 512 bytes still learns what went wrong, and gets its
    own outcomes, however long it made them. What still does not fit is returned as it is; the caller refuses it.
    """
    body = encoding.encode(performative)
    if len(body) <= body_bytes_max:
        return body
    error, state = getattr(performative, "error", None), getattr(performative, "state", None)
    shorter: Iterator[dict[str, Any]] = iter(())
    if isinstance(error, Error):
        shorter = ({"error": cut} for cut in _shorter_errors(error))
    elif state is not None:
        shorter = ({"state": cut} for cut in _shorter_states(state))
    for change in shorter:
        cut = encoding.encode(replace(performative, **change))
        if len(cut) <= body_bytes_max:
            return cut
    return body


def _shorter_errors(error: Error) -> Iterator[Error]:
    description = error.description or ""
    for length in (len(description), *_CUTS):
        yield Error(error.condition, description[:length] or None)
    yield Error(Symbol(error.condition[:_CONDITION_CUT]))


def _shorter_states(state: object) -> Iterator[object]:
    if isinstance(state, Rejected) and state.error is not None:
        yield from map(Rejected, _shorter_errors(state.error))
    elif isinstance(state, Modified):
        yield Modified(state.delivery_failed, state.undeliverable_here)
    yield None


def bad_frame(size: int, words: int, kind: int, limit: int) -> RemoteProtocolError:
    """The error of an invalid frame header; `words` is its data offset, `limit` the largest frame allowed here, in
    bytes."""
    return RemoteProtocolError(
        conditions.FRAMING_ERROR,
        f"invalid frame of {size} bytes, data offset {words}, type {kind}; expected at most {limit} bytes",
    )


def sasl_frame_bytes(buf: bytes, at: int, size: int) -> int:
    """The length of the SASL frame at `at`, or 8 if its header is incomplete. RemoteProtocolError if it is not a SASL
    frame."""
    if size - at < 8:
        return 8
    frame_size, words, kind, _ = FRAME_HEAD.unpack_from(buf, at)
    if frame_size > SASL_FRAME_SIZE_MAX or words < 2 or frame_size < words * 4 or kind != SASL_FRAME:
        raise bad_frame(frame_size, words, kind, SASL_FRAME_SIZE_MAX)
    return int(frame_size)
