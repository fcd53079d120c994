"""Who else reads a store that a node holds: a backup, for which the node keeps freed pages from being used again.

Rules of this file: everything rests on two locks of flock(2), which the kernel gives back when a process dies, and
which a frozen file system does not hold up.

- *Reading*, on `lock.mdb`: a backup holds it shared for as long as it lives. The node takes it alone for each
  transaction that writes. Where it cannot have it, somebody reads or is about to: it begins a read transaction of its
  own first, a *pin*, keeps that until it has the lock again, and LMDB heeds it as any reader. No transaction without a
  pin is under way when a backup gets its lock, so what was committed last at that moment, and all that comes later,
  stays readable for it.
- *Beginning*, on `data.mdb`: held by a backup while it begins to read, and by a pinned transaction while it writes. So
  a backup never meets a root that is half written. The node waits for it, but not for a backup that was stopped just
  then: after BEGIN_S it writes, and the backup, which knows how long it took, begins anew.

Why that is enough, and why not LMDB's own table of readers: docs/adr/0046. Who goes by that table all the same (LMDB's
own tools, an older Holdfast) would neither heed nor be heeded: it finds that `lock.mdb` is none of LMDB's, and ends;
and where it has the store open already, node and backup do not begin.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import PyDLL, c_int
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final

import lmdb

from holdfast.errors import StorageError
from holdfast.storage.files.directory import TABLE, TABLE_BYTES, allocate
from holdfast.storage.layout.pages import Damage, read_root, reusable_pages

__all__ = ["BackupReaderLock", "NodeReaderLock", "backup_transaction"]

UNBOUNDED_PAGES: Final = 1 << 62

LOOK_EVERY_S: Final = 0.25
"""How long a count of free pages holds, less what was taken since; a thousand free records cost 3 ms."""

BEGIN_S: Final = 1.0
"""What a backup has for beginning; a few milliseconds are the rule."""
ADMIT_S: Final = 30.0
"""How long a backup waits for a commit that is under way."""
CLAIM_S: Final = 0.2
"""How long a process may stay at the same beginning."""
POLL_S: Final = 0.0002

_flock: Final = PyDLL(None).flock
"""Keeps the interpreter: it never waits here, and to give it up and get it back would cost a commit more."""
_flock.argtypes = (c_int, c_int)
_flock.restype = c_int

_TRY: Final = fcntl.LOCK_EX | fcntl.LOCK_NB

_NO_TABLE: Final = b"Holdfast: LMDB's readers are not listed here\n"
"""In the place of LMDB's magic number."""


class NodeReaderLock:
    """The node's side of both locks: what a backup reads stays.

    `env` is the environment of the store in `path`, whose file is open as `data_fd`.

    `with readers:` around each transaction that writes, one at a time.

    Raises `StorageError` where another program reads the store by LMDB's own table, OSError.
    """

    def __init__(self, env: lmdb.Environment, path: Path, data_fd: int) -> None:
        self._env = env
        self._data_fd = data_fd
        self._fd = _claim(path)
        self._pin: lmdb.Transaction[bytes] | None = None
        self._since = 0
        """The pin's transaction."""
        self.foreign = False
        """Whether another process was reading when last looked."""
        self._left = self._taken = 0
        self._look_at = 0.0

    def __enter__(self) -> None:
        if not _flock(self._fd, _TRY):
            if self.foreign:
                self._unpin()
            return
        if self._pin is None:
            self._pin = self._env.begin()
            self._since = self._pin.id()
            self._look_at = 0.0
            self.foreign = True
        until = monotonic() + BEGIN_S
        while _flock(self._data_fd, _TRY) and monotonic() < until:
            sleep(POLL_S)

    def __exit__(self, *_: object) -> None:
        _flock(self._data_fd if self.foreign else self._fd, fcntl.LOCK_UN)

    def look(self) -> None:
        """Whether a reader is still active. No transaction may be writing meanwhile."""
        if self.foreign and not _flock(self._fd, _TRY):
            self._unpin()
            _flock(self._fd, fcntl.LOCK_UN)

    def renew(self) -> None:
        """The environment was mapped anew, which ended the pin: the next transaction begins another."""
        self._unpin()

    def _unpin(self) -> None:
        if self._pin is not None:
            self._pin.abort()
        self._pin = None
        self.foreign = False

    def close(self) -> None:
        """Before the environment is. Idempotent."""
        if self._fd >= 0:
            self._unpin()
            os.close(self._fd)
            self._fd = -1

    def reusable_pages(self) -> int:
        """Free pages that the next transaction may use, at the least; all of them if there is no other reader."""
        if not self.foreign:
            return UNBOUNDED_PAGES
        now = monotonic()
        if now >= self._look_at or 2 * self._taken > self._left:
            self._look_at = now + LOOK_EVERY_S
            self._taken = 0
            self._left = self._count()
        return max(0, self._left - self._taken)

    def took(self, pages: int) -> None:
        """A transaction wrote so many pages at the most."""
        self._taken += pages

    def _count(self) -> int:
        with self._env.begin():  # what the list's pages hold stays while we read it
            root = read_root(self._data_fd)
            try:
                return 0 if root is None else reusable_pages(self._data_fd, root, self._since)
            except Damage:
                return 0


def _claim(path: Path) -> int:
    """The file with the lock of those who read, open; held by LMDB's own lock, together with all who know it for what
    it is. `StorageError` if another process has it, OSError."""
    allocate(path / TABLE, TABLE_BYTES)
    fd = os.open(path / TABLE, os.O_RDWR)
    try:
        until = monotonic() + CLAIM_S
        while True:
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
                os.pwrite(fd, _NO_TABLE, 0)
                break
            except BlockingIOError:
                if os.pread(fd, len(_NO_TABLE), 0) == _NO_TABLE:
                    break
                if monotonic() >= until:
                    raise StorageError(
                        f"store {path}: in use by a program that knows LMDB's own table of readers alone, one of "
                        "LMDB's tools or an older Holdfast: end that first"
                    ) from None
            sleep(POLL_S)
        fcntl.lockf(fd, fcntl.LOCK_SH, 1)
    except BaseException:
        os.close(fd)
        raise
    return fd


class BackupReaderLock:
    """A backup's side of both locks: what the store holds since this was made stays readable until `close`."""

    def __init__(self, path: Path, data_fd: int) -> None:
        """Waits for a commit that is under way. Raises `StorageError` where that takes longer than ADMIT_S, or the node
        is one that would not heed it; OSError."""
        self._path = path
        self._data_fd = data_fd
        self._fd = _claim(path)
        try:
            self._lock(self._fd, fcntl.LOCK_SH)
        except BaseException:
            os.close(self._fd)
            raise

    def begin(self, env: lmdb.Environment) -> "lmdb.Transaction[bytes]":
        """A read transaction of `env`, which is open without LMDB's own locks."""
        while True:
            began = self._lock(self._data_fd, fcntl.LOCK_EX)
            try:
                txn = env.begin()
                if monotonic() < began + BEGIN_S / 2:
                    return txn
                txn.abort()  # the node may have gone on: what we saw may be half a root
            finally:
                fcntl.flock(self._data_fd, fcntl.LOCK_UN)

    def _lock(self, fd: int, kind: int) -> float:
        """A moment before it was had."""
        now = monotonic()
        until = now + ADMIT_S
        while True:
            try:
                fcntl.flock(fd, kind | fcntl.LOCK_NB)
                return now
            except BlockingIOError:
                if now >= until:
                    raise StorageError(
                        f"store {self._path}: its node has been at one commit for {ADMIT_S:g} s: the disk does not "
                        "answer"
                    ) from None
            sleep(POLL_S)
            now = monotonic()

    def close(self) -> None:
        os.close(self._fd)


@contextmanager
def backup_transaction(path: Path, env: lmdb.Environment, data_fd: int) -> "Iterator[lmdb.Transaction[Any]]":
    """What is committed in the store in `path` now, for as long as the block lasts, whatever its node does meanwhile.

    `env`: the store, open without LMDB's locks. `data_fd`: its file, open for this alone. See `BackupReaderLock`.
    """
    place = BackupReaderLock(path, data_fd)
    try:
        with place.begin(env) as txn:
            yield txn
    finally:
        place.close()
