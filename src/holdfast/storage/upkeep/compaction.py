"""Compaction: rewrites a store's file without its free pages while it is not open (docs/adr/0013).

Rules of this file: LMDB never gives a page back to the file system, and a page within its file is not cut out from
under it; so a smaller file is a new one. It is made aside, synced, compared and renamed: a crash at any point leaves
the old file or the new one, both whole. Neither a node nor a backup may have the old one open: a backup's place
beside the node (storage/files/readers.py) is one beside the old file.
"""

import os
import shutil
from pathlib import Path
from typing import Final, NamedTuple

import lmdb

from holdfast.durable import sync_file
from holdfast.errors import StorageError
from holdfast.storage.files.copied import find_copy, forget_transaction, record_rewrite
from holdfast.storage.files.copying import Watch, check_space, copy_out, counts_of, open_quiet, used_bytes
from holdfast.storage.files.directory import DATA, check_length, exclude_backups, hold, make_aside, no_store, refusal
from holdfast.storage.layout.pages import read_root
from holdfast.storage.layout.schema import read_identity
from holdfast.units import MIB

__all__ = ["Compacted", "compact", "shrink"]

SHRINK_FILE_BYTES: Final = 256 * MIB
SHRINK_USED_BYTES: Final = 32 * MIB
"""A store whose file has at least this size, and of which at most that much is used, is compacted when a node opens it:
rewriting so little takes a fraction of a second, and the disk gets its space back."""


class Compacted(NamedTuple):
    """Bytes on disk before and after the compaction."""

    before_bytes: int
    after_bytes: int


def compact(path: Path, watch: Watch | None = None) -> Compacted:
    """Compacts the store in `path`. Raises `StorageError` if a process has it open, or it is damaged.

    Raises `StorageFull` where the disk has no space for the second file beside the first.
    """
    _check_there(path)
    lock = hold(path)
    try:
        return _rewrite(path, watch)
    except (lmdb.Error, OSError) as error:
        raise refusal(path, error) from error
    finally:
        os.close(lock)


def shrink(path: Path) -> bool:
    """Compacts a store that this process has locked and not opened yet, if it is large and nearly empty.

    True if it did. Whatever keeps it from that (a backup that runs, a full disk) keeps the file as it is.
    """
    try:
        with open(path / DATA, "rb") as file:
            root = read_root(file.fileno())
            if root is None or os.fstat(file.fileno()).st_size < SHRINK_FILE_BYTES:
                return False
        with open_quiet(path) as env:
            _, _, backup = read_identity(env, path)
            if backup is not None or used_bytes(env) > SHRINK_USED_BYTES:
                return False
        _rewrite(path, None)
    except (StorageError, lmdb.Error, OSError):
        return False
    return True


def _check_there(path: Path) -> None:
    if not (path / DATA).is_file():
        raise no_store(path)


def _rewrite(path: Path, watch: Watch | None) -> Compacted:
    excluded = exclude_backups(path)
    try:
        data = path / DATA
        before = data.stat()
        with data.open("rb") as file:
            check_length(path, file.fileno())
        copied = find_copy(path) is not None
        aside = make_aside(path)
        try:
            with open_quiet(path) as env:
                identity = read_identity(env, path)
                counts = counts_of(env)
                check_space(path, used_bytes(env), f"store {path}: compaction")
                copy_out(env, aside / DATA, watch)
            with open_quiet(aside) as env:
                if read_identity(env, path) != identity or counts_of(env) != counts:
                    raise StorageError(f"store {path}: the copy is not what was copied; the store is as it was")
            with open_quiet(aside, write=True) as env, env.begin(write=True) as txn:
                record_rewrite(txn, copied=copied)
            if not copied:
                forget_transaction(path)
            os.rename(aside / DATA, data)
            sync_file(path)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        return Compacted(before.st_blocks * 512, data.stat().st_blocks * 512)
    finally:
        os.close(excluded)
