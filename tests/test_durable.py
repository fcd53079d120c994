"""What replaces a file: owners, modes, what killed processes left (durable.py)."""

import os
import time
from pathlib import Path

import pytest

from holdfast import durable
from holdfast.durable import replace_file, replacing
from support.owners import ORDINARY_USER, owned


def refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file can be given away."""

    def refuses(opened: int, *owner: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fchown", refuses)


def test_a_new_file_in_another_owners_directory_belongs_to_who_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only root may give a file away; a file that is there keeps its owner, or is not replaced."""
    owned(monkeypatch, {tmp_path: 7, tmp_path / "token": 7}, me=ORDINARY_USER)
    refuse(monkeypatch)
    replace_file(tmp_path / "token", b"secret", 0o600)
    with pytest.raises(PermissionError):
        replace_file(tmp_path / "token", b"another", 0o600)
    assert (tmp_path / "token").read_bytes() == b"secret"


def killed(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a process leaves that is killed while it writes that file."""

    def ended(file: Path, *more: object, **given: object) -> None:
        raise KeyboardInterrupt

    before = set(tmp_path.iterdir())
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", ended)
        patched.setattr(os, "unlink", ended)  # as after kill -9: nothing is put in order
        with pytest.raises(KeyboardInterrupt):
            replace_file(tmp_path / name, b"secret", 0o600)
    (left,) = set(tmp_path.iterdir()) - before
    return left


def test_what_a_killed_process_left_stops_no_later_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container every process has the same number: each would find the file of the one that was killed."""
    killed(tmp_path, "token", monkeypatch)
    replace_file(tmp_path / "token", b"another", 0o600)
    assert (tmp_path / "token").read_bytes() == b"another"


def test_what_a_killed_process_left_is_removed_after_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be a private key. What is younger may be another process's; other names are none of ours."""
    old, young, other, longer = (killed(tmp_path, name, monkeypatch) for name in ("key", "key", "token", "key.pem"))
    mine = tmp_path / ".key.notes"
    mine.touch()
    for file in (old, other, longer, mine):
        os.utime(file, (0, time.time() - durable.LEFTOVER_AGE_S - 1))
    replace_file(tmp_path / "key", b"another", 0o600)
    assert set(tmp_path.iterdir()) == {tmp_path / "key", young, other, longer, mine}


def test_the_longest_name_can_be_replaced(tmp_path: Path) -> None:
    """Also where its bytes are cut within a character, or are none of UTF-8."""
    for name in ("n" * 255, "é" * 127, "x" + "é" * 127, os.fsdecode(b"\xff" * 255)):
        for content in (b"first", b"second"):
            replace_file(tmp_path / name, content, 0o644)
            assert (tmp_path / name).read_bytes() == content
    assert len(list(tmp_path.iterdir())) == 4


def test_a_file_that_cannot_have_its_owner_loses_the_rights_of_its_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would be those of ours."""
    owned(monkeypatch, {tmp_path / "f": 7}, me=ORDINARY_USER)
    refuse(monkeypatch)
    (tmp_path / "f").write_text("before")
    (tmp_path / "f").chmod(0o664)
    with replacing(tmp_path / "f") as file:
        file.write(b"after")
    assert (tmp_path / "f").read_text() == "after" and (tmp_path / "f").stat().st_mode & 0o777 == 0o604
