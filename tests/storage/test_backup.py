"""Backup of a store, and a store made of one: whole or not at all, and with a new UUID (CUSTODY, "Names")."""

import errno
import os
import signal
import subprocess
import sys
from datetime import datetime, timedelta, timezone, tzinfo
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import lmdb
import pytest

from holdfast.broker.entries import entry, packed
from holdfast.engine.port import Batch
from holdfast.errors import ConfigError, StorageError, StorageFull
from holdfast.storage.files import copying, directory
from holdfast.storage.layout.pages import read_root
from holdfast.storage.layout.schema import SCHEMA
from holdfast.storage.lmdb import LmdbStore
from holdfast.storage.upkeep import backup as backing
from holdfast.storage.upkeep.backup import backup, restore
from holdfast.storage.upkeep.check import check
from holdfast.units import MIB
from storage.test_upgrades import golden
from support.stores import Idle, LoneNode


def node_of(path: Path) -> LoneNode:
    """Ten on their way to the hub, thirty for a consumer who was shown five, a subscription at 11."""
    node = LoneNode(path)
    node.fill("q", 30)
    node.fill("@hub", 10)
    node.core.catalog.ledger.receipts["hub"] = 4
    node.core.catalog.ledger.put_receipt("hub")
    cursor = node.queue("q").add_cursor("audit", "copy", 1)
    cursor.advance(11)
    node.queue("q").dirty(cursor)
    node.settle()
    return node


def test_a_restored_store_is_someone_new_who_holds_what_was_there(tmp_path: Path) -> None:
    node = node_of(tmp_path / "store")
    was = {name: queue.uuid for name, queue in node.core.catalog.queues.items()}
    uuid, former_entries = node.store.uuid, node.sequences("q")
    node.stop()
    made = backup(tmp_path / "store", tmp_path / "backup")
    assert (made.store, made.messages) == (uuid, len(former_entries) + 10)
    (tmp_path / "new").mkdir()
    told = restore(tmp_path / "backup", tmp_path / "new" / "store")
    assert (told.former, told.made, told.messages) == (uuid, made.made, made.messages)

    node = LoneNode(tmp_path / "new" / "store")
    assert node.store.uuid == told.store != uuid
    catalog = node.core.catalog
    assert catalog.queues.keys() == was.keys()
    assert all(catalog.queues[name].uuid != former for name, former in was.items())
    assert node.sequences("q") == former_entries
    assert catalog.ledger.identities.get("hub", 1) == 1 and catalog.ledger.receipts.get("hub", 0) == 0
    identities = [packed.identity_of(value) for _, value in node.queue("@hub").read(0, count_max=99, bytes_max=1 << 20)]
    assert identities == [entry.Identity(uuid, number) for number in range(1, 11)]
    node.fill("@hub", 1)
    fresh = node.queue("@hub").value(11)
    assert fresh is not None and packed.identity_of(fresh) == entry.Identity(told.store, 1)
    assert catalog.queues["q"].named["audit"].floor == 11
    assert catalog.queues["q"].next_sequence == 31
    node.stop()
    assert check(tmp_path / "new" / "store").findings == []


class Marked(Idle):
    """Notes with which delivery count it was given what."""

    def __init__(self, credit: int) -> None:
        super().__init__(credit)
        self.counts: list[int | None] = []

    def count_held(self, size: int) -> None:
        """It counts nothing."""

    def take(self, sequence: int, value: bytes, delivery_count: int | None) -> None:
        super().take(sequence, value, delivery_count)
        self.counts.append(delivery_count)


def test_what_a_restored_store_holds_is_marked_as_shown(tmp_path: Path) -> None:
    """Its former life may have shown it after the backup was made."""
    node = LoneNode(tmp_path / "store")
    node.fill("q", 3)
    node.stop()
    backup(tmp_path / "store", tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "restored")
    node = LoneNode(tmp_path / "restored")
    node.fill("q", 1)
    consumer = Marked(9)
    node.queue("q").shared.attach(consumer)
    node.settle()
    node.settle()
    assert consumer.taken == [1, 2, 3, 4]
    assert consumer.counts[:3] == [1, 1, 1] and consumer.counts[3:] in ([], [None])  # new ones may come in a run
    node.stop()


def test_nobody_opens_a_backup_as_a_store(tmp_path: Path) -> None:
    LmdbStore(tmp_path / "store").close()
    made = backup(tmp_path / "store", tmp_path / "backup")
    before = (tmp_path / "backup" / "data.mdb").read_bytes()
    with pytest.raises(StorageError) as refused:
        LmdbStore(tmp_path / "backup")
    assert str(refused.value) == (
        f"store {tmp_path}/backup: is a backup, made {made.made}: `holdfast store restore {tmp_path}/backup DIR` "
        "makes a store of it"
    )
    assert (tmp_path / "backup" / "data.mdb").read_bytes() == before
    with pytest.raises(StorageError, match="is a backup itself"):
        backup(tmp_path / "backup", tmp_path / "again")
    checked = check(tmp_path / "backup")
    assert checked.findings == [] and checked.backup == made.made


def test_names_that_are_taken_and_places_without_a_store_are_refused(tmp_path: Path) -> None:
    LmdbStore(tmp_path / "store").close()
    (tmp_path / "taken").mkdir()
    with pytest.raises(ConfigError, match="taken exists already; choose another name"):
        backup(tmp_path / "store", tmp_path / "taken")
    (tmp_path / "store" / "sub").mkdir()
    for inside in ("backup", "sub/backup", "sub/../backup"):
        with pytest.raises(ConfigError, match="is inside the store that it is to protect"):
            backup(tmp_path / "store", tmp_path / "store" / inside)
        assert not (tmp_path / "store" / inside).exists()
    with pytest.raises(StorageError, match="there is no store"):
        backup(tmp_path / "none", tmp_path / "backup")
    with pytest.raises(StorageError, match="there is no store"):
        restore(tmp_path / "none", tmp_path / "restored")
    backup(tmp_path / "store", tmp_path / "backup")
    with pytest.raises(ConfigError, match="holds a store already; choose a directory without one"):
        restore(tmp_path / "backup", tmp_path / "store")
    assert sorted(os.listdir(tmp_path)) == ["backup", "store", "taken"]


def test_a_store_that_runs_is_not_restored_from(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path / "store")
    with pytest.raises(StorageError, match="in use by process"):
        restore(tmp_path / "store", tmp_path / "restored")
    store.close()
    assert restore(tmp_path / "store", tmp_path / "restored").made is None


def test_an_older_backup_is_brought_up_to_date(tmp_path: Path) -> None:
    told = golden(tmp_path / "old", 1)
    restored = restore(tmp_path / "old", tmp_path / "restored")
    assert restored.former == UUID(told["store"])
    checked = check(tmp_path / "restored")
    assert checked.findings == [] and checked.schema == SCHEMA
    assert checked.entries == restored.messages == sum(len(queue["sequences"]) for queue in told["queues"].values())


KILLED = """
import os, signal, sys
from pathlib import Path
from holdfast.storage.upkeep import backup as b
what, step, here = sys.argv[1], sys.argv[2], Path(sys.argv[3])
def end(*_): os.kill(os.getpid(), signal.SIGKILL)
if step == "copying": b.copy_out = lambda env, target, *_: target.write_bytes(b"half") and end()
if step == "changing": b.open_quiet = lambda path, write=False, kept=b.open_quiet: end() if write else kept(path)
if step == "renaming": os.rename = end
if step == "renamed": b._make_durable = end
if what == "backup": b.backup(here / "store", here / "made")
else: b.restore(here / "source", here / "made")
"""


@pytest.mark.parametrize("step", ["copying", "changing", "renaming", "renamed"])
@pytest.mark.parametrize("what", ["backup", "restore"])
def test_killed_at_any_step_it_is_there_whole_or_not_at_all(tmp_path: Path, what: str, step: str) -> None:
    node = node_of(tmp_path / "store")
    node.stop()
    backup(tmp_path / "store", tmp_path / "source")
    command = [sys.executable, "-c", KILLED, what, step, str(tmp_path)]
    ended = subprocess.run(command, timeout=60, check=False)
    assert ended.returncode == -signal.SIGKILL
    made = tmp_path / "made"
    assert (made / "data.mdb").exists() == (step == "renamed")
    if step == "renamed":
        assert check(made).findings == []
        return
    again = backup(tmp_path / "store", made) if what == "backup" else restore(tmp_path / "source", made)
    assert again.messages == 40 and check(made).findings == []
    left = {name for name in os.listdir(tmp_path) if name.startswith(".")} | {*os.listdir(made)} & {"new"}
    assert not left


def test_a_disk_too_small_for_the_copy_refuses_it_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node_of(tmp_path / "store").stop()
    backup(tmp_path / "store", tmp_path / "backup")
    monkeypatch.setattr(copying, "free_bytes", lambda place: 1_000)
    with pytest.raises(StorageFull, match=r"backup of .*: .* has 1000 bytes free; \d+ are needed"):
        backup(tmp_path / "store", tmp_path / "second")
    with pytest.raises(StorageFull, match=r"restoring: .* has 1000 bytes free; \d+ are needed"):
        restore(tmp_path / "backup", tmp_path / "restored")
    assert sorted(os.listdir(tmp_path)) == ["backup", "store"]


# -------------------------------------------------------------------------------------- beside a node that writes

READER = """
import os, sys
from pathlib import Path
from holdfast.storage.files.copying import open_quiet
from holdfast.storage.files.readers import backup_transaction
path = Path(sys.argv[1])
fd = os.open(path / "data.mdb", os.O_RDONLY)
with open_quiet(path) as env, backup_transaction(path, env, fd) as txn:
    print("reading", flush=True)
    sys.stdin.readline()
"""


def reader(path: Path) -> "subprocess.Popen[str]":
    """Another process that reads the store, as a backup does, until it is told to end."""
    command = [sys.executable, "-c", READER, str(path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "reading\n"
    return process


def tide(store: LmdbStore, first: int, count: int) -> int:
    """Fills and drains; bytes of the file that were ever used."""
    for start in range(first, first + count, 500):
        store.commit(Batch(appends=[(1, start + number, bytes(1_000)) for number in range(500)]))
        store.commit(Batch(retires=[(1, start + number) for number in range(500)]))
    return store._room.used_bytes()


@pytest.mark.parametrize("killed", [False, True])
def test_what_another_process_reads_is_not_counted_as_room_until_it_ends(tmp_path: Path, killed: bool) -> None:
    store = LmdbStore(tmp_path, bytes_max=48 * MIB, ahead_bytes=MIB)
    for first in range(0, 20_000, 500):
        store.commit(Batch(appends=[(1, first + number, bytes(1_000)) for number in range(500)]))
    store._readers._look_at = 0.0
    before = store.room_bytes()
    other = reader(tmp_path)
    try:
        for first in range(0, 20_000, 500):
            store.commit(Batch(retires=[(1, first + number) for number in range(500)]))
        store._readers._look_at = 0.0
        pinned = store.room_bytes()
        assert store._readers.foreign and pinned <= before + MIB
        with pytest.raises(StorageFull, match="do not fit"):
            for first in range(100_000, 200_000, 500):
                store.commit(Batch(appends=[(1, first + number, bytes(1_000)) for number in range(500)]))
        held = store.read(1, 0, count_max=1_000_000, bytes_max=1 << 40)
        store.commit(Batch(retires=[(1, sequence) for sequence, _ in held]))  # leaving always fits
        if killed:
            other.kill()
        else:
            other.communicate("end\n", timeout=20)
        other.wait(timeout=20)
        store._readers._look_at = 0.0
        assert store.room_bytes() > pinned + 4 * MIB and not store._readers.foreign
    finally:
        other.kill()
        other.communicate()
    store.close()


def test_a_backup_gives_way_before_the_node_is_out_of_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`_Way` alone: what the node takes meanwhile is played by a store in this process."""
    store = LmdbStore(tmp_path, bytes_max=96 * MIB, ahead_bytes=MIB)
    store.commit(Batch(appends=[(1, number, bytes(1_000)) for number in range(500)]))
    monkeypatch.setattr(backing, "LOOK_EVERY_S", 0.0)
    fd = os.open(tmp_path / "data.mdb", os.O_RDONLY)
    seen: list[int] = []
    way = backing._Way(tmp_path, fd, lambda done, total: seen.append(done))
    assert way._least == backing.LEAST_LEFT_BYTES
    way(1, 10)
    first = 500
    with pytest.raises(backing._GivesWay, match=f"and needs {backing.LEAST_LEFT_BYTES}"):
        while store.room_bytes() > 0:
            store.commit(Batch(appends=[(1, first + number, bytes(1_000)) for number in range(500)]))
            first += 500
            way(2, 10)
    assert store.room_bytes() > MIB and len(seen) > 10
    os.close(fd)
    store.close()


def test_a_backup_is_as_of_when_it_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is committed while it copies is not in it."""
    node_of(tmp_path / "store").stop()
    at, copied = datetime(2026, 11, 24, tzinfo=timezone.utc), 0

    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return at

    def later(done: int, total: int) -> None:
        nonlocal at, copied
        at += timedelta(seconds=1)
        copied += 1

    monkeypatch.setattr(backing, "datetime", Clock)
    made = backup(tmp_path / "store", tmp_path / "monday", later).made
    assert copied and made == "2026-11-24T00:00:00.000Z"
    assert check(tmp_path / "monday").backup == made


def test_a_copy_that_is_broken_off_leaves_nothing(tmp_path: Path) -> None:
    node_of(tmp_path / "store").stop()

    def stop(done: int, total: int) -> None:
        raise backing._GivesWay("which needs it")

    with pytest.raises(StorageError, match="the backup gave way to the node, which needs it"):
        backup(tmp_path / "store", tmp_path / "backup", stop)
    assert os.listdir(tmp_path) == ["store"]


def test_a_damaged_store_is_copied_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node_of(tmp_path / "store").stop()

    class Broken:
        def copyfd(self, fd: int, compact: bool, txn: None) -> None:
            raise lmdb.CorruptedError("page")

        def __getattr__(self, name: str) -> Any:
            raise AssertionError(name)

    monkeypatch.setattr(copying, "used_bytes", lambda env, txn: 1_000)
    with pytest.raises(StorageError, match="the copy failed"):
        copying.copy_out(Broken(), tmp_path / "copy")  # type: ignore[arg-type]  # stands in for an environment


def test_a_damaged_list_of_free_pages_ends_a_backup_in_one_line(tmp_path: Path) -> None:
    node_of(tmp_path / "store").stop()
    file = tmp_path / "store" / "data.mdb"
    with file.open("rb") as opened:
        root = read_root(opened.fileno())
    assert root is not None
    for seed in range(20):
        with file.open("r+b") as opened:
            opened.seek(root.free.root * root.page_bytes)
            opened.write(Random(seed).randbytes(root.page_bytes))
        with pytest.raises(StorageError) as refused:
            backup(tmp_path / "store", tmp_path / "made")
        said = str(refused.value)
        assert said.startswith(f"store {tmp_path}/store: data.mdb: free list: page {root.free.root} ")
        assert said.endswith(": `holdfast store check` says more") and os.listdir(tmp_path) == ["store"]


def test_no_directory_is_made_above_a_backup_or_what_is_restored(tmp_path: Path) -> None:
    """A disk that is not mounted is not there: what was meant for it must not fill another."""
    node_of(tmp_path / "store").stop()
    with pytest.raises(ConfigError, match=r"there is no directory .*/disk;"):
        backup(tmp_path / "store", tmp_path / "disk" / "monday")
    backup(tmp_path / "store", tmp_path / "monday")
    with pytest.raises(ConfigError, match=r"there is no directory .*/disk;"):
        restore(tmp_path / "monday", tmp_path / "disk" / "store")
    assert not (tmp_path / "disk").exists()


@pytest.mark.parametrize("there", [False, True])
def test_a_restore_that_fails_leaves_what_it_found(tmp_path: Path, there: bool) -> None:
    node_of(tmp_path / "store").stop()
    backup(tmp_path / "store", tmp_path / "monday")
    with (tmp_path / "monday" / "data.mdb").open("r+b") as file:
        file.truncate(8_192)
    new = tmp_path / "new"
    if there:
        new.mkdir()
    with pytest.raises(StorageError, match="cut short"):
        restore(tmp_path / "monday", new)
    assert list(new.iterdir()) == [] if there else not new.exists()


def failing(monkeypatch: pytest.MonkeyPatch, name: str, number: int, last: str) -> None:
    """That call of `os`, where its first argument is a file or a directory of that name, fails with that error."""
    kept = getattr(os, name)

    def call(what: Any, *more: Any, **named: Any) -> Any:
        path = os.readlink(f"/proc/self/fd/{what}") if isinstance(what, int) else what
        if Path(path).name == last:
            raise OSError(number, os.strerror(number))
        return kept(what, *more, **named)

    monkeypatch.setattr(os, name, call)


def test_a_restore_whose_lock_does_not_fit_leaves_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node_of(tmp_path / "store").stop()
    backup(tmp_path / "store", tmp_path / "monday")
    failing(monkeypatch, "open", errno.ENOSPC, "lock")
    monkeypatch.setattr(backing, "hold_to_read", lambda path: -1)
    with pytest.raises(StorageFull, match=f"store {tmp_path}/new: no space on disk"):
        restore(tmp_path / "monday", tmp_path / "new")
    assert sorted(os.listdir(tmp_path)) == ["monday", "store"]


def test_a_restore_into_a_directory_that_another_holds_leaves_it_its_lock(tmp_path: Path) -> None:
    node_of(tmp_path / "store").stop()
    backup(tmp_path / "store", tmp_path / "monday")
    held = directory.hold(tmp_path / "new")
    with pytest.raises(StorageError, match=f"in use by process {os.getpid()}"):
        restore(tmp_path / "monday", tmp_path / "new")
    assert os.listdir(tmp_path / "new") == ["lock"]
    os.close(held)


@pytest.mark.parametrize(
    ("call", "last", "number", "said"),
    [
        ("write", "data.mdb", errno.EIO, "{aside}/data.mdb: cannot be written (Input/output error)"),
        ("fsync", "data.mdb", errno.EIO, "{aside}/data.mdb: cannot be written (Input/output error)"),
        ("rename", ".monday.partial", errno.EIO, "{target}: cannot be written (Input/output error)"),
        ("rename", ".monday.partial", errno.ENOSPC, "{target}: no space on disk (No space left on device)"),
    ],
)
def test_what_fails_at_the_backups_place_is_told_of_that_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, last: str, number: int, said: str
) -> None:
    node_of(tmp_path / "store").stop()
    failing(monkeypatch, call, number, last)
    with pytest.raises(StorageError) as refused:
        backup(tmp_path / "store", tmp_path / "monday")
    assert str(refused.value) == said.format(aside=tmp_path / ".monday.partial", target=tmp_path / "monday")
    assert isinstance(refused.value, StorageFull) == (number == errno.ENOSPC)
    assert os.listdir(tmp_path) == ["store"]


def test_what_a_read_only_file_system_holds_is_checked_and_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fails is mounted so, and just then somebody wants what is on it."""
    node_of(tmp_path / "store").stop()
    opened = os.open

    def refuse(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if Path(path).parent == tmp_path / "store" and flags & (os.O_RDWR | os.O_WRONLY | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return opened(path, flags, *more, **named)

    for module in (directory, backing):
        monkeypatch.setattr(module, "is_read_only", lambda path: Path(path) == tmp_path / "store")
    monkeypatch.setattr(os, "open", refuse)
    assert check(tmp_path / "store").findings == []
    made = backup(tmp_path / "store", tmp_path / "monday")
    assert restore(tmp_path / "store", tmp_path / "new").messages == made.messages
    (tmp_path / "store" / "lock").unlink()
    assert check(tmp_path / "store").findings == []
    backup(tmp_path / "store", tmp_path / "tuesday")
    assert check(tmp_path / "tuesday").findings == []


def test_an_error_of_the_system_is_told_without_its_number(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError) as caught:
        LmdbStore(tmp_path / "file", bytes_max=64 * MIB)
    assert str(caught.value) == f"store {tmp_path / 'file'} is a file; expected a directory"
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "lock").mkdir()
    with pytest.raises(StorageError) as caught:
        LmdbStore(tmp_path / "store", bytes_max=64 * MIB)
    assert "Errno" not in str(caught.value) and f"{tmp_path / 'store' / 'lock'}: Is a directory" in str(caught.value)
