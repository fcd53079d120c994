"""Compaction: the file is written anew, smaller, with all that it held, whole at every moment."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.engine.port import Batch
from holdfast.errors import StorageError, StorageFull
from holdfast.storage.files import copying
from holdfast.storage.files.directory import admit_backup, exclude_backups
from holdfast.storage.lmdb import LmdbStore
from holdfast.storage.upkeep import compaction
from holdfast.storage.upkeep.check import check
from holdfast.storage.upkeep.compaction import compact, shrink
from holdfast.units import MIB
from support.stores import LoneNode

FILLED = 3_000


def drained(path: Path) -> list[int]:
    """A store of which most has left; what is there still."""
    node = LoneNode(path)
    node.fill("q", FILLED, size=3_000)
    told: list[int] = []
    node.core.jobs.purge(node.queue("q"), told.append)
    node.settle()
    node.fill("q", 20, size=3_000)
    kept = node.sequences("q")
    assert told == [FILLED] and len(kept) == 20
    node.stop()
    return kept


def kept_in(path: Path) -> list[int]:
    node = LoneNode(path)
    found = node.sequences("q")
    node.stop()
    return found


def test_the_disk_gets_back_what_is_free_and_all_else_is_there(tmp_path: Path) -> None:
    kept = drained(tmp_path)
    before = check(tmp_path)
    told = compact(tmp_path)
    assert told.before_bytes > 10 * MIB and told.after_bytes < MIB
    assert (tmp_path / "data.mdb").stat().st_size == told.after_bytes
    after = check(tmp_path)
    assert after.findings == [] and after.pages < before.pages // 10
    assert (after.store, after.entries, after.bytes) == (before.store, before.entries, before.bytes)
    assert kept_in(tmp_path) == kept
    assert (tmp_path / "data.mdb").stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "new").exists()


def test_killed_at_any_step_it_is_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path; from holdfast.storage.upkeep import compaction as c\n"
        "step, place = sys.argv[2], Path(sys.argv[1])\n"
        "def end(*_): os.kill(os.getpid(), signal.SIGKILL)\n"
        "if step == 'copying': c.copy_out = lambda env, target, watch: target.write_bytes(b'half') and end()\n"
        "if step == 'copied': c.counts_of = lambda env, kept=c.counts_of: "
        "end() if (place / 'new' / 'data.mdb').exists() else kept(env)\n"
        "if step == 'renaming': os.rename = end\n"
        "if step == 'renamed': c.sync_file = end\n"
        "c.compact(place)"
    )
    for step in ("copying", "copied", "renaming", "renamed"):
        place = tmp_path / step
        kept = drained(place)
        before = (place / "data.mdb").stat().st_size
        ended = subprocess.run([sys.executable, "-c", program, str(place), step], timeout=60, check=False)
        assert ended.returncode == -signal.SIGKILL
        assert ((place / "data.mdb").stat().st_size < before) == (step == "renamed")
        assert check(place).findings == []
        assert kept_in(place) == kept
        assert not (place / "new").exists()


def test_without_space_for_the_second_file_it_is_refused_and_the_first_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = drained(tmp_path)
    monkeypatch.setattr(copying, "free_bytes", lambda place: 4_096)
    with pytest.raises(StorageFull, match=r"compaction: .* has 4096 bytes free; \d+ are needed"):
        compact(tmp_path)
    assert os.listdir(tmp_path).count("new") == 0
    monkeypatch.undo()
    assert kept_in(tmp_path) == kept


def test_what_a_node_or_a_backup_has_open_is_left_alone(tmp_path: Path) -> None:
    held = LmdbStore(tmp_path)
    with pytest.raises(StorageError, match="in use by process"):
        compact(tmp_path)
    held.close()
    admitted = admit_backup(tmp_path)
    with pytest.raises(StorageError, match="a backup of it is being made"):
        compact(tmp_path)
    os.close(admitted)
    excluded = exclude_backups(tmp_path)
    with pytest.raises(StorageError, match="it is being compacted"):
        admit_backup(tmp_path)
    os.close(excluded)
    compact(tmp_path)


def test_where_no_store_is_none_is_made(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="there is no store; give the directory of one"):
        compact(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_copy_that_is_not_what_was_copied_takes_no_ones_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = drained(tmp_path)
    counted = [{"entries": 1}, {"entries": 2}]
    monkeypatch.setattr(compaction, "counts_of", lambda env: counted.pop())
    with pytest.raises(StorageError, match="the copy is not what was copied; the store is as it was"):
        compact(tmp_path)
    monkeypatch.undo()
    assert kept_in(tmp_path) == kept


def test_a_large_file_that_is_nearly_empty_shrinks_when_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = drained(tmp_path)
    size = (tmp_path / "data.mdb").stat().st_size
    monkeypatch.setattr(compaction, "SHRINK_FILE_BYTES", size + 1)
    assert not shrink(tmp_path)
    monkeypatch.setattr(compaction, "SHRINK_FILE_BYTES", size)
    monkeypatch.setattr(compaction, "SHRINK_USED_BYTES", 4_096)
    assert not shrink(tmp_path)
    monkeypatch.setattr(compaction, "SHRINK_USED_BYTES", MIB)
    admitted = admit_backup(tmp_path)
    assert not shrink(tmp_path)  # and the node starts all the same
    LmdbStore(tmp_path, ahead_bytes=MIB).close()
    os.close(admitted)
    assert (tmp_path / "data.mdb").stat().st_size >= size
    monkeypatch.setattr(copying, "free_bytes", lambda place: 0)
    assert not shrink(tmp_path)
    monkeypatch.setattr(copying, "free_bytes", lambda place: 1 << 40)
    store = LmdbStore(tmp_path, ahead_bytes=MIB)
    assert store.bytes_on_disk() < size
    store.close()
    assert kept_in(tmp_path) == kept


def test_space_that_drains_is_used_again_without_compaction(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path, ahead_bytes=MIB)
    sizes = []
    for tide in range(4):
        for first in range(0, 4_000, 500):
            appends = [(1, tide * 4_000 + first + number, bytes(1_000)) for number in range(500)]
            store.commit(Batch(appends=appends))
        for first in range(0, 4_000, 500):
            store.commit(Batch(retires=[(1, tide * 4_000 + first + number) for number in range(500)]))
        sizes.append(store.bytes_on_disk())
    assert max(sizes) <= sizes[0] + 2 * MIB
    store.close()
