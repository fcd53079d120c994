"""What a start that is interrupted, or fails, leaves of the JVM: nothing. A shell script stands for spark-submit."""

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark import SparkContext, java_gateway

from pyspark_holdfast.jvm import ended_unless_up
from support.eventually import eventually

LIMIT_S = 30.0
SUBMIT = """#!/bin/sh
{first}
sleep 600 &
echo $$ $! > {root}/new
mv {root}/new {root}/started
exec sleep 600
"""


class Start:
    """A start of a JVM by pyspark, which Ctrl-C interrupts."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.heard = threading.Event()
        (root / "bin").mkdir()

    def submit(self, first: str = "") -> None:
        """A spark-submit that does this first, starts a process, says both ids in `started` and becomes another."""
        file = self.root / "bin" / "spark-submit"
        file.write_text(SUBMIT.format(root=self.root, first=first))
        file.chmod(0o755)

    def interrupt(self) -> None:
        """Returns when the main thread has heard of it; a signal that comes just before it waits does not wake it."""

        def heard() -> bool:
            if not self.heard.is_set():
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            return self.heard.is_set()

        eventually(heard, what="an interrupt", limit_s=LIMIT_S)

    def hear(self, *_: object) -> None:
        if not self.heard.is_set():
            self.heard.set()
            raise KeyboardInterrupt

    @property
    def has_started(self) -> bool:
        return (self.root / "started").exists()

    def interrupt_started(self) -> None:
        eventually(lambda: self.has_started, what="a process", limit_s=LIMIT_S)
        self.interrupt()

    def kill(self) -> None:
        """What is left."""
        for file in self.root.glob("*started"):
            for pid in file.read_text().split():
                if not ended(pid):
                    os.kill(int(pid), signal.SIGKILL)

    def is_gone(self) -> None:
        """Waits until both processes are."""
        for pid in (self.root / "started").read_text().split():
            eventually(partial(ended, pid), what=f"process {pid} gone", limit_s=LIMIT_S)
        assert java_gateway.Popen is subprocess.Popen


def ended(pid: str) -> bool:
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    made = Start(tmp_path)
    made.submit()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    for name in ("_gateway", "_jvm", "_active_spark_context"):  # a session of other tests goes on
        monkeypatch.setattr(SparkContext, name, None)
    before = signal.signal(signal.SIGINT, made.hear)
    yield made
    signal.signal(signal.SIGINT, before)
    made.kill()


@pytest.mark.parametrize("first", ["", "trap '' TERM"])
def test_an_interrupt_ends_what_was_started_and_nothing_else(start: Start, first: str) -> None:
    start.submit(first)
    other = subprocess.Popen(["sleep", "600"])
    try:
        interrupting = threading.Thread(target=start.interrupt_started)
        interrupting.start()
        with pytest.raises(KeyboardInterrupt), ended_unless_up():
            java_gateway.launch_gateway()
        interrupting.join()
        start.is_gone()
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


@pytest.mark.parametrize("when", ["before", "behind"])
def test_an_interrupt_just_when_it_is_started_ends_it_too(
    start: Start, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before there is a process, and when it runs and nobody has been told its id."""

    class Popen(subprocess.Popen[Any]):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            if when == "before":
                start.interrupt()
            super().__init__(*arguments, **named)
            if when == "behind":
                start.interrupt_started()
            eventually(lambda: start.has_started, what="a process", limit_s=LIMIT_S)

    monkeypatch.setattr(subprocess, "Popen", Popen)
    monkeypatch.setattr(java_gateway, "Popen", Popen)
    with pytest.raises(KeyboardInterrupt), ended_unless_up():
        java_gateway.launch_gateway()
    start.is_gone()


def test_an_error_from_within_ends_the_jvm_of_this_start_and_no_earlier_one(start: Start) -> None:
    def launch() -> "subprocess.Popen[bytes]":
        process = java_gateway.Popen([str(start.root / "bin" / "spark-submit")], stdin=subprocess.PIPE)
        eventually(lambda: start.has_started, what="a process", limit_s=LIMIT_S)
        return process

    with ended_unless_up():
        process = launch()
    earlier = (start.root / "started").rename(start.root / "earlier-started").read_text().split()
    with pytest.raises(RuntimeError, match="no such master"), ended_unless_up():
        launch()
        raise RuntimeError("no such master")
    start.is_gone()
    assert not any(map(ended, earlier))
    start.kill()
    process.communicate()
