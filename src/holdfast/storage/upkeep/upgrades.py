"""Upgrades a store of an older layout to the present one.

Rules of this file: a crash at any point leaves the old layout or the new one, both whole. A layout that keeps its
entries otherwise is read by its own reader here and written anew by the present code, into a file beside, which is
renamed; one that only lacks something is changed in place, in one transaction. Golden stores of every layout are in
tests/storage/golden.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import lmdb

from holdfast.durable import sync_file
from holdfast.errors import StorageError
from holdfast.storage.files.copied import forget_transaction, record_rewrite
from holdfast.storage.files.copying import check_space, open_quiet
from holdfast.storage.files.directory import ASIDE, DATA, check_length, exclude_backups, make_aside, refusal
from holdfast.storage.layout.entries import DATABASES as ENTRY_DATABASES
from holdfast.storage.layout.entries import Entries
from holdfast.storage.layout.pages import read_root
from holdfast.storage.layout.records import pack
from holdfast.storage.layout.schema import DATABASES_MAX, OLDEST, SCHEMA, SCHEMA_KEY, databases, read_identity
from holdfast.units import MIB

__all__ = ["UPGRADES", "InPlace", "Rewrite", "upgrade"]

BATCH_BYTES: Final = 8 * MIB
BATCH_COUNT: Final = 10_000
"""Bytes and entries that one transaction of the new file takes at most."""


@dataclass(frozen=True, slots=True)
class InPlace:
    """A change in place: `change` upgrades the store from its version to the next, in one transaction."""

    change: Callable[[lmdb.Environment, "lmdb.Transaction[bytes]"], None]


@dataclass(frozen=True, slots=True)
class Rewrite:
    """`entries` yields (queue id, sequence, value) of all entries, ascending: the present layout is written of them.

    What the unnamed database and `tables` hold is taken over as it is.
    """

    entries: Callable[[lmdb.Environment, "lmdb.Transaction[bytes]"], Iterator[tuple[int, int, bytes]]]


def _entries_of_1(env: lmdb.Environment, txn: "lmdb.Transaction[bytes]") -> Iterator[tuple[int, int, bytes]]:
    """One entry for each record; the later pieces of an entry longer than `piece` are in `chunks`."""
    piece = 65_520
    chunks = env.open_db(b"chunks", txn=txn, create=False)
    with txn.cursor(db=env.open_db(b"entries", txn=txn, create=False)) as cursor, txn.cursor(db=chunks) as rest:
        for key, value in cursor:
            if len(value) == piece and rest.set_range(key):
                pieces = [value]
                for place, data in rest.iternext():
                    if place[:12] != key:
                        break
                    pieces.append(data)
                value = b"".join(pieces)
            yield int.from_bytes(key[:4], "big"), int.from_bytes(key[4:], "big"), value


def _blobs(env: lmdb.Environment, txn: "lmdb.Transaction[bytes]") -> None:
    """There are none yet: their database is all that lacks."""
    env.open_db(b"blobs", txn=txn)


UPGRADES: Final[dict[int, InPlace | Rewrite]] = {1: Rewrite(_entries_of_1), 2: InPlace(_blobs)}
"""Upgrades by the version that they start from. A rewrite leads to the present version at once, a change in place to
the next."""

assert all(version in UPGRADES for version in range(OLDEST, SCHEMA))


def upgrade(path: Path, *, copied: bool, backups: bool = False) -> None:
    """Upgrades the store in `path`, locked by this process and not open, to the present layout. `copied`: it is known
    for a copy (storage/files/copied.py), and is so afterwards too, until it has a UUID of its own.

    Raises `StorageError` for a store that is not read here, or a backup unless `backups`; `StorageFull` where a file
    beside it does not fit.
    """
    try:
        with (path / DATA).open("rb") as file:
            check_length(path, file.fileno())
        with open_quiet(path) as env:
            version, _, backup = read_identity(env, path)
        if backup is not None and not backups:
            raise StorageError(
                f"store {path}: is a backup, made {backup}: `holdfast store restore {path} DIR` makes a store of it"
            )
        if version == SCHEMA:
            return
        # Their place beside a node (storage/files/readers.py) is one beside the old file.
        excluded = exclude_backups(path)
        try:
            while version < SCHEMA:
                step = UPGRADES[version]
                version = _take(path, version, step, copied=copied)
        finally:
            os.close(excluded)
    except (lmdb.Error, OSError) as error:
        raise refusal(path, error) from error


def _take(path: Path, version: int, step: InPlace | Rewrite, *, copied: bool) -> int:
    """The version that the upgrade leads to."""
    if isinstance(step, Rewrite):
        return _rewrite(path, step, copied=copied)
    with open_quiet(path, write=True) as env, env.begin(write=True) as txn:
        step.change(env, txn)
        if copied:  # the transaction's number was perhaps what told it
            record_rewrite(txn, copied=True)
        txn.put(SCHEMA_KEY, b"%d" % (version + 1))
    return version + 1


def _rewrite(path: Path, step: Rewrite, *, copied: bool) -> int:
    with (path / DATA).open("rb") as file:
        root = read_root(file.fileno())
    assert root is not None  # `check_length` has read it
    check_space(path, root.bytes, f"store {path}: its layout is older; to rewrite it")
    aside = make_aside(path)
    try:
        with open_quiet(path) as old, _new(aside, 2 * root.bytes + root.map_bytes) as new:
            with old.begin() as txn:
                _fill(old, txn, new, step)
            with new.begin(write=True) as writing:
                record_rewrite(writing, copied=copied)
        sync_file(aside / DATA)
        if not copied:
            forget_transaction(path)
        os.rename(aside / DATA, path / DATA)
        sync_file(path)
    finally:
        shutil.rmtree(path / ASIDE, ignore_errors=True)
    return SCHEMA


def _new(aside: Path, map_bytes: int) -> lmdb.Environment:
    return lmdb.open(
        str(aside), map_size=map_bytes, max_dbs=DATABASES_MAX, mode=0o600, readahead=False, lock=False, sync=False
    )


def _fill(old: lmdb.Environment, txn: "lmdb.Transaction[bytes]", new: lmdb.Environment, step: Rewrite) -> None:
    tables = old.open_db(b"tables", txn=txn, create=False)
    named = {b"entries", b"chunks", b"gaps", b"tables"}
    with new.begin(write=True) as writing:
        handles = databases(new, writing)
        with txn.cursor() as cursor:
            for key, value in cursor:
                if key not in named:
                    writing.put(key, value)
        writing.put(SCHEMA_KEY, b"%d" % SCHEMA)
        with txn.cursor(db=tables) as cursor:
            for key, value in cursor:
                writing.put(key, value, db=handles[-1], append=True)
    entries = Entries(handles[: len(ENTRY_DATABASES)])
    batch: list[tuple[int, int, bytes]] = []
    size = 0
    for item in step.entries(old, txn):
        batch.append(item)
        size += len(item[2])
        if size >= BATCH_BYTES or len(batch) >= BATCH_COUNT:
            _append(new, entries, batch)
            batch, size = [], 0
    _append(new, entries, batch)


def _append(new: lmdb.Environment, entries: Entries, batch: list[tuple[int, int, bytes]]) -> None:
    with new.begin(write=True, buffers=True) as writing:
        entries.append(writing, pack(batch))
