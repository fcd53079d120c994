"""A queue's entry as bytes: the message, its identity and its destination (CUSTODY, Names).

Rules of this file: pure packing. The bare message is kept byte for byte; only header, delivery-annotations and
message-annotations are rewritten (AMQP 1.0 §3.2). Annotations `x-opt-holdfast-…` are not stored as such: the fixed part
has their contents. The layout is versioned by its first byte.

    version u8 | flags u8 | priority u8 | trace u8 | enqueued_ms u64 | expires_ms u64 | format u32 |
    annotations u32 | to u16 | [origin 16 | number u64 | trace x 16] | to | annotations | bare message

With BLOB the bare message is in the store as a blob (links/large_receives.py); in its place is a data section with the
blob's id and length, u64 each, which is never sent.

`annotations` holds the count of map items (u16) and the items encoded. `expires_ms` counts on the node's own steady
clock, 0 is never; `enqueued_ms` is wall time. With EXPIRES_AT a wall time at which the message expires too, u64, stands
before that count, and `expires_ms` is FAR where there is no time to live. With GROUP the place of the message in its
group, u32, and how many that has, u32, stand before the count, behind that time. With EARLIER the message may have been
shown to consumers of a queue that it was in before: how often its delivery failed there, u32, stands before the count.
"""

from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from holdfast.errors import StorageError

VERSION: Final = 1
DURABLE: Final = 1
CUSTODY: Final = 2
TOMBSTONE: Final = 4
LATE: Final = 8
BLOB: Final = 16
EXPIRES_AT: Final = 32
GROUP: Final = 64
EARLIER: Final = 128

FAR: Final = 2**64 - 1
"""`expires_ms` of an entry that expires at a wall time alone: eight bytes say whether an entry may expire at all."""

NEVER: Final = b"\0\0\0\0\0\0\0\0"
"""`expires_ms` of an entry that never expires, as it stands in `value[12:20]`."""

TRACE_MAX: Final = 64
"""Store UUIDs in a trace (CUSTODY, "Trace")."""

_FIXED: Final = Struct(">BBBBQQIIH")
IDENTITY: Final = Struct(">16sQ")
_REFERENCE: Final = Struct(">5sQQ")
_REFERENCE_HEAD: Final = b"\x00\x53\x75\xa0\x10"
REFERENCE_BYTES: Final = _REFERENCE.size
FIXED_BYTES: Final = _FIXED.size
NUMBER_AT: Final = FIXED_BYTES + 16
"""Where the number of an entry in custody stands; its origin is before it, its trace behind."""
TRACE_AT: Final = NUMBER_AT + 8
PRIORITY_DEFAULT: Final = 4
AT_BYTES: Final = 8
GROUP_FIELDS: Final = Struct(">II")
EARLIER_BYTES: Final = 4
EARLIER_MAX: Final = 2**32 - 1
"""Failed deliveries that are told, as many as a header can say."""
GROUP_MAX: Final = 2**31
"""Members of a group: numbers are told in full between nodes, places and counts are kept in 32 bits."""


class Identity(NamedTuple):
    """The identity of a message in custody: (origin's store, number from 1); the destination follows from its queue."""

    origin: UUID
    number: int


class Group(NamedTuple):
    """The place of a message in custody, from 0, among `members` with consecutive numbers that are shown together."""

    place: int
    members: int


class BlobPlace(NamedTuple):
    """Where a large bare message lies: the blob's id, and how long it is."""

    blob: int
    length: int


def reference(blob: int, length: int) -> bytes:
    """The reference in an entry whose bare message is a blob."""
    return _REFERENCE.pack(_REFERENCE_HEAD, blob, length)


def blob_of(value: bytes | memoryview) -> BlobPlace:
    """The blob that an entry with BLOB refers to; StorageError where it refers to none."""
    if len(value) < REFERENCE_BYTES:
        raise StorageError("entry: a reference to a blob is cut short")
    head, blob, length = _REFERENCE.unpack_from(value, len(value) - REFERENCE_BYTES)
    if head != _REFERENCE_HEAD:
        raise StorageError(f"invalid entry {head.hex()}; expected a reference to a blob")
    return BlobPlace(blob, length)


def pack_identity(identity: Identity) -> bytes:
    """As an entry holds it: the origin's 16 bytes, the number in 8."""
    return IDENTITY.pack(identity.origin.bytes, identity.number)


class Entry(NamedTuple):
    """The fields of an entry. `annotations` and `bare` are views of the value, not copies."""

    flags: int
    priority: int
    enqueued_ms: int
    expires_ms: int
    message_format: int
    identity: Identity | None
    trace: bytes
    to: str
    annotation_count: int
    annotations: memoryview
    bare: memoryview
    expires_at_ms: int = 0
    """On the wall; 0 is never."""
    group: Group | None = None
    earlier: int | None = None
    """Failed deliveries in queues that the message was in before; None if none of them showed it to a consumer."""

    @property
    def size(self) -> int:
        """What the queue's `bytes_max` counts: the message sections as they came."""
        bare = blob_of(self.bare).length if self.flags & BLOB else len(self.bare)
        return len(self.annotations) + bare


class StoreUuid(UUID):
    """A UUID with cached bytes and hash, because both are needed for each message."""

    __slots__ = ("_hash", "raw")

    def __init__(self, raw: bytes) -> None:
        super().__init__(bytes=raw)
        object.__setattr__(self, "raw", raw)
        object.__setattr__(self, "_hash", hash(self.int))

    def __hash__(self) -> int:
        return self._hash  # type: ignore[no-any-return, attr-defined]  # set above; UUID forbids plain assignment

    @property
    def bytes(self) -> "bytes":
        return self.raw  # type: ignore[no-any-return, attr-defined]  # set above; UUID forbids plain assignment


@lru_cache(4_096)
def uuid_of(raw: bytes) -> UUID:
    """The StoreUuid of 16 bytes; cached, because the same few are used again and again."""
    return StoreUuid(raw)


def plain_head(durable: bool, priority: int, enqueued_ms: int, message_format: int) -> bytes:
    """The bytes before the bare message in the hot path's entry: no time to live, no annotations, no custody."""
    flags = DURABLE if durable else 0
    return _FIXED.pack(VERSION, flags, priority, 0, enqueued_ms, 0, message_format, 0, 0)


def pack_plain(durable: bool, enqueued_ms: int, message_format: int, bare: bytes | memoryview) -> bytes:
    """The hot path's entry, of default priority; see `plain_head`."""
    return b"".join((plain_head(durable, PRIORITY_DEFAULT, enqueued_ms, message_format), bare))


def pack(
    *,
    flags: int,
    enqueued_ms: int,
    bare: bytes | memoryview,
    priority: int = PRIORITY_DEFAULT,
    expires_ms: int = 0,
    message_format: int = 0,
    annotation_count: int = 0,
    annotations: bytes | memoryview = b"",
    identity: Identity | None = None,
    trace: bytes = b"",
    to: str = "",
    expires_at_ms: int = 0,
    group: Group | None = None,
    earlier: int | None = None,
) -> bytes:
    """An entry's value. `trace` at most TRACE_MAX long; `identity` sets CUSTODY, `expires_at_ms` EXPIRES_AT, `group`
    GROUP, where there is an identity, `earlier` EARLIER."""
    hops = len(trace) // 16
    assert hops <= TRACE_MAX and len(trace) % 16 == 0
    to_bytes = to.encode()
    parts: list[bytes | memoryview] = []
    if identity is not None:
        flags |= CUSTODY
        parts = [pack_identity(identity), trace]
    if identity is None:
        group = None
    if annotation_count or expires_at_ms or group is not None or earlier is not None:
        annotations = annotation_count.to_bytes(2, "big") + bytes(annotations)
    if earlier is not None:
        flags |= EARLIER
        annotations = earlier.to_bytes(EARLIER_BYTES, "big") + annotations
    if group is not None:
        flags |= GROUP
        annotations = GROUP_FIELDS.pack(*group) + annotations
    if expires_at_ms:
        flags |= EXPIRES_AT
        expires_ms = expires_ms or FAR
        annotations = expires_at_ms.to_bytes(8, "big") + annotations
    head = _FIXED.pack(
        VERSION,
        flags,
        priority,
        hops,
        enqueued_ms,
        expires_ms,
        message_format,
        len(annotations),
        len(to_bytes),
    )
    return b"".join((head, *parts, to_bytes, annotations, bare))


def pack_plain_custody(
    *, durable: bool, enqueued_ms: int, message_format: int, identity: bytes, trace: bytes, to: bytes,
    bare: bytes | memoryview,
) -> bytes:  # fmt: skip
    """The hot path's entry in custody, which `plain_parts` takes apart; `identity` and `to` as they are stored."""
    before, behind = around_number(
        durable=durable,
        enqueued_ms=enqueued_ms,
        message_format=message_format,
        origin=identity[:16],
        trace=trace,
        to=to,
    )
    return b"".join((before, identity[16:], behind, bare))


def around_number(
    *, durable: bool, enqueued_ms: int, message_format: int, origin: bytes, trace: bytes, to: bytes
) -> tuple[bytes, bytes]:
    """The bytes before and after the number (8 bytes) in such an entry; the bare message follows."""
    flags = CUSTODY | DURABLE if durable else CUSTODY
    head = _FIXED.pack(
        VERSION, flags, PRIORITY_DEFAULT, len(trace) // 16, enqueued_ms, 0, message_format, 0, len(to)
    )  # fmt: skip
    return head + origin, trace + to


def unpack(value: bytes) -> Entry:
    """The entry that `pack` wrote; StorageError where the bytes are none."""
    if len(value) < FIXED_BYTES or value[0] != VERSION:
        raise StorageError(f"invalid layout {value[:1].hex() or 'nothing'} of an entry; expected {VERSION:02x}")
    _, flags, priority, hops, enqueued_ms, expires_ms, message_format, annotated, to_size = _FIXED.unpack_from(value)
    view = memoryview(value)
    at = FIXED_BYTES
    identity = None
    trace = b""
    if flags & CUSTODY:
        origin, number = IDENTITY.unpack_from(value, at)
        identity = Identity(uuid_of(origin), number)
        at += IDENTITY.size
        trace = value[at : at + 16 * hops]
        at += 16 * hops
    to = ""
    if to_size:
        to = str(view[at : at + to_size], "utf-8")
        at += to_size
    count = expires_at_ms = 0
    end = at + annotated
    if flags & EXPIRES_AT:
        flags &= ~EXPIRES_AT
        expires_at_ms = int.from_bytes(view[at : at + AT_BYTES], "big")
        expires_ms = 0 if expires_ms == FAR else expires_ms
        at += AT_BYTES
    group = None
    if flags & GROUP:
        flags &= ~GROUP
        group = Group._make(GROUP_FIELDS.unpack_from(value, at))
        at += GROUP_FIELDS.size
    earlier = None
    if flags & EARLIER:
        flags &= ~EARLIER
        earlier = int.from_bytes(view[at : at + EARLIER_BYTES], "big")
        at += EARLIER_BYTES
    if annotated:
        count = int.from_bytes(view[at : at + 2], "big")
        at += 2
    return Entry(
        flags,
        priority,
        enqueued_ms,
        expires_ms,
        message_format,
        identity,
        trace,
        to,
        count,
        view[at:end],
        view[end:],
        expires_at_ms,
        group,
        earlier,
    )


def repack(item: Entry) -> bytes:
    """The value of an entry that was unpacked and changed (`item._replace(…)`)."""
    return pack(
        flags=item.flags,
        enqueued_ms=item.enqueued_ms,
        bare=item.bare,
        priority=item.priority,
        expires_ms=item.expires_ms,
        message_format=item.message_format,
        annotation_count=item.annotation_count,
        annotations=item.annotations,
        identity=item.identity,
        trace=item.trace,
        to=item.to,
        expires_at_ms=item.expires_at_ms,
        group=item.group,
        earlier=item.earlier,
    )


def with_earlier(value: bytes, failures: int | None) -> bytes:
    """The entry as it is moved to another queue, whose consumers get the same header as those of its own queue would
    have got. `failures`: how often its delivery failed, by its cursor; None if it was never shown."""
    if failures is None:
        return value
    item = unpack(value)
    return repack(item._replace(earlier=min(EARLIER_MAX, (item.earlier or 0) + failures)))


def shown(value: bytes, *, late: bool) -> bytes:
    """The entry of a message that waited with its group, as its queue gets it."""
    item = unpack(value)
    return repack(item._replace(group=None, flags=item.flags | LATE if late else item.flags))
