"""LMDB's environment of a store that a node works with, its table of readers kept in memory.

Rules of this file: LMDB writes that table through a shared mapping at the beginning and end of every read. On a file
system that is frozen such a write waits in a page fault, whatever thread it comes from: the loop would stand still, and
on older kernels so would every thread that needs more memory. So the table is not a file of the store's, but one that
only this process sees. Other processes announce themselves by locks (readers.py).

How: LMDB finds both files by the name of their directory. It is given one of two links, to the data and to an
anonymous file in memory, which is taken away once both are open. Source: memfd_create(2), LMDB 0.9 `mdb_env_open`.
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

import lmdb

from holdfast.storage.files.directory import DATA, TABLE, TABLE_BYTES, allocate
from holdfast.storage.layout.schema import DATABASES_MAX

__all__ = ["open_environment"]

MEMORY: Final = "/dev/shm"
ON_DISK: Final = "readers.mdb"
"""The table where the system has no anonymous files."""


def open_environment(path: Path, bytes_max: int) -> tuple[lmdb.Environment, bool]:
    """The store in `path`, which this process holds and which may grow to `bytes_max` bytes; whether its table of
    readers is in memory.

    Raises lmdb.Error and OSError.
    """
    try:
        table = os.memfd_create("holdfast-readers")
    except (AttributeError, OSError):  # no Linux, or one that keeps us from it
        allocate(path / ON_DISK, TABLE_BYTES)  # through a mapping a full disk would be a SIGBUS
        return _open_linked(path, bytes_max, str((path / ON_DISK).resolve())), False
    try:
        return _open_linked(path, bytes_max, f"/proc/self/fd/{table}"), True
    finally:
        os.close(table)


def _open_linked(path: Path, bytes_max: int, table: str) -> lmdb.Environment:
    links = _make_directory(path)
    try:
        (links / DATA).symlink_to((path / DATA).resolve())
        (links / TABLE).symlink_to(table)
        # No readahead: entries are read once each, and what is read ahead counts as resident.
        return lmdb.open(
            str(links),
            map_size=bytes_max,
            max_dbs=DATABASES_MAX,
            max_readers=16,
            max_spare_txns=1,
            mode=0o600,
            readahead=False,
        )
    finally:
        shutil.rmtree(links, ignore_errors=True)


def _make_directory(path: Path) -> Path:
    """A directory for a moment, in memory first: that of a store on a full disk takes no new names."""
    for place in (MEMORY, tempfile.gettempdir()):
        try:
            return Path(tempfile.mkdtemp(prefix="holdfast-", dir=place))
        except OSError:
            continue
    return Path(tempfile.mkdtemp(prefix="holdfast-", dir=path))
