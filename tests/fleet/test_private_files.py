"""Files of a fleet: what is read is what was looked at."""

import os
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


def test_what_a_killed_process_left_stops_no_later_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container every process has the same number: each would find the file of the one that was killed."""

    def killed(file: Path, target: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", killed)
        patched.setattr(Path, "unlink", lambda file, missing_ok: None)  # as after kill -9: nothing is put in order
        with pytest.raises(KeyboardInterrupt):
            write(tmp_path / "token", b"secret", PRIVATE)
    assert len(list(tmp_path.iterdir())) == 1
    write(tmp_path / "token", b"another", PRIVATE)
    assert (tmp_path / "token").read_bytes() == b"another"


def test_a_pipe_or_a_device_is_not_replaced(tmp_path: Path) -> None:
    """As `--out /dev/stdout` names one: by root, the machine would have a file there ever after."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        write(tmp_path / "pipe", b"x")
    assert (tmp_path / "pipe").is_fifo() and list(tmp_path.iterdir()) == [tmp_path / "pipe"]
