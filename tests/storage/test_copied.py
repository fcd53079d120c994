"""Which copies of a store are known for what they are when they are opened, and what is none (ADR 0025)."""

import errno
import lzma
import os
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.engine.port import Batch
from holdfast.errors import StorageError, StorageFull
from holdfast.storage import lmdb as lmdb_store
from holdfast.storage.files.copying import open_quiet
from holdfast.storage.layout.pages import read_root
from holdfast.storage.layout.schema import FILE_KEY, OLDEST, SCHEMA, read_identity
from holdfast.storage.lmdb import LmdbStore
from holdfast.storage.upkeep.backup import backup, restore
from holdfast.storage.upkeep.check import check
from holdfast.storage.upkeep.compaction import compact

AHEAD = 1 << 16
GOLDEN = Path(__file__).with_name("golden")


def work(path: Path, *, clean: bool = True, after: Callable[[], object] | None = None) -> LmdbStore:
    """A life of the store: opened, written to, closed, or left as a kill leaves it."""
    store = LmdbStore(path, ahead_bytes=AHEAD)
    store.commit(Batch(puts={("node", b"steady"): bytes(8)}))
    if after is not None:
        after()
    store.commit(Batch(puts={("node", b"steady"): bytes(7) + b"x"}))
    if clean:
        store.close()
    else:
        kill(store)
    return store


def kill(store: LmdbStore) -> None:
    """As a kill: nothing is written any more."""
    store._opens = 0
    store.close()


def copied(path: Path) -> str | None:
    store = LmdbStore(path, ahead_bytes=AHEAD)
    found = store.copied
    kill(store)
    return found


@pytest.mark.parametrize("clean", [True, False])
def test_a_store_that_stays_where_it_is_is_none(tmp_path: Path, clean: bool) -> None:
    for _ in range(3):
        assert work(tmp_path / "a", clean=clean).copied is None
    os.rename(tmp_path / "a", tmp_path / "b")
    os.chmod(tmp_path / "b" / "data.mdb", 0o640)
    os.link(tmp_path / "b" / "data.mdb", tmp_path / "link")
    os.utime(tmp_path / "b" / "data.mdb", (1, 1))
    assert copied(tmp_path / "b") is None
    assert sorted(name for name in os.listdir(tmp_path / "b") if name.startswith("opened-")) == ["opened-4"]


def test_what_holdfast_itself_writes_anew_is_none(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for clean in (True, False, True):
        work(path, clean=clean)
        compact(path)
        assert copied(path) is None
    backup(path, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "b")
    assert copied(tmp_path / "b") is None and check(tmp_path / "b").findings == []


def into_another_directory(kept: Path, path: Path) -> None:
    shutil.rmtree(path)
    subprocess.run(["cp", "-a", str(kept), str(path)], check=True)


def over_it(kept: Path, path: Path) -> None:
    subprocess.run(["cp", "-a", f"{kept}/.", str(path)], check=True)


def one_file_over_it(kept: Path, path: Path) -> None:
    subprocess.run(["cp", str(kept / "data.mdb"), str(path / "data.mdb")], check=True)


def one_file_in_its_place(kept: Path, path: Path) -> None:
    os.unlink(path / "data.mdb")  # the file system may give its inode to the next file
    subprocess.run(["cp", "-p", str(kept / "data.mdb"), str(path / "data.mdb")], check=True)


def by_renaming(kept: Path, path: Path) -> None:
    subprocess.run(["cp", "-p", str(kept / "data.mdb"), str(path / "other")], check=True)
    os.rename(path / "other", path / "data.mdb")


WAYS = [into_another_directory, over_it, one_file_over_it, one_file_in_its_place, by_renaming]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_an_older_copy_that_is_put_back_is_known(
    tmp_path: Path, way: Callable[[Path, Path], None], clean: bool
) -> None:
    path, kept = tmp_path / "data", tmp_path / "kept"
    work(path, clean=clean)
    subprocess.run(["cp", "-a", str(path), str(kept)], check=True)
    work(path, clean=clean)
    way(kept, path)
    assert copied(path) is not None
    assert copied(path) is not None  # until it has a new UUID
    store = LmdbStore(path, ahead_bytes=AHEAD)
    before = store.uuid
    assert store.mint() != before and store.copied is None
    kill(store)
    assert copied(path) is None and check(path).findings == []


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_made_while_the_node_ran_is_known_once_that_was_stopped_properly(
    tmp_path: Path, way: Callable[[Path, Path], None]
) -> None:
    path, kept = tmp_path / "data", tmp_path / "kept"
    work(path, after=lambda: subprocess.run(["cp", "-a", str(path), str(kept)], check=True))
    if way is over_it:  # its marks are put back too, and all of one life: what is left (docs/GUARANTEES.md)
        way(kept, path)
        assert copied(path) is None
        return
    way(kept, path)
    assert copied(path) is not None


def test_a_copy_elsewhere_is_known_however_new_it_is(tmp_path: Path) -> None:
    work(tmp_path / "data")
    subprocess.run(["cp", "-a", str(tmp_path / "data"), str(tmp_path / "there")], check=True)
    assert copied(tmp_path / "there") is not None and copied(tmp_path / "data") is None


def test_a_copy_that_is_compacted_stays_one(tmp_path: Path) -> None:
    path, kept = tmp_path / "data", tmp_path / "kept"
    work(path)
    subprocess.run(["cp", "-a", str(path), str(kept)], check=True)
    work(path)
    one_file_over_it(kept, path)
    compact(path)
    assert copied(path) is not None


def test_a_store_without_space_for_the_word_is_opened_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import lmdb

    from holdfast.storage import lmdb as room

    work(tmp_path)

    def full(*_: object) -> int:
        raise lmdb.MapFullError("full")

    monkeypatch.setattr(room, "record_open", full)
    store = LmdbStore(tmp_path, ahead_bytes=AHEAD)
    assert store.copied is None
    store.commit(Batch(retires=[(1, 1)]))
    store.close()
    monkeypatch.undo()
    assert copied(tmp_path) is None


def of_before(path: Path, schema: int) -> None:
    """A store that no Holdfast with a record of its file has opened."""
    if schema < SCHEMA:
        path.mkdir()
        (path / "data.mdb").write_bytes(lzma.decompress((GOLDEN / f"schema-{schema}.mdb.xz").read_bytes()))
        return
    work(path)
    with open_quiet(path, write=True) as env, env.begin(write=True) as txn:
        assert txn.delete(FILE_KEY)
    for mark in path.glob("opened-*"):
        mark.unlink()


@pytest.mark.parametrize("schema", range(OLDEST, SCHEMA + 1))
@pytest.mark.parametrize("way", [way for way in WAYS if way is not into_another_directory])
def test_a_copy_of_before_the_record_is_known_over_a_store_that_has_one(
    tmp_path: Path, way: Callable[[Path, Path], None], schema: int
) -> None:
    path, kept = tmp_path / "data", tmp_path / "kept"
    of_before(path, schema)
    subprocess.run(["cp", "-a", str(path), str(kept)], check=True)
    assert copied(path) is None  # brought up to date, and opened
    way(kept, path)
    before = copied(path)
    assert before is not None and copied(path) is not None  # until it has a new UUID
    store = LmdbStore(path, ahead_bytes=AHEAD)
    store.mint()
    kill(store)
    assert copied(path) is None and check(path).findings == []


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.EMFILE])
def test_a_mark_that_cannot_be_written_behind_a_stored_batch_ends_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Who was told of a full disk would take the batch back, which is on the disk."""
    path, kept = tmp_path / "data", tmp_path / "kept"
    work(path)
    subprocess.run(["cp", "-a", str(path), str(kept)], check=True)
    work(path)
    shutil.rmtree(path)
    kept.rename(path)
    for mark in path.glob("opened-*"):
        mark.rename(path / "opened-99")
    store = LmdbStore(path, ahead_bytes=AHEAD)
    assert store.copied is not None and not store._opens
    fresh = store.draw_uuid()

    def refused(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(lmdb_store, "mark_opened", refused)
        patch.setattr(store._room.allocation, "free_on_disk", lambda: 0)  # not even then is it one
        with pytest.raises(StorageError, match="its mark cannot be written") as found:
            store.commit(Batch(mint=fresh, appends=[(1, 1, b"stored")]))
    assert not isinstance(found.value, StorageFull)
    with pytest.raises(StorageError, match="writing failed"):
        store.commit(Batch(puts={("node", b"steady"): bytes(8)}))
    kill(store)
    again = LmdbStore(path, ahead_bytes=AHEAD)
    assert again.uuid == fresh and again.read(1, 0, count_max=9, bytes_max=99) == [(1, b"stored")]
    kill(again)


@pytest.mark.parametrize("schema", range(OLDEST, SCHEMA))
@pytest.mark.parametrize("evidence", ["inode", "opens", "transaction"])
def test_an_upgrade_leaves_a_copy_known_for_one_until_it_is_someone_new(
    tmp_path: Path, schema: int, evidence: str
) -> None:
    path = tmp_path / "data"
    of_before(path, schema)
    data = path / "data.mdb"
    inode = data.stat().st_ino
    with open_quiet(path, write=True) as env, env.begin(write=True) as txn:
        txn.put(FILE_KEY, struct.pack(">QQI", 3, inode + 1 if evidence == "inode" else inode, 0))
    with data.open("rb") as file:
        root = read_root(file.fileno())
        assert root is not None
    if evidence == "opens":
        (path / "opened-4").touch()
    elif evidence == "transaction":
        (path / "opened-3").write_text(f"{root.transaction + 1}\n")
    for _ in range(2):  # killed before anything else is stored
        assert copied(path) is not None
        with open_quiet(path) as env:
            assert read_identity(env, path)[0] == SCHEMA
    store = LmdbStore(path, ahead_bytes=AHEAD)
    store.mint()
    kill(store)
    assert copied(path) is None


def test_compaction_leaves_a_copy_known_for_one_whichever_inode_the_new_file_has(tmp_path: Path) -> None:
    path = tmp_path / "data"
    work(path)
    (path / "opened-7").touch()
    compact(path)
    with open_quiet(path, write=True) as env, env.begin() as txn:
        opens, *_ = struct.unpack(">QQI", txn.get(FILE_KEY))
    (path / "opened-7").unlink()
    assert opens == 1 and copied(path) is not None


def test_a_new_store_and_a_restored_one_are_none_where_marks_of_another_are_left(tmp_path: Path) -> None:
    path = tmp_path / "data"
    work(path)
    backup(path, tmp_path / "backup")
    for anew in (lambda: None, lambda: restore(tmp_path / "backup", path)):
        for name in ("data.mdb", "lock.mdb"):
            (path / name).unlink()
        (path / "opened-9").touch()
        anew()
        assert copied(path) is None


def test_a_copy_that_is_killed_once_it_is_someone_new_stays_who_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its count goes on from the mark of the store before it, which is still there."""
    path, kept = tmp_path / "data", tmp_path / "kept"
    work(path)
    shutil.copytree(path, kept)
    for _ in range(3):
        work(path)
    one_file_over_it(kept, path)
    store = LmdbStore(path, ahead_bytes=AHEAD)
    assert store.copied is not None
    with monkeypatch.context() as patch:
        patch.setattr(lmdb_store, "mark_opened", lambda *_: None)
        fresh = store.mint()
        kill(store)
    again = LmdbStore(path, ahead_bytes=AHEAD)
    assert again.copied is None and again.uuid == fresh
    again.close()
