"""The small tables of a store, row by row, as `holdfast store check` reads them: every kind of row that a node writes.

Rules of this file: every new kind of row is added here; `tests/sim/test_stores_checked.py` has nodes write all kinds,
and nothing found.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from struct import Struct
from struct import error as StructError
from typing import Any, Final
from uuid import UUID

import lmdb

from holdfast.broker.entries.host_names import read_key
from holdfast.broker.queue import COUNTERS
from holdfast.broker.stored import custody_records, loss_records, records
from holdfast.errors import StorageError
from holdfast.federation import stored as federation
from holdfast.storage.port import PIECE_BYTES, TABLES

__all__ = ["CUSTODY_ROWS", "NODE_ROWS", "NODE_WORDS", "Checked", "QueueRows", "Rows"]

FINDINGS_MAX: Final = 1_000
"""Number of findings that are kept; further ones are only counted."""

_ID: Final = Struct(">I")
WINDOW_BYTES_MIN: Final = 8
"""A window's row begins with the time at which it began."""


@dataclass(slots=True)
class Checked:
    """The findings. `backup`: when the backup was made, if it is one; `leaving`: entries of deleted queues."""

    schema: int = 0
    store: UUID | None = None
    backup: str | None = None
    pages: int = 0
    queues: int = 0
    entries: int = 0
    bytes: int = 0
    leaving: int = 0
    found: int = 0
    findings: list[str] = field(default_factory=list)

    def find(self, text: str) -> None:
        self.found += 1
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(text)


@dataclass(slots=True)
class QueueRows:
    """A queue according to its rows, and according to its entries."""

    name: str
    durable: bool
    is_topic: bool = False
    next_sequence: int = 1
    messages: int = 0
    size: int = 0
    found: int = 0
    found_size: int = 0
    last: int = 0


class Rows:
    """What the rows say. `places`: by (queue id, sequence) the blob whose record says that this entry refers to it;
    `leaving`: ids of deleted queues, whose entries a node takes off the disk bit by bit."""

    def __init__(self, checked: Checked) -> None:
        self.checked = checked
        self.queues: dict[int, QueueRows] = {}
        self.leaving: set[int] = set()
        self.blobs: dict[int, records.BlobRecord] = {}
        self.places: dict[tuple[int, int], int] = {}

    def read(self, txn: "lmdb.Transaction[bytes]", tables: Any) -> None:
        """The queues come first, since other rows refer to them."""
        rows: dict[str, list[tuple[bytes, bytes]]] = {name: [] for name in TABLES}
        with txn.cursor(db=tables) as cursor:
            for key, value in cursor:
                name, nul, rest = key.partition(b"\0")
                if not nul or (table := name.decode(errors="replace")) not in rows:
                    self.checked.find(f"tables: key {key!r} belongs to no table")
                else:
                    rows[table].append((rest, value))
        for table in TABLES:
            for key, value in rows[table]:
                self._row(table, key, value)

    def _row(self, table: str, key: bytes, value: bytes) -> None:
        try:
            _ROWS[table](self, key, value)
        except (StorageError, StructError, ValueError, KeyError, TypeError, AttributeError) as error:
            self.checked.find(f"table {table}: row {key!r} cannot be read ({type(error).__name__}: {error})")

    def _queue_row(self, key: bytes, value: bytes) -> None:
        host, name = read_key(key.decode())
        name += f" of virtual host {host}" if host else ""
        fields = records.unpack_map(value)
        queue_id = int(fields["id"])
        if not isinstance(fields["uuid"], UUID):
            self.checked.find(f"queue {name!r}: it has no UUID")
        if queue_id in self.queues:
            self.checked.find(f"queue {name!r}: has the id {queue_id}, as queue {self.queues[queue_id].name!r} has")
            return
        self.queues[queue_id] = QueueRows(name, bool(fields["durable"]), bool(fields.get("topic")))

    def _subscription_row(self, key: bytes, value: bytes) -> None:
        queue_id, name = records.split_cursor_key(key)
        cursor = records.unpack_cursor(value)
        if queue_id not in self.queues:
            self.checked.find(f"subscription {name!r}: there is no queue with the id {queue_id}")
        for first, last in cursor.finished:
            if not cursor.floor <= first <= last:
                self.checked.find(f"subscription {name!r}: it is at {cursor.floor}, finished {first} to {last}")
                break

    def _custody_row(self, key: bytes, value: bytes) -> None:
        row = CUSTODY_ROWS.get(key[:1])
        if row is None:
            raise ValueError(f"kind {key[:1]!r}")
        row(self, key[1:], value)

    def _number_row(self, key: bytes, value: bytes) -> None:
        key.decode()
        _exactly(value, 8)

    def _passing_row(self, key: bytes, value: bytes) -> None:
        UUID(bytes=key[:16])
        self._number_row(key[16:], value)

    def _replaced_row(self, key: bytes, _: bytes) -> None:
        UUID(bytes=key)

    def _numbered_by_row(self, _: bytes, value: bytes) -> None:
        UUID(bytes=value)

    def _neighbour_row(self, key: bytes, value: bytes) -> None:
        key.decode()
        UUID(bytes=value)

    def _renewal_row(self, key: bytes, value: bytes) -> None:
        key.decode()
        custody_records.unpack_renewal(value)

    def _named_origin_row(self, key: bytes, value: bytes) -> None:
        key[16:].decode()
        self._origin_row(key[:16], value)

    def _hop_row(self, _: bytes, value: bytes) -> None:
        custody_records.unpack_hop(value)

    def _link_row(self, _: bytes, value: bytes) -> None:
        custody_records.unpack_link(value, len(value))

    def _origin_row(self, key: bytes, value: bytes) -> None:
        UUID(bytes=key)
        origin = custody_records.unpack_origin(value)
        for first, _ in origin.finished:
            if first <= origin.mark:
                self.checked.find(f"origin {UUID(bytes=key)}: its mark is {origin.mark}, {first} is kept beyond it")
                break

    def _producer_row(self, key: bytes, value: bytes) -> None:
        key.decode().index("\0")
        records.unpack_producer(value)

    def _node_row(self, key: bytes, value: bytes) -> None:
        if key in NODE_WORDS:
            NODE_WORDS[key](value)
            return
        if key[:1] == records.QUEUE_LINK:
            key.decode()
            records.unpack_queue_link(value)
            return
        if key[:1] == records.SERVICE:
            key.decode(), value.decode()
            return
        if key[:1] == records.FEDERATION:
            federation.check_row(key, value)
            return
        if key[:1] == records.FAILURES:
            records.unpack_failures(value)
            self._has_queue(records.split_failures_key(key)[0], "failed deliveries")
            return
        if key[:1] == records.LIVES:
            records.unpack_lives(value)
            self._has_queue(records.split_cursor_key(key[1:])[0], "what it may have shown")
            return
        if key[:1] == records.BINDING:
            self._binding_row(key[1:], value)
            return
        kind = key[:2] if key[:2] in NODE_ROWS else key[:1]
        row = NODE_ROWS.get(kind)
        if row is None:
            raise ValueError("no such row")
        row(self, _ID.unpack(key[len(kind) :])[0], value)

    def _binding_row(self, key: bytes, value: bytes) -> None:
        queue_id, name = records.split_cursor_key(key)
        records.unpack_binding(value)
        if self._has_queue(queue_id, f"what subscription {name!r} wants") and not self.queues[queue_id].is_topic:
            self.checked.find(f"subscription {name!r}: queue {self.queues[queue_id].name!r} is no topic")

    def _counters_row(self, queue_id: int, value: bytes) -> None:
        counted = COUNTERS.unpack(value)
        if self._has_queue(queue_id, "counters") and (queue := self.queues[queue_id]).durable:
            queue.next_sequence, queue.messages, queue.size, _ = counted

    def _tombstones_row(self, queue_id: int, value: bytes) -> None:
        _exactly(value, 8)
        self._has_queue(queue_id, "tombstones")

    def _counts_row(self, _: int, value: bytes) -> None:
        list(records.PAIRS.iter_unpack(value))

    def _timed_row(self, queue_id: int, value: bytes) -> None:
        records.PAIRS.unpack(value)
        self._has_queue(queue_id, "times to live")

    def _leaving_row(self, queue_id: int, _: bytes) -> None:
        self.leaving.add(queue_id)

    def _has_queue(self, queue_id: int, what: str) -> bool:
        if queue_id not in self.queues:
            self.checked.find(f"{what} of queue id {queue_id}: there is no such queue")
        return queue_id in self.queues

    def _window_row(self, key: bytes, value: bytes) -> None:
        records.WINDOW.unpack_from(key)
        if len(value) < WINDOW_BYTES_MIN:
            raise ValueError(f"it has {len(value)} bytes, expected {WINDOW_BYTES_MIN} or more")

    def _bindings_row(self, key: bytes, value: bytes) -> None:
        federation.check_row(key, value)

    def _loss_row(self, key: bytes, value: bytes) -> None:
        if key == loss_records.LOSS_TOTALS:
            loss_records.unpack_loss_totals(value)
        else:
            number, loss = loss_records.split_loss_key(key), loss_records.unpack_loss(value)
            if not loss.first <= loss.last:
                self.checked.find(f"loss {number}: {loss.first} to {loss.last}")

    def _blob_row(self, key: bytes, value: bytes) -> None:
        blob = records.split_blob_key(key)
        record = self.blobs[blob] = records.unpack_blob(value)
        wanted = -(-record.length // PIECE_BYTES)
        if record.first > record.end or record.end != wanted:
            found = f"[{record.first}, {record.end})"
            self.checked.find(f"blob {blob}: {record.length} bytes in the pieces {found}, expected an end at {wanted}")
        for place in record.places:
            if record.first or self.places.setdefault(place, blob) != blob:
                self.checked.find(f"blob {blob}: queue id {place[0]}, sequence {place[1]} cannot refer to it")


def _exactly(value: bytes, size: int) -> None:
    if len(value) != size:
        raise ValueError(f"it has {len(value)} bytes, expected {size}")


_ROWS: Final[dict[str, Callable[[Rows, bytes, bytes], None]]] = {
    "queues": Rows._queue_row,
    "subscriptions": Rows._subscription_row,
    "custody": Rows._custody_row,
    "origins": Rows._origin_row,
    "producers": Rows._producer_row,
    "node": Rows._node_row,
    "blobs": Rows._blob_row,
    "losses": Rows._loss_row,
    "windows": Rows._window_row,
    "bindings": Rows._bindings_row,
}


CUSTODY_ROWS: Final[dict[bytes, Callable[[Rows, bytes, bytes], None]]] = {
    b"i": Rows._number_row,
    b"r": Rows._number_row,
    b"m": Rows._passing_row,
    b"o": Rows._replaced_row,
    custody_records.NUMBERED_BY: Rows._numbered_by_row,
    b"n": Rows._neighbour_row,
    b"w": Rows._renewal_row,
    custody_records.NAMED_ORIGIN: Rows._named_origin_row,
    b"h": Rows._hop_row,
    b"l": Rows._link_row,
}
"""By the first byte of the key; each is given the rest of it."""

NODE_ROWS: Final[dict[bytes, Callable[[Rows, int, bytes], None]]] = {
    b"q": Rows._counters_row,
    b"cq": Rows._counts_row,
    records.TOMBSTONES: Rows._tombstones_row,
    records.TIMED: Rows._timed_row,
    records.LEAVING: Rows._leaving_row,
}
"""By the prefix of a queue's id."""

NODE_WORDS: Final[dict[bytes, Callable[[bytes], object]]] = {
    custody_records.STEADY: lambda value: _exactly(value, 8),
    custody_records.WALL: lambda value: _exactly(value, 8),
    custody_records.NAME: bytes.decode,
    custody_records.FIRST_NAME: bytes.decode,
    custody_records.WAITED: custody_records.unpack_waited,
    records.DRAIN: records.unpack_map,
}
"""By the whole key."""
