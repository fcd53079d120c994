"""Backup of a store, also while a node runs on it; and restoring from a backup (docs/store.md).

Rules of this file: a backup is one read transaction of LMDB's, in a process of its own: the node continues, and a
failure of a backup only ends the backup. While it reads, pages that the node frees cannot be used again, so the store
grows; it gives way before the node would run out of space. A backup, and a restored store, are there whole or not at
all.

A restored store gets a new UUID (CUSTODY, "Names"): what its former life did after the backup is known to others and
not to it. So it gets a UUID of its own, its queues too, and numbers its messages from 1; what it holds keeps the
identities it has, and counts as shown.
"""

import os
import shutil
from datetime import datetime, timezone
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple
from uuid import UUID, uuid4

import lmdb

from holdfast.broker.queue import COUNTERS
from holdfast.broker.stored import records
from holdfast.durable import sync_file
from holdfast.errors import ConfigError, StorageError
from holdfast.storage.files.copied import forget_marks
from holdfast.storage.files.copying import (
    QUEUE_COUNTERS,
    Watch,
    check_space,
    copy_out,
    counts_of,
    free_bytes,
    messages_of,
    open_quiet,
    rows_of,
    used_bytes,
)
from holdfast.storage.files.directory import (
    ASIDE,
    DATA,
    admit_backup,
    check_length,
    hold,
    hold_to_read,
    is_read_only,
    make_aside,
    make_durable,
    no_store,
    not_written,
    read_bound,
    refusal,
)
from holdfast.storage.files.readers import backup_transaction
from holdfast.storage.layout.pages import Damage, read_root, reusable_pages
from holdfast.storage.layout.schema import BACKUP_KEY, FILE_KEY, UUID_KEY, databases, read_identity
from holdfast.storage.upkeep.upgrades import upgrade
from holdfast.units import MIB, iso8601

__all__ = ["BackedUp", "Restored", "backup", "restore"]

LEAST_LEFT_BYTES: Final = 32 * MIB
"""A backup ends when the node has less space left than this, twice the store's reserve, or than half of what it had."""
LOOK_EVERY_S: Final = 0.05


class BackedUp(NamedTuple):
    """`store`: its UUID; `messages`: in all queues; `made`: ISO 8601, UTC: what was committed by then is in it."""

    store: UUID
    messages: int
    bytes: int
    made: str


class Restored(NamedTuple):
    """`former`: the UUID of the store that was backed up; `made`: when, None for the copy of a stopped store."""

    store: UUID
    former: UUID
    messages: int
    bytes: int
    made: str | None


class _GivesWay(Exception):
    """The node needs the space that the backup withholds."""


# ---------------------------------------------------------------------------------------------------- backup


def backup(path: Path, target: Path, watch: Watch | None = None) -> BackedUp:
    """A consistent copy of the store in `path` in the new directory `target`, whether a node runs on it or not.

    Raises `ConfigError` where `target` is there, `StorageError` where the store cannot be read or the node needs the
    space, `StorageFull` where the copy does not fit.
    """
    if target.exists():
        raise ConfigError(f"{target} exists already; choose another name")
    if not (path / DATA).is_file():
        raise no_store(path)
    if Path(os.path.realpath(target)).is_relative_to(os.path.realpath(path)):
        raise ConfigError(f"{target} is inside the store that it is to protect; choose a place outside {path}")
    if not target.parent.is_dir():
        raise ConfigError(f"{target} cannot be created: there is no directory {target.parent}; choose one that exists")
    still = is_read_only(path)  # then nobody writes it who has no lock that we see
    try:
        admitted = hold_to_read(path) if still else admit_backup(path)
    except OSError as error:
        raise refusal(path, error) from error
    try:
        return _backup(path, target, watch, still=still)
    except _GivesWay as reason:
        raise StorageError(f"store {path}: the backup gave way to the node, {reason}") from None
    except Damage as damage:
        raise StorageError(f"store {path}: data.mdb: {damage}: `holdfast store check` says more") from damage
    except (lmdb.Error, OSError) as error:
        raise refusal(path, error) from error
    finally:
        if admitted >= 0:
            os.close(admitted)


def _backup(path: Path, target: Path, watch: Watch | None, *, still: bool) -> BackedUp:
    aside = target.with_name(f".{target.name}.partial")
    data_fd = os.open(path / DATA, os.O_RDONLY)
    try:
        check_length(path, data_fd)
        # Its lock says whether a directory of that name is being made or was left.
        aside_lock = hold(aside)
        try:
            (aside / DATA).unlink(missing_ok=True)
            made = iso8601(int(datetime.now(tz=timezone.utc).timestamp() * 1000))
            with open_quiet(path) as env, env.begin() if still else backup_transaction(path, env, data_fd) as txn:
                _, uuid, of_backup = read_identity(env, path, txn)
                if of_backup is not None:
                    raise StorageError(f"store {path}: is a backup itself, made {of_backup}: copy its directory")
                check_space(aside, used_bytes(env, txn), f"backup of {path}")
                size = copy_out(env, aside / DATA, _Way(path, data_fd, watch), txn)
            try:
                with open_quiet(aside, write=True) as copy:
                    with copy.begin(write=True) as txn:
                        txn.put(BACKUP_KEY, made.encode())
                    messages = messages_of(copy)
                sync_file(aside / DATA)
                sync_file(aside)
                os.rename(aside, target)
                _make_durable(target)
            except (lmdb.Error, OSError) as error:
                raise not_written(target, error) from error
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        finally:
            os.close(aside_lock)
    finally:
        os.close(data_fd)
    return BackedUp(uuid, messages, size, made)


def _make_durable(path: Path) -> None:
    fd = os.open(path / DATA, os.O_RDWR)
    try:
        make_durable(path, fd)
    finally:
        os.close(fd)


class _Way:
    """Watches how much space the node has left while the backup withholds its freed pages."""

    def __init__(self, path: Path, data_fd: int, watch: Watch | None) -> None:
        self._path = path
        self._fd = data_fd
        self._watch = watch
        root = read_root(data_fd)
        self._since = 0 if root is None else root.transaction
        """At most the transaction that is copied."""
        self._least = min(LEAST_LEFT_BYTES, self._left_bytes() // 2)
        self._look_at = 0.0

    def __call__(self, done: int, expected: int) -> None:
        if monotonic() >= self._look_at:
            self._look_at = monotonic() + LOOK_EVERY_S
            try:
                left = self._left_bytes()
            except OSError as error:
                raise refusal(self._path, error) from error
            if left < self._least:
                raise _GivesWay(f"which has {left} bytes left while it runs, and needs {self._least}")
        if self._watch is not None:
            self._watch(done, expected)

    def _left_bytes(self) -> int:
        root = read_root(self._fd)
        if root is None:
            return 0
        bound = read_bound(self._path) or root.map_bytes
        grows_to = min(bound, os.fstat(self._fd).st_size + free_bytes(self._path))
        return grows_to - root.bytes + reusable_pages(self._fd, root, self._since) * root.page_bytes


# ---------------------------------------------------------------------------------------------------- restore


def restore(source: Path, path: Path, watch: Watch | None = None) -> Restored:
    """Makes a store in `path` of the backup, or the stopped store, in `source`, which stays as it is.

    Raises `ConfigError` where `path` holds a store, `StorageError` where `source` is none that can be read or a node
    runs on it, `StorageFull` where it does not fit.
    """
    if (path / DATA).exists():
        raise ConfigError(f"{path} holds a store already; choose a directory without one")
    if not path.parent.is_dir():
        raise ConfigError(f"store {path} cannot be made: there is no directory {path.parent}; choose one that exists")
    if not (source / DATA).is_file():
        raise no_store(source)
    source_lock = hold_to_read(source)
    lock = -1
    there, lock_there = path.exists(), (path / "lock").exists()
    try:
        lock = hold(path)
        if (path / DATA).exists():
            raise ConfigError(f"{path} holds a store already; choose a directory without one")
        return _restore(source, path, watch)
    except BaseException as error:
        if not (path / DATA).exists():
            _undo(path, directory=not there, lock=lock >= 0 and not lock_there)
        if isinstance(error, lmdb.Error | OSError):
            raise refusal(path, error) from error
        raise
    finally:
        if lock >= 0:
            os.close(lock)
        if source_lock >= 0:
            os.close(source_lock)


def _undo(path: Path, *, directory: bool, lock: bool) -> None:
    """Removes what was created before the restore failed."""
    try:
        if lock:
            (path / "lock").unlink()
        if directory:
            path.rmdir()
    except OSError:
        pass  # somebody else began something here


def _restore(source: Path, path: Path, watch: Watch | None) -> Restored:
    with (source / DATA).open("rb") as file:
        check_length(source, file.fileno())
    aside = make_aside(path)
    try:
        with open_quiet(source) as env:
            _, former, made = read_identity(env, source)
            counts = counts_of(env)
            check_space(path, used_bytes(env) + LEAST_LEFT_BYTES, f"store {path}: restoring")
            size = copy_out(env, aside / DATA, watch)
        with open_quiet(aside) as env:
            if counts_of(env) != counts:
                raise StorageError(f"store {path}: the copy of {source} is not what was copied")
        upgrade(aside, copied=False, backups=True)  # it gets a UUID of its own here
        fresh = uuid4()
        with open_quiet(aside, write=True) as env:
            _renew(env, fresh)
            messages = messages_of(env)
        sync_file(aside / DATA)
        forget_marks(path)
        os.rename(aside / DATA, path / DATA)
        shutil.rmtree(path / ASIDE, ignore_errors=True)
        _make_durable(path)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return Restored(fresh, former, messages, size, made)


_QUEUES: Final = b"queues\0"
_SUBSCRIPTIONS: Final = b"subscriptions\0"
_NUMBERED_BY: Final = b"custody\0u"
"""The store whose numbers these are."""
_OWN_NUMBERS: Final = (b"custody\0i", b"custody\0r")
"""The next number for each destination, and how far it has finished ours: both of the former UUID."""


def _renew(env: lmdb.Environment, fresh: UUID) -> None:
    """One transaction gives the store a new UUID."""
    with env.begin(write=True) as txn:
        tables = databases(env, txn)[-1]
        txn.put(UUID_KEY, fresh.bytes)
        txn.delete(BACKUP_KEY)
        txn.delete(FILE_KEY)
        txn.put(_NUMBERED_BY, fresh.bytes, db=tables)
        for key in [key for prefix in _OWN_NUMBERS for key, _ in rows_of(txn, tables, prefix)]:
            txn.delete(key, db=tables)
        ends: dict[int, int] = {}
        for key, value in rows_of(txn, tables, QUEUE_COUNTERS):
            end, messages, size, _ = COUNTERS.unpack(value)
            ends[int.from_bytes(key[len(QUEUE_COUNTERS) :], "big")] = end
            txn.put(key, COUNTERS.pack(end, messages, size, end), db=tables)
        for key, value in rows_of(txn, tables, _SUBSCRIPTIONS):
            queue_id, _ = records.split_cursor_key(key[len(_SUBSCRIPTIONS) :])
            cursor = records.unpack_cursor(value)
            shown = cursor._replace(watermark=max(cursor.watermark, ends.get(queue_id, 0)))
            txn.put(key, records.pack_cursor(shown), db=tables)
        for key, value in rows_of(txn, tables, _QUEUES):
            txn.put(key, records.pack_map({**records.unpack_map(value), "uuid": uuid4()}), db=tables)
