"""The telemetry file: appended to, whole lines, and neither the node's end nor what it waits for."""

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import ConfigError
from holdfast.node.process import telemetry
from holdfast.node.process.telemetry import AuditFile, TelemetryFile
from support.eventually import eventually


def until(path: Path, content: bytes) -> None:
    """What is handed over is written soon."""
    eventually(path.read_bytes, lambda found: found == content)


def test_lines_are_appended_after_the_flush(tmp_path: Path) -> None:
    path = tmp_path / "t.ndjson"
    path.write_bytes(b"before\n")
    file = TelemetryFile(path)
    file.add(b"1\n")
    file.add(b"2\n")
    file.flush()
    until(path, b"before\n1\n2\n")
    file.add(b"3\n")
    file.close()
    file.close()
    assert path.read_bytes() == b"before\n1\n2\n3\n"


def test_at_the_bound_lines_are_handed_over_within_the_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "BUFFER_BYTES_MAX", 4)
    file = TelemetryFile(tmp_path / "t")
    file.add(b"12\n")
    file.add(b"\n")
    until(tmp_path / "t", b"12\n\n")
    file.close()


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """No write of telemetry comes back before the event."""
    goes_on = threading.Event()
    real = os.write

    def write(fd: int, block: bytes) -> int:
        goes_on.wait()
        return real(fd, block)

    monkeypatch.setattr(telemetry.os, "write", write)
    yield goes_on
    goes_on.set()


def test_a_file_that_hangs_holds_nobody_up_and_what_waits_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, hanging: threading.Event
) -> None:
    monkeypatch.setattr(telemetry, "WAITING_BYTES_MAX", 100)
    file = TelemetryFile(tmp_path / "t")
    for number in range(100):
        file.add(b"%08d\n" % number)
        file.flush()
    assert caplog.text.count("it does not accept writes; its records are dropped") == 1
    hanging.set()
    until(tmp_path / "t", b"".join(b"%08d\n" % number for number in range(11)))
    assert file._behind.flush(10.0)  # the thread counts a block only after it has written it
    file.add(b"again\n")
    file.close()
    assert (tmp_path / "t").read_bytes().endswith(b"00000010\nagain\n")
    assert len(caplog.records) == 1


def test_the_end_does_not_wait_for_a_file_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hanging: threading.Event
) -> None:
    monkeypatch.setattr(telemetry, "END_S", 0.05)
    file = TelemetryFile(tmp_path / "t")
    file.add(b"line\n")
    file.close()
    assert (tmp_path / "t").read_bytes() == b""
    hanging.set()
    until(tmp_path / "t", b"line\n")


def test_a_file_that_cannot_be_opened_is_a_mistake_of_the_user(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"telemetry file .*nowhere.* cannot be opened .No such file"):
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
        assert file._behind.flush(10.0)
    broken = False
    file.add(b"whole\n")
    file.close()
    assert len(caplog.records) == 1
    assert "No space left on device" in caplog.text
    assert (tmp_path / "t").read_bytes().endswith(b"\nwhole\n")


def test_the_audit_file_says_how_many_records_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Those that were dropped because too much waited, and those that could not be written."""
    real, room = os.write, 1_000_000

    def write(fd: int, block: bytes) -> int:
        nonlocal room
        if not room:
            raise OSError(28, "No space left on device")
        written = real(fd, block[:room])
        room -= written
        return written

    def record(number: int) -> None:
        file.record({"kind": "login", "number": number}, node="hub", wall_ms=0)
        file.flush()
        assert file._behind.flush(10.0)

    monkeypatch.setattr(telemetry.os, "write", write)
    file = AuditFile(tmp_path / "audit.ndjson")
    record(1)
    room = 5  # a piece of the next record
    for number in (2, 3, 4):
        record(number)
    with monkeypatch.context() as patch:
        patch.setattr(file._behind, "put", lambda block: False)
        for number in (5, 6):
            file.record({"kind": "login", "number": number}, node="hub", wall_ms=0)
        file.flush()
    room = 1_000_000
    for number in (7, 8):
        record(number)
    file.close()
    lines = (tmp_path / "audit.ndjson").read_text().splitlines()
    rows = [json.loads(line) for line in lines if len(line) > 5]
    assert [row.get("number", row["kind"]) for row in rows] == [1, "gap", 7, 8]
    assert rows[1] == {"v": 1, "t": rows[1]["t"], "node": "hub", "kind": "gap", "left_out": 5}
    assert len(caplog.records) == 1, "it is logged at most once a minute"


def test_a_file_that_fails_again_after_a_minute_is_logged_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(telemetry, "COMPLAINT_S", 0.0)
    file = TelemetryFile(tmp_path / "t")
    monkeypatch.setattr(file._behind, "put", lambda block: False)
    for _ in range(2):
        file.add(b"line\n")
        file.flush()
    assert len(caplog.records) == 2
    file.close()
