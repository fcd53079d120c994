"""Files of a fleet: what is read is what was looked at."""

import os
import time
from pathlib import Path

import pytest

from holdfast import durable
from holdfast.errors import ConfigError
from holdfast.fleet.private_files import PRIVATE, read, read_private, write


def test_the_mode_is_that_of_the_file_that_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not of another one that has taken its name since."""
    file = tmp_path / "key"
    write(file, b"secret", PRIVATE)
    file.chmod(0o644)
    opened = os.open

    def replaced(name: object, flags: int, *mode: int) -> int:
        descriptor = opened(name, flags, *mode)  # type: ignore[call-overload]
        if str(name) == str(file):
            monkeypatch.setattr(os, "open", opened)
            write(file, b"another", PRIVATE)
        return descriptor

    monkeypatch.setattr(os, "open", replaced)
    with pytest.raises(ConfigError, match=r"key: others may read the key \(mode 0644\); make it private: chmod 600"):
        read_private(file, "the key", 100)
    assert read_private(file, "the key", 100) == b"another"


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    """A pipe whose writer is silent would be read as nothing, or hold the command up."""
    os.mkfifo(tmp_path / "pipe")
    writer = os.open(tmp_path / "pipe", os.O_RDWR)
    try:
        for name in ("pipe", "."):
            with pytest.raises(ConfigError, match="expected a readable file"):
                read(tmp_path / name, "the token", 100)
    finally:
        os.close(writer)


def test_what_is_read_is_bounded(tmp_path: Path) -> None:
    write(tmp_path / "file", b"12345")
    assert read(tmp_path / "file", "the text", 5) == b"12345"
    with pytest.raises(ConfigError, match="the text has more than 4 bytes"):
        read(tmp_path / "file", "the text", 4)


def test_a_new_file_in_another_owners_directory_belongs_to_who_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only root may give a file away; a file that is there keeps its owner, or is not replaced."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(durable, "owner_of", lambda path: (7, 8) if path.exists() else None)

    def refuses(descriptor: int, *owner: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fchown", refuses)
    write(tmp_path / "token", b"secret", PRIVATE)
    with pytest.raises(PermissionError):
        write(tmp_path / "token", b"another", PRIVATE)
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
            write(tmp_path / name, b"secret", PRIVATE)
    (left,) = set(tmp_path.iterdir()) - before
    return left


def test_what_a_killed_process_left_stops_no_later_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container every process has the same number: each would find the file of the one that was killed."""
    killed(tmp_path, "token", monkeypatch)
    write(tmp_path / "token", b"another", PRIVATE)
    assert (tmp_path / "token").read_bytes() == b"another"


def test_what_a_killed_process_left_is_removed_after_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be a private key. What is younger may be another process's; other names are none of ours."""
    old, young, other, longer = (killed(tmp_path, name, monkeypatch) for name in ("key", "key", "token", "key.pem"))
    mine = tmp_path / ".key.notes"
    mine.touch()
    for file in (old, other, longer, mine):
        os.utime(file, (0, time.time() - durable.LEFT_S - 1))
    write(tmp_path / "key", b"another", PRIVATE)
    assert set(tmp_path.iterdir()) == {tmp_path / "key", young, other, longer, mine}


def test_a_pipe_or_a_device_is_not_replaced(tmp_path: Path) -> None:
    """As `--out /dev/stdout` names one: by root, the machine would have a file there ever after."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        write(tmp_path / "pipe", b"x")
    assert (tmp_path / "pipe").is_fifo() and list(tmp_path.iterdir()) == [tmp_path / "pipe"]


def test_what_links_lead_to_is_replaced_and_the_links_stay(tmp_path: Path) -> None:
    """Also where nothing is there yet."""
    (tmp_path / "place").mkdir()
    (tmp_path / "link").symlink_to("place/other")
    (tmp_path / "place" / "other").symlink_to(tmp_path / "place" / "file")
    for content in (b"first", b"second"):
        write(tmp_path / "link", content)
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
                    write(path, b"x")
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
            write(path, b"x")
    assert len(list(tmp_path.iterdir())) == 2


def test_root_follows_no_link_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A site's directory may belong to its node's user, who would choose which file of the machine root replaces."""
    (tmp_path / "target").write_text("before")
    (tmp_path / "link").symlink_to("target")
    if os.geteuid() == 0:
        os.chown(tmp_path / "link", 1000, 1000, follow_symlinks=False)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(OSError, match="a symbolic link of another user, which root does not follow"):
        write(tmp_path / "link", b"x")
    assert (tmp_path / "target").read_text() == "before"


def test_the_longest_name_can_be_replaced(tmp_path: Path) -> None:
    """Also where its bytes are cut within a character, or are none of UTF-8."""
    for name in ("n" * 255, "é" * 127, "x" + "é" * 127, os.fsdecode(b"\xff" * 255)):
        for content in (b"first", b"second"):
            write(tmp_path / name, content)
            assert (tmp_path / name).read_bytes() == content
    assert len(list(tmp_path.iterdir())) == 4
