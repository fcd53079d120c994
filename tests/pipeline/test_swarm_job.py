"""Verdicts of the simulator as a table: what the command line says, and what becomes of a seed that says nothing."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet
import pytest

from holdfast.cli import main
from pyspark_holdfast import running, swarm_job
from support.eventually import eventually
from support.screen import Screen


def test_metrics_are_flat_numbers() -> None:
    told = {"hops": 3, "faults": {"crash": 2}, "note": "text", "publish-1.accepted": 4}
    assert swarm_job.flat(told) == {"hops": 3.0, "faults.crash": 2.0, "publish-1.accepted": 4.0}


def test_a_seed_without_a_verdict_is_a_row_that_says_so() -> None:
    row = swarm_job.run_seed("no-such-scenario", 7)
    assert not row["ok"] and row["digest"] is None and "no-such-scenario" in row["failure"] and row["seed"] == 7


def test_a_seed_that_takes_too_long_is_a_row_that_says_so() -> None:
    assert "no verdict within 0.01 s" in swarm_job.run_seed("swarm", 1, limit_s=0.01)["failure"]


def test_the_table_must_be_new(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("")
    assert main(["pipeline", "swarm", "--out", str(tmp_path)]) == 2
    assert "give --out an empty or new directory" in capsys.readouterr().err


@pytest.mark.parametrize("screen", [Screen(), io.StringIO()])
def test_a_terminal_shows_how_many_tasks_have_ended(screen: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    stages = {7: SimpleNamespace(numTasks=8, numCompletedTasks=3), 8: None}
    tracker = SimpleNamespace(getActiveStageIds=lambda: list(stages), getStageInfo=stages.get)
    spark = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(running, "TASKS_S", 0.001)
    with running.tasks_drawn(spark):  # type: ignore[arg-type]
        if screen.isatty():
            eventually(lambda: "3 of 8 tasks have ended" in screen.getvalue())
    assert screen.isatty() or screen.getvalue() == ""


@pytest.mark.spark
@pytest.mark.usefixtures("our_session")
def test_two_seeds_on_spark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "verdicts"
    options = ["--seeds", "2", "--first-seed", "1", "--master", "local[2]", "--out", str(out)]
    assert main(["pipeline", "swarm", *options]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["seeds"] == 2 and told["failed"] == [] and told["hops"] > 0 and told["wall_s"] > 0
    rows = pyarrow.parquet.read_table(out).to_pylist()
    assert sorted(row["seed"] for row in rows) == [1, 2]
    assert all(len(row["digest"]) == 32 and dict(row["metrics"])["hops"] >= 0 for row in rows)
    alone = swarm_job.run_seed("swarm", 2)
    assert {row["digest"] for row in rows if row["seed"] == 2} == {alone["digest"]}


@pytest.mark.spark
def test_a_jvm_that_is_killed_is_one_line(tmp_path: Path) -> None:
    out = tmp_path / "verdicts"
    options = ["--seeds", "2000", "--master", "local[2]", "--out", str(out)]
    command = [sys.executable, "-m", "holdfast", "pipeline", "swarm", *options]
    place = os.environ | {"TMPDIR": str(tmp_path)}  # Spark's log stays
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=place)
    try:
        until = time.monotonic() + 120
        while not out.exists() and running.poll() is None and time.monotonic() < until:
            time.sleep(0.1)
        children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
        (jvm,) = [pid for pid in children if Path(f"/proc/{pid}/comm").read_text() == "java\n"]
        os.kill(int(jvm), signal.SIGKILL)
        _, said = running.communicate(timeout=60)
    finally:
        running.kill()
        running.communicate()
    assert running.returncode == 1 and said.count("\n") == 1, said
    assert said.startswith("holdfast pipeline swarm: Spark's JVM ended (signal 9) (Spark's log: ")
