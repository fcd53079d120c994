"""Protocol headers and frames. AMQP 1.0 §2.2, §2.3, §5.3.1.

Rules of this file: bytes only, no state. A frame is size (4 bytes, itself included), data offset (in words of
4 bytes), type, channel, then the body.
"""

import struct
from typing import Final

from holdfast.amqp import codec, conditions
from holdfast.amqp.performatives import Error, Rejected
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

FRAME_HEAD: Final = struct.Struct(">IBBH")


def frame(channel: int, body: bytes, kind: int = AMQP_FRAME) -> bytes:
    """One frame around an encoded performative (and its payload)."""
    return FRAME_HEAD.pack(8 + len(body), 2, kind, channel) + body


def frame_with_payload(channel: int, body: bytes, payload: bytes) -> bytes:
    """One AMQP frame around an encoded transfer and its payload."""
    return b"".join((FRAME_HEAD.pack(8 + len(body) + len(payload), 2, AMQP_FRAME, channel), body, payload))


_CUTS: Final = (1024, 256, 0)


def bounded(performative: object, body_bytes_max: int) -> bytes:
    """`performative` encoded in at most that many bytes: an error it carries loses its info, then its words.

    A peer that takes only frames of 512 bytes still has to learn what went wrong. What fits by no means is
    returned as it is; the caller refuses it.
    """
    body = codec.encode(performative)
    error = getattr(performative, "error", None)
    state = getattr(performative, "state", None)
    if error is None and isinstance(state, Rejected):
        error = state.error
    if len(body) <= body_bytes_max or not isinstance(error, Error):
        return body
    info, description = error.info, error.description or ""
    try:
        error.info = None
        for length in _CUTS:
            body = codec.encode(performative)
            if len(body) <= body_bytes_max:
                break
            error.description = description[:length] or None
            body = codec.encode(performative)
    finally:
        error.info, error.description = info, description or None
    return body


def bad_frame(size: int, words: int, kind: int, limit: int) -> RemoteProtocolError:
    """The fault of a frame head; `words` is its data offset, `limit` what is accepted here in bytes."""
    return RemoteProtocolError(
        conditions.FRAMING_ERROR,
        f"a frame of {size} bytes, data offset {words}, type {kind}; accepted are {limit} bytes at most",
    )


def sasl_frame_bytes(buf: bytes, at: int, size: int) -> int:
    """The length of the SASL frame at `at`, 8 while its head has not come; RemoteProtocolError for what is none."""
    if size - at < 8:
        return 8
    frame_size, words, kind, _ = FRAME_HEAD.unpack_from(buf, at)
    if frame_size > SASL_FRAME_SIZE_MAX or words < 2 or frame_size < words * 4 or kind != SASL_FRAME:
        raise bad_frame(frame_size, words, kind, SASL_FRAME_SIZE_MAX)
    return int(frame_size)
