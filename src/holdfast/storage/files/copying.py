"""Makes a consistent, compact copy of a store's file, for backup, restore and compaction.

Rules of this file: the copy is of one read transaction, written to a new temporary file, and on disk before the return;
the caller renames it. It goes through a pipe, so that its progress can be shown, it can be synced in small parts, and
it can be cancelled at any piece; its pages are dropped from the page cache at once.
"""

import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from threading import Thread
from typing import Any, Final

import lmdb

from holdfast.broker.queue import COUNTERS
from holdfast.errors import StorageError, StorageFull
from holdfast.storage.files.directory import DATA, means_full, no_space, not_written
from holdfast.storage.layout.pages import META_PAGES, read_root
from holdfast.storage.layout.schema import DATABASES, DATABASES_MAX
from holdfast.units import MIB

__all__ = [
    "QUEUE_COUNTERS",
    "Watch",
    "check_space",
    "copy_out",
    "counts_of",
    "free_bytes",
    "messages_of",
    "open_quiet",
    "rows_of",
    "used_bytes",
]

PIECE_BYTES: Final = MIB
SYNC_EVERY_BYTES: Final = 4 * MIB
"""Written between two syncs: one large sync in the end would keep a node's own on the same disk waiting."""

WRITE_BYTES: Final = 64 * MIB
"""What a copy may grow by when its tables are changed."""

Watch = Callable[[int, int], None]
"""Called with (bytes copied, bytes expected) after each piece; what it raises breaks the copy off."""

Counts = dict[str, int]

QUEUE_COUNTERS: Final = b"node\0q"
"""How the keys of the queues' counters begin; a queue id (u32 BE) follows."""


def open_quiet(path: Path, *, write: bool = False) -> lmdb.Environment:
    """The store in `path`, without LMDB's locks and table of readers: no other process writes it meanwhile, or the
    caller has a reader's lock beside its node (readers.py)."""
    fd = os.open(path / DATA, os.O_RDONLY)
    try:
        root = read_root(fd)
    finally:
        os.close(fd)
    map_bytes = MIB if root is None else max(root.map_bytes, root.bytes)
    if write:  # a full store's copy is full too
        map_bytes += WRITE_BYTES
    return lmdb.open(
        str(path),
        map_size=map_bytes,
        max_dbs=DATABASES_MAX,
        mode=0o600,
        readonly=not write,
        create=False,
        readahead=False,
        lock=False,
        max_spare_txns=1,
    )


def used_bytes(env: lmdb.Environment, txn: "lmdb.Transaction[bytes] | None" = None) -> int:
    """The size of a compact copy of what `txn` sees."""
    with nullcontext(txn) if txn is not None else env.begin() as txn:
        stats = [txn.stat(), *[txn.stat(database) for _, database in _present(env, txn)]]
    pages = sum(stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"] for stat in stats)
    return int((META_PAGES + pages) * stats[0]["psize"])


def counts_of(env: lmdb.Environment) -> Counts:
    """Records by database, to compare a copy with what was copied."""
    with env.begin() as txn:
        return {name.decode(): txn.stat(database)["entries"] for name, database in _present(env, txn)}


def _present(env: lmdb.Environment, txn: "lmdb.Transaction[bytes]") -> list[tuple[bytes, Any]]:
    """The databases that are there: an older layout may lack one."""
    found = []
    for name in DATABASES:
        try:
            found.append((name, env.open_db(name, txn=txn, create=False)))
        except lmdb.NotFoundError:
            continue
    return found


def messages_of(env: lmdb.Environment) -> int:
    """Messages in all queues, as their counters say."""
    with env.begin() as txn:
        tables = env.open_db(b"tables", txn=txn, create=False)
        return sum(COUNTERS.unpack(value)[1] for _, value in rows_of(txn, tables, QUEUE_COUNTERS))


def rows_of(txn: "lmdb.Transaction[bytes]", tables: Any, prefix: bytes) -> list[tuple[bytes, bytes]]:
    """Rows of `tables` whose key begins with `prefix`, with complete keys."""
    found: list[tuple[bytes, bytes]] = []
    with txn.cursor(db=tables) as cursor:
        if cursor.set_range(prefix):
            for key, value in cursor.iternext():
                if not key.startswith(prefix):
                    break
                found.append((key, value))
    return found


def free_bytes(place: Path) -> int:
    """Free bytes of the file system of `place`."""
    state = os.statvfs(place)
    return state.f_bavail * state.f_frsize


def check_space(place: Path, needed: int, what: str) -> None:
    """Raise `StorageFull` unless `needed` bytes fit where `place` lies."""
    free = free_bytes(place)
    if free < needed:
        raise StorageFull(f"{what}: {place} has {free} bytes free; {needed} are needed")


def copy_out(
    env: lmdb.Environment,
    target: Path,
    watch: Watch | None = None,
    txn: "lmdb.Transaction[bytes] | None" = None,
) -> int:
    """Copies what `env` holds, without its free pages, into the new file `target`; synced. Its length in bytes.

    `txn`: the read transaction to copy, if others write meanwhile. Raises `StorageFull` if the disk is full,
    `StorageError` if nothing can be written there, or LMDB finds the store damaged.
    """
    expected = used_bytes(env, txn)
    failures: list[Exception] = []
    coming, going = os.pipe()

    def pour() -> None:
        try:
            env.copyfd(going, compact=True, txn=txn)
        except Exception as error:  # Reported at the other end of the pipe.
            failures.append(error)
        finally:
            os.close(going)

    thread = Thread(target=pour, name="holdfast-copy")
    done = 0
    try:
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        thread.start()
        try:
            done = _receive(coming, fd, expected, watch)
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        if means_full(error):
            raise StorageFull(f"{target}: {no_space(error)}, after {done} of {expected} bytes") from error
        raise not_written(target, error) from error
    finally:
        os.close(coming)  # first: without a reader the copy ends with EPIPE
        if thread.ident is None:
            os.close(going)
        else:
            thread.join()
    if failures:
        raise StorageError(f"{target}: the copy failed ({failures[0]}): `holdfast store check` says more")
    return done


def _receive(coming: int, fd: int, expected: int, watch: Watch | None) -> int:
    done = synced = 0
    while piece := os.read(coming, PIECE_BYTES):
        view = memoryview(piece)
        while view:
            view = view[os.write(fd, view) :]
        done += len(piece)
        if done - synced >= SYNC_EVERY_BYTES:
            os.fdatasync(fd)
            os.posix_fadvise(fd, 0, done, os.POSIX_FADV_DONTNEED)
            synced = done
        if watch is not None:
            watch(done, expected)
    return done
