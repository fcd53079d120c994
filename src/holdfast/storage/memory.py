"""A store in memory: the same contract as LMDB's, gone with the process. For tests and simulated nodes.

Rules of this file: no disk, no clock. One lock, because `commit` may run in a writer's thread.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from uuid import UUID, uuid4

from holdfast.errors import StorageError, StorageFull
from holdfast.storage.bounds import check_entries, check_pieces, check_rows, check_table
from holdfast.storage.port import Batch, Rows, Space

__all__ = ["MemoryStore"]

ENTRY_OVERHEAD_BYTES = 32
"""Bytes that an entry counts in addition to its value, so that empty values fill a store too."""

ROOM_UNBOUNDED_BYTES = 1 << 40
PIECES_A_BYTE = 2
SHARED_BYTES = 1 << 40
"""There is no separate limit: a batch that does not fit is refused."""


class _Queue:
    """Entries of one queue: values by sequence, and the sequences in order, swept when half are retired."""

    __slots__ = ("order", "values")

    def __init__(self) -> None:
        self.values: dict[int, bytes] = {}
        self.order: list[int] = []

    def put(self, sequence: int, value: bytes) -> None:
        if sequence not in self.values:
            order = self.order
            if not order or order[-1] < sequence:
                order.append(sequence)
            else:
                place = bisect_left(order, sequence)
                if order[place] != sequence:
                    insort(order, sequence)
        self.values[sequence] = value

    def remove(self, sequence: int) -> bytes | None:
        value = self.values.pop(sequence, None)
        # Sweep when half is dead: each sequence is copied a constant number of times at most.
        if len(self.order) > 64 and len(self.order) > 2 * len(self.values):
            self.order = [kept for kept in self.order if kept in self.values]
        return value


class MemoryStore:
    """`bytes_max`: bytes of entries and tables together (None: no limit). `mint_from` gives the UUIDs.

    `room_bytes` leaves an eighth of `bytes_max` aside for what must always go through.
    """

    def __init__(self, *, bytes_max: int | None = None, mint_from: Callable[[], UUID] = uuid4) -> None:
        self._bytes_max = self._bytes_most = bytes_max
        self._mint_from = mint_from
        self._queues: dict[int, _Queue] = {}
        self._tables: dict[tuple[str, bytes], bytes] = {}
        self._blobs: dict[int, dict[int, bytes]] = {}
        self._bytes_used = 0
        self._lock = Lock()
        self._closed = False
        self.uuid: UUID = mint_from()
        self.copied: str | None = None
        """See `Store.copied`; set by who puts a copy in its place."""
        self.on_disk = False
        self.missing: str | None = None
        """What `gone` says; set by a test that removes its file, together with `on_disk`."""

    def mint(self, rows: Callable[[UUID], Rows] | None = None) -> UUID:
        """See `Store.mint`."""
        fresh = self.draw_uuid()
        self.commit(Batch(mint=fresh, puts=dict(rows(fresh)) if rows is not None else {}))
        return fresh

    def draw_uuid(self) -> UUID:
        """See `Store.draw_uuid`."""
        return self._mint_from()

    def table(self, name: str) -> Iterator[tuple[bytes, bytes]]:
        """See `Store.table`."""
        self._check()
        check_table(name)
        with self._lock:
            found = [(key, value) for (table, key), value in self._tables.items() if table == name]
        return iter(sorted(found))

    def read(self, queue_id: int, first: int, *, count_max: int, bytes_max: int) -> list[tuple[int, bytes]]:
        """See `EntryReader.read`."""
        self._check()
        found: list[tuple[int, bytes]] = []
        with self._lock:
            queue = self._queues.get(queue_id)
            if queue is None:
                return found
            order, values = queue.order, queue.values
            for place in range(bisect_left(order, first), len(order)):
                value = values.get(order[place])
                if value is None:
                    continue
                bytes_max -= len(value)
                if found and (bytes_max < 0 or len(found) >= count_max):
                    break
                found.append((order[place], value))
        return found

    def get(self, queue_id: int, sequence: int) -> bytes | None:
        """See `EntryReader.get`."""
        self._check()
        with self._lock:
            queue = self._queues.get(queue_id)
            return None if queue is None else queue.values.get(sequence)

    def get_all(self, queue_id: int, sequences: Sequence[int], *, bytes_max: int) -> dict[int, bytes]:
        """See `EntryReader.get_all`."""
        self._check()
        found: dict[int, bytes] = {}
        with self._lock:
            queue = self._queues.get(queue_id)
            values = {} if queue is None else queue.values
            for sequence in sequences:
                value = values.get(sequence)
                if value is not None:
                    found[sequence] = value
                    bytes_max -= len(value)
                    if bytes_max <= 0:
                        break
        return found

    def piece(self, blob: int, index: int) -> bytes | None:
        """See `EntryReader.piece`."""
        self._check()
        with self._lock:
            return self._blobs.get(blob, {}).get(index)

    def commit(self, batch: Batch) -> None:
        """See `Store.commit`."""
        self._check()
        check_rows(batch)
        check_entries([(queue_id, sequence) for queue_id, sequence, _ in batch.appends])
        check_entries(batch.retires)
        check_pieces(batch)
        with self._lock:
            if self.missing is not None and (batch.appends or batch.pieces):
                raise StorageFull(f"the store in memory: {self.missing}: nothing is added to it")
            # A batch that adds nothing is never refused, however full the store is.
            if self._bytes_max is not None and (batch.appends or batch.pieces):
                adds = sum(len(value) + ENTRY_OVERHEAD_BYTES for _, _, value in batch.appends)
                adds += sum(len(key) + len(value) for (_, key), value in batch.puts.items())
                adds += sum(len(data) + ENTRY_OVERHEAD_BYTES for _, _, data in batch.pieces)
                if self._bytes_used + adds > self._bytes_max:
                    raise StorageFull(
                        f"the store in memory is full: {self._bytes_used} bytes of {self._bytes_max} "
                        f"are taken, {adds} more do not fit"
                    )
            self._apply(batch)

    def _apply(self, batch: Batch) -> None:
        if batch.mint is not None:
            self.uuid, self.copied = batch.mint, None
        used = self._bytes_used
        for table, key in batch.deletes:
            old = self._tables.pop((table, key), None)
            if old is not None:
                used -= len(key) + len(old)
        for place, value in batch.puts.items():
            old = self._tables.get(place)
            used += len(value) - len(old) if old is not None else len(place[1]) + len(value)
            self._tables[place] = bytes(value)
        for queue_id, sequence in batch.retires:
            queue = self._queues.get(queue_id)
            if queue is not None:
                gone = queue.remove(sequence)
                if gone is not None:
                    used -= len(gone) + ENTRY_OVERHEAD_BYTES
                    if not queue.values:
                        del self._queues[queue_id]
        for blob, first, end in batch.drops:
            used -= self._drop(blob, first, end)
        for queue_id, sequence, value in batch.appends:
            queue = self._queues.get(queue_id)
            if queue is None:
                queue = self._queues[queue_id] = _Queue()
            old = queue.values.get(sequence)
            used += len(value) - len(old) if old is not None else len(value) + ENTRY_OVERHEAD_BYTES
            queue.put(sequence, bytes(value))
        for blob, index, data in batch.pieces:
            pieces = self._blobs.setdefault(blob, {})
            old = pieces.get(index)
            used += len(data) - len(old) if old is not None else len(data) + ENTRY_OVERHEAD_BYTES
            pieces[index] = bytes(data)
        self._bytes_used = used

    def _drop(self, blob: int, first: int, end: int) -> int:
        """Removes pieces; returns the bytes that they counted."""
        pieces = self._blobs.get(blob, {})
        gone = [pieces.pop(index) for index in sorted(pieces) if first <= index < end]
        if not pieces:
            self._blobs.pop(blob, None)
        return sum(len(data) + ENTRY_OVERHEAD_BYTES for data in gone)

    def room_bytes(self) -> int:
        """See `Store.room_bytes`."""
        self._check()
        if self.missing is not None:
            return -ROOM_UNBOUNDED_BYTES
        if self._bytes_max is None:
            return ROOM_UNBOUNDED_BYTES
        # Half of what is free: the room is told in bytes of values, of any size.
        return (self._bytes_max - self._bytes_max // 8 - self._bytes_used) // PIECES_A_BYTE

    def room_bytes_possible(self) -> int:
        """See `Store.room_bytes_possible`: nothing here grows."""
        return self.room_bytes()

    def growth_bytes(self) -> int:
        """See `Store.growth_bytes`."""
        return 0

    def room_bytes_most(self) -> int:
        """See `Store.room_bytes_most`."""
        most = self._bytes_most
        return ROOM_UNBOUNDED_BYTES if most is None else (most - most // 8) // PIECES_A_BYTE

    @property
    def pieces_a_byte(self) -> int:
        """See `Store.pieces_a_byte`."""
        return PIECES_A_BYTE

    def gone(self) -> str | None:
        """See `Store.gone`."""
        return self.missing

    def space(self) -> Space:
        """See `Store.space`; nobody else takes what is free."""
        most = ROOM_UNBOUNDED_BYTES if self._bytes_max is None else self._bytes_max
        return Space(self._bytes_used, most, max(0, most - self._bytes_used))

    @property
    def shared_bytes(self) -> int:
        """See `Store.shared_bytes`."""
        return SHARED_BYTES

    def bytes_on_disk(self) -> int:
        """Nothing here is on a disk: the bytes held, as they are counted against `bytes_max`."""
        self._check()
        return self._bytes_used

    def close(self) -> None:
        """See `Store.close`; what was stored is gone."""
        with self._lock:
            self._closed = True
            self._queues.clear()
            self._tables.clear()
            self._blobs.clear()

    def _check(self) -> None:
        if self._closed:
            raise StorageError("the store in memory is closed")
