"""What a transfer in custody carries beside its message, as delivery annotations (CUSTODY, "The hop").

Rules of this file: pure. A node writes one form, and `read` takes that form apart by its bytes; whatever else means the
same goes the long way round, to the same result. Everything read is hostile until checked here: sizes, ranges, types.
"""

from functools import lru_cache
from struct import Struct, error
from typing import Any, Final
from uuid import UUID

from holdfast.amqp import conditions
from holdfast.amqp.codec import encode
from holdfast.amqp.message import Sections, split
from holdfast.amqp.types import Array, Symbol
from holdfast.broker import entry
from holdfast.broker.address import NAME_BYTES_MAX
from holdfast.core import annotate
from holdfast.errors import RemoteProtocolError

NUMBER: Final = Symbol("x-opt-holdfast-number")
ORIGIN: Final = Symbol("x-opt-holdfast-origin")
SEQUENCE: Final = Symbol("x-opt-holdfast-sequence")
TRACE: Final = Symbol("x-opt-holdfast-trace")
TO: Final = Symbol("x-opt-holdfast-to")
RECEIPT: Final = Symbol("x-opt-holdfast-receipt")
TOMBSTONE: Final = Symbol("x-opt-holdfast-tombstone")

NUMBER_MAX: Final = 2**63 - 1

_SECTION: Final = b"\x00\x53\x71\xd1"
_BARE: Final = (b"\x00\x53\x73", b"\x00\x53\x74", b"\x00\x53\x75", b"\x00\x53\x76", b"\x00\x53\x77", b"\x00\x53\x78")
_DURABLE: Final = b"\x00\x53\x70\xc0\x02\x01\x41"
"""The header that annotate.for_neighbour writes for a durable message of the usual priority, without time to live."""
_NUMBER_KEY: Final = encode(NUMBER) + b"\x80"
_ORIGIN_KEY: Final = encode(ORIGIN) + b"\x98"
_SEQUENCE_KEY: Final = encode(SEQUENCE) + b"\x80"
_TRACE_KEY: Final = encode(TRACE)
_TO_KEY: Final = encode(TO)
_RECEIPT_KEY: Final = encode(RECEIPT) + b"\x80"
_TOMBSTONE: Final = encode(TOMBSTONE) + b"\x41"
_HEAD: Final = Struct(f">4sII{len(_NUMBER_KEY)}sQ{len(_ORIGIN_KEY)}s16s{len(_SEQUENCE_KEY)}s8s{len(_TO_KEY)}s")
_FIELDS_BYTES: Final = _HEAD.size - 12
_MARK: Final = Struct(f">{len(_RECEIPT_KEY)}sQ")


@lru_cache(1_024)
def _name(raw: bytes) -> bytes:
    return encode(raw.decode())


@lru_cache(1_024)
def _text(raw: bytes) -> str:
    return raw.decode()


def write(identity: bytes, number: int, *, to: bytes, trace: bytes, receipt: int, tombstone: bool = False) -> bytes:
    """The section. `identity` and `to` as entries hold them; `trace`: the stores passed, this node's own last, 16
    bytes each; `number` the hop's; `receipt` 0 is none."""
    size = len(trace)
    if size < 254:  # an array of UUIDs (AMQP 1.0 §1.6.24)
        head = bytes((0xE0, size + 2, size // 16, 0x98))
    else:
        head = b"\xf0" + (size + 5).to_bytes(4, "big") + (size // 16).to_bytes(4, "big") + b"\x98"
    tail = b"".join((_name(to), _TRACE_KEY, head, trace))
    count = 10
    if receipt:
        tail += _MARK.pack(_RECEIPT_KEY, receipt)
        count += 2
    if tombstone:
        tail += _TOMBSTONE
        count += 2
    return (
        _HEAD.pack(
            _SECTION, _FIELDS_BYTES + 4 + len(tail), count, _NUMBER_KEY, number, _ORIGIN_KEY, identity[:16],
            _SEQUENCE_KEY, identity[16:], _TO_KEY,
        )
        + tail
    )  # fmt: skip


def parts_of(value: bytes, number: int, *, ours: bytes, receipt: int, steady_ms: int) -> tuple[int, tuple[Any, ...]]:
    """The message format and the parts of a transfer that hands the entry on under that hop number; `ours` is this
    node's store, which the trace ends with from now on."""
    item = entry.plain(value)
    if item is not None:
        beside = write(item.identity, number, to=item.to, trace=item.trace + ours, receipt=receipt)
        if item.durable:
            return item.message_format, (_DURABLE, beside, item.bare)
        return item.message_format, (beside, item.bare)
    whole = entry.unpack(value)
    assert whole.identity is not None
    head, notes = annotate.for_neighbour(whole, steady_ms)
    beside = write(
        entry.pack_identity(whole.identity),
        number,
        to=whole.to.encode(),
        trace=whole.trace + ours,
        receipt=receipt,
        tombstone=bool(whole.flags & entry.TOMBSTONE),
    )
    return whole.message_format, (head, beside, *notes, whole.bare)


class Arrival:
    """A message in custody as it came over a hop; `number` is the hop's, `trace` as entries hold it."""

    __slots__ = (
        "bare", "durable", "identity", "notes", "number", "priority", "receipt", "to", "tombstone", "trace", "ttl_ms",
    )  # fmt: skip

    def __init__(
        self, number: int, identity: entry.Identity, to: str, trace: bytes, receipt: int, tombstone: bool,
        durable: bool, priority: int, ttl_ms: int | None, notes: annotate.Annotations, bare: memoryview,
    ) -> None:  # fmt: skip
        self.number = number
        self.identity = identity
        self.to = to
        self.trace = trace
        self.receipt = receipt
        self.tombstone = tombstone
        self.durable = durable
        self.priority = priority
        self.ttl_ms = ttl_ms
        self.notes = notes
        self.bare = bare


def read(payload: bytes) -> Arrival:
    """The message and what it carries. RemoteProtocolError where something that custody needs is not there."""
    return _read_own(payload) or read_any(payload)


def _read_own(payload: bytes) -> Arrival | None:
    """What `write` wrote, behind the usual header or none and before a bare message; None for all else."""
    durable = payload.startswith(_DURABLE)
    at = len(_DURABLE) if durable else 0
    try:
        (
            section, size, count, number_key, number, origin_key, origin, sequence_key, raw_sequence, to_key,
        ) = _HEAD.unpack_from(payload, at)  # fmt: skip
        if (
            section != _SECTION
            or number_key != _NUMBER_KEY
            or origin_key != _ORIGIN_KEY
            or sequence_key != _SEQUENCE_KEY
            or to_key != _TO_KEY
        ):
            return None
        sequence = int.from_bytes(raw_sequence, "big")
        end = at + 8 + size
        if payload[end : end + 3] not in _BARE:
            return None
        at += _HEAD.size
        if payload[at] != 0xA1:
            return None
        start = at + 2
        at = start + payload[at + 1]
        if at - start > NAME_BYTES_MAX:
            return None
        to = _text(payload[start:at])
        if not payload.startswith(_TRACE_KEY, at):
            return None
        at += len(_TRACE_KEY)
        if payload[at] != 0xE0 or payload[at + 3] != 0x98 or payload[at + 1] != 16 * payload[at + 2] + 2:
            return None
        start = at + 4
        at = start + 16 * payload[at + 2]
        trace = payload[start:at]
        receipt = 0
        pairs = 10
        if at < end and payload.startswith(_RECEIPT_KEY, at):
            receipt = _MARK.unpack_from(payload, at)[1]
            at += _MARK.size
            pairs += 2
        tombstone = at < end and payload.startswith(_TOMBSTONE, at)
        if tombstone:
            at += len(_TOMBSTONE)
            pairs += 2
    except (IndexError, error, UnicodeDecodeError):
        return None
    if at != end or pairs != count or not 0 < sequence <= NUMBER_MAX or receipt > NUMBER_MAX:
        return None
    return Arrival(
        number, entry.Identity(entry.uuid_of(origin), sequence), to, trace, receipt, tombstone, durable,
        entry.PRIORITY_DEFAULT, None, annotate.NO_ANNOTATIONS, memoryview(payload)[end:],
    )  # fmt: skip


def read_any(payload: bytes) -> Arrival:
    """As `read`, of any encoding that AMQP allows."""
    sections: Sections = split(payload)
    told: dict[Any, Any] = sections.delivery_annotations or {}
    number, origin, sequence = told.get(NUMBER), told.get(ORIGIN), told.get(SEQUENCE)
    to, trace, receipt = told.get(TO), told.get(TRACE), told.get(RECEIPT, 0)
    if isinstance(trace, Array):
        trace = trace.values
    if (
        not isinstance(number, int)
        or not isinstance(origin, UUID)
        or not isinstance(sequence, int)
        or not 0 < sequence <= NUMBER_MAX
        or not isinstance(to, str)
        or len(to.encode("utf-8", "replace")) > NAME_BYTES_MAX
        or not isinstance(receipt, int)
        or receipt > NUMBER_MAX
        or not isinstance(trace, (list, tuple))
        or len(trace) > entry.TRACE_MAX
        or not all(isinstance(store, UUID) for store in trace)
    ):
        raise RemoteProtocolError(
            conditions.INVALID_FIELD, "a transfer in custody without its number, identity or trace"
        )
    header = sections.header
    return Arrival(
        int(number),
        entry.Identity(origin, int(sequence)),
        str(to),
        b"".join(store.bytes for store in trace),
        int(receipt),
        bool(told.get(TOMBSTONE)),
        header is not None and bool(header.durable),
        header.priority if header is not None else entry.PRIORITY_DEFAULT,
        header.ttl if header is not None else None,
        annotate.strip(payload, sections) if sections.annotations[1] else annotate.NO_ANNOTATIONS,
        memoryview(payload)[sections.bare :],
    )
