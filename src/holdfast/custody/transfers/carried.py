"""The delivery annotations of a transfer in custody (CUSTODY, "The hop").

Rules of this file: pure. A node writes one encoding, with its trace in full or by aliases, and `read` parses that
encoding by its bytes; any other valid encoding is decoded by the codec, with the same result. Everything read is
hostile until checked here: sizes, ranges, types.
"""

from typing import Any
from uuid import UUID

from holdfast.amqp.message.message import BARE_STARTS, SECTION_BYTES_MAX, Sections, split
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.extensions import NUMBER, ORIGIN
from holdfast.amqp.wire.types import Array
from holdfast.broker.entries import annotate, entry, packed
from holdfast.broker.entries.annotate import DURABLE_HEADER
from holdfast.custody.transfers.carried_form import (
    ALIASES,
    EXPIRES_AT,
    FORM_BYTES_MAX,
    GROUP,
    LENGTH,
    LENGTH_NAME,
    NUMBER_AT,
    NUMBER_MAX,
    RECEIPT,
    SEQUENCE,
    SEQUENCE_AT,
    TO,
    TOMBSTONE,
    TRACE,
    form_of,
    tail_of,
    with_expiry,
    with_group,
    with_shared,
    written,
)  # fmt: skip
from holdfast.errors import RemoteProtocolError
from holdfast.names import NAME_BYTES_MAX
from holdfast.peers.neighbours.shared_bodies import BODY_OF, KEPT_AS, NAMES_BEGIN, GivenBodies, TakenBodies
from holdfast.peers.neighbours.trace_aliases import Taken, stores_of
from holdfast.schema import is_whole_within


def write(
    identity: bytes, number: int, *, to: bytes, trace: bytes, receipt: int, tombstone: bool = False,
    short: bool = False, aliases: bytes = b"", length: int = 0, expires_at_ms: int = 0,
    group: entry.Group | None = None, shared: bytes = b"",
) -> bytes:  # fmt: skip
    """The encoded section. `identity` and `to` as entries hold them; `trace`: the stores passed, this node's own last,
    16 bytes each, or, if `short`, an alias each; `aliases`: those announced with it; `number`: the hop's; `receipt`: 0
    is none; `length`: of a large message, else 0. `expires_at_ms`: the wall time at which it expires, 0 for none.
    `shared`: the item about a bare message that several transfers share.
    """
    before, middle, tail = written(identity[:16], to, trace, receipt, tombstone, short, aliases, length)
    if expires_at_ms:
        before, tail = with_expiry(before, tail, expires_at_ms)
    if group is not None:
        before, tail = with_group(before, tail, int.from_bytes(identity[16:], "big") - group.place, group.members)
    if shared:
        before, tail = with_shared(before, tail, shared)
    return b"".join((before, number.to_bytes(8, "big"), middle, identity[16:], tail))


def passed_by(value: bytes) -> bytes:
    """The trace of an entry in custody."""
    return value[entry.TRACE_AT : entry.TRACE_AT + 16 * value[3]]


def parts_of(
    value: bytes, number: int, *, trace: bytes, receipt: int, steady_ms: int, short: bool = False, aliases: bytes = b"",
    bodies: GivenBodies | None = None, keeps: bool = False,
) -> tuple[int, tuple[Any, ...]]:  # fmt: skip
    """The message format and the parts of a transfer that forwards the entry under that hop number. `trace`: with this
    node's own store as the last, as `write` takes it. `bodies`: those of its connection, if its bare message may be
    shared; `keeps`: whether it is kept for others."""
    length = entry.blob_of(value).length if value[1] & entry.BLOB else 0
    if packed.is_plain(value):
        identity, _, to, end = packed.plain_parts(value)
        shared, bare = _share(bodies, tail_of(value, end), keeps=keeps)
        beside = write(
            identity, number, to=to, trace=trace, receipt=receipt, short=short, aliases=aliases, length=length,
            shared=shared,
        )  # fmt: skip
        message_format = int.from_bytes(value[20:24], "big")
        return message_format, (DURABLE_HEADER, beside, bare) if value[1] & entry.DURABLE else (beside, bare)
    whole = entry.unpack(value)
    assert whole.identity is not None
    head, notes = annotate.for_neighbour(whole, steady_ms)
    shared, bare = _share(bodies, whole.bare, keeps=keeps)
    beside = write(
        entry.pack_identity(whole.identity),
        number,
        to=whole.to.encode(),
        trace=trace,
        receipt=receipt,
        tombstone=bool(whole.flags & entry.TOMBSTONE),
        short=short,
        aliases=aliases,
        length=length,
        expires_at_ms=whole.expires_at_ms,
        group=whole.group,
        shared=shared,
    )
    return whole.message_format, (head, beside, *notes, bare)


def _share(bodies: GivenBodies | None, bare: bytes | memoryview, *, keeps: bool) -> tuple[bytes, bytes | memoryview]:
    return (b"", bare) if bodies is None else bodies.share(bare, keeps=keeps)


def with_body(payload: bytes, bodies: TakenBodies) -> bytes:
    """A received transfer, completed with the bare message that it refers to; a bare message for later transfers is
    kept. RemoteProtocolError for a number that is not kept, or may not be."""
    if NAMES_BEGIN not in payload:
        return payload
    sections = split(payload)
    told = sections.delivery_annotations or {}
    if KEPT_AS in told:
        bodies.keep(told[KEPT_AS], payload[sections.bare :])
    return payload[: sections.bare] + bodies.body_of(told[BODY_OF]) if BODY_OF in told else payload


class Arrival:
    """A message in custody as it was received over a hop. `number` is the hop's, `trace` as entries hold it."""

    __slots__ = (
        "bare", "durable", "expires_at_ms", "fault", "group", "identity", "large", "notes", "number", "priority",
        "receipt", "stored", "to", "tombstone", "trace", "ttl_ms",
    )  # fmt: skip

    def __init__(
        self, number: int, identity: entry.Identity, to: str, trace: bytes, receipt: int, tombstone: bool,
        durable: bool, priority: int, ttl_ms: int | None, notes: annotate.Annotations, bare: memoryview,
        stored: tuple[bytes, bytes] | None = None, expires_at_ms: int = 0, group: entry.Group | None = None,
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
        self.stored = stored
        """Identity and `to` as entries hold them, for a plain message."""
        self.expires_at_ms = expires_at_ms
        self.group = group
        self.large = False
        """`bare` is a reference to a blob."""
        self.fault: str | None = None
        """Why a large message is malformed; other messages are checked at the destination."""

    @property
    def size(self) -> int:
        """What the queue's `bytes_max` counts."""
        bare = entry.blob_of(self.bare).length if self.large else len(self.bare)
        return bare + len(self.notes.items)


def entry_of(
    arrival: Arrival, *, enqueued_ms: int, steady_ms: int, message_format: int, trace: bytes, late: bool = False
) -> bytes:
    """The message as an entry, with that trace."""
    if arrival.stored is not None and not (late or arrival.large):
        identity, to = arrival.stored
        return entry.pack_plain_custody(
            durable=arrival.durable, enqueued_ms=enqueued_ms, message_format=message_format, identity=identity,
            trace=trace, to=to, bare=arrival.bare,
        )  # fmt: skip
    ended = arrival.tombstone
    flags = entry.DURABLE if arrival.durable or ended else 0
    if ended:
        flags |= entry.TOMBSTONE
    if late:
        flags |= entry.LATE
    if arrival.large:
        flags |= entry.BLOB
    return entry.pack(
        flags=flags,
        enqueued_ms=enqueued_ms,
        bare=arrival.bare,
        priority=arrival.priority,
        expires_ms=max(1, steady_ms + arrival.ttl_ms) if arrival.ttl_ms is not None and not ended else 0,
        message_format=message_format,
        annotation_count=arrival.notes.item_count,
        annotations=arrival.notes.items,
        identity=arrival.identity,
        trace=trace,
        to=arrival.to,
        expires_at_ms=0 if ended else arrival.expires_at_ms,
        group=None if ended else arrival.group,
    )


def length_of(payload: bytes) -> int:
    """The length of a large message, from its first bytes; 0 if it cannot be read from them."""
    if LENGTH_NAME not in payload:
        return 0
    try:
        told = (split(payload).delivery_annotations or {}).get(LENGTH)
    except RemoteProtocolError:  # cut off, or nonsense, which is found out later
        return 0
    return int(told) if isinstance(told, int) and 0 < told <= NUMBER_MAX else 0


def read(payload: bytes, aliases: Taken) -> Arrival:
    """The message with its annotations. RemoteProtocolError if a required one is missing, or an alias is not one of the
    link's."""
    return _read_own(payload, aliases) or read_any(payload, aliases)


def _read_own(payload: bytes, aliases: Taken) -> Arrival | None:
    """Reads a section that `write` wrote, after the usual header or none; None for anything else."""
    durable = payload.startswith(DURABLE_HEADER)
    at = len(DURABLE_HEADER) if durable else 0
    end = at + 8 + int.from_bytes(payload[at + 4 : at + 8], "big")
    if end > FORM_BYTES_MAX or payload[end : end + 3] not in BARE_STARTS:
        return None
    number_at, sequence_at = at + NUMBER_AT, at + SEQUENCE_AT
    form = form_of(payload[at:number_at], payload[number_at + 8 : sequence_at], payload[sequence_at + 8 : end])
    if form is None:
        return None
    raw_sequence = payload[sequence_at : sequence_at + 8]
    number, sequence = int.from_bytes(payload[number_at : number_at + 8], "big"), int.from_bytes(raw_sequence, "big")
    if not (number and 0 < sequence <= NUMBER_MAX):
        return None
    origin, raw_origin, to, raw_to, trace, receipt, tombstone, short = form
    if short:
        trace = aliases.known.get(trace) or aliases.trace(trace)
    return Arrival(
        number, entry.Identity(origin, sequence), to, trace, receipt, tombstone, durable, entry.PRIORITY_DEFAULT, None,
        annotate.NO_ANNOTATIONS, memoryview(payload)[end:],
        None if tombstone else (raw_origin + raw_sequence, raw_to),
    )  # fmt: skip


def read_any(payload: bytes, aliases: Taken) -> Arrival:
    """As `read`, of any encoding that AMQP allows."""
    sections: Sections = split(payload)
    told: dict[Any, Any] = sections.delivery_annotations or {}
    number, origin, sequence = told.get(NUMBER), told.get(ORIGIN), told.get(SEQUENCE)
    to, trace, receipt = told.get(TO), told.get(TRACE), told.get(RECEIPT, 0)
    expires_at_ms = told.get(EXPIRES_AT, 0)
    if isinstance(trace, Array):
        trace = trace.values
    elif isinstance(trace, bytes) and len(trace) <= entry.TRACE_MAX:
        told_now = told.get(ALIASES)
        if isinstance(told_now, bytes):
            aliases.hear(told_now)
        passed = aliases.trace(trace)
        trace = [entry.uuid_of(store) for store in stores_of(passed)]
    if (
        not is_whole_within(number, 1, 2**64)  # one of 0 or less would pass for a copy
        or not isinstance(origin, UUID)
        or not is_whole_within(sequence, 1, NUMBER_MAX + 1)
        or not isinstance(to, str)
        or len(to.encode("utf-8", "replace")) > NAME_BYTES_MAX
        or not is_whole_within(receipt, 0, NUMBER_MAX + 1)
        or not is_whole_within(expires_at_ms, 0, NUMBER_MAX + 1)
        or not isinstance(trace, (list, tuple))
        or len(trace) > entry.TRACE_MAX
        or not all(isinstance(store, UUID) for store in trace)
    ):
        raise RemoteProtocolError(
            conditions.INVALID_FIELD, "invalid transfer in custody; expected its number, identity and trace"
        )
    header = sections.header
    return Arrival(
        int(number),
        entry.Identity(entry.uuid_of(origin.bytes), int(sequence)),  # as `_read_own` has it: looked up by identity
        str(to),
        b"".join(store.bytes for store in trace),
        int(receipt),
        bool(told.get(TOMBSTONE)),
        header is not None and bool(header.durable),
        header.priority if header is not None else entry.PRIORITY_DEFAULT,
        header.ttl if header is not None else None,
        annotate.strip(payload, sections, SECTION_BYTES_MAX, is_carried=True)
        if sections.annotations[1]
        else annotate.NO_ANNOTATIONS,
        memoryview(payload)[sections.bare :],
        expires_at_ms=int(expires_at_ms),
        group=_group(told.get(GROUP), int(sequence)),
    )


def _group(told: Any, number: int) -> entry.Group | None:
    """The group of the message with that number, from its annotation; None if it is in none."""
    if told is None:
        return None
    if isinstance(told, list) and len(told) == 2 and is_whole_within(told[0], 1, number + 1):
        first, count = told
        if is_whole_within(count, 1, entry.GROUP_MAX) and number - first < count and first + count <= NUMBER_MAX:
            return entry.Group(int(number - first), int(count)) if count > 1 else None
    text = "invalid group of a transfer in custody; expected the first number and how many there are"
    raise RemoteProtocolError(conditions.INVALID_FIELD, text)
