"""What replaces a file: links, owners, modes, what killed processes left (durable.py)."""

import os
import time
from pathlib import Path

import pytest

from holdfast import durable
from holdfast.durable import replace_file, replacing


def another(file: Path | int) -> tuple[int, int] | None:
    """Another user's are the files that are there; those that are made are ours."""
    return (7, 8) if isinstance(file, Path) and file.exists() else None


def test_a_new_file_in_another_owners_directory_belongs_to_who_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only root may give a file away; a file that is there keeps its owner, or is not replaced."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(durable, "_owner_of", another)

    def refuses(descriptor: int, *owner: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fchown", refuses)
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
        patched.setattr(Path, "replace", ended)
        patched.setattr(Path, "unlink", ended)  # as after kill -9: nothing is put in order
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


def test_a_pipe_or_a_device_is_not_replaced(tmp_path: Path) -> None:
    """As `--out /dev/stdout` names one: by root, the machine would have a file there ever after."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        replace_file(tmp_path / "pipe", b"x", 0o644)
    assert (tmp_path / "pipe").is_fifo() and list(tmp_path.iterdir()) == [tmp_path / "pipe"]


def test_what_links_lead_to_is_replaced_and_the_links_stay(tmp_path: Path) -> None:
    """Also where nothing is there yet."""
    (tmp_path / "place").mkdir()
    (tmp_path / "link").symlink_to("place/other")
    (tmp_path / "place" / "other").symlink_to(tmp_path / "place" / "file")
    for content in (b"first", b"second"):
        replace_file(tmp_path / "link", content, 0o644)
        assert (tmp_path / "place" / "file").read_bytes() == content
    assert (tmp_path / "link").is_symlink() and (tmp_path / "place" / "other").is_symlink()
    assert sorted(file.name for file in tmp_path.rglob("*")) == ["file", "link", "other", "place"]


def test_a_link_to_an_open_file_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    """As /dev/stdout is one: by root, the machine would have a file there ever after, and `>> FILE` would lose FILE."""
    with (tmp_path / "out").open("w") as stream:
        stream.write("before")
        stream.flush()
        for place in (f"/proc/self/fd/{stream.fileno()}", f"/dev/fd/{stream.fileno()}"):
            (tmp_path / "link").symlink_to(place)
            for path in (tmp_path / "link", Path(place)):
                with pytest.raises(OSError, match="it stands for an open file, and has no name"):
                    replace_file(path, b"x", 0o644)
            assert (tmp_path / "link").is_symlink()
            (tmp_path / "link").unlink()
    assert (tmp_path / "out").read_bytes() == b"before"


def test_links_that_lead_nowhere_are_refused(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    for path, reason in (
        (tmp_path / "one", "Too many levels of symbolic links"),
        (tmp_path / "one" / "file", "Too many levels of symbolic links"),
        (tmp_path / "none" / "file", "No such file or directory"),
        (tmp_path, "Is a directory"),
        (Path("/"), "Is a directory"),
    ):
        with pytest.raises(OSError, match=reason):
            replace_file(path, b"x", 0o644)
    assert len(list(tmp_path.iterdir())) == 2


def test_root_follows_no_link_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A site's directory may belong to its node's user, who would choose which file of the machine root replaces."""
    (tmp_path / "target").write_text("before")
    (tmp_path / "link").symlink_to("target")
    if os.geteuid() == 0:
        os.chown(tmp_path / "link", 1000, 1000, follow_symlinks=False)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(OSError, match="a symbolic link of another user, which root does not follow"):
        replace_file(tmp_path / "link", b"x", 0o644)
    assert (tmp_path / "target").read_text() == "before"


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
    monkeypatch.setattr(durable, "_owner_of", another)

    def refuses(*given: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fchown", refuses)
    (tmp_path / "f").write_text("before")
    (tmp_path / "f").chmod(0o664)
    with replacing(tmp_path / "f") as file:
        file.write(b"after")
    assert (tmp_path / "f").read_text() == "after" and (tmp_path / "f").stat().st_mode & 0o777 == 0o604
