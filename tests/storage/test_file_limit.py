"""A limit of file size (ulimit -f) is told as what it is, where a store's file is copied or made."""

import errno
import resource
from pathlib import Path

import pytest

from holdfast.errors import StorageFull
from holdfast.storage.files import copying
from holdfast.storage.files.directory import not_written, refusal
from holdfast.storage.lmdb import LmdbStore
from holdfast.storage.upkeep.backup import backup
from holdfast.units import MIB


def test_an_error_names_the_limit() -> None:
    error = OSError(errno.EFBIG, "File too large")
    text = "its file would be larger than this process may write (ulimit -f)"
    assert str(refusal(Path("d"), error)) == f"store d: {text}"
    assert isinstance(not_written(Path("f"), error), StorageFull) and str(not_written(Path("f"), error)) == f"f: {text}"


def test_a_backup_names_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    LmdbStore(tmp_path / "store").close()

    def refuses(*given: object) -> int:
        raise OSError(errno.EFBIG, "File too large")

    monkeypatch.setattr(copying, "_receive", refuses)
    with pytest.raises(StorageFull, match=r"its file would be larger than this process may write \(ulimit -f\), after"):
        backup(tmp_path / "store", tmp_path / "monday")
    assert not (tmp_path / "monday").exists()


def test_a_store_counts_on_no_more_than_its_process_may_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LmdbStore(tmp_path / "store", bytes_max=64 * MIB)
    file_bytes, room_bytes = store.space().file_bytes, store.room_bytes_most()
    limit = (file_bytes // MIB + 8) * MIB
    assert limit < store.bytes_most() == 64 * MIB
    monkeypatch.setattr(resource, "getrlimit", lambda what: (limit, resource.RLIM_INFINITY))
    assert store.bytes_most() == limit == store.space().file_limit_bytes
    assert 0 < store.room_bytes_most() < room_bytes
    store.close()
