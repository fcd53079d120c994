"""Stores of older layouts: each golden one is brought to the present, whole, whatever stops it on the way."""

import hashlib
import json
import lzma
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import lmdb
import pytest

from holdfast.engine.port import TABLES
from holdfast.errors import StorageError, StorageFull
from holdfast.storage.files.copying import open_quiet
from holdfast.storage.layout.schema import OLDEST, SCHEMA, SCHEMA_KEY, read_identity
from holdfast.storage.lmdb import LmdbStore
from holdfast.storage.upkeep import upgrades
from holdfast.storage.upkeep.check import check

GOLDEN = Path(__file__).with_name("golden")
OLDER = range(OLDEST, SCHEMA)


def golden(path: Path, schema: int) -> dict[str, Any]:
    """The store that a Holdfast of that layout left, in `path`; what it holds."""
    path.mkdir(exist_ok=True)
    (path / "data.mdb").write_bytes(lzma.decompress((GOLDEN / f"schema-{schema}.mdb.xz").read_bytes()))
    return dict(json.loads((GOLDEN / f"schema-{schema}.json").read_text()))


def held(store: LmdbStore, told: dict[str, Any]) -> dict[str, Any]:
    queues = {}
    for name, queue in told["queues"].items():
        found = store.read(queue["id"], 0, count_max=1_000_000, bytes_max=1 << 40)
        digest = hashlib.blake2b(digest_size=16)
        for sequence, value in found:
            digest.update(sequence.to_bytes(8, "big") + value)
        sequences = [sequence for sequence, _ in found]
        queues[name] = {**queue, "sequences": sequences, "digest": digest.hexdigest()}
    tables = {table: [[key.hex(), value.hex()] for key, value in store.table(table)] for table in TABLES}
    tables = {table: rows for table, rows in tables.items() if rows or table in told["tables"]}
    return {"store": str(store.uuid), "queues": queues, "tables": tables}


@pytest.mark.parametrize("schema", OLDER)
def test_an_older_store_is_brought_up_to_date_and_holds_what_it_held(tmp_path: Path, schema: int) -> None:
    told = golden(tmp_path, schema)
    store = LmdbStore(tmp_path)
    assert held(store, told) == told
    store.close()
    with open_quiet(tmp_path) as env:
        assert read_identity(env, tmp_path)[0] == SCHEMA
    checked = check(tmp_path)
    assert checked.findings == []
    assert checked.entries == sum(len(queue["sequences"]) for queue in told["queues"].values())


@pytest.mark.parametrize("schema", [one for one in OLDER if isinstance(upgrades.UPGRADES[one], upgrades.Rewrite)])
def test_killed_at_any_call_it_is_the_old_store_or_the_new_one(tmp_path: Path, schema: int) -> None:
    """The process ends itself in the midst of it; whoever opens the store next finds all of it."""
    program = (
        "import os, signal, sys; from pathlib import Path; from holdfast.storage.upkeep import upgrades\n"
        "step = sys.argv[2]\n"
        "def end(*_): os.kill(os.getpid(), signal.SIGKILL)\n"
        "if step == 'filling': upgrades._append = end\n"
        "if step == 'filled': upgrades.sync_file = end\n"
        "if step == 'renaming': os.rename = end\n"
        "if step == 'renamed': upgrades.sync_file = lambda place, kept=upgrades.sync_file: "
        "end() if place == Path(sys.argv[1]) else kept(place)\n"
        "upgrades.upgrade(Path(sys.argv[1]), copied=False)"
    )
    for step in ("filling", "filled", "renaming", "renamed"):
        place = tmp_path / step
        told = golden(place, schema)
        ended = subprocess.run([sys.executable, "-c", program, str(place), step], timeout=60, check=False)
        assert ended.returncode == -signal.SIGKILL
        assert (place / "new").exists() or step == "renamed"
        store = LmdbStore(place)
        assert held(store, told) == told
        store.close()
        assert not (place / "new").exists()


def test_without_space_for_the_new_file_the_old_store_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    golden(tmp_path, 1)
    before = (tmp_path / "data.mdb").read_bytes()

    def refuse(place: Path, needed: int, what: str) -> None:
        raise StorageFull(f"{what}: needs {needed} bytes at {place}, found 0 free")

    monkeypatch.setattr(upgrades, "check_space", refuse)
    with pytest.raises(StorageFull, match=r"its layout is older; to rewrite it: needs \d+ bytes"):
        LmdbStore(tmp_path)
    assert (tmp_path / "data.mdb").read_bytes() == before
    monkeypatch.undo()
    LmdbStore(tmp_path).close()


def test_a_change_in_place_is_one_transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    LmdbStore(tmp_path).close()
    with open_quiet(tmp_path, write=True) as env, env.begin(write=True) as txn:
        txn.put(SCHEMA_KEY, b"%d" % (SCHEMA - 1))

    def fail(env: lmdb.Environment, txn: Any) -> None:
        add(env, txn)
        raise OSError("the disk failed")

    def add(env: lmdb.Environment, txn: Any) -> None:
        txn.put(b"\1", b"row", db=env.open_db(b"added", txn=txn))

    monkeypatch.setitem(upgrades.UPGRADES, SCHEMA - 1, upgrades.InPlace(fail))
    with pytest.raises(StorageError, match="the disk failed"):
        LmdbStore(tmp_path)
    with open_quiet(tmp_path) as env:
        assert read_identity(env, tmp_path)[0] == SCHEMA - 1
        with env.begin() as txn:
            assert txn.get(b"added") is None
    monkeypatch.setitem(upgrades.UPGRADES, SCHEMA - 1, upgrades.InPlace(add))
    LmdbStore(tmp_path).close()
    with open_quiet(tmp_path) as env:
        assert read_identity(env, tmp_path)[0] == SCHEMA
        with env.begin() as txn:
            assert txn.get(b"\1", db=env.open_db(b"added", txn=txn, create=False)) == b"row"


def test_a_cut_file_is_refused_with_one_line(tmp_path: Path) -> None:
    golden(tmp_path, 1)
    size = (tmp_path / "data.mdb").stat().st_size
    os.truncate(tmp_path / "data.mdb", size // 2)
    with pytest.raises(StorageError) as refused:
        LmdbStore(tmp_path)
    assert str(refused.value) == f"store {tmp_path}: data.mdb is cut short; it has {size // 2} bytes, expected {size}"
