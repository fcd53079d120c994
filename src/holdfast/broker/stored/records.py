"""The layout of rows in the small tables (port.TABLES): queues, cursors, producers, blobs, links between queues.

The rows of custody are in custody_records.py, those of losses in loss_records.py.

Rules of this file: pure packing, one pair of functions for each table; fixed layouts by `struct`, whose sizes their
owners bound.
"""

from collections.abc import Sequence
from itertools import islice
from struct import Struct
from typing import Any, Final, NamedTuple

from holdfast.amqp.wire.decoding import decode
from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.types import Symbol
from holdfast.broker.beginnings import FIRST
from holdfast.broker.stored.bounds import NO_BOUNDS, Bounds
from holdfast.broker.stored.ranges import RangeSet
from holdfast.errors import RemoteProtocolError, StorageError

PAIRS: Final = Struct(">QQ")
_CURSOR: Final = Struct(">BQQQ")
_PRODUCER: Final = Struct(">QQ")
_BLOB: Final = Struct(">QII")
_BLOB_KEY: Final = Struct(">Q")
_PLACE: Final = Struct(">IQ")
_QUEUE_ID: Final = Struct(">I")


CURSOR_RANGES_MAX: Final = 65_500
"""Ranges in a cursor's record, which fills a row of the store with them."""


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
"""Of a row of table `node`: the pattern, selector and bounds of a topic's subscription."""


def binding_key(queue_id: int, name: str) -> bytes:
    return BINDING + cursor_key(queue_id, name)


WINDOW: Final = Struct(">8s8s")
"""The beginning of a row of table `windows`: the link's id, and the step's (steps/windows.py); its key follows."""


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
"""Of a row of table `node`: the sequences below which a cursor may have shown entries in earlier runs of the node."""
_END: Final = Struct(">Q")


def lives_key(queue_id: int, name: str) -> bytes:
    return LIVES + cursor_key(queue_id, name)


def pack_lives(ends: Sequence[int]) -> bytes:
    return b"".join(map(_END.pack, ends))


def unpack_lives(data: bytes) -> tuple[int, ...]:
    return tuple(end for (end,) in _END.iter_unpack(data))


QUEUE_LINK: Final = b"k"
"""Of a row of table `node`: a link between queues, by its name."""

FEDERATION: Final = b"g"
"""Of a row of table `node`: a topic that goes to a neighbour, created by a request (federation/stored.py)."""


SERVICE: Final = b"/"
"""Of a row of table `node`: the address that the name of a service means (endpoints/addresses/services.py)."""


DRAIN: Final = b"node-drain"
"""A row of table `node`: since when the node is drained (endpoints/addresses/node_drain.py)."""


def service_key(name: str) -> bytes:
    return SERVICE + name.encode()


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
    """A durable subscription of a topic: its pattern of subjects and its selector, "" for none; and whether several
    links share it. `not_from`: the digest of the container whose messages it excludes, b"" for none. `bounds`: its own;
    `told`: the bounds in the node's file when they were last applied (docs/adr/0096)."""

    pattern: str
    selector: str
    is_shared: bool
    not_from: bytes = b""
    bounds: Bounds = NO_BOUNDS
    told: Bounds = NO_BOUNDS

    def is_like(self, other: "BindingRecord | None") -> bool:
        """Whether it is the same subscription, for any container and with any bounds."""
        if other is None or bool(self.not_from) != bool(other.not_from):
            return False
        return self == other._replace(not_from=self.not_from).bounded_as(self)

    def bounded_as(self, other: "BindingRecord") -> "BindingRecord":
        """This record with the bounds of that one."""
        return self._replace(bounds=other.bounds, told=other.told)


def pack_binding(record: BindingRecord) -> bytes:
    fields: dict[str, Any] = {key: getattr(record, key) for key in ("pattern", "selector", "is_shared")}
    later = {"not_from": record.not_from, **record.bounds._asdict(), "told": _given(record.told)}
    return pack_map(fields | {key: value for key, value in later.items() if value})  # as earlier versions wrote it


def unpack_binding(data: bytes) -> BindingRecord:
    fields = unpack_map(data)
    not_from, told = fields.get("not_from", b""), fields.get("told")
    return BindingRecord(
        str(fields["pattern"]), str(fields["selector"]), bool(fields["is_shared"]),
        not_from if isinstance(not_from, bytes) else b"",
        _bounds(fields), _bounds(told) if isinstance(told, dict) else NO_BOUNDS,
    )  # fmt: skip


def _given(bounds: Bounds) -> dict[str, Any]:
    return {key: value for key, value in bounds._asdict().items() if value}


def _bounds(fields: dict[str, Any]) -> Bounds:
    numbers = {key: int(fields.get(key, 0)) for key in ("messages_max", "bytes_max", "idle_s")}
    return Bounds(when_full=str(fields.get("when_full", "")), **numbers)


TIMED: Final = b"t"
"""Of a row of table `node`: the sequences of a queue within which entries with a time to live are, [first, end)."""


def timed_key(queue_id: int) -> bytes:
    return TIMED + _QUEUE_ID.pack(queue_id)


def pack_producer(epoch: int, used_ms: int, stored: RangeSet) -> bytes:
    return _PRODUCER.pack(epoch, used_ms) + pack_ranges(stored)


def unpack_producer(data: bytes) -> tuple[int, int, RangeSet]:
    epoch, used_ms = _PRODUCER.unpack_from(data)
    return epoch, used_ms, unpack_ranges(data[_PRODUCER.size :])


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
