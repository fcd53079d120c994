"""Files of a fleet: what is read is what was looked at."""

import os
from pathlib import Path

import pytest

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
