"""Reads everything that a stopped store holds, and reports what is wrong, one line for each finding.

Rules of this file: changes nothing. First the pages, by `pread`; only a file whose trees are whole is then read
through LMDB, which would die of the others. What a node keeps in two places (a queue's counters and its entries, a
value and its chunks) is held against each other.
"""

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from struct import Struct
from struct import error as StructError
from typing import Any, Final

import lmdb

from holdfast.broker.entries import entry, packed
from holdfast.broker.stored import records
from holdfast.errors import StorageError
from holdfast.storage.files.copying import Watch, open_quiet
from holdfast.storage.files.directory import DATA, hold_to_read, no_store, refusal
from holdfast.storage.layout.pages import SUB, Damage, Tree, Walk, read_root, tree_of
from holdfast.storage.layout.records import CHUNK_BYTES
from holdfast.storage.layout.schema import (
    BACKUP_KEY,
    DATABASES,
    FILE_KEY,
    SCHEMA,
    SCHEMA_KEY,
    UUID_KEY,
    databases,
    read_identity,
)
from holdfast.storage.port import PIECE_BYTES
from holdfast.storage.upkeep.check_rows import Checked, Rows

__all__ = ["Checked", "check"]

WATCH_EVERY: Final = 4_096
"""Pages or records between two calls of `watch`."""

PLACE: Final = Struct(">IQ")
PIECE: Final = Struct(">QI")


def check(path: Path, watch: Watch | None = None) -> Checked:
    """Checks everything in the store, or the backup, in `path`. `watch` is called with (done, all), of pages first and
    then of records.

    Raises `StorageError` where there is no store, a node runs on it, or its layout is not read here.
    """
    if not (path / DATA).is_file():
        raise no_store(path)
    lock = hold_to_read(path)
    checked = Checked()
    try:
        with (path / DATA).open("rb") as file:
            whole = _check_pages(file.fileno(), checked, watch)
        if whole:
            with open_quiet(path) as env:
                checked.schema, checked.store, checked.backup = read_identity(env, path)
                if checked.schema != SCHEMA:
                    raise StorageError(
                        f"store {path} has schema {checked.schema}, and a check reads {SCHEMA} only; start a node on "
                        "it, or run `holdfast store restore`, to bring it to that"
                    )
                _Contents(env, checked, watch).check()
    except (lmdb.Error, OSError) as error:
        raise refusal(path, error) from error
    finally:
        if lock >= 0:
            os.close(lock)
    return checked


# ---------------------------------------------------------------------------------------------------- pages


def _check_pages(fd: int, checked: Checked, watch: Watch | None) -> bool:
    """Whether the trees are whole, so that LMDB may read them."""
    root = read_root(fd)
    if root is None:
        checked.find("data.mdb: it is no LMDB file of this machine's kind")
        return False
    length = os.fstat(fd).st_size
    if length < root.bytes:
        checked.find(f"data.mdb is cut short; it has {length} bytes, expected {root.bytes}")
        return False
    seen = 0

    def on_page() -> None:
        nonlocal seen
        seen += 1
        if watch is not None and seen % WATCH_EVERY == 0:
            watch(seen, max(seen, checked.pages))

    checked.pages = root.last_page + 1
    walk = Walk(fd, root, on_page)
    try:
        trees = [node for node in walk.nodes(root.main, "the unnamed database") if node.flags & SUB]
        for node in trees:
            _check_tree(walk, node.key, tree_of(node))
        walk.free_list()
    except Damage as damage:
        checked.find(f"data.mdb: {damage}")
        return False
    if lost := walk.unaccounted():
        checked.find(f"data.mdb: {lost} pages are neither used nor free: `holdfast store compact` gives them back")
    return True


def _check_tree(walk: Walk, key: bytes, tree: Tree) -> None:
    what = f"database {key.decode(errors='replace')}"
    before = b""
    for node in walk.nodes(tree, what):
        if node.key <= before:
            raise Damage(f"{what}: key {node.key.hex()} comes after {before.hex()}")
        before = node.key


# ---------------------------------------------------------------------------------------------------- contents


class _Contents:
    """Records of the databases, in one read transaction."""

    def __init__(self, env: lmdb.Environment, checked: Checked, watch: Watch | None) -> None:
        self.env = env
        self.checked = checked
        self.watch = watch
        self.rows = rows = Rows(checked)
        self.queues, self.leaving, self.blobs, self.places = rows.queues, rows.leaving, rows.blobs, rows.places

    def check(self) -> None:
        with self.env.begin() as txn:
            if not self._has_databases(txn):
                return
            entries, chunks, gaps, blobs, tables = databases(self.env, txn)
            self.rows.read(txn, tables)
            self._entries(txn, entries, chunks, gaps)
            self._pieces(txn, blobs)
        checked = self.checked
        checked.queues = len(self.queues)
        for queue in self.queues.values():
            where = f"queue {queue.name!r}"
            if queue.found != queue.messages:
                checked.find(f"{where}: its counter says {queue.messages} messages, but there are {queue.found}")
            if queue.found_size != queue.size:
                checked.find(f"{where}: its counter says {queue.size} bytes, but there are {queue.found_size}")
            if queue.last >= queue.next_sequence:
                checked.find(f"{where}: the next sequence is {queue.next_sequence}, but an entry is at {queue.last}")

    def _has_databases(self, txn: "lmdb.Transaction[bytes]") -> bool:
        own = (SCHEMA_KEY, UUID_KEY, BACKUP_KEY, FILE_KEY)
        with txn.cursor() as cursor:
            there = [key for key in cursor.iternext(values=False) if key not in own]
        for name in DATABASES:
            if name not in there:
                self.checked.find(f"data.mdb: there is no database {name.decode()}")
        for key in there:
            if key not in DATABASES:
                self.checked.find(f"data.mdb: {key!r} is not known to this version")
        return all(name in there for name in DATABASES)

    # ------------------------------------------------------------------------------------------------ blobs

    def _pieces(self, txn: "lmdb.Transaction[bytes]", blobs: Any) -> None:
        """Called after the entries, which have removed their places from the set."""
        for (queue_id, sequence), blob in self.places.items():
            queue = self.queues.get(queue_id)
            if queue is not None and queue.durable:  # else an earlier version named what a queue in memory held
                self.checked.find(f"blob {blob}: queue id {queue_id}, sequence {sequence} does not refer to it")
        found = dict.fromkeys(self.blobs, 0)
        for key, piece in self._watched(txn.cursor(db=blobs), txn.stat(blobs)["entries"]):
            if len(key) != PIECE.size:
                self.checked.find(f"blobs: key {key.hex()}")
                continue
            blob, index = PIECE.unpack(key)
            record = self.blobs.get(blob)
            if record is None or not record.first <= index < record.end:
                self.checked.find(f"blob {blob}: piece {index} belongs to no blob")
                continue
            found[blob] += 1
            size = min(PIECE_BYTES, record.length - index * PIECE_BYTES)
            if len(piece) != size:
                self.checked.find(f"blob {blob}: piece {index} has {len(piece)} bytes, expected {size}")
        for blob, count in found.items():
            record = self.blobs[blob]
            if count != record.end - record.first:
                self.checked.find(f"blob {blob}: it has {count} pieces, expected {record.end - record.first}")

    # ------------------------------------------------------------------------------------------------ entries

    def _entries(self, txn: "lmdb.Transaction[bytes]", entries: Any, chunks: Any, gaps: Any) -> None:
        """Record by record, with the chunks and the gaps beside them, which lie in the same order."""
        total = txn.stat(entries)["entries"]
        pieces = _Beside(txn.cursor(db=chunks), "chunks", self.checked)
        left = _Beside(txn.cursor(db=gaps), "gaps", self.checked)
        covered = (0, 0)
        for key, record in self._watched(txn.cursor(db=entries), total):
            if len(key) != PLACE.size or len(record) < 2:
                self.checked.find(f"entries: key {key.hex()} of a record of {len(record)} bytes")
                continue
            queue_id, first = PLACE.unpack(key)
            count = int.from_bytes(record[:2], "big")
            if (queue_id, first) < covered:
                self.checked.find(f"queue id {queue_id}, sequence {first}: two records hold it")
            covered = (queue_id, first + max(1, count))
            rest, rows = pieces.of(key), left.of(key)
            if not count:
                value = self._cut(queue_id, first, record, rest)
                for row, _ in rows:
                    self.checked.find(f"gaps: key {row.hex()} belongs to no record of several")
                self._entry(queue_id, first, value)
                continue
            for row, _ in rest:
                self.checked.find(f"chunks: key {row.hex()} belongs to a record of several")
            for index, value in self._several(queue_id, first, count, record, rows[0][1] if rows else None):
                self._entry(queue_id, first + index, value)
        pieces.end()
        left.end()

    def _cut(self, queue_id: int, sequence: int, record: bytes, rest: list[tuple[bytes, bytes]]) -> bytes:
        """The value of a record that is stored in pieces."""
        found = [record[2:]]
        if len(record) != CHUNK_BYTES:
            self.checked.find(
                f"queue id {queue_id}, sequence {sequence}: its first piece has {len(record)} bytes, "
                f"expected {CHUNK_BYTES}"
            )
        for number, (key, piece) in enumerate(rest):
            last = number == len(rest) - 1
            if len(key) != PLACE.size + 4 or int.from_bytes(key[PLACE.size :], "big") != number:
                self.checked.find(f"queue id {queue_id}, sequence {sequence}: chunk {number} is missing")
            if not 0 < len(piece) <= CHUNK_BYTES or (not last and len(piece) != CHUNK_BYTES):
                self.checked.find(f"queue id {queue_id}, sequence {sequence}: chunk {number} has {len(piece)} bytes")
            found.append(piece)
        return b"".join(found)

    def _several(
        self, queue_id: int, first: int, count: int, record: bytes, gone_row: bytes | None
    ) -> Iterator[tuple[int, bytes]]:
        """(index, value) of the entries that a record of several still has."""
        where = f"queue id {queue_id}, sequence {first}"
        base = 2 + 4 * count
        ends = Struct(f">{count}I").unpack_from(record, 2) if base <= len(record) else (-1,)
        if ends[-1] != len(record) - base or any(start > end for start, end in pairwise((0, *ends))):
            self.checked.find(f"{where}: a record of {len(record)} bytes does not hold its {count} entries")
            return
        gone = 0 if gone_row is None else int.from_bytes(gone_row, "little")
        if gone_row is not None and (len(gone_row) != (count + 7) // 8 or not 0 < gone < (1 << count) - 1):
            self.checked.find(f"{where}: its gaps are {gone_row.hex()}, for {count} entries")
        start = base
        for index, end in enumerate(ends):
            if not gone >> index & 1:
                yield index, record[start : base + end]
            start = base + end

    def _watched(self, cursor: Any, total: int) -> Iterator[tuple[bytes, bytes]]:
        with cursor:
            for number, record in enumerate(cursor):
                if self.watch is not None and number % WATCH_EVERY == 0:
                    self.watch(number, total)
                yield record

    def _entry(self, queue_id: int, sequence: int, value: bytes) -> None:
        self.checked.entries += 1
        refers = self.places.pop((queue_id, sequence), None)
        if queue_id in self.leaving:
            pass  # its blob may have gone before it
        elif len(value) > 1 and value[1] & entry.BLOB:
            _refers(self.checked, f"queue id {queue_id}, sequence {sequence}", value, refers, self.blobs)
        elif refers is not None:
            self.checked.find(f"blob {refers}: queue id {queue_id}, sequence {sequence} does not refer to it")
        queue = self.queues.get(queue_id)
        size = _size(value)
        if queue is None:
            if queue_id in self.leaving:
                self.checked.leaving += 1
            else:
                self.checked.find(f"queue id {queue_id}, sequence {sequence}: there is no such queue")
            return
        queue.found += 1
        queue.last = sequence
        if size is None:
            self.checked.find(f"queue {queue.name!r}, sequence {sequence}: {len(value)} bytes that are no entry")
            return
        self.checked.bytes += size
        queue.found_size += size
        if not sequence:
            self.checked.find(f"queue {queue.name!r}: an entry with the sequence 0")
        if not queue.durable:
            self.checked.find(f"queue {queue.name!r}, sequence {sequence}: on disk, though it is kept in memory")


def _refers(checked: Checked, where: str, value: bytes, told: int | None, blobs: dict[int, records.BlobRecord]) -> None:
    """An entry whose message is a blob; `told`: the blob whose record names the entry."""
    try:
        blob, length = entry.blob_of(value)
    except StorageError as error:
        checked.find(f"{where}: {error}")
        return
    record = blobs.get(blob)
    if record is None or told != blob:
        checked.find(f"{where}: refers to blob {blob}, whose record does not name it")
    elif record.length != length:
        checked.find(f"{where}: refers to {length} bytes of blob {blob}, which has {record.length}")


def _size(value: bytes) -> int | None:
    """The entry's size as its queue counts it; None where the bytes are no entry."""
    try:
        item = entry.unpack(value)
    except (StorageError, StructError, ValueError):
        return None
    size = packed.size_of(value)
    return size if 0 <= item.size == size else None


class _Beside:
    """Rows of another database, whose keys begin with those of the records and which is read in step with them; a row
    that no record asks for is an orphan."""

    def __init__(self, cursor: Any, name: str, checked: Checked) -> None:
        self._rows = iter(cursor)
        self._name = name
        self._checked = checked
        self._next: tuple[bytes, bytes] | None = next(self._rows, None)

    def of(self, key: bytes) -> list[tuple[bytes, bytes]]:
        """The rows that belong to the record at `key`; records are asked for in order."""
        found: list[tuple[bytes, bytes]] = []
        while self._next is not None and self._next[0][: PLACE.size] <= key:
            row = self._next
            self._next = next(self._rows, None)
            if row[0][: PLACE.size] == key:
                found.append(row)
            else:
                self._orphan(row[0])
        return found

    def end(self) -> None:
        while self._next is not None:
            self._orphan(self._next[0])
            self._next = next(self._rows, None)

    def _orphan(self, key: bytes) -> None:
        self._checked.find(f"{self._name}: key {key.hex()} belongs to no entry")
