"""The directory of a store on disk: who holds it, how it comes to be, and what an error of LMDB means.

Rules of this file: a new store is there whole or not at all; an error becomes one line with the directory.
"""

import fcntl
import os
import shutil
from pathlib import Path
from typing import Final
from uuid import uuid4

import lmdb

from holdfast.errors import StorageError, StorageFull
from holdfast.storage.allocation import FULL_ERRNOS
from holdfast.storage.entries import DATABASES as ENTRY_DATABASES
from holdfast.units import MIB

__all__ = [
    "DATABASES",
    "SCHEMA",
    "SCHEMA_KEY",
    "UUID_KEY",
    "allocate_lock_table",
    "code",
    "create",
    "hold",
    "make_durable",
    "means_full",
    "refusal",
]

SCHEMA: Final = b"2"
SCHEMA_KEY: Final = b"holdfast.schema"
UUID_KEY: Final = b"holdfast.uuid"
DATABASES: Final = (*ENTRY_DATABASES, b"tables")
LOCK_TABLE_BYTES: Final = 8_192


def hold(path: Path) -> int:
    """The exclusive lock on the directory, as an open descriptor: it falls with the process."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise refusal(path, error) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(fd, 20, 0).decode(errors="replace").strip() or "unknown"
        os.close(fd)
        raise StorageError(f"store {path}: in use by process {holder}") from error
    except OSError as error:
        os.close(fd)
        raise refusal(path, error) from error
    try:
        # In place and of one length: a store on a full disk must open, to be emptied.
        os.pwrite(fd, f"{os.getpid():<19}\n".encode(), 0)
    except OSError as error:
        if not means_full(error):
            os.close(fd)
            raise refusal(path, error) from error
    return fd


def allocate_lock_table(path: Path) -> None:
    """Give LMDB's table of readers its blocks: it writes it through a mapping, where a full disk is a SIGBUS."""
    fd = os.open(path / "lock.mdb", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.posix_fallocate(fd, 0, LOCK_TABLE_BYTES)
    finally:
        os.close(fd)


def create(path: Path) -> None:
    """A new store, whole or not at all: made aside and renamed, so that a crash leaves no half of one."""
    aside = path / "new"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(mode=0o700)
    env = lmdb.open(str(aside), map_size=MIB, max_dbs=len(DATABASES), mode=0o600, readahead=False, lock=False)
    try:
        with env.begin(write=True) as txn:
            for name in DATABASES:
                env.open_db(name, txn=txn)
            txn.put(SCHEMA_KEY, SCHEMA)
            txn.put(UUID_KEY, uuid4().bytes)
    finally:
        env.close()
    os.rename(aside / "data.mdb", path / "data.mdb")
    shutil.rmtree(aside, ignore_errors=True)


def make_durable(path: Path, data_fd: int) -> None:
    """Bring to disk what an open store shows: its data, its name, and the names of the directories above it.

    At every open, not only of a new store: a process killed between a write or a rename and its sync leaves what
    everyone sees and a power loss undoes, and what a node has seen at its start it answers on.
    """
    os.fdatasync(data_fd)
    place = path.resolve()
    for directory in (place, *place.parents):
        try:
            fd = os.open(directory, os.O_RDONLY)
        except PermissionError:
            continue  # What we may not look into we did not make.
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        if os.path.ismount(directory):
            break


def code(error: Exception) -> int:
    """The errno of an OSError, or LMDB's own number (negative) or errno; 0 where it has none."""
    number = getattr(error, "code", None) or getattr(error, "errno", None)
    return number if isinstance(number, int) else 0


def means_full(error: Exception) -> bool:
    full = (lmdb.MapFullError, lmdb.DiskError, lmdb.TxnFullError)
    return isinstance(error, full) or code(error) in FULL_ERRNOS


def refusal(path: Path, error: Exception) -> StorageError:
    if means_full(error):
        return StorageFull(f"store {path}: no space on disk ({error})")
    return StorageError(f"store {path}: cannot be opened ({error})")
