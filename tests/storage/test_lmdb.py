"""What LMDB's store adds to the contract: a directory it alone holds, a schema, space taken ahead, errors."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import lmdb
import pytest

from holdfast.engine.port import Batch
from holdfast.errors import ConfigError, StorageError, StorageFull
from holdfast.storage.layout.schema import SCHEMA, SCHEMA_KEY
from holdfast.storage.lmdb import LmdbStore
from holdfast.units import MIB

OPEN = "import pathlib, sys; from holdfast.storage.lmdb import LmdbStore; LmdbStore(pathlib.Path(sys.argv[1]))"


def rewrite(path: Path, key: bytes, value: bytes | None) -> None:
    with lmdb.open(str(path), max_dbs=16) as env, env.begin(write=True) as txn:
        txn.delete(key) if value is None else txn.put(key, value)


def test_everything_is_there_after_opening_again(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path / "deep" / "store")
    store.commit(Batch(appends=[(1, 5, b"x"), (1, 6, bytes(200_000))], puts={("node", b"k"): b"v"}))
    minted = store.mint()
    store.close()
    store = LmdbStore(tmp_path / "deep" / "store")
    assert store.uuid == minted
    assert store.read(1, 0, count_max=9, bytes_max=MIB) == [(5, b"x"), (6, bytes(200_000))]
    assert list(store.table("node")) == [(b"k", b"v")]
    store.close()


def test_a_directory_has_one_holder_and_the_second_is_told_which(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path)
    for _ in range(2):
        with pytest.raises(StorageError) as refused:
            LmdbStore(tmp_path)
        held = f"store {tmp_path}: in use by process {os.getpid()}; stop that, or give another directory"
        assert str(refused.value) == held
    other = subprocess.run(
        [sys.executable, "-c", OPEN, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert other.stderr.strip().endswith(f"StorageError: {held}")
    store.close()
    LmdbStore(tmp_path).close()


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (b"%d" % (SCHEMA + 1), f"made by a newer Holdfast: schema {SCHEMA + 1}, this one reads 1 to {SCHEMA}"),
        (b"0", f"made by an older Holdfast: schema 0, this one reads 1 to {SCHEMA}"),
        (b"one", "invalid schema b'one'; expected a number"),
        (None, "data.mdb is an LMDB file, but not a Holdfast store"),
    ],
)
def test_an_unknown_schema_is_refused(tmp_path: Path, schema: bytes | None, message: str) -> None:
    LmdbStore(tmp_path).close()
    rewrite(tmp_path, SCHEMA_KEY, schema)
    with pytest.raises(StorageError) as refused:
        LmdbStore(tmp_path)
    assert str(refused.value) == f"store {tmp_path}: {message}"
    rewrite(tmp_path, SCHEMA_KEY, b"%d" % SCHEMA)
    LmdbStore(tmp_path).close()  # the refusal let go of the directory


def test_a_file_that_is_no_store_is_refused_and_stays(tmp_path: Path) -> None:
    content = b"not a store" * 1_000
    (tmp_path / "data.mdb").write_bytes(content)
    with pytest.raises(StorageError, match=f"store {tmp_path}: data.mdb is not a Holdfast store"):
        LmdbStore(tmp_path)
    assert (tmp_path / "data.mdb").read_bytes() == content


def test_an_empty_file_is_begun_anew(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(b"")
    LmdbStore(tmp_path).close()


@pytest.mark.parametrize("empty", [False, True])
def test_a_store_whose_data_is_gone_is_refused_and_not_begun_anew(tmp_path: Path, empty: bool) -> None:
    LmdbStore(tmp_path).close()
    if empty:
        (tmp_path / "data.mdb").write_bytes(b"")
    else:
        (tmp_path / "data.mdb").unlink()
    for _ in range(2):
        with pytest.raises(StorageError, match=r"data\.mdb is missing or empty, though a store was here.*lock\.mdb"):
            LmdbStore(tmp_path)
    (tmp_path / "lock.mdb").unlink()
    LmdbStore(tmp_path).close()


def test_where_a_store_must_exist_none_is_made(tmp_path: Path) -> None:
    place = tmp_path / "mount"
    with pytest.raises(StorageError, match=r"there is no data\.mdb.*must_exist"):
        LmdbStore(place, must_exist=True)
    assert not place.exists()
    LmdbStore(place).close()
    LmdbStore(place, must_exist=True).close()


def test_a_place_that_cannot_be_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="is a file; expected a directory"):
        LmdbStore(tmp_path / "file")


def test_what_a_crash_left_of_a_new_store_is_begun_anew(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "data.mdb").write_bytes(b"\0" * 5_000)
    LmdbStore(tmp_path).close()
    assert sorted(os.listdir(tmp_path)) == ["data.mdb", "lock", "lock.mdb", "opened-1"]


@pytest.mark.parametrize("bytes_max", [0, MIB - 1])
def test_too_small_a_bound_is_a_mistake_of_the_configuration(tmp_path: Path, bytes_max: int) -> None:
    with pytest.raises(ConfigError, match=f"bytes_max = {bytes_max}"):
        LmdbStore(tmp_path, bytes_max=bytes_max)
    LmdbStore(tmp_path, bytes_max=MIB).close()


def test_points_are_passed_inside_the_transaction_and_after_it(tmp_path: Path) -> None:
    seen: list[tuple[str, bytes | None]] = []
    store = LmdbStore(tmp_path, on_point=lambda name: seen.append((name, store.get(1, 1))))
    store.commit(Batch(appends=[(1, 1, b"x")]))
    assert seen == [("committing", None), ("committed", b"x")]
    store.close()


def test_a_failure_before_the_sync_writes_nothing(tmp_path: Path) -> None:
    def fail(name: str) -> None:
        raise RuntimeError(name)

    store = LmdbStore(tmp_path, on_point=fail)
    with pytest.raises(RuntimeError, match="committing"):
        store.commit(Batch(appends=[(1, 1, b"x")]))
    assert store.get(1, 1) is None
    store.close()


def test_space_is_taken_ahead_and_never_beyond_the_bound(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path, bytes_max=20 * MIB, ahead_bytes=4 * MIB)
    started = store.bytes_on_disk()
    assert 8 * MIB <= started <= 10 * MIB
    sequence = 0
    while store.room_bytes() > MIB:
        store.commit(Batch(appends=[(1, sequence + place, bytes(1_000)) for place in range(300)]))
        sequence += 300
        assert store.bytes_on_disk() >= started
    assert store.bytes_on_disk() <= 20 * MIB + 65_536
    assert (tmp_path / "data.mdb").stat().st_size <= 20 * MIB
    store.close()


def test_room_told_between_two_measurements_is_never_more_than_there_is(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path, bytes_max=64 * MIB, ahead_bytes=4 * MIB)
    counted = 0
    for number in range(400):
        store.commit(Batch(appends=[(1, number, bytes(20_000))], retires=[(1, number - 30)] if number > 30 else []))
        counted += store._room.surely_bytes() is not None
        assert store.room_bytes() <= (store._room.sure_bytes() - store._room._reserve_bytes) // 3
    assert counted > 10, "every room was measured, and none was reckoned"
    store.close()


def test_a_bound_below_what_is_stored_lets_the_store_be_emptied(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path, bytes_max=16 * MIB)
    store.commit(Batch(appends=[(1, number, bytes(1_000)) for number in range(3_000)]))
    store.close()
    store = LmdbStore(tmp_path, bytes_max=2 * MIB)
    assert store.room_bytes() <= 0
    with pytest.raises(StorageFull):
        store.commit(Batch(appends=[(1, 4_000 + number, bytes(1_000)) for number in range(500)]))
    store.commit(Batch(retires=[(1, number) for number in range(3_000)]))
    assert store.room_bytes() > 0
    store.commit(Batch(appends=[(1, 4_000, bytes(1_000))]))
    store.close()


def test_a_full_store_does_not_grow_by_being_opened(tmp_path: Path) -> None:
    sequence = 0
    for opened in range(6):
        store = LmdbStore(tmp_path, bytes_max=4 * MIB, ahead_bytes=MIB)
        with pytest.raises(StorageFull):
            while True:
                store.commit(Batch(appends=[(1, sequence + place, bytes(1_000)) for place in range(10)]))
                sequence += 10
        assert (tmp_path / "data.mdb").stat().st_size <= 4 * MIB
        if opened % 2:  # into the reserve, which the next one opens with
            store.commit(Batch(retires=[(1, number) for number in range(0, sequence, 40)]))
        store.close()
    store = LmdbStore(tmp_path, bytes_max=4 * MIB, ahead_bytes=MIB)
    store.commit(Batch(retires=[(1, number) for number in range(sequence)]))
    assert store.room_bytes() > MIB // 2
    assert (tmp_path / "data.mdb").stat().st_size <= 4 * MIB
    store.close()


def test_no_read_transaction_outlives_a_call(tmp_path: Path) -> None:
    """Pages come back: a reader left open would make the file grow with each round."""
    store = LmdbStore(tmp_path, bytes_max=64 * MIB, ahead_bytes=MIB)
    store.commit(Batch(appends=[(1, number, bytes(1_000)) for number in range(200)]))
    for number in range(200, 10_000, 200):
        rows = store.table("node")
        store.read(1, 0, count_max=10, bytes_max=MIB)
        store.get(1, number - 1)
        store.commit(
            Batch(
                appends=[(1, number + place, bytes(1_000)) for place in range(200)],
                retires=[(1, number - 200 + place) for place in range(200)],
                puts={("node", b"k"): b"%d" % number},
            )
        )
        next(rows, None)
    assert store._env.info()["last_pgno"] < 2_000
    store.close()


class FailingEnvironment:
    """An environment whose disk fails at the next write transaction."""

    def __init__(self, env: lmdb.Environment, code: int) -> None:
        self._env = env
        self._code = code

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def begin(self, *arguments: Any, **options: Any) -> Any:
        if options.get("write"):
            error = lmdb.Error("mdb_txn_commit")
            error.__dict__["code"] = self._code
            raise error
        return self._env.begin(*arguments, **options)


def test_a_failing_disk_ends_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LmdbStore(tmp_path)
    store.commit(Batch(appends=[(1, 1, b"x")]))
    monkeypatch.setattr(store, "_env", FailingEnvironment(store._env, errno.EIO))
    with pytest.raises(StorageError, match="writing failed") as failed:
        store.commit(Batch(appends=[(1, 2, b"y")]))
    assert not isinstance(failed.value, StorageFull)
    monkeypatch.undo()
    for call in (
        lambda: store.commit(Batch(appends=[(1, 2, b"y")])),
        lambda: store.get(1, 1),
        lambda: store.read(1, 0, count_max=1, bytes_max=1),
        store.mint,
        store.room_bytes,
    ):
        with pytest.raises(StorageError, match="closed after an error: writing failed"):
            call()
    store.close()
    store = LmdbStore(tmp_path)
    assert store.get(1, 1) == b"x"
    store.close()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_want_of_space_leaves_the_store_usable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    store = LmdbStore(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(store, "_env", FailingEnvironment(store._env, code))
        with pytest.raises(StorageFull, match="nothing of the batch was written"):
            store.commit(Batch(appends=[(1, 1, b"x")]))
    store.commit(Batch(appends=[(1, 1, b"x")]))
    store.close()
