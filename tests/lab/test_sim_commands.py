"""`holdfast sim`: what it prints and writes, its exit codes, and that what it kept runs again."""

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from holdfast import cli
from holdfast_lab import canaries
from holdfast_lab.canaries.seeds import CAUGHT_BY
from holdfast_lab.histories import HISTORIES
from holdfast_lab.plan import scenario_file
from holdfast_lab.plan.result import Result
from holdfast_lab.runs import shrink, swarm
from holdfast_lab.vpn.settings import SCENARIOS
from support.eventually import eventually_true

SMALL = """
shows = "Two nodes."
[topology]
nodes = ["a", "b"]
[[link]]
one = "a"
other = "b"
[[workload]]
kind = "publish"
node = "a"
address = "q@b"
messages = 20
[[workload]]
kind = "consume"
node = "b"
queue = "q"
[[fault]]
kind = "crash"
node = "b"
at = 0.02
seconds = 0.5
[run]
safety_s = 2
"""
NEVER = SMALL.replace('queue = "q"', 'queue = "other"').replace("safety_s = 2", "safety_s = 2\nliveness_s = 5")
KEYS = ("scenario", "seed", "ok", "digest", "virtual_s", "wall_s", "metrics")


@pytest.fixture
def small(tmp_path: Path) -> str:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return str(path)


@pytest.fixture
def never(tmp_path: Path) -> str:
    """Nobody takes what is sent, so it cannot end well."""
    path = tmp_path / "never.toml"
    path.write_text(NEVER)
    return str(path)


def answer(capsys: pytest.CaptureFixture[str], *argv: str, code: int = 0) -> dict[str, Any]:
    assert cli.main(["sim", *argv, "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_run_json_has_the_promised_fields(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "run", small, "--seed", "3")
    assert tuple(found)[:7] == KEYS and set(found) - set(KEYS) == {"failure", "hops"}
    assert (found["scenario"], found["seed"], found["ok"], found["failure"]) == (small, 3, True, "")
    assert found["metrics"]["received"] == 20 and found["metrics"]["faults"] == {"crash": 1}
    assert found["hops"] >= 20 and re.fullmatch(r"[0-9a-f]{32}", found["digest"])


def test_a_person_reads_the_verdict_first(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sim", "run", small]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith(f"ok: {small}, seed 1: ") and "digest " in captured.out
    assert captured.err == ""


def test_out_keeps_everything_and_the_plan_runs_again(
    small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "deep" / "out"
    first = answer(capsys, "run", small, "--seed", "4", "--out", str(out))
    assert sorted(item.name for item in out.iterdir()) == ["events.ndjson", "plan.json", "result.json", "timeline.svg"]
    kept = json.loads((out / "result.json").read_text())
    assert kept["digest"] == first["digest"]
    assert kept["replay"] == f"holdfast sim run {small} --seed 4"
    notes = [json.loads(line) for line in (out / "events.ndjson").read_text().splitlines()]
    assert all(list(note) == ["at", "place", "kind", "text"] for note in notes)
    assert {"start", "append", "holds", "session", "crash", "heal"} <= {note["kind"] for note in notes}
    assert [note["at"] for note in notes] == sorted(note["at"] for note in notes)
    ElementTree.parse(out / "timeline.svg")
    again = answer(capsys, "replay", str(out / "plan.json"))
    assert (again["seed"], again["digest"]) == (4, first["digest"])
    assert answer(capsys, "replay", str(out / "plan.json"), "--seed", "5")["digest"] != first["digest"]


def test_the_log_changes_no_digest(small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = answer(capsys, "run", small)
    assert answer(capsys, "run", small, "--out", str(tmp_path / "out"))["digest"] == plain["digest"]


def test_a_failure_says_why_and_how_to_see_it_again(
    never: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["sim", "run", never, "--seed", "2", "--out", str(tmp_path / "out")]) == 1
    captured = capsys.readouterr()
    assert captured.out.startswith(f"FAILED: {never}, seed 2")
    why, again = captured.err.splitlines()
    assert why.startswith(f"failed: {never} seed 2: Violation: not done 5 s after") and "20 accepted messages" in why
    assert again == f"replay: holdfast sim run {never} --seed 2"
    found = answer(capsys, *again.removeprefix("replay: holdfast sim ").split(), code=1)
    assert not found["ok"] and found["failure"].startswith("Violation: not done")
    replayed = answer(capsys, "replay", str(tmp_path / "out" / "plan.json"), code=1)
    assert replayed["digest"] == found["digest"] and replayed["seed"] == 2


def test_a_plan_alone_needs_a_seed(small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.json"
    path.write_text(scenario_file.load(small).to_json())
    assert cli.main(["sim", "replay", str(path)]) == 2
    assert "give it with --seed" in capsys.readouterr().err
    assert answer(capsys, "replay", str(path), "--seed", "1")["digest"] == answer(capsys, "run", small)["digest"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("run no-such", "holdfast sim run: invalid scenario 'no-such'; expected a path or one of "),
        ("run /no/such.toml", "holdfast sim run: /no/such.toml cannot be read (No such file or directory)"),
        ("replay /no/such.json", "holdfast sim replay: /no/such.json cannot be read (No such file or directory)"),
        (
            "run line-cut --out /dev/null/x",
            "invalid value '/dev/null/x' for --out (Not a directory); expected a directory",
        ),
    ],
)
def test_mistakes_are_one_line_and_exit_2(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sim", *line.split()]) == 2
    error = capsys.readouterr().err
    assert said in error and len(error.splitlines()) == 1


def test_list_in_a_pipe_is_a_line_each_the_name_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sim", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [line.split()[0] for line in lines]
    assert names == [*dict(scenario_file.names()), *HISTORIES, *SCENARIOS, "swarm", "swarm-routing"]
    assert len(set(names)) == len(names) and all(len(line.split()) > 3 for line in lines)
    assert cli.main(["sim", "list", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [item["name"] for item in told] == names and {item["kind"] for item in told} == {
        "scenario", "history", "traffic", "swarm",
    }  # fmt: skip


def test_list_on_a_terminal_is_a_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "70")
    assert cli.main(["sim", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["NAME", "KIND", "SHOWS"] and all(len(line) <= 70 for line in lines)


def test_a_history_runs_by_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = next(iter(HISTORIES))
    found = answer(capsys, "run", name, "--seed", "1", "--out", str(tmp_path))
    assert (found["scenario"], found["ok"]) == (name, True)
    assert sorted(item.name for item in tmp_path.iterdir()) == ["events.ndjson", "result.json", "timeline.svg"]


class TestSwarm:
    """With a swarm that is told what to find: what is found is the swarm's own test."""

    @pytest.fixture
    def report(self, monkeypatch: pytest.MonkeyPatch) -> swarm.SwarmReport:
        report = swarm.SwarmReport(seeds=3, wall_s=1.5, hops=10, virtual_s=60.0)
        report.coverage.add("faults", {"crash": 2})

        def run_seeds(wanted: Sequence[int], *, which: str, jobs: Any, tell: Any, canary: Any) -> swarm.SwarmReport:
            assert (list(wanted), which, jobs, canary) == ([5, 6, 7], "swarm", 2, None)
            for done in (1, 2, 3):
                tell(done, "Violation: lost" if done == 2 and report.failed else "")
            return report

        monkeypatch.setattr(swarm, "run_seeds", run_seeds)
        return report

    ARGV = ("swarm", "--seeds", "3", "--first-seed", "5", "--jobs", "2")

    def test_all_well(self, report: swarm.SwarmReport, capsys: pytest.CaptureFixture[str]) -> None:
        found = answer(capsys, *self.ARGV)
        assert (found["seeds"], found["failed"], found["wall_s"]) == (3, [], 1.5)
        assert found["coverage"] == {"faults": {"crash": 2}} and "faults" in found["unreached"]
        assert cli.main(["sim", *self.ARGV]) == 0
        captured = capsys.readouterr()
        assert captured.out.startswith("3 seeds, 0 failed") and captured.err == ""

    def test_each_failure_has_its_replay_and_its_plan(
        self, report: swarm.SwarmReport, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        report.failed.append(swarm.Failure(6, "Violation: lost\nand more", "holdfast sim run swarm --seed 6"))
        assert cli.main(["sim", *self.ARGV, "--json", "--out", str(tmp_path)]) == 1
        captured = capsys.readouterr()
        assert json.loads(captured.out)["failed"] == [6]
        assert captured.err.splitlines() == [
            "failed: seed 6: Violation: lost and more",
            "replay: holdfast sim run swarm --seed 6",
            f"written to {tmp_path / 'seed-6'}",
        ]
        kept = scenario_file.read_plan_file(tmp_path / "seed-6" / "plan.json")
        assert (kept.plan, kept.seed) == (swarm.draw_plan(6), 6)
        assert json.loads((tmp_path / "result.json").read_text())["failures"][0]["seed"] == 6
        events = (tmp_path / "seed-6" / "events.ndjson").read_text().splitlines()
        assert {"at", "place", "kind", "text"} == set(json.loads(events[0]))

    def test_what_hung_is_not_run_again(self, report: swarm.SwarmReport, tmp_path: Path) -> None:
        report.failed.append(swarm.Failure(6, "hung: no end", "holdfast sim run swarm --seed 6", ended=False))
        assert cli.main(["sim", *self.ARGV, "--out", str(tmp_path)]) == 1
        assert [item.name for item in (tmp_path / "seed-6").iterdir()] == ["plan.json"]


@pytest.mark.sim
def test_a_failure_is_shrunk_to_a_plan_that_fails_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the same plan however slow the machine is."""
    monkeypatch.setattr(shrink, "SECONDS_MAX", 3_600.0)
    name = "advanced-beyond"
    seed = str(CAUGHT_BY[name][0])
    argv = ["sim", "swarm", "--seeds", "1", "--first-seed", seed, "--jobs", "1", "--canary", name, "--shrink"]
    assert cli.main(argv) == 2
    assert "--shrink" in capsys.readouterr().err
    assert cli.main([*argv, "--out", str(tmp_path)]) == 1
    plan, small = (tmp_path / f"seed-{seed}" / file for file in ("plan.json", "shrunk.json"))
    assert len(small.read_text()) < len(plan.read_text())
    assert cli.main(["sim", "replay", str(small), "--canary", name]) == 1
    assert cli.main(["sim", "replay", str(small)]) == 0


def test_progress_is_shown_on_a_terminal_alone(
    small: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert cli.main(["sim", "run", small]) == 0
    assert "seed 1: 0.0 s of virtual time" in capsys.readouterr().err


def test_a_planted_defect_is_there_during_the_run_alone(
    small: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    there: list[str] = []

    @contextmanager
    def plant(name: str) -> Iterator[None]:
        there.append(name)
        yield
        there.remove(name)

    def execute(*_: Any, **__: Any) -> Result:
        assert there == ["a-name"]
        return Result("x", 1, False, "lost", "0" * 32, 1.0, 0.1, 0, {})

    monkeypatch.setattr(canaries, "plant", plant)
    monkeypatch.setattr("holdfast_lab.runs.run.execute", execute)
    assert cli.main(["sim", "run", small, "--canary", "a-name"]) == 1
    assert capsys.readouterr().err.splitlines()[1].endswith("--seed 1 --canary a-name")
    assert there == []


@pytest.mark.parametrize("argv", [("run", "line-cut"), ("swarm", "--seeds", "1")])
def test_a_defect_that_nobody_knows_is_a_mistake(argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sim", *argv, "--canary", "no-such"]) == 2
    assert "'no-such'" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_swarm_that_is_ended_ends_its_workers_without_a_word(number: signal.Signals) -> None:
    command = (sys.executable, "-m", "holdfast", "sim", "swarm", "--seeds", "50", "--jobs", "2")
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    workers: list[int] = []

    def at_work() -> bool:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        workers[:] = [int(child) for child in children if b"multiprocessing.spawn" in command_line(int(child))]
        return len(workers) == 2

    try:
        async with asyncio.timeout(60):
            await eventually_true(at_work, what="two workers")
            await eventually_true(lambda: all(map(has_set_to_work, workers)), what="that they work")
            process.send_signal(number)
            _, said = await process.communicate()  # the workers have standard error too: none is left then
    finally:
        if process.returncode is None:
            process.kill()
    assert said == b""
    assert process.returncode == (143 if number == signal.SIGTERM else -9)


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def has_set_to_work(pid: int) -> bool:
    """It has loaded what seeds need: half a second of a core."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) >= 60
