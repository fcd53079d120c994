"""The store on disk: LMDB, one environment a directory, one transaction with one sync a batch.

Rules of this file: no read transaction outlives a call; every write happens under `_writing` and within `_readers`; a
write or sync that fails for any reason but space ends the store's life, because a second try would lie about the first.
What the loop's thread calls writes nothing to the disk, which may be frozen (docs/adr/0026).

Layout (`schema.py`). Unnamed database: `holdfast.schema`, `holdfast.uuid`. Named ones: those of entries.py and
blobs.py, and `tables`: table name + NUL + key → value.

Why not MDB_WRITEMAP: a full disk would come as SIGBUS instead of an error. Why a reserve: LMDB never writes a
page in place, and uses a freed one again only in the second transaction after the one that freed it; so a
full store needs spare pages to retire from.
"""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock, Thread
from time import monotonic
from typing import Final
from uuid import UUID, uuid4

import lmdb

from holdfast.errors import ConfigError, StorageError, StorageFull
from holdfast.storage.allocation import Allocation
from holdfast.storage.blobs import Pieces
from holdfast.storage.bounds import check_pieces, check_rows, check_table
from holdfast.storage.compaction import shrink
from holdfast.storage.copied import find_copy, forget_marks, mark_closed, mark_opened, record_open
from holdfast.storage.directory import (
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
from holdfast.storage.entries import Entries, Group, by_queue, pack
from holdfast.storage.environment import open_environment
from holdfast.storage.pages import META_PAGES
from holdfast.storage.port import Batch, Rows, Space
from holdfast.storage.readers import NodeReaderLock
from holdfast.storage.schema import UUID_KEY, databases, read_identity
from holdfast.storage.upgrades import upgrade
from holdfast.units import MIB

__all__ = ["LmdbStore"]

BYTES_MAX_DEFAULT: Final = 16 * 1024 * MIB
BYTES_MAX_LEAST: Final = MIB
AHEAD_BYTES_DEFAULT: Final = 64 * MIB
RESERVE_BYTES_MAX: Final = 16 * MIB
DISK_SHARE: Final = 4
"""The reserve, and what is kept allocated ahead, are each one part in so many of what the store may have at the most:
a fixed size would leave a small disk nothing for messages, and nothing for others."""

OWN_BYTES: Final = MIB
OWN_SHARE: Final = 16
"""What tables, and the list of free pages after much was stored and left, may take of an empty store: so many
bytes, or a share of a small one."""
DISK_BYTES_PER_BYTE: Final = 3
"""The worst that LMDB makes of a value: 1.4 KB, of which one fits a page that was split in its middle."""
DISK_BYTES_PER_ENTRY: Final = 48
"""Key, node header and slot of an entry on a page half full; the former covers it from 48 bytes on."""
GONE_ROOM_BYTES: Final = -(1 << 40)
"""Of a store whose file was taken away: nothing may be appended, whatever reserve is used."""
MEASURE_EVERY_S: Final = 0.25
"""How long a count of the free pages holds, less what was taken since."""
GROW_WAIT_S: Final = 0.05
"""What the loop's thread waits for a growing file; a few milliseconds are the rule."""
COMMIT_PAGES: Final = 64
"""Pages that any commit may copy: the paths to what it touches, and the list of free pages."""


class LmdbStore:
    """A store in directory `path`, made if it is not there; this process alone holds it until `close`.

    `bytes_max`: the file's bound. `ahead_bytes`: disk space kept allocated beyond what is used, on a small disk less; a
    third of it is the least `room_bytes` of a store whose disk has space. `on_point` is told "committing" inside the
    transaction before the sync, and "committed" after it, in the thread of `commit`. `must_exist`: a store that is not
    there is not made.

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
        self._middle_bytes = 0
        """Free below the file's end when last measured, less the most that was used of it since."""
        self._measure_at = 0.0
        self.copied: str | None = None
        """See `Store.copied`."""
        self.on_disk = True
        self._gone: str | None = None
        """What `gone` said last."""
        self._named: str | None = None
        """The file's name as the system had it when it was opened; None where it does not tell."""
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
            self._named = self._name()
            check_length(path, self._data_fd)
            make_durable(path, self._data_fd)
            self._env, self.table_in_memory = open_environment(path, bytes_max)
            self._readers = NodeReaderLock(self._env, path, self._data_fd)
            self.uuid = read_identity(self._env, path)[1]
            with self._readers, self._env.begin(write=True) as txn:
                self._databases = databases(self._env, txn)
                *of_entries, blobs, self._tables = self._databases
                self._entries, self._pieces = Entries(of_entries), Pieces(blobs)
                self._page_bytes: int = txn.stat(self._tables)["psize"]
            bytes_max -= bytes_max % self._page_bytes
            lacking = min(RESERVE_BYTES_MAX, bytes_max // DISK_SHARE) // 2 - self._spare_bytes(bytes_max)
            if lacking > 0:
                # The bound was lowered below what is stored: retiring must still have pages to copy to. Half the
                # reserve, which appends leave: with more a full store would grow each time that it is opened.
                bytes_max += lacking + -lacking % self._page_bytes
                self._env.set_mapsize(bytes_max)
                self._readers.renew()
            write_bound(self._lock_fd, bytes_max)
            if self.copied is None:
                self._opened()
            self._bytes_max, self._ahead_wanted_bytes = bytes_max, ahead_bytes
            self._reserve_bytes = self._ahead_bytes = 0
            self._allocation = Allocation(self._data_fd, bytes_max)
            self._measure_disk()
            self._allocation.grow(self._used_bytes() + self._ahead_bytes)
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
        """The file is the one that was worked with last; a store without space for that word is opened without it."""
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
        """It is on disk who the store is now; a copy's file is the one that is worked with from then on."""
        if not self._opens:
            try:
                mark_opened(self.path, self._opens_recorded)
            except OSError as error:  # the batch is on disk: nobody may take it for refused
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
                if self._may_be_gone() and self.gone() is not None:
                    raise StorageFull(f"store {self.path}: {self._gone}: nothing is added to it")
                self._make_room(batch, groups)
            try:
                try:
                    self._transact(batch, groups, leaving)
                except lmdb.Error as error:
                    if not self._is_full(error):
                        raise
                    # Pages that the last two transactions freed count as room: let them come of age.
                    self._touch()
                    self._touch()
                    self._transact(batch, groups, leaving)
            except (lmdb.Error, OSError) as error:
                raise self._failure("writing", error) from error
            if batch.mint is not None:
                self._minted(batch.mint)
            pages = self._most_pages(batch)
            self._middle_bytes -= pages * self._page_bytes
            if self._readers.foreign:
                self._readers.took(pages)
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
        """See `Store.room_bytes`: a third of what is free, less the reserve; for values from 48 bytes on.

        Asked after every commit: while there is plenty, what is free in the file's middle is counted now and then, and
        taken to be less by the most that each commit since may have used.
        """
        self._check()
        if self._gone is not None:
            return GONE_ROOM_BYTES
        try:
            sure = self._surely_bytes()
            if sure is None:
                sure = self._measure_room()
        except (lmdb.Error, OSError) as error:
            raise self._failure("measuring", error) from error
        return (sure - self._reserve_bytes) // DISK_BYTES_PER_BYTE

    def _surely_bytes(self) -> int | None:
        """At the most what `_sure_bytes` says, for one call of LMDB; None where it is to be measured."""
        if monotonic() >= self._measure_at:
            return None
        if self._readers.foreign:  # a backup's snapshot may keep what is free from being used
            return None
        sure = self._tail_bytes() + max(0, self._middle_bytes)
        return sure if sure >= self._ahead_bytes else None

    def _measure_room(self) -> int:
        """`_sure_bytes`, now; the file grows where it is less than is to be ahead."""
        sure = self._measure()
        # Disk space may have come back while nothing is committed.
        if sure is not None and sure < self._ahead_bytes and self._allocation.can_grow(self._ahead_target(0)):
            self._grow_aside()
            sure = self._measure()
        return self._sure_bytes() if sure is None else sure

    def _measure(self) -> int | None:
        """`_sure_bytes`, noted; None while somebody writes: what a commit takes is not to be counted as there."""
        if not self._writing.acquire(blocking=False):
            return None
        try:
            self._readers.look()
            sure = self._sure_bytes()
            self._middle_bytes = sure - self._tail_bytes()
            self._measure_at = monotonic() + MEASURE_EVERY_S
            return sure
        finally:
            self._writing.release()

    def gone(self) -> str | None:
        """See `Store.gone`: whether the path leads to the file that is open. See `_may_be_gone`."""
        place = self.path / DATA
        try:
            there = os.stat(place)
        except (FileNotFoundError, NotADirectoryError):
            self._gone = f"{place} is not there any more"
        except OSError:
            pass  # a disk that fails says so at a commit
        else:
            same = os.path.samestat(there, os.fstat(self._data_fd))
            self._gone = None if same else f"{place} is another file than the one that was opened"
        return self._gone

    def _may_be_gone(self) -> bool:
        """Whether `gone` is to be asked before something is added: the file's name is another one than at its opening.

        Not `gone` itself: once somebody has looked at a file's times, the next write has to bring new ones to disk
        (multigrain timestamps, Linux 6.13), and a commit takes a quarter longer. It does not see that another file
        system was mounted over the place; who asks `gone` each second does.
        """
        return self._gone is not None or self._named is None or self._name() != self._named

    def _name(self) -> str | None:
        try:
            return os.readlink(f"/proc/self/fd/{self._data_fd}")
        except OSError:
            return None

    def space(self) -> Space:
        """See `Store.space`."""
        allocation = self._allocation
        return Space(allocation.occupied(), self._bytes_max, allocation.free_on_disk())

    def _grow_aside(self) -> None:
        """Grows the file in a thread that is waited for briefly: on a frozen file system it does not come back."""
        failures: list[OSError] = []

        def grow() -> None:
            with self._writing:
                try:
                    if not self._closed:
                        self._grow(0)
                except OSError as error:
                    failures.append(error)

        thread = Thread(target=grow, name="holdfast-growing", daemon=True)
        thread.start()
        thread.join(GROW_WAIT_S)
        if failures:
            raise failures[0]

    def room_bytes_possible(self) -> int:
        """See `Store.room_bytes_possible`."""
        return self.room_bytes() + (self.bytes_most() - self._allocation.bytes) // DISK_BYTES_PER_BYTE

    def room_bytes_most(self) -> int:
        """See `Store.room_bytes_most`."""
        most = min(self._bytes_max, self._allocation.disk_bytes())
        most -= min(RESERVE_BYTES_MAX, most // DISK_SHARE) + min(OWN_BYTES, most // OWN_SHARE)
        return most // DISK_BYTES_PER_BYTE

    @property
    def pieces_a_byte(self) -> int:
        """See `Store.pieces_a_byte`: a piece fills its pages."""
        return DISK_BYTES_PER_BYTE

    @property
    def shared_bytes(self) -> int:
        """See `Store.shared_bytes`."""
        return self._reserve_bytes // 2 // DISK_BYTES_PER_BYTE

    def bytes_on_disk(self) -> int:
        """See `Store.bytes_on_disk`."""
        self._check()
        return self._allocation.occupied()

    def _make_room(self, batch: Batch, groups: list[Group]) -> None:
        """Raise `StorageFull` unless the appends fit and leave half of the reserve; grow the file first."""
        rows = _row_sizes(batch, groups)
        total = sum(rows) + sum([len(key) + len(value) for (_, key), value in batch.puts.items()])
        count = len(rows) + len(batch.puts)
        needed = total * DISK_BYTES_PER_BYTE + count * DISK_BYTES_PER_ENTRY
        needed += COMMIT_PAGES * self._page_bytes + self._reserve_bytes // 2
        try:
            if self._tail_bytes() >= needed + self._reserve_bytes // 2:
                return
            self._grow(needed)
            if self._tail_bytes() >= needed:
                return
            sure = self._sure_bytes()
            if sure >= needed:
                return
            needed = self._needed_bytes(batch, groups)
            if sure >= needed:
                return
        except (lmdb.Error, OSError) as error:
            raise self._failure("measuring", error) from error
        raise StorageFull(
            f"store {self.path}: {total} bytes of new entries do not fit; free: {max(0, sure)} bytes, "
            f"of which {self._reserve_bytes} are kept for retiring and forwarding"
        )

    def _needed_bytes(self, batch: Batch, groups: list[Group]) -> int:
        """What the appends may take at the worst, each row by its own size."""
        page = self._page_bytes
        needed = COMMIT_PAGES * page + self._reserve_bytes // 2
        for size in _row_sizes(batch, groups):
            if size < page // 2:
                needed += max(size * DISK_BYTES_PER_BYTE, 2 * size + DISK_BYTES_PER_ENTRY)
            else:
                needed += (size // (page - 16) + 1) * page + DISK_BYTES_PER_ENTRY
        for value in batch.puts.values():
            needed += (len(value) // page + 1) * page  # a leaf each at the worst
        return needed

    def _most_pages(self, batch: Batch) -> int:
        """Pages that the batch may have written at the most."""
        size = batch.bytes_appended or sum([len(value) for _, _, value in batch.appends])
        rows = len(batch.appends) + len(batch.puts) + len(batch.retires)
        return COMMIT_PAGES + (size * DISK_BYTES_PER_BYTE + rows * DISK_BYTES_PER_ENTRY) // self._page_bytes

    def _grow(self, needed: int) -> bool:
        """Allocate ahead where less than `_ahead_bytes` or `needed` is left at the end. Under `_writing`."""
        if self._tail_bytes() >= max(self._ahead_bytes, needed):
            return False
        self._measure_disk()
        return self._allocation.grow(self._ahead_target(needed))

    def _ahead_target(self, needed: int) -> int:
        """How long the file is to become: half as much again as is wanted, so that not every commit grows it."""
        wanted = max(self._ahead_bytes, needed)
        return self._used_bytes() + wanted + wanted // 2

    def _measure_disk(self) -> None:
        """Brings the reserve, and what is kept ahead, to their share of what the disk has by now. They never shrink:
        what was set aside is allocated."""
        most = self._bytes_max // DISK_SHARE
        if self._ahead_bytes == min(self._ahead_wanted_bytes, most) + min(RESERVE_BYTES_MAX, most):
            return
        share = self.bytes_most() // DISK_SHARE
        self._reserve_bytes = max(self._reserve_bytes, min(RESERVE_BYTES_MAX, share))
        self._ahead_bytes = max(self._ahead_bytes, min(self._ahead_wanted_bytes, share) + self._reserve_bytes)

    def bytes_most(self) -> int:
        """What the file may grow to on the disk as it is now, at most `bytes_max`."""
        return min(self._bytes_max, self._allocation.bytes + self._allocation.free_on_disk())

    def _used_bytes(self) -> int:
        return (self._env.info()["last_pgno"] + 1) * self._page_bytes

    def _tail_bytes(self) -> int:
        """Allocated and never used."""
        return self._allocation.bytes - self._used_bytes()

    def _sure_bytes(self) -> int:
        return self._spare_bytes(self._allocation.bytes)

    def _spare_bytes(self, end: int) -> int:
        """In a file of `end` bytes never used, or free again; less what the list of free pages takes and what has
        to come of age."""
        with self._env.begin() as txn:
            stats = [txn.stat(), *[txn.stat(database) for database in self._databases]]
        used = sum([stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"] for stat in stats])
        last = self._env.info()["last_pgno"] + 1
        free = last - META_PAGES - used
        if self._readers.foreign:
            free = min(free, self._readers.reusable_pages())
        free -= free * 8 // self._page_bytes + COMMIT_PAGES
        return end + (max(0, free) - last) * self._page_bytes

    # ------------------------------------------------------------------------------------------------ life

    def close(self) -> None:
        """See `Store.close`. Waits for a commit in flight."""
        with self._writing:
            if not self._closed:
                self._closed = True
                if self._opens and self._failed is None and self.gone() is None:
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
            raise StorageError(f"store {self.path}: not used any more since {self._failed}")
        if self._closed:
            raise StorageError(f"store {self.path}: closed")

    def _failure(self, doing: str, error: Exception) -> StorageError:
        """The error to raise: `StorageFull` for want of space, else the store ends here."""
        if self._is_full(error):
            return StorageFull(f"store {self.path}: no space, nothing of the batch was written ({error})")
        self._failed = f"{doing} failed: {error}"
        return StorageError(f"store {self.path}: {self._failed}")

    def _is_full(self, error: Exception) -> bool:
        # LMDB calls a short write EIO; on a disk without space that is what it was.
        no_space = code(error) == errno.EIO and self._allocation.free_on_disk() < self._page_bytes
        return no_space or means_full(error)


def _row_sizes(batch: Batch, groups: list[Group]) -> list[int]:
    """Bytes of each value that the batch's appends and pieces are stored as."""
    sizes = [len(value) for group in groups for _, value in (*group.records, *group.chunks)]
    return sizes + [len(data) for _, _, data in batch.pieces]
