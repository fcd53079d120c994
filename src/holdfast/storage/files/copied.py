"""Detects whether a store's file is the one that was last opened here, or a copy in its place (ADR 0025).

Rules of this file: missing information is no evidence. At each open, a store records which file it is and how often it
was opened, and leaves a file `opened-N` beside it, which a copy of the data that replaces the store does not contain.
Nothing here prevents a store from being opened; on a full disk there is only less information.
"""

import fcntl
import os
from pathlib import Path
from struct import Struct
from typing import Any, Final, NamedTuple

import lmdb

from holdfast.storage.files.copying import open_quiet
from holdfast.storage.files.directory import DATA, check_length, means_full
from holdfast.storage.layout.pages import read_root
from holdfast.storage.layout.schema import FILE_KEY

__all__ = [
    "FileRecord",
    "find_copy",
    "forget_marks",
    "forget_transaction",
    "mark_closed",
    "mark_opened",
    "record_open",
    "record_rewrite",
]

_RECORD: Final = Struct(">QQI")
_GENERATION: Final = Struct("=i")
FS_IOC_GETVERSION: Final = 0x80087601
"""Linux: the number that sets an inode apart from an earlier one of the same number (ext4, XFS, btrfs, F2FS)."""
NO_FILE: Final = (1 << 64) - 1
"""In the place of the inode: a copy that we wrote anew stays one, whichever inode its new file has."""
PREFIX: Final = "opened-"
WORD_BYTES_MAX: Final = 32


class FileRecord(NamedTuple):
    """`opens`: how often the store was opened. `inode` and `generation`: of its file, 0 where not known."""

    opens: int
    inode: int
    generation: int


def find_copy(path: Path) -> str | None:
    """Why the file in `path`, which no process has open, is considered a copy, for people; None if it is not.
    `StorageError` if it is not a readable store.
    """
    with (path / DATA).open("rb") as file:
        check_length(path, file.fileno())
        root = read_root(file.fileno())
        here = _file_of(file.fileno(), 0)
    record = _read(path)
    words = _words(path)
    newest = max(words, default=0)
    if root is None:
        return None
    if record is None:  # the record is stored before the mark is made: the owner of the mark had a record
        found = f"it has no record of being opened, the store that was in this directory was opened {newest} times"
        return found if newest else None
    moved = record.inode and record.inode != here.inode
    if moved or (record.generation and here.generation and record.generation != here.generation):
        return "its file is not the one that was opened last"
    if newest > record.opens:
        return f"it was opened {record.opens} times, the store that was in this directory {newest} times"
    closed_at = words.get(record.opens)
    if closed_at is not None and root.transaction < closed_at:
        return "it is older than the store that was closed in this directory"
    return None


def record_open(path: Path, txn: "lmdb.Transaction[Any]", data_fd: int) -> int:
    """Records in the store which file it is, and that it was opened once more; returns how often."""
    record = _unpack(txn.get(FILE_KEY))
    opens = max(0 if record is None else record.opens, *_words(path), 0) + 1
    txn.put(FILE_KEY, _RECORD.pack(*_file_of(data_fd, opens)))
    return opens


def mark_opened(path: Path, opens: int) -> None:
    """What `record_open` wrote is on disk: replaces the mark in the directory."""
    try:
        os.close(os.open(_mark(path, opens), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        for other in _words(path):
            if other != opens:
                _mark(path, other).unlink(missing_ok=True)
    except OSError as error:
        if not means_full(error):
            raise


def mark_closed(path: Path, opens: int, data_fd: int) -> None:
    """The store was closed properly: the mark gets its last transaction."""
    root = read_root(data_fd)
    mark = _mark(path, opens)
    if root is None or not mark.exists():
        return
    try:
        fd = os.open(mark, os.O_WRONLY)
        try:
            os.pwrite(fd, f"{root.transaction}\n".encode(), 0)
        finally:
            os.close(fd)
    except OSError as error:
        if not means_full(error):
            raise


def record_rewrite(txn: "lmdb.Transaction[bytes]", *, copied: bool) -> None:
    """We change the store before it is opened, in `txn`, or rewrite it: a copy still counts as a copy until it gets its
    own UUID, and an original as the original."""
    record = _unpack(txn.get(FILE_KEY))
    if copied:
        txn.put(FILE_KEY, _RECORD.pack(0 if record is None else record.opens, NO_FILE, 0))
    elif record is not None:
        txn.put(FILE_KEY, _RECORD.pack(record.opens, 0, 0))


def forget_transaction(path: Path) -> None:
    """Before a rewritten store that is not a copy takes its place: its transactions start again."""
    for opens in _words(path):
        os.close(os.open(_mark(path, opens), os.O_WRONLY | os.O_TRUNC))


def forget_marks(path: Path) -> None:
    """Before a new store is created: removes the marks of an earlier one."""
    for opens in _words(path):
        _mark(path, opens).unlink(missing_ok=True)


def _mark(path: Path, opens: int) -> Path:
    return path / f"{PREFIX}{opens}"


def _words(path: Path) -> dict[int, int | None]:
    """By number of opens: at which transaction the store was closed, None if not known."""
    found: dict[int, int | None] = {}
    for name in os.listdir(path):
        number = name.removeprefix(PREFIX)
        if number != name and number.isdigit() and len(number) < 20:
            with (path / name).open("rb") as file:
                word = file.read(WORD_BYTES_MAX).strip()
            found[int(number)] = int(word) if word.isdigit() else None
    return found


def _read(path: Path) -> FileRecord | None:
    with open_quiet(path) as env, env.begin() as txn:
        return _unpack(txn.get(FILE_KEY))


def _unpack(data: bytes | None) -> FileRecord | None:
    return None if data is None or len(data) != _RECORD.size else FileRecord(*_RECORD.unpack(data))


def _file_of(fd: int, opens: int) -> FileRecord:
    try:
        (generation,) = _GENERATION.unpack(fcntl.ioctl(fd, FS_IOC_GETVERSION, bytes(_GENERATION.size)))
    except OSError:  # a file system without such numbers
        generation = 0
    return FileRecord(opens, os.fstat(fd).st_ino, generation & 0xFFFFFFFF)
