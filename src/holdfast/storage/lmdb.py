"""The store on disk: LMDB, one environment a directory, one transaction with one sync a batch.

Rules of this file: no read transaction outlives a call; every write happens under `_writing` and within `_readers`; a
write or sync that fails for any reason but space ends the store's life, because a second try would lie about the first.
What the loop's thread calls writes nothing to the disk, which may be frozen (docs/adr/0026).

Layout (`storage/layout/schema.py`). Unnamed database: `holdfast.schema`, `holdfast.uuid`. Named ones: those of
`storage/layout/entries.py` and `storage/layout/blobs.py`, and `tables`: table name + NUL + key → value. What
space there is for them: `room.py`.

Why not MDB_WRITEMAP: a full disk would come as SIGBUS instead of an error.
"""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Final
from uuid import UUID, uuid4

import lmdb

from holdfast.errors import ConfigError, StorageError, StorageFull
from holdfast.storage.bounds import check_pieces, check_rows, check_table
from holdfast.storage.files.copied import find_copy, forget_marks, mark_closed, mark_opened, record_open
from holdfast.storage.files.directory import (
    DATA,
    check_length,
    check_new,
    check_there,
    code,
    create,
    drop_aside,
    hold,
    make_durable,
    means_full,
    refusal,
    write_bound,
)
from holdfast.storage.files.environment import open_environment
from holdfast.storage.files.place import Place
from holdfast.storage.files.readers import NodeReaderLock
from holdfast.storage.layout.blobs import Pieces
from holdfast.storage.layout.entries import Entries
from holdfast.storage.layout.records import Group, by_queue, pack
from holdfast.storage.layout.schema import UUID_KEY, databases, read_identity
from holdfast.storage.port import Batch, Rows, Space
from holdfast.storage.room import DISK_BYTES_PER_BYTE, Room
from holdfast.storage.upkeep.compaction import shrink
from holdfast.storage.upkeep.upgrades import upgrade
from holdfast.units import MIB

__all__ = ["LmdbStore"]

BYTES_MAX_DEFAULT: Final = 16 * 1024 * MIB
BYTES_MAX_LEAST: Final = MIB
AHEAD_BYTES_DEFAULT: Final = 64 * MIB
GONE_ROOM_BYTES: Final = -(1 << 40)
"""Of a store whose file was taken away: nothing may be appended, whatever reserve is used."""


class LmdbStore:
    """A store in directory `path`, created if needed; only this process uses it until `close`.

    `bytes_max`: the file's bound. `ahead_bytes`: disk space kept allocated beyond what is used, on a small disk less; a
    third of it is the least `room_bytes` of a store whose disk has space. `on_point` is called with "committing" inside
    the transaction before the sync, and "committed" after it, in the thread of `commit`. `must_exist`: a store that is
    not there is not made.

    Raises `StorageError` if another process holds the directory, its data is gone or its schema is not known here,
    `StorageFull` if the disk has no space for a new store, `ConfigError` for a `bytes_max` below 1 MiB.
    """

    def __init__(
        self,
        path: Path,
        *,
        bytes_max: int = BYTES_MAX_DEFAULT,
        ahead_bytes: int = AHEAD_BYTES_DEFAULT,
        on_point: Callable[[str], None] | None = None,
        must_exist: bool = False,
    ) -> None:
        if bytes_max < BYTES_MAX_LEAST:
            raise ConfigError(f"bytes_max = {bytes_max}: a store needs at least {BYTES_MAX_LEAST} bytes")
        self.path = path
        self._on_point = on_point
        self._writing = Lock()
        self._failed: str | None = None
        self._closed = False
        self.copied: str | None = None
        """See `Store.copied`."""
        self.on_disk = True
        self._opens = self._opens_recorded = 0
        if must_exist:
            check_there(path)
        self._lock_fd = hold(path)
        self._data_fd = -1
        try:
            data = path / DATA
            if not data.exists() or not data.stat().st_size:
                check_new(path)
                forget_marks(path)
                create(path)
            drop_aside(path)
            self.copied = find_copy(path)
            upgrade(path, copied=self.copied is not None)
            if self.copied is None:
                shrink(path)
            self._data_fd = os.open(data, os.O_RDWR)
            self._place = Place(data, self._data_fd)
            check_length(path, self._data_fd)
            make_durable(path, self._data_fd)
            self._env, self.table_in_memory = open_environment(path, bytes_max)
            self._readers = NodeReaderLock(self._env, path, self._data_fd)
            self.uuid = read_identity(self._env, path)[1]
            with self._readers, self._env.begin(write=True) as txn:
                handles = databases(self._env, txn)
                *of_entries, blobs, self._tables = handles
                self._entries, self._pieces = Entries(of_entries), Pieces(blobs)
                self._page_bytes: int = txn.stat(self._tables)["psize"]
            self._room = Room(
                path,
                self._env,
                handles,
                self._readers,
                self._writing,
                page_bytes=self._page_bytes,
                bytes_max=bytes_max,
                ahead_bytes=ahead_bytes,
            )
            write_bound(self._lock_fd, self._room.bytes_max)
            if self.copied is None:
                self._opened()
            self._room.allocate(self._data_fd)
        except (lmdb.Error, OSError) as error:
            self._release()
            raise refusal(path, error) from error
        except BaseException:
            self._release()
            raise

    # ------------------------------------------------------------------------------------------------ reading

    def read(self, queue_id: int, first: int, *, count_max: int, bytes_max: int) -> list[tuple[int, bytes]]:
        """See `EntryReader.read`."""
        self._check()
        try:
            with self._env.begin(buffers=True) as txn:
                return self._entries.read(txn, queue_id, first, count_max=count_max, bytes_max=bytes_max)
        except lmdb.Error as error:
            raise self._failure("reading", error) from error

    def get(self, queue_id: int, sequence: int) -> bytes | None:
        """See `EntryReader.get`."""
        self._check()
        try:
            with self._env.begin(buffers=True) as txn:
                return self._entries.get(txn, queue_id, sequence)
        except lmdb.Error as error:
            raise self._failure("reading", error) from error

    def get_all(self, queue_id: int, sequences: Sequence[int], *, bytes_max: int) -> dict[int, bytes]:
        """See `EntryReader.get_all`."""
        self._check()
        try:
            with self._env.begin(buffers=True) as txn:
                return self._entries.get_all(txn, queue_id, sequences, bytes_max=bytes_max)
        except lmdb.Error as error:
            raise self._failure("reading", error) from error

    def piece(self, blob: int, index: int) -> bytes | None:
        """See `EntryReader.piece`."""
        self._check()
        try:
            with self._env.begin(buffers=True) as txn:
                return self._pieces.get(txn, blob, index)
        except lmdb.Error as error:
            raise self._failure("reading", error) from error

    def table(self, name: str) -> Iterator[tuple[bytes, bytes]]:
        """See `Store.table`. The whole table is in memory before the first row is given."""
        self._check()
        check_table(name)
        prefix = name.encode() + b"\0"
        cut = len(prefix)
        rows: list[tuple[bytes, bytes]] = []
        try:
            with self._env.begin(db=self._tables) as txn, txn.cursor() as cursor:
                if cursor.set_range(prefix):
                    for key, value in cursor.iternext():
                        if not key.startswith(prefix):
                            break
                        rows.append((key[cut:], value))
        except lmdb.Error as error:
            raise self._failure("reading", error) from error
        return iter(rows)

    # ------------------------------------------------------------------------------------------------ writing

    def _opened(self) -> None:
        """Records that this file was opened; a store without space for the record is opened without it."""
        try:
            with self._readers, self._env.begin(write=True) as txn:
                opens = record_open(self.path, txn, self._data_fd)
            mark_opened(self.path, opens)
        except lmdb.Error as error:
            if not means_full(error):
                raise
            return
        self._opens = opens

    def mint(self, rows: Callable[[UUID], Rows] | None = None) -> UUID:
        """See `Store.mint`."""
        fresh = self.draw_uuid()
        self.commit(Batch(mint=fresh, puts=dict(rows(fresh)) if rows is not None else {}))
        return fresh

    def draw_uuid(self) -> UUID:
        """See `Store.draw_uuid`."""
        return uuid4()

    def _minted(self, fresh: UUID) -> None:
        """The new UUID is on disk; from now on a copied file counts as the original."""
        if not self._opens:
            try:
                mark_opened(self.path, self._opens_recorded)
            except OSError as error:  # the batch is on disk: it must not count as refused
                self._failed = f"writing failed: {error}"
                raise StorageError(f"store {self.path}: its mark cannot be written: {error.strerror}") from error
            self._opens = self._opens_recorded
        self.uuid, self.copied = fresh, None

    def commit(self, batch: Batch) -> None:
        """See `Store.commit`. Few calls that give up the GIL: each may cost a switch beside a busy loop.

        A batch without appends may use the whole reserve; one with appends or pieces leaves half of it.
        """
        check_rows(batch)
        check_pieces(batch)
        groups, leaving = pack(batch.appends), by_queue(batch.retires)
        with self._writing:
            self._check()
            if groups or batch.pieces:
                if self._place.may_be_gone() and self._place.look() is not None:
                    raise StorageFull(f"store {self.path}: {self._place.gone}: nothing is added to it")
                try:
                    self._room.make(batch, groups)
                except (lmdb.Error, OSError) as error:
                    raise self._failure("measuring", error) from error
            try:
                try:
                    self._transact(batch, groups, leaving)
                except lmdb.Error as error:
                    if not self._is_full(error):
                        raise
                    # Pages that the last two transactions freed count as room: makes them usable.
                    self._touch()
                    self._touch()
                    self._transact(batch, groups, leaving)
            except (lmdb.Error, OSError) as error:
                raise self._failure("writing", error) from error
            if batch.mint is not None:
                self._minted(batch.mint)
            self._room.took(batch)
            if self._on_point is not None:
                self._on_point("committed")

    def _transact(self, batch: Batch, groups: list[Group], leaving: list[tuple[int, list[int]]]) -> None:
        with self._readers:
            txn = self._env.begin(write=True, buffers=True)
            try:
                self._apply(txn, batch, groups, leaving)
                if self._on_point is not None:
                    self._on_point("committing")
            except BaseException:
                txn.abort()
                raise
            txn.commit()

    def _touch(self) -> None:
        """A transaction that changes nothing."""
        with self._readers, self._env.begin(write=True) as txn:
            txn.put(UUID_KEY, self.uuid.bytes)

    def _apply(
        self,
        txn: "lmdb.Transaction[memoryview]",
        batch: Batch,
        groups: list[Group],
        leaving: list[tuple[int, list[int]]],
    ) -> None:
        if batch.mint is not None:
            txn.put(UUID_KEY, batch.mint.bytes)
            self._opens_recorded = self._opens or record_open(self.path, txn, self._data_fd)
        if batch.deletes:
            for table, key in batch.deletes:
                txn.delete(table.encode() + b"\0" + key, b"", self._tables)
        if batch.puts:
            rows = [(table.encode() + b"\0" + key, value) for (table, key), value in batch.puts.items()]
            if len(rows) == 1:
                txn.put(*rows[0], db=self._tables)
            else:
                rows.sort()
                with txn.cursor(db=self._tables) as cursor:
                    cursor.putmulti(rows)
        if leaving:
            self._entries.retire(txn, leaving)
        if batch.drops:
            self._pieces.drop(txn, batch.drops)
        if groups:
            self._entries.append(txn, groups)
        if batch.pieces:
            self._pieces.put(txn, batch.pieces)

    # ------------------------------------------------------------------------------------------------ space

    def room_bytes(self) -> int:
        """See `Store.room_bytes`."""
        self._check()
        if self._place.gone is not None:
            return GONE_ROOM_BYTES
        try:
            return self._room.room_bytes()
        except (lmdb.Error, OSError) as error:
            raise self._failure("measuring", error) from error

    def gone(self) -> str | None:
        """See `Store.gone`."""
        return self._place.look()

    def space(self) -> Space:
        """See `Store.space`."""
        return self._room.space()

    def room_bytes_possible(self) -> int:
        """See `Store.room_bytes_possible`."""
        return self.room_bytes() + self.growth_bytes()

    def growth_bytes(self) -> int:
        """See `Store.growth_bytes`."""
        return 0 if self._place.gone is not None else max(0, self._room.growth_bytes())

    def room_bytes_most(self) -> int:
        """See `Store.room_bytes_most`."""
        return self._room.room_bytes_most()

    @property
    def pieces_a_byte(self) -> int:
        """See `Store.pieces_a_byte`: a piece fills its pages."""
        return DISK_BYTES_PER_BYTE

    @property
    def shared_bytes(self) -> int:
        """See `Store.shared_bytes`."""
        return self._room.shared_bytes

    def bytes_on_disk(self) -> int:
        """See `Store.bytes_on_disk`."""
        self._check()
        return self._room.allocation.occupied()

    def bytes_most(self) -> int:
        """The maximum size of the file on the disk as it is now, at most `bytes_max`."""
        return self._room.bytes_most()

    # ------------------------------------------------------------------------------------------------ life

    def close(self) -> None:
        """See `Store.close`. Waits for a commit in flight."""
        with self._writing:
            if not self._closed:
                self._closed = True
                self._room.close()
                if self._opens and self._failed is None and self._place.look() is None:
                    mark_closed(self.path, self._opens, self._data_fd)
                self._release()

    def _release(self) -> None:
        readers, env = getattr(self, "_readers", None), getattr(self, "_env", None)
        if readers is not None:
            readers.close()
        if env is not None:
            env.close()
        if self._data_fd >= 0:
            os.close(self._data_fd)
        os.close(self._lock_fd)

    def _check(self) -> None:
        if self._failed is not None:
            raise StorageError(f"store {self.path}: closed after an error: {self._failed}")
        if self._closed:
            raise StorageError(f"store {self.path}: closed")

    def _failure(self, doing: str, error: Exception) -> StorageError:
        """The error to raise: `StorageFull` if there is no space; otherwise the store is closed."""
        if self._is_full(error):
            return StorageFull(f"store {self.path}: no space, nothing of the batch was written ({error})")
        self._failed = f"{doing} failed: {error}"
        return StorageError(f"store {self.path}: {self._failed}")

    def _is_full(self, error: Exception) -> bool:
        # LMDB reports a short write as EIO; on a full disk that was the cause.
        no_space = code(error) == errno.EIO and self._room.allocation.free_on_disk() < self._page_bytes
        return no_space or means_full(error)
