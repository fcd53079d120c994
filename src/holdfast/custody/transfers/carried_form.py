"""The encoding of custody's delivery annotations, as a node writes them (CUSTODY, "The hop").

Rules of this file: pure. Sections of one form differ only in two numbers, the hop's and the message's, so a form is
encoded once and parsed once.
"""

from functools import lru_cache
from typing import Final, NamedTuple
from uuid import UUID

from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.extensions import NUMBER, ORIGIN
from holdfast.amqp.wire.types import Symbol, Ulong
from holdfast.broker.entries import entry
from holdfast.names import NAME_BYTES_MAX

SEQUENCE: Final = Symbol("x-opt-holdfast-sequence")
TRACE: Final = Symbol("x-opt-holdfast-trace")
ALIASES: Final = Symbol("x-opt-holdfast-aliases")
TO: Final = Symbol("x-opt-holdfast-to")
RECEIPT: Final = Symbol("x-opt-holdfast-receipt")
TOMBSTONE: Final = Symbol("x-opt-holdfast-tombstone")
LENGTH: Final = Symbol("x-opt-holdfast-length")
"""The size of a large message without these annotations: a node without room for it refuses it before it arrives."""
EXPIRES_AT: Final = Symbol("x-opt-holdfast-expires-at")
"""The message's absolute-expiry-time, so that no node on the path has to decode the message."""

GROUP: Final = Symbol("x-opt-holdfast-group")
"""The first number of messages that become visible together, and their number. A node that does not know it drops it,
and makes each visible by itself."""

NUMBER_MAX: Final = 2**63 - 1

_SECTION: Final = b"\x00\x53\x71\xd1"
_NUMBER_KEY: Final = encode(NUMBER) + b"\x80"
_ORIGIN_KEY: Final = encode(ORIGIN) + b"\x98"
_SEQUENCE_KEY: Final = encode(SEQUENCE) + b"\x80"
_TRACE_KEY: Final = encode(TRACE)
_ALIASES_KEY: Final = encode(ALIASES) + b"\xb0"
_TO_KEY: Final = encode(TO)
_RECEIPT_KEY: Final = encode(RECEIPT) + b"\x80"
_TOMBSTONE: Final = encode(TOMBSTONE) + b"\x41"
LENGTH_NAME: Final = encode(LENGTH)
_LENGTH_KEY: Final = LENGTH_NAME + b"\x80"
_EXPIRES_AT_KEY: Final = encode(EXPIRES_AT) + b"\x80"
_GROUP_KEY: Final = encode(GROUP)
NUMBER_AT: Final = 12 + len(_NUMBER_KEY)
SEQUENCE_AT: Final = NUMBER_AT + 8 + len(_ORIGIN_KEY) + 16 + len(_SEQUENCE_KEY)

_FORMS_MAX: Final = 1_024
"""Forms that are remembered: one for each origin, destination queue, path and receipt."""

FORM_BYTES_MAX: Final = 1_024
"""A larger section is decoded by the codec, so that a peer cannot fill memory with forms."""

_COPY_BYTES: Final = 2_048
"""Bytes below which a copy of the bare message costs less than a view of it."""


@lru_cache(_FORMS_MAX)
def written(
    origin: bytes,
    to: bytes,
    trace: bytes,
    receipt: int,
    tombstone: bool,
    short: bool,
    aliases: bytes = b"",
    length: int = 0,
) -> tuple[bytes, bytes, bytes]:
    """The section before the hop's number, between it and the sequence, and after it: only these two vary in a run."""
    size = len(trace)
    if short:  # a byte for each store
        head = bytes((0xA0, size))
    elif size < 254:  # an array of UUIDs (AMQP 1.0 §1.6.24)
        head = bytes((0xE0, size + 2, size // 16, 0x98))
    else:
        head = b"\xf0" + (size + 5).to_bytes(4, "big") + (size // 16).to_bytes(4, "big") + b"\x98"
    tail = b"".join((_TO_KEY, encode(to.decode()), _TRACE_KEY, head, trace))
    count = 10
    if receipt:
        tail += _RECEIPT_KEY + receipt.to_bytes(8, "big")
        count += 2
    if tombstone:
        tail += _TOMBSTONE
        count += 2
    if aliases:
        tail += _ALIASES_KEY + len(aliases).to_bytes(4, "big") + aliases
        count += 2
    if length:
        tail += _LENGTH_KEY + length.to_bytes(8, "big")
        count += 2
    middle = _ORIGIN_KEY + origin + _SEQUENCE_KEY
    size = 4 + len(_NUMBER_KEY) + 8 + len(middle) + 8 + len(tail)
    return _SECTION + size.to_bytes(4, "big") + count.to_bytes(4, "big") + _NUMBER_KEY, middle, tail


def with_expiry(before: bytes, tail: bytes, expires_at_ms: int) -> tuple[bytes, bytes]:
    """The parts of `written` with one more item: each message has its own expiry time, so no form has it."""
    return _with(before, tail, _EXPIRES_AT_KEY + expires_at_ms.to_bytes(8, "big"))


def with_group(before: bytes, tail: bytes, first: int, count: int) -> tuple[bytes, bytes]:
    """As `with_expiry`, with a group."""
    return _with(before, tail, _GROUP_KEY + encode([Ulong(first), Ulong(count)]))


def with_shared(before: bytes, tail: bytes, told: bytes) -> tuple[bytes, bytes]:
    """As `with_expiry`, with the item about a bare message that several transfers share (GivenBodies.share)."""
    return _with(before, tail, told)


def _with(before: bytes, tail: bytes, added: bytes) -> tuple[bytes, bytes]:
    at = len(_SECTION)
    size = int.from_bytes(before[at : at + 4], "big") + len(added)
    count = int.from_bytes(before[at + 4 : at + 8], "big") + 2
    return _SECTION + size.to_bytes(4, "big") + count.to_bytes(4, "big") + before[at + 8 :], tail + added


class Form(NamedTuple):
    """The part of the section that messages of a run have in common."""

    origin: UUID
    raw_origin: bytes
    to: str
    raw_to: bytes
    trace: bytes
    receipt: int
    tombstone: bool
    short: bool


@lru_cache(_FORMS_MAX)
def form_of(before: bytes, middle: bytes, tail: bytes) -> Form | None:
    """Parses a section that `written` wrote; None for anything else."""
    at = len(_TO_KEY)
    try:
        to_ends = at + 2 + tail[at + 1]
        trace_at = to_ends + len(_TRACE_KEY)
        short = tail[trace_at] == 0xA0
        if short:
            trace_at += 2
            trace_ends = trace_at + tail[trace_at - 1]
        else:
            trace_at += 4
            trace_ends = trace_at + 16 * tail[trace_at - 2]
        raw_to = tail[at + 2 : to_ends]
        to = raw_to.decode()
    except (IndexError, UnicodeDecodeError):
        return None
    trace = tail[trace_at:trace_ends]
    rest = tail[trace_ends:]
    receipt = 0
    if rest.startswith(_RECEIPT_KEY):
        receipt = int.from_bytes(rest[len(_RECEIPT_KEY) : len(_RECEIPT_KEY) + 8], "big")
    origin = middle[len(_ORIGIN_KEY) : len(_ORIGIN_KEY) + 16]
    tombstone = rest.endswith(_TOMBSTONE)
    if (
        len(origin) != 16
        or len(raw_to) > NAME_BYTES_MAX
        or receipt > NUMBER_MAX
        or (short and len(trace) > entry.TRACE_MAX)
        or (before, middle, tail) != written(origin, raw_to, trace, receipt, tombstone, short)
    ):
        return None
    return Form(entry.uuid_of(origin), origin, to, raw_to, trace, receipt, tombstone, short)


def tail_of(data: bytes, at: int) -> bytes | memoryview:
    """The bytes from `at` on: a copy if they are few, else a view."""
    return data[at:] if len(data) < _COPY_BYTES else memoryview(data)[at:]
