"""The stages' runner: what a stage collects, what it hands down, and that nothing outlives a signal to it."""

import asyncio
import importlib.util
import shutil
import signal
import sys
from pathlib import Path

import pytest

from holdfast.harness.fleet_state import Process
from holdfast.harness.processes import Children
from support.eventually import eventually_true

ROOT = Path(__file__).resolve().parents[2]
RUNNER = ROOT / "tools" / "stages.py"
LIMIT_S = 60.0

_spec = importlib.util.spec_from_file_location("stages", RUNNER)
assert _spec is not None and _spec.loader is not None
stages = importlib.util.module_from_spec(_spec)
sys.modules["stages"] = stages  # its dataclasses look there
_spec.loader.exec_module(stages)

# A test that starts a process in a session of its own, says so, and ends it whatever happens.
LONG_TEST = """\
import os
import subprocess
import sys
from pathlib import Path

def test_long():
    started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True)
    try:
        part = Path(__file__).with_name("part")
        part.write_text(f"{os.getpid()} {started.pid}")
        part.rename(Path(__file__).with_name("pids"))
        started.wait()
    finally:
        started.kill()
        started.wait()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_the_stage_and_what_its_tests_started(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tests").mkdir()
    shutil.copy(RUNNER, tmp_path / "tools")
    (tmp_path / "tests" / "conftest.py").write_text(
        "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"  # as in ours
    )
    (tmp_path / "tests" / "test_long.py").write_text(LONG_TEST)
    pids = tmp_path / "tests" / "pids"
    async with Children(tmp_path / "logs") as children, asyncio.timeout(LIMIT_S):
        runner = await children.start("stages", [sys.executable, tmp_path / "tools" / "stages.py", "unit"])
        await eventually_true(lambda: pids.exists() or not runner.running, what="the test's process ids")
        assert runner.running, "\n".join(runner.lines) + runner.stderr_text()
        runner.signal(number)
        assert await runner.wait() == 128 + number
    assert f"ended by {number.name}" in "\n".join(runner.lines)
    assert [pid for pid in map(int, pids.read_text().split()) if Process.of(pid)] == []


def test_every_stage_is_in_one_round_and_named_ones_alone_are_run() -> None:
    names = [stage.name for stage in stages.STAGES]
    in_rounds = [stage.name for lanes in stages.rounds(names) for lane in lanes for stage in lane]
    assert sorted(in_rounds) == sorted(names)
    picked = stages.rounds(["unit", "crash"])
    assert [[[stage.name for stage in lane] for lane in lanes] for lanes in picked] == [[["unit"]], [["crash"]]]


def test_a_stage_beside_others_prints_what_it_ran_when_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stages, "REPORTS", tmp_path)
    monkeypatch.setattr(
        stages,
        "tests",
        lambda stage, limit_s, output: stages.Tally(
            passed=1 - stages.run([sys.executable, "-c", f"print('from {stage.name}')"], limit_s, output)
        ),
    )
    stage = stages.Stage("crash", 1, "crash")
    tally, _ = stages.run_stage(stage, alone=False)
    assert tally == stages.Tally(passed=1)
    assert capfd.readouterr().out == "\n== crash ==\nfrom crash\n\n"


def test_modules_are_collected_where_a_stage_s_mark_is_named() -> None:
    known = {stage.name: stage for stage in stages.STAGES}
    assert known["unit"].collected()[0] == "tests"
    for name in ("fuzz", "interop", "spark", "crash", "sim"):
        modules = known[name].collected()
        assert len(modules) == len(set(modules)) > 0
        assert known[name].named == str(known[name].marks).split()[0] == name
    assert "tests/crash/test_cuts.py" in known["crash"].collected()
    assert "tests/crash/test_cuts.py" not in known["spark"].collected()


def test_every_test_without_a_mark_is_of_one_stage() -> None:
    known = {stage.name: stage for stage in stages.STAGES}
    core = known["core"].collected()
    assert known["unit"].marks == known["core"].marks
    assert known["unit"].collected() == ["tests", *(f"--ignore={folder}" for folder in core)]
    assert all((ROOT / folder).is_dir() for folder in core)


@pytest.mark.parametrize("folder", stages.WITHOUT_CLOCK)
def test_what_gives_way_to_other_stages_has_no_clock_and_starts_nothing(folder: str) -> None:
    needing = ("time.monotonic", "time.time", "perf_counter", "process_time", "time.sleep", "subprocess", "Children")
    for path in (ROOT / folder).rglob("*.py"):
        assert [name for name in needing if name in path.read_text()] == [], path


def test_compiled_modules_are_kept() -> None:
    given = {"PATH": "/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    assert stages.environment(given) == {"PATH": "/bin"}
