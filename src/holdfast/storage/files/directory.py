"""The directory of a store on disk: its lock, its creation, and the meaning of LMDB's errors.

Rules of this file: a new store exists completely or not at all; an error becomes one line with the directory.
"""

import errno
import fcntl
import os
import shutil
from pathlib import Path
from typing import Final
from uuid import uuid4

import lmdb

from holdfast.durable import sync_directories
from holdfast.errors import StorageError, StorageFull
from holdfast.storage.files.allocation import FULL_ERRNOS
from holdfast.storage.layout.pages import read_root
from holdfast.storage.layout.schema import DATABASES, DATABASES_MAX, SCHEMA, SCHEMA_KEY, UUID_KEY
from holdfast.units import MIB

__all__ = [
    "ASIDE",
    "DATA",
    "TABLE",
    "TABLE_BYTES",
    "admit_backup",
    "allocate",
    "check_length",
    "check_new",
    "check_there",
    "code",
    "create",
    "drop_aside",
    "exclude_backups",
    "hold",
    "hold_to_read",
    "is_read_only",
    "make_aside",
    "make_durable",
    "means_full",
    "not_written",
    "read_bound",
    "refusal",
    "write_bound",
]

DATA: Final = "data.mdb"
TABLE: Final = "lock.mdb"
"""LMDB's name for its table of readers. Ours is in memory (environment.py); the file shows that there was a store, and
a reader beside the node holds a lock on it (readers.py)."""
TABLE_BYTES: Final = 8_192
"""Of a table of readers; LMDB would not bear a file of another length, whatever it holds."""
ASIDE: Final = "new"
"""Where a store's file is made before it gets its name; files that a crash leaves there may be deleted."""
LOCK_LINE_BYTES: Final = 20


def hold(path: Path) -> int:
    """Takes the exclusive lock on the directory, which is created, as an open descriptor: it ends with the process."""
    while True:
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise refusal(path, error) from error
        if _lock(path, fd):
            break
        os.close(fd)  # the last holder has just removed the file, or renamed the directory
    try:
        # In place and of the same length: a store on a full disk must open, so that it can be emptied.
        os.pwrite(fd, f"{os.getpid():<19}\n".encode(), 0)
    except OSError as error:
        if not means_full(error):
            os.close(fd)
            raise refusal(path, error) from error
    return fd


def _lock(path: Path, fd: int) -> bool:
    """Takes the lock, or closes `fd` and raises StorageError. False if the name means another file by now, or none."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(fd), (path / "lock").stat())
    except BlockingIOError as error:
        holder = os.pread(fd, LOCK_LINE_BYTES, 0).decode(errors="replace").strip()
        os.close(fd)
        # If it could not write its process id, on a read-only or full disk, the file has that of an earlier holder.
        is_there = holder.isdecimal() and os.path.exists(f"/proc/{holder}")
        who = f"process {holder}" if is_there else "another process"
        raise StorageError(f"store {path}: in use by {who}; stop that, or give another directory") from error
    except FileNotFoundError:
        return False
    except OSError as error:
        os.close(fd)
        raise refusal(path, error) from error


def is_read_only(path: Path) -> bool:
    """Whether its file system is read-only."""
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def hold_to_read(path: Path) -> int:
    """The same lock for a reader; -1 on a read-only file system without a lock file, where no process can write."""
    if not is_read_only(path):
        return hold(path) if os.access(path, os.W_OK) or (path / "lock").exists() else -1
    try:
        fd = os.open(path / "lock", os.O_RDONLY)
    except FileNotFoundError:
        return -1
    except OSError as error:
        raise refusal(path, error) from error
    _lock(path, fd)
    return fd


def write_bound(lock_fd: int, bytes_max: int) -> None:
    """Writes the maximum size of the store into the lock's file, for a backup beside the node."""
    try:
        os.pwrite(lock_fd, f"{bytes_max:<19}\n".encode(), LOCK_LINE_BYTES)
    except OSError as error:
        if not means_full(error):
            raise


def read_bound(path: Path) -> int | None:
    """What `write_bound` wrote last; None if nothing."""
    try:
        with (path / "lock").open("rb") as file:
            words = file.read(2 * LOCK_LINE_BYTES)[LOCK_LINE_BYTES:].split()
    except OSError:
        return None
    return int(words[0]) if words and words[0].isdigit() else None


def exclude_backups(path: Path) -> int:
    """Prevents backups of the store until the returned descriptor is closed, because its file will be replaced."""
    return _backup_lock(path, fcntl.LOCK_EX, "a backup of it is being made")


def admit_backup(path: Path) -> int:
    """Prevents the store's file from being replaced until the returned descriptor is closed."""
    return _backup_lock(path, fcntl.LOCK_SH, "it is being compacted")


def _backup_lock(path: Path, kind: int, otherwise: str) -> int:
    fd = os.open(path / "backup.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(fd)
        raise StorageError(f"store {path}: {otherwise}") from error
    return fd


def allocate(file: Path, size: int) -> None:
    """Allocates the first `size` bytes of a file, which is created if needed, so that they can be written on a full
    disk."""
    fd = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.posix_fallocate(fd, 0, size)
    finally:
        os.close(fd)


def check_there(path: Path) -> None:
    """Raises `StorageError` if there is no store although the configuration requires one."""
    if not (path / DATA).is_file():
        raise StorageError(
            f"store {path}: there is no data.mdb, and [store] must_exist is true: mount its file system, or restore a "
            "backup; to begin an empty store, set must_exist to false"
        )


def check_new(path: Path) -> None:
    """Raises `StorageError` if the remains of a store show that its data is missing. That file is created after the
    data is on disk, and is only removed with the directory.
    """
    if (path / TABLE).exists():
        raise StorageError(
            f"store {path}: data.mdb is missing or empty, though a store was here: put it back or restore a backup; "
            "to begin an empty store, remove lock.mdb"
        )


def create(path: Path) -> None:
    """Creates a store, completely or not at all: in a temporary directory, then renamed."""
    aside = make_aside(path)
    env = lmdb.open(str(aside), map_size=MIB, max_dbs=DATABASES_MAX, mode=0o600, readahead=False, lock=False)
    try:
        with env.begin(write=True) as txn:
            for name in DATABASES:
                env.open_db(name, txn=txn)
            txn.put(SCHEMA_KEY, b"%d" % SCHEMA)
            txn.put(UUID_KEY, uuid4().bytes)
    finally:
        env.close()
    os.rename(aside / DATA, path / DATA)
    shutil.rmtree(aside, ignore_errors=True)


def make_aside(path: Path) -> Path:
    """Creates an empty temporary directory in that of the store, for a file that will become its data."""
    aside = path / ASIDE
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(mode=0o700)
    return aside


def drop_aside(path: Path) -> None:
    """Removes what a process left there that was killed while it created or compacted the store."""
    if (path / ASIDE).exists():
        shutil.rmtree(path / ASIDE, ignore_errors=True)


def check_length(path: Path, data_fd: int) -> None:
    """Raises `StorageError` unless the file is LMDB's and as long as its root says: a shorter one would cause
    SIGBUS."""
    root = read_root(data_fd)
    if root is None:
        raise StorageError(f"store {path}: data.mdb is not a Holdfast store: it is no LMDB file of this machine's kind")
    length = os.fstat(data_fd).st_size
    if length < root.bytes:
        raise StorageError(f"store {path}: data.mdb is cut short; it has {length} bytes, expected {root.bytes}")


def make_durable(path: Path, data_fd: int) -> None:
    """Syncs what an open store shows: its data, its name, and the names of the directories above it. At every open, not
    only of a new store: if a process was killed between a write or a rename and its sync, the result is visible, but a
    power loss undoes it, and a node relies on what it saw at its start.
    """
    os.fdatasync(data_fd)
    sync_directories(path)


def code(error: Exception) -> int:
    """The errno of an OSError, or LMDB's own number (negative) or errno; 0 if there is none."""
    number = getattr(error, "code", None) or getattr(error, "errno", None)
    return number if isinstance(number, int) else 0


def means_full(error: Exception) -> bool:
    full = (lmdb.MapFullError, lmdb.DiskError, lmdb.TxnFullError)
    return isinstance(error, full) or code(error) in FULL_ERRNOS


def no_space(error: Exception) -> str:
    """Of an error that `means_full`: what has no room."""
    if code(error) == errno.EFBIG:
        return "its file would be larger than this process may write (ulimit -f)"
    return f"no space on disk ({_reason(error)})"


def refusal(path: Path, error: Exception) -> StorageError:
    if means_full(error):
        return StorageFull(f"store {path}: {no_space(error)}")
    if isinstance(error, FileExistsError | NotADirectoryError) and path.exists() and not path.is_dir():
        return StorageError(f"store {path} is a file; expected a directory")
    if code(error) == errno.ENOMEM or os.strerror(errno.ENOMEM) in str(error):
        return StorageError(
            f"store {path}: cannot be opened: no addresses are left for it: its file is mapped as large as it may "
            "become; lower [store] bytes_max, or raise the limit of this process (ulimit -v)"
        )
    place = str(error.filename or "") if isinstance(error, OSError) else ""
    where = f"{place}: " if place and place != str(path) else ""
    return StorageError(f"store {path}: cannot be opened ({where}{_reason(error)}){_ADVICE.get(code(error), '')}")


_ADVICE: Final = {
    errno.EACCES: "; give this user the right to read and write there",
    errno.EPERM: "; give this user the right to read and write there",
    errno.EROFS: "; mount its file system for writing, or give another directory",
}


def no_store(path: Path) -> StorageError:
    """Where a command needs one."""
    return StorageError(f"store {path}: there is no store; give the directory of one, as data of [node] names it")


def not_written(place: Path, error: Exception) -> StorageError:
    """The same for an error while something new was written there."""
    if means_full(error):
        return StorageFull(f"{place}: {no_space(error)}")
    return StorageError(f"{place}: cannot be written ({_reason(error)})")


def _reason(error: Exception) -> str:
    """Without the number of the error."""
    return (error.strerror if isinstance(error, OSError) else "") or str(error)
