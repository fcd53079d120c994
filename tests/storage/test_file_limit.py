"""A limit of file size (ulimit -f) is told as what it is, where a store's file is copied or made."""

import errno
from pathlib import Path

import pytest

from holdfast.errors import StorageFull
from holdfast.storage.files import copying
from holdfast.storage.files.directory import not_written, refusal
from holdfast.storage.lmdb import LmdbStore
from holdfast.storage.upkeep.backup import backup


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
