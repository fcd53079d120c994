"""The layout of rows in the small tables: queues, cursors, producers, origins, hops, links (port.TABLES).

Rules of this file: pure packing, one pair of functions for each table; fixed layouts by `struct`, whose sizes their
owners bound.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from struct import Struct
from typing import Any, Final, NamedTuple
from uuid import UUID

from holdfast.amqp.wire.decoding import decode
from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.types import Symbol, Ulong
from holdfast.broker.beginnings import FIRST
from holdfast.broker.stored.gaps import GapClocks
from holdfast.broker.stored.ranges import RangeSet
from holdfast.broker.stored.tags import TagRing
from holdfast.errors import RemoteProtocolError, StorageError

PAIRS: Final = Struct(">QQ")
_CURSOR: Final = Struct(">BQQQ")
_PRODUCER: Final = Struct(">QQ")
_ORIGIN: Final = Struct(">QQdII")
_CLOCK: Final = Struct(">Qd")
_HOP: Final = Struct(">16sQ")
_BLOB: Final = Struct(">QII")
_BLOB_KEY: Final = Struct(">Q")
_PLACE: Final = Struct(">IQ")
_QUEUE_ID: Final = Struct(">I")
_LINK: Final = Struct(">dH")
_LOSS: Final = Struct(">16sQQQ")
_LOSS_TOTALS: Final = Struct(">QQQQQ")


CURSOR_RANGES_MAX: Final = 65_500
"""Ranges in a cursor's record, which fills a row of the store with them."""


RENEWAL: Final = Struct(">16sQQ")


def pack_ranges(ranges: RangeSet, count_max: int | None = None) -> bytes:
    """The ranges, at most the lowest `count_max` of them."""
    return b"".join(PAIRS.pack(first, last) for first, last in islice(ranges, count_max))


def unpack_ranges(data: bytes) -> RangeSet:
    return RangeSet((first, last) for first, last in PAIRS.iter_unpack(data))


def pack_map(fields: dict[str, Any]) -> bytes:
    """A map with symbol keys, in AMQP's encoding, for records that get new fields over time."""
    return encode({Symbol(key): value for key, value in fields.items()})


def unpack_map(data: bytes) -> dict[str, Any]:
    try:
        value, _ = decode(data)
    except RemoteProtocolError as error:
        raise StorageError(f"a record of the store cannot be read: {error.description}") from error
    return {str(key): item for key, item in value.items()}


class CursorRecord(NamedTuple):
    """A named cursor, or the shared one beside named ones; `taking`: its mode."""

    taking: bool
    floor: int
    watermark: int
    lease_epoch: int
    finished: RangeSet


def pack_cursor(record: CursorRecord) -> bytes:
    """Finished ranges beyond CURSOR_RANGES_MAX are left out: after a restart their entries are shown again, and marked.
    A cursor stops before it has so many (halting.OUTSTANDING_MAX); but the shared cursor may get those of several
    subscriptions that are deleted one after the other.
    """
    head = _CURSOR.pack(record.taking, record.floor, record.watermark, record.lease_epoch)
    return head + pack_ranges(record.finished, CURSOR_RANGES_MAX)


def unpack_cursor(data: bytes) -> CursorRecord:
    taking, floor, watermark, lease_epoch = _CURSOR.unpack_from(data)
    return CursorRecord(bool(taking), floor, watermark, lease_epoch, unpack_ranges(data[_CURSOR.size :]))


def cursor_key(queue_id: int, name: str) -> bytes:
    return _QUEUE_ID.pack(queue_id) + name.encode()


def split_cursor_key(key: bytes) -> tuple[int, str]:
    return _QUEUE_ID.unpack_from(key)[0], key[_QUEUE_ID.size :].decode()


def counters_key(queue_id: int) -> bytes:
    return b"q" + _QUEUE_ID.pack(queue_id)


TOMBSTONES: Final = b"e"
"""Of a row of table `node`: how many of a queue's entries are tombstones."""


def tombstones_key(queue_id: int) -> bytes:
    return TOMBSTONES + _QUEUE_ID.pack(queue_id)


LEAVING: Final = b"d"
"""Of a row of table `node`: a queue that was deleted, whose entries are still to leave the disk."""


def leaving_key(queue_id: int) -> bytes:
    return LEAVING + _QUEUE_ID.pack(queue_id)


BINDING: Final = b"b"
"""Of a row of table `node`: what a topic's subscription wants."""


def binding_key(queue_id: int, name: str) -> bytes:
    return BINDING + cursor_key(queue_id, name)


WINDOW: Final = Struct(">8s8s")
"""What a row of table `windows` begins with: the link's id, and the step's (steps/windows.py); its key follows."""


FAILURES: Final = b"v"
"""Of a row of table `node`: failed deliveries of an entry, by the queue's id, the sequence and the cursor's name."""
_FAILURES: Final = Struct(">I?")
_FAILURES_KEY: Final = Struct(">IQ")


def failures_key(queue_id: int, name: str, sequence: int) -> bytes:
    return FAILURES + _FAILURES_KEY.pack(queue_id, sequence) + name.encode()


def split_failures_key(key: bytes) -> tuple[int, str, int]:
    """(queue id, name, sequence) of a key of such a row."""
    queue_id, sequence = _FAILURES_KEY.unpack_from(key, 1)
    return queue_id, key[1 + _FAILURES_KEY.size :].decode(), sequence


def pack_failures(count: int, marked: bool) -> bytes:
    return _FAILURES.pack(count, marked)


def unpack_failures(data: bytes) -> tuple[int, bool]:
    """The count, and whether the entry was marked as shown beyond its cursor's watermark."""
    count, marked = _FAILURES.unpack(data)
    return count, marked


LIVES: Final = b"l"
"""Of a row of table `node`: below which sequences a cursor may have shown all in earlier lives of the node."""
_END: Final = Struct(">Q")


def lives_key(queue_id: int, name: str) -> bytes:
    return LIVES + cursor_key(queue_id, name)


def pack_lives(ends: Sequence[int]) -> bytes:
    return b"".join(map(_END.pack, ends))


def unpack_lives(data: bytes) -> tuple[int, ...]:
    return tuple(end for (end,) in _END.iter_unpack(data))


QUEUE_LINK: Final = b"k"
FEDERATION: Final = b"g"
"""Of a row of table `node`: a topic that goes to a neighbour, as a request made it (federation/stored.py)."""

"""Of a row of table `node`: a link between queues, by its name."""


def queue_link_key(name: str) -> bytes:
    return QUEUE_LINK + name.encode()


class QueueLinkRecord(NamedTuple):
    """A link between queues as `LinkConfig` has it; `link_id`: 8 bytes, never used again; `is_created`: created by a
    request, and not in the configuration; `steps`: those of a created link; `start`: where the link began."""

    source: str
    target: str
    selector: str
    mode: str
    link_id: bytes
    is_created: bool
    is_stopped: bool
    steps: str = ""
    start: str | int = FIRST


def pack_queue_link(record: QueueLinkRecord) -> bytes:
    return pack_map(record._asdict())


def unpack_queue_link(data: bytes) -> QueueLinkRecord:
    fields = unpack_map(data)
    fields.setdefault("steps", "")  # written before there were steps
    fields.setdefault("start", FIRST)
    return QueueLinkRecord(*(fields[name] for name in QueueLinkRecord._fields))


class BindingRecord(NamedTuple):
    """What a durable subscription of a topic wants: a pattern of subjects and a selector, "" for none; and whether
    several links share it. `not_from`: the digest of the container whose messages it excludes, b"" for none."""

    pattern: str
    selector: str
    is_shared: bool
    not_from: bytes = b""

    def is_like(self, other: "BindingRecord | None") -> bool:
        """Whether it is the same subscription, for any container."""
        if other is None or bool(self.not_from) != bool(other.not_from):
            return False
        return self == other._replace(not_from=self.not_from)


def pack_binding(record: BindingRecord) -> bytes:
    fields = record._asdict()
    if not record.not_from:  # as versions without it wrote it
        del fields["not_from"]
    return pack_map(fields)


def unpack_binding(data: bytes) -> BindingRecord:
    fields = unpack_map(data)
    not_from = fields.get("not_from", b"")
    return BindingRecord(
        str(fields["pattern"]), str(fields["selector"]), bool(fields["is_shared"]),
        not_from if isinstance(not_from, bytes) else b"",
    )  # fmt: skip


TIMED: Final = b"t"
"""Of a row of table `node`: the sequences of a queue within which entries with a time to live are, [first, end)."""


def timed_key(queue_id: int) -> bytes:
    return TIMED + _QUEUE_ID.pack(queue_id)


NUMBERED_BY: Final = b"u"
"""Of a row of table `custody`: the store that gave the numbers of this node."""

NAME: Final = b"name"
"""Of a row of table `node`: the name under which the store was opened last."""
FIRST_NAME: Final = b"first-name"
"""The same of the name whose origins are in table `origins`; of other names they are in `custody`, by `origin_key`."""
WAITED: Final = b"waited"
"""The same of the names for which came what waits in `$waiting`."""


def pack_waited(waited: Sequence[tuple[int, str]]) -> bytes:
    """(end of its sequences, name) of each name but the present one."""
    return encode([[Ulong(end), name] for end, name in waited])


def unpack_waited(data: bytes) -> tuple[tuple[int, str], ...]:
    try:
        rows, _ = decode(data)
    except RemoteProtocolError as error:
        raise StorageError(f"a record of the store cannot be read: {error.description}") from error
    return tuple((int(end), str(name)) for end, name in rows)


def origin_key(origin: UUID, suffix: str) -> tuple[str, bytes]:
    """Table and key of an origin's record; `suffix`: see `origins.Origin`."""
    return ("custody", NAMED_ORIGIN + origin.bytes + suffix.encode()) if suffix else ("origins", origin.bytes)


NAMED_ORIGIN: Final = b"f"
"""Of a row of table `custody`: an origin's record, of what it numbered for another name of this node than the first."""


def pack_producer(epoch: int, used_ms: int, stored: RangeSet) -> bytes:
    return _PRODUCER.pack(epoch, used_ms) + pack_ranges(stored)


def unpack_producer(data: bytes) -> tuple[int, int, RangeSet]:
    epoch, used_ms = _PRODUCER.unpack_from(data)
    return epoch, used_ms, unpack_ranges(data[_PRODUCER.size :])


class OriginRecord(NamedTuple):
    """What a destination stores of an origin; `finished` is above `mark`, `ended` anywhere. `waited_s`: of the oldest
    gap, the only time in rows of earlier versions.
    """

    mark: int
    passed: int
    waited_s: float
    finished: RangeSet
    ended: RangeSet
    clocks: GapClocks


def pack_origin(record: OriginRecord) -> bytes:
    head = _ORIGIN.pack(record.mark, record.passed, record.waited_s, len(record.finished), len(record.ended))
    clocks = b"".join([_CLOCK.pack(last, waited_s) for last, waited_s in record.clocks])
    return head + pack_ranges(record.finished) + pack_ranges(record.ended) + clocks


def unpack_origin(data: bytes) -> OriginRecord:
    mark, passed, waited_s, finished, ended = _ORIGIN.unpack_from(data)
    split = _ORIGIN.size + finished * PAIRS.size
    end = split + ended * PAIRS.size
    return OriginRecord(
        mark,
        passed,
        waited_s,
        unpack_ranges(data[_ORIGIN.size : split]),
        unpack_ranges(data[split:end]),
        GapClocks(_CLOCK.iter_unpack(data[end:])),
    )


class BlobRecord(NamedTuple):
    """A blob: its length so far, the pieces that may still exist, [first, end), and the entries that refer to it,
    (queue id, sequence) each. Without an entry it is deleted, piece by piece."""

    length: int
    first: int
    end: int
    places: tuple[tuple[int, int], ...]


def pack_blob(record: BlobRecord) -> bytes:
    places = b"".join(_PLACE.pack(*place) for place in record.places)
    return _BLOB.pack(record.length, record.first, record.end) + places


def unpack_blob(data: bytes) -> BlobRecord:
    length, first, end = _BLOB.unpack_from(data)
    return BlobRecord(length, first, end, tuple(_PLACE.iter_unpack(data[_BLOB.size :])))


def blob_key(blob: int) -> bytes:
    return _BLOB_KEY.pack(blob)


def split_blob_key(key: bytes) -> int:
    return int(_BLOB_KEY.unpack(key)[0])


@dataclass(slots=True)
class Renewal:
    """The renumbering of one destination's queue, after a store was put back and got a new UUID: entries from `first`
    on that have a number of `store` from `since` on get new numbers. `place`: where this run of the node continues;
    `following`: the next number of `store`, until the pass has caught up; `done`: it has caught up, and the batch that
    says so may not be on disk yet. These three are not stored.
    """

    store: UUID
    since: int
    first: int
    place: int
    following: int = 1 << 62
    done: bool = False


def pack_renewal(renewal: Renewal) -> bytes:
    return RENEWAL.pack(renewal.store.bytes, renewal.since, renewal.first)


def unpack_renewal(data: bytes) -> Renewal:
    store, since, first = RENEWAL.unpack(data)
    return Renewal(UUID(bytes=store), since, first, first)


class LossRecord(NamedTuple):
    """Lost numbers of an origin, [first, last]; given up at `at_ms` by the wall clock."""

    origin: UUID
    first: int
    last: int
    at_ms: int
    reason: str


def pack_loss(record: LossRecord) -> bytes:
    return _LOSS.pack(record.origin.bytes, *record[1:4]) + record.reason.encode()


def unpack_loss(data: bytes) -> LossRecord:
    origin, first, last, at_ms = _LOSS.unpack_from(data)
    return LossRecord(UUID(bytes=origin), first, last, at_ms, data[_LOSS.size :].decode())


def loss_key(number: int) -> bytes:
    return number.to_bytes(8, "big")


def split_loss_key(key: bytes) -> int:
    if len(key) != 8:
        raise ValueError("no number of a loss")
    return int.from_bytes(key, "big")


LOSS_TOTALS: Final = b"all"
"""Of the one row of table `losses` that is no loss."""


class LossTotals(NamedTuple):
    """Since the store was made: ranges that were lost, the numbers in them, when the first was (0: none), dead letters
    that went at a bound, and their bytes."""

    ranges: int = 0
    numbers: int = 0
    since_ms: int = 0
    dropped: int = 0
    dropped_bytes: int = 0

    def with_one(self, loss: LossRecord) -> "LossTotals":
        numbers = self.numbers + loss.last - loss.first + 1
        return self._replace(ranges=self.ranges + 1, numbers=numbers, since_ms=self.since_ms or loss.at_ms)

    def without(self, loss: LossRecord) -> "LossTotals":
        numbers = self.numbers - (loss.last - loss.first + 1)
        return self._replace(ranges=self.ranges - 1, numbers=numbers, since_ms=self.since_ms if self.ranges > 1 else 0)


def pack_loss_totals(totals: LossTotals) -> bytes:
    return _LOSS_TOTALS.pack(*totals)


def unpack_loss_totals(data: bytes) -> LossTotals:
    return LossTotals(*_LOSS_TOTALS.unpack(data))


def pack_hop(epoch: bytes, last: int) -> bytes:
    return _HOP.pack(epoch, last)


def unpack_hop(data: bytes) -> tuple[bytes, int]:
    epoch, last = _HOP.unpack(data)
    return epoch, last


def pack_link(hold_s: float, target: str, tags: TagRing) -> bytes:
    """A producer's link that may be resumed: how many seconds it is kept, its target's address, and its stored tags."""
    address = target.encode()
    return _LINK.pack(hold_s, len(address)) + address + tags.pack()


def unpack_link(data: bytes, count_max: int) -> tuple[float, str, TagRing]:
    hold_s, size = _LINK.unpack_from(data)
    at = _LINK.size + size
    return hold_s, data[_LINK.size : at].decode(), TagRing.unpack(data[at:], count_max)
