"""The telemetry file: appended to, whole lines, and never the node's end."""

import os
from pathlib import Path

import pytest

from holdfast.errors import ConfigError
from holdfast.node import telemetry
from holdfast.node.telemetry import TelemetryFile


def test_lines_are_appended_at_the_flush(tmp_path: Path) -> None:
    path = tmp_path / "t.ndjson"
    path.write_bytes(b"before\n")
    file = TelemetryFile(path)
    file.add(b"1\n")
    file.add(b"2\n")
    assert path.read_bytes() == b"before\n"
    file.flush()
    assert path.read_bytes() == b"before\n1\n2\n"
    file.add(b"3\n")
    file.close()
    file.close()
    assert path.read_bytes() == b"before\n1\n2\n3\n"


def test_at_the_bound_lines_are_written_within_the_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "BUFFER_BYTES_MAX", 4)
    file = TelemetryFile(tmp_path / "t")
    file.add(b"12\n")
    assert (tmp_path / "t").read_bytes() == b""
    file.add(b"\n")
    assert (tmp_path / "t").read_bytes() == b"12\n\n"
    file.close()


def test_a_file_that_cannot_be_opened_is_a_mistake_of_the_user(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"telemetry file: cannot open .*nowhere.*No such file"):
        TelemetryFile(tmp_path / "nowhere" / "t")


def test_failing_writes_are_said_once_and_lines_stay_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = os.write
    broken = True

    def write(fd: int, block: bytes) -> int:
        if broken and len(block) == 1:
            raise OSError(28, "No space left on device")
        return real(fd, block[:-1]) if broken else real(fd, block)

    monkeypatch.setattr(telemetry.os, "write", write)
    file = TelemetryFile(tmp_path / "t")
    for _ in range(2):
        file.add(b"cut\n")
        file.flush()
    broken = False
    file.add(b"whole\n")
    file.close()
    assert len(caplog.records) == 1
    assert "No space left on device" in caplog.text
    assert (tmp_path / "t").read_bytes().endswith(b"\nwhole\n")
