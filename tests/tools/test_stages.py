"""The stages' runner: what a stage collects, what it hands down, and that nothing outlives a signal to it."""

import asyncio
import shutil
import signal
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from unittest.mock import Mock

import pytest

from holdfast_lab.base.processes import Children
from holdfast_lab.real.fleet_state import Process
from support import today
from support import turns as by_turns
from support.eventually import eventually_true

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tools"
LIMIT_S = 60.0

sys.path.insert(0, str(TOOLS))

import stages  # noqa: E402, found by the line above
import turns  # noqa: E402
import verdicts  # noqa: E402

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
    for name in ("stages.py", "turns.py", "verdicts.py"):
        shutil.copy(TOOLS / name, tmp_path / "tools")
    (tmp_path / "tests" / "conftest.py").write_text(  # as in ours
        "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def pytest_addoption(parser):\n    parser.addoption('--turns', action='store_true')\n"
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
    picked = stages.rounds(["core", "crash"])
    assert [[[stage.name for stage in lane] for lane in lanes] for lanes in picked] == [[["crash"], ["core"]]]


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
    folders, ignored = [name for name in core if name[0] != "-"], [name for name in core if name[0] == "-"]
    assert known["unit"].collected() == ["tests", *(f"--ignore={folder}" for folder in folders), *ignored]
    assert all((ROOT / folder).is_dir() for folder in folders)
    assert "--ignore=tests/crash/test_cuts.py" in ignored
    assert "--ignore=tests/lab/test_demo.py" not in ignored, "some of its tests are without a mark"


@pytest.mark.parametrize("folder", stages.WITHOUT_CLOCK)
def test_what_gives_way_to_other_stages_has_no_clock_and_starts_nothing(folder: str) -> None:
    needing = ("time.monotonic", "time.time", "perf_counter", "process_time", "time.sleep", "subprocess", "Children")
    for path in (ROOT / folder).rglob("*.py"):
        assert [name for name in needing if name in path.read_text()] == [], path


def test_each_promise_has_a_test_that_takes_no_turns() -> None:
    listed = turns.listed(turns.FILE)
    assert listed and [test for test in listed if not turns.may_wait(test)] == []
    promises = verdicts.rows(stages.GUARANTEES.read_text(encoding="utf-8"))
    assert turns.spoilt([tests for _, tests in promises], listed) == []


def test_what_is_gone_draws_from_the_day_or_reads_all_files_takes_no_turns() -> None:
    assert turns.may_wait("tests/node/test_command.py::test_a_port_in_use_is_refused")
    assert not turns.may_wait("tests/node/test_command.py::test_nothing")
    assert not turns.may_wait("tests/node/test_nothing.py::test_nothing")
    assert not turns.may_wait("tests/pipeline/test_source.py::test_deaths_at_any_step"), "its seeds are the day's"
    assert not turns.may_wait("tests/crash/test_cuts.py::test_between_nodes"), "its cases are the day's"
    assert not turns.may_wait("tests/test_layers.py::test_module_has_a_header_and_a_bounded_size")


def test_the_dear_ones_are_chosen_while_each_promise_keeps_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "may_wait", lambda test: test != "drawn")
    costs = {"cheap": 0.09, "dear": 3.0, "dearer": 5.0, "drawn": 9.0, "alone": 7.0, "other": 0.1}
    assert list(turns.chosen(costs, [["alone"], ["dear", "dearer"], ["other", "cheap"]])) == ["dearer", "other"]


def test_what_takes_turns_has_each_case_once_within_so_many_days(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(today, "long", False)
    ran: list[int] = []
    for day in range(70, 70 + by_turns.DAYS):
        monkeypatch.setattr(today, "number", day)
        ran += [at for at in range(12) if by_turns.stays(3, at)]
    assert sorted(ran) == list(range(12))


def test_what_has_no_turn_is_left_out_case_by_case(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """But not one that is slow: it is left out in another way, and its place is another's."""
    monkeypatch.setattr(today, "long", False)
    monkeypatch.setattr(today, "number", 14)
    monkeypatch.setattr(by_turns, "places", lambda: {"tests/test_a.py::test_one": 0, "tests/test_a.py::test_two": 5})
    slow = {"test_two[slow]"}
    names = ["test_one", *(f"test_two[{case}]" for case in ("a", "b", "slow", "c")), "test_three"]
    given = [
        Mock(nodeid=f"tests/test_a.py::{name}", get_closest_marker=lambda _, name=name: name in slow or None)
        for name in names
    ]
    items, config = list(given), Mock()
    request.config.pluginmanager.get_plugin(str(ROOT / "tests" / "conftest.py")).take_turns(config, items)
    assert [names[given.index(item)] for item in items] == ["test_one", "test_two[slow]", "test_two[c]", "test_three"]
    assert config.hook.pytest_deselected.call_count == 1


def test_all_days_take_about_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(by_turns, "FILE", tmp_path / "turns.txt")
    by_turns.FILE.write_text("# head\n  9.0 a\n 5.0 b\n 4.0 c\n 4.0 d\n 3.0 e\n 2.0 f\n 1.5 g\n 1.0 h\n 0.8 i\n")
    assert by_turns.places() == {"a": 0, "b": 1, "c": 2, "d": 3, "e": 4, "f": 5, "g": 6, "h": 6, "i": 5}


def test_a_case_of_a_class_has_the_name_of_its_test() -> None:
    assert by_turns.name_of("tests/a/test_b.py::TestC::test_d[x::y]") == "tests/a/test_b.py::test_d"
    case = ElementTree.fromstring('<testcase classname="tests.a.test_b.TestC" name="test_d[x::y]"/>')
    assert verdicts.name_of(case) == "tests/a/test_b.py::test_d"


@pytest.mark.parametrize("of", [2, 3, 7])
def test_each_has_its_turn(monkeypatch: pytest.MonkeyPatch, of: int) -> None:
    monkeypatch.setattr(today, "long", False)
    for day in range(50, 60):
        monkeypatch.setattr(today, "number", day)
        assert sum(today.has_turn(place, of) for place in range(of)) == 1
    monkeypatch.setattr(today, "long", True)
    assert all(today.has_turn(place, of) for place in range(of))


def test_compiled_modules_are_kept() -> None:
    given = {"PATH": "/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    assert stages.environment(given) == {"PATH": "/bin"}


# ------------------------------------------------------------------------------------------------------- verdicts

REPORT = """\
<testsuites><testsuite tests="5">
<testcase classname="tests.package.test_a" name="test_one[1]"/>
<testcase classname="tests.package.test_a" name="test_one[2]">{second}</testcase>
<testcase classname="tests.package.test_b" name="test_two"/>
<testcase classname="tests.package.test_c" name="test_three"><skipped message="{reason}"/></testcase>
<testcase classname="tests.package.test_c" name="test_four"><failure message="no"/></testcase>
</testsuite></testsuites>
"""

GUARANTEED = """\
`tests/package/test_z.py::test_outside_a_table`
| promise | up to | held by |
|---|---|---|
| first | kill -9 | `tests/package/test_a.py::test_one`, `tests/package/test_b.py::test_two` |
| second | | `tests/package/test_c.py::test_three` |
| third | | `tests/package/test_c.py::test_four`, `tests/package/test_b.py::test_two` |
| fourth | | `tests/package/test_b.py::test_two`, `tests/package/test_d.py::test_gone` |
| fifth | | `{campaign}`, `tests/package/test_b.py::test_two` |
"""


def ran_of(folder: Path, second: str = "", reason: str = "no reason") -> verdicts.Ran:
    report = folder / "report.xml"
    report.write_text(REPORT.format(second=second, reason=reason))
    return verdicts.Ran.of([report, folder / "of-a-stage-that-died.xml"])


def test_a_promise_is_held_where_all_its_tests_ran_and_passed(tmp_path: Path) -> None:
    text = GUARANTEED.format(campaign=next(iter(verdicts.CAMPAIGNS)))
    found = verdicts.promises(text, ran_of(tmp_path))
    assert (found.count, found.held) == (5, 2)
    assert found.failed == ["tests/package/test_c.py::test_four (third)"]
    assert found.skipped == ["tests/package/test_c.py::test_three (second)"]
    assert found.not_run == ["tests/package/test_d.py::test_gone (fourth)"]
    for waiting, held in ((["tests/package/test_d.py::test_gone"], 3), (["tests/package/test_b.py::test_two"], 2)):
        assert verdicts.promises(text, ran_of(tmp_path), waiting).held == held
    alone = "| sixth | | `tests/package/test_d.py::test_gone` |"
    assert verdicts.promises(alone, ran_of(tmp_path), ["tests/package/test_d.py::test_gone"]).held == 0
    for second in ('<failure message="no"/>', '<error message="no"/>', '<skipped message="no"/>'):
        assert verdicts.promises(text, ran_of(tmp_path, second)).held == 1, "one case of several did not pass"


def test_a_skip_is_expected_where_the_machine_lacks_what_its_reason_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert verdicts.unexpected_skips(ran_of(tmp_path)) == ["tests.package.test_c::test_three: no reason"]
    ran = ran_of(tmp_path, reason="rhea is not installed: make peers")
    for there in (True, False):
        monkeypatch.setattr(verdicts.shutil, "which", lambda name, there=there: f"/bin/{name}" if there else None)
        assert bool(verdicts.unexpected_skips(ran)) is there


def test_unexpected_skips_and_promises_that_nothing_held_fail_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stages, "REPORTS", tmp_path)
    monkeypatch.setattr(stages, "GUARANTEES", tmp_path / "GUARANTEES.md")
    (tmp_path / "GUARANTEES.md").write_text(GUARANTEED.format(campaign=next(iter(verdicts.CAMPAIGNS))))
    (tmp_path / "unit.xml").write_text(REPORT.format(second="", reason="no reason"))
    for whole, failed in ((False, 2), (True, 3)):
        total = stages.Tally(passed=3, failed=1, skipped=1)
        stages.judge(list(stages.STAGES), total, whole=whole)
        assert total == stages.Tally(passed=3, failed=failed, skipped=0)
        said = capsys.readouterr().out
        assert "skipped for no reason of this machine: tests.package.test_c::test_three: no reason" in said
        assert ("promise not held, not run: tests/package/test_d.py::test_gone (fourth)" in said) is whole
        assert ("promises: 2 of 5 held in this run" in said) is whole


def test_campaigns_that_hold_promises_are_there() -> None:
    text = stages.GUARANTEES.read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for test, target in verdicts.CAMPAIGNS.items():
        path, _, name = test.partition("::")
        assert f"`{test}`" in text and f"`make {target}`" in text and f"\n{target}: setup\n" in makefile
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8")


def test_a_module_that_skips_whole_says_why_and_its_promises_are_skipped(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(
        '<testsuites><testsuite><testcase classname="" name="tests.package.test_c">'
        '<skipped message="collection skipped">'
        "('test_c.py', 9, \"Skipped: could not import 'pyspark'\")</skipped></testcase></testsuite></testsuites>"
    )
    ran = verdicts.Ran.of([report])
    assert "could not import 'pyspark'" in ran.skips[0][1]
    found = verdicts.promises("| one | | `tests/package/test_c.py::test_three` |", ran)
    assert (found.skipped, found.not_run) == (["tests/package/test_c.py::test_three (one)"], [])
