"""A node that dies at a named moment, for the kill -9 campaign."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast_lab.base.processes import parse_ready
from holdfast_lab.real.killed_node import Moments

COMMAND = (sys.executable, "-m", "holdfast_lab.real.killed_node")


def test_it_kills_at_the_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[signal.Signals] = []
    monkeypatch.setattr("holdfast_lab.real.killed_node.os.kill", lambda pid, number: killed.append(number))
    file = tmp_path / "points.json"
    moments = Moments(("append", 2), file)
    moments.passed("append")
    moments.passed("committed")
    assert not killed
    moments.passed("append")
    assert killed == [signal.SIGKILL]
    assert '"append": 2' in file.read_text()


def test_points_are_written_at_the_end(tmp_path: Path) -> None:
    file = tmp_path / "points.json"
    arguments = ("--points-file", file, "--", "--listen", "127.0.0.1:0", "--data", tmp_path / "d")
    with subprocess.Popen((*COMMAND, *arguments), stdout=subprocess.PIPE, text=True) as node:
        assert node.stdout is not None
        assert parse_ready(node.stdout.readline()) is not None
        node.terminate()
        assert node.wait(30) == 0
    assert set(json.loads(file.read_text())) >= {"append", "committing", "committed", "settled"}


@pytest.mark.parametrize("given", ["append", "append:0", "nowhere:1", "append:x"])
def test_a_wrong_crash_point_is_refused(given: str) -> None:
    told = subprocess.run((*COMMAND, "--crash-point", given), check=False, capture_output=True, text=True, timeout=60)
    assert told.returncode == 2 and "expected NAME:COUNT" in told.stderr
