"""The demo: its timetable, its directories, and the whole of it, small, and interrupted."""

import argparse
import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from holdfast.errors import ConfigError
from holdfast.harness.demo import MARKER, Plan, run_demo
from holdfast.harness.flights import data_path
from holdfast.harness.processes import Child, Children, holdfast_command


def data_or_skip() -> None:
    try:
        data_path()
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("flights", [1, 1_000, 20_000, 60_000, 200_000, 336_776])
def test_both_faults_fit_between_first_and_last_flight(flights: int) -> None:
    plan = Plan.of(flights)
    assert 0 < plan.cut_s < plan.heal_s < plan.kill_s < plan.restart_s < plan.send_s <= 110
    assert plan.heal_s - plan.cut_s >= 2.5, "longer than the hold time, or nobody notices"


def test_a_work_directory_of_someone_elses_is_left_alone(tmp_path: Path) -> None:
    data_or_skip()
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "precious").touch()
    with pytest.raises(ConfigError, match="no demo made"):
        run_demo(argparse.Namespace(flights=10, all=False, out=str(tmp_path), keep=False))
    assert (tmp_path / "work" / "precious").exists() and not (tmp_path / "work" / MARKER).exists()


def processes_naming(path: Path) -> list[str]:
    """Command lines of live processes that name `path`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(path) in command:
                found.append(command)
    return found


async def said(child: Child, text: str) -> None:
    """Waits until the child's output has a line with `text`; it writes lines at once."""
    while not any(text in line for line in child.lines):
        assert child.running, child.stderr_text()
        await asyncio.sleep(0.05)


@pytest.mark.spark
async def test_a_small_demo_is_exact(tmp_path: Path) -> None:
    data_or_skip()
    out = tmp_path / "out"
    async with Children(tmp_path / "logs") as children, asyncio.timeout(150):
        demo = await children.start("demo", holdfast_command("demo", "--flights", 3_000, "--out", out))
        code = await demo.wait()
    assert code == 0, "\n".join(demo.lines) + demo.stderr_text()
    numbers = json.loads((out / "numbers.json").read_text())
    assert numbers["ok"] and numbers["sent"] == numbers["arrived"] == numbers["spark_counts"]
    assert sum(numbers["sent"].values()) == 3_000
    assert [fault["kind"] for fault in numbers["faults"]] == ["cut", "crash"]
    assert (out / "backlog.png").stat().st_size > 10_000
    assert not (out / "work").exists()


@pytest.mark.spark
async def test_ctrl_c_leaves_no_process(tmp_path: Path) -> None:
    data_or_skip()
    out = tmp_path / "out"
    async with Children(tmp_path / "logs") as children, asyncio.timeout(90):
        demo = await children.start("demo", holdfast_command("demo", "--flights", 3_000, "--out", out))
        await said(demo, "sending")
        assert processes_naming(out / "work")
        demo.signal(signal.SIGINT)
        assert await demo.wait() == 130
        assert processes_naming(out / "work") == []
