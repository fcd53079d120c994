"""Blocking calls on files that are to be there after a power loss.

Rules of this file: OSError goes to the caller, which knows what the file is.
"""

import fcntl
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def write_all(descriptor: int, data: bytes) -> int:
    """All of `data` where the descriptor stands; its length."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    return len(data)


def replace_locked(path: Path, pieces: Iterable[bytes]) -> tuple[int, int]:
    """A new file of `pieces`, locked and synced, takes the place of the one at `path`; its descriptor and length.

    On the disk is one of the two, whole; which one is certain once the directory is synced.
    """
    fresh_path = path.with_name(path.name + ".new")
    fresh = os.open(fresh_path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    written = 0
    try:
        fcntl.flock(fresh, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for piece in pieces:
            written += write_all(fresh, piece)
        os.fdatasync(fresh)
        os.replace(fresh_path, path)
    except BaseException:
        os.close(fresh)
        with suppress(OSError):  # on a full disk it would only take room
            os.unlink(fresh_path)
        raise
    return fresh, written


def append_file(path: Path, pieces: Iterable[bytes]) -> None:
    """Adds `pieces` to the file at `path`, synced; all of them, or none where the disk refuses."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    before = os.fstat(descriptor).st_size
    try:
        for piece in pieces:
            write_all(descriptor, piece)
        os.fsync(descriptor)
    except BaseException:
        with suppress(OSError):
            os.ftruncate(descriptor, before)
        raise
    finally:
        os.close(descriptor)
