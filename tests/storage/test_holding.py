"""Who holds a store's directory: one at a time, and who that is."""

import errno
import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.errors import StorageError
from holdfast.storage.files import directory
from holdfast.storage.files.directory import hold, hold_to_read


@pytest.mark.parametrize("gone", ["lock", "directory"])
def test_a_lock_whose_file_is_taken_away_meanwhile_is_taken_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    """As by a restoring that fails between our opening of the file and our lock on it."""
    store = tmp_path / "store"
    kept = fcntl.flock
    tries: list[int] = []

    def flock(fd: int, kind: int) -> None:
        tries.append(fd)
        if len(tries) == 1:
            (store / "lock").unlink()
            if gone == "directory":
                store.rmdir()
        kept(fd, kind)

    monkeypatch.setattr(fcntl, "flock", flock)
    fd = hold(store)
    assert len(tries) == 2 and os.path.samestat(os.fstat(fd), (store / "lock").stat())
    with pytest.raises(StorageError, match=f"in use by process {os.getpid()}"):
        hold(store)
    os.close(fd)
    os.close(hold(store))
    shutil.rmtree(store)


def test_who_holds_it_is_named_where_that_process_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a read-only file system who reads cannot leave its number: what stands there is that of the node before."""
    code = (
        "import sys, pathlib; from holdfast.storage.files import directory; directory.hold(pathlib.Path(sys.argv[1]))"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], timeout=20, check=True)
    monkeypatch.setattr(directory, "is_read_only", lambda path: True)
    reading = hold_to_read(tmp_path)
    with pytest.raises(StorageError) as refused:
        hold_to_read(tmp_path)
    told = f"store {tmp_path}: in use by another process; stop that, or give another directory"
    assert str(refused.value) == told
    os.close(reading)
    (tmp_path / "lock").write_bytes(b"")
    reading = hold_to_read(tmp_path)
    with pytest.raises(StorageError, match="in use by another process"):
        hold_to_read(tmp_path)
    os.close(reading)


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.EACCES, "; give this user the right to read and write there"),
        (errno.EROFS, "; mount its file system for writing, or give another directory"),
        (errno.EIO, ""),
    ],
)
def test_a_directory_that_cannot_be_opened_is_told_with_what_to_do_where_there_is_something(
    number: int, advice: str
) -> None:
    error = OSError(number, os.strerror(number), "/d/lock")
    told = f"store /d: cannot be opened (/d/lock: {os.strerror(number)}){advice}"
    assert str(directory.refusal(Path("/d"), error)) == told
