"""Runs the checks stage by stage, each in a process group of its own under a time limit, and adds them up.

    .venv/bin/python tools/stages.py [STAGE …]

Without a name all stages run, in order; one that fails does not keep the later ones from running. The last
line is `total: N passed, N failed, N skipped`, over all tests (the static checks count one each). Exit code 1
if anything failed or a stage ran no test. SIGTERM and Ctrl-C end the stage's processes first, then this one.
"""

import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.prefix, "bin")
TESTS = ROOT / "tests"
REPORTS = ROOT / ".checks"

# A hung stage is ended at this many times its budget: the budget is for a quiet machine, and none is.
LIMIT_BY_BUDGET = 4

# Told to end, pytest takes down what its tests started, some of it in sessions of its own; then the group is killed.
END_LIMIT_S = 10.0

# Workers of a stage that shares itself out: one for each core, but no more than this, because each may hold nodes and
# a JVM.
WORKERS_MAX = 4
SHARED_OUT = ("--numprocesses=auto", f"--maxprocesses={WORKERS_MAX}")
# A worker that is done early takes what another has left.
ONE_BY_ONE = "worksteal"
# Tests that share something dear, as Spark's session, are of one group (`xdist_group`) and go to one worker, first.
BY_GROUP = "loadgroup"


@dataclass(frozen=True)
class Stage:
    """`marks` selects tests; None for the static checks. `budget_s` is what it should take, in seconds, on two cores.
    `named`: the mark that a test module names or has no test of this stage. `shared_out` over several processes, in
    this way, or None for one process.
    """

    name: str
    budget_s: int
    marks: str | None
    named: str | None = None
    shared_out: str | None = ONE_BY_ONE

    def modules(self) -> list[str]:
        """What pytest is to collect: to import every module costs each worker some seconds."""
        if self.named is None:
            return [TESTS.name]
        naming = (path for path in sorted(TESTS.rglob("test_*.py")) if f"mark.{self.named}" in path.read_text())
        return [str(path.relative_to(ROOT)) for path in naming]


STAGES = (
    Stage("static", 60, None),
    Stage("unit", 180, "not interop and not spark and not crash and not sim and not fuzz and not slow"),
    Stage("fuzz", 60, "fuzz and not slow", "fuzz", shared_out=None),
    Stage("interop", 120, "interop and not slow", "interop"),
    Stage("spark", 180, "spark and not interop and not crash and not slow", "spark", BY_GROUP),
    Stage("crash", 120, "crash and not interop and not slow", "crash"),
    Stage("sim", 180, "sim and not interop and not spark and not crash and not slow", "sim"),
)

STATIC = (
    ("ruff", "check"),
    ("ruff", "format", "--check"),
    ("mypy",),
    ("lint-imports",),
)


@dataclass
class Tally:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def add(self, other: "Tally") -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped


class Ended(BaseException):
    """This process was told to end, by the signal of this number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def end(number: int, _frame: FrameType | None) -> None:
    raise Ended(number)


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """What the checks run in. Compiled modules are kept, even where `given` forbids it: the tests start some hundred
    processes, and each would compile Holdfast anew, which takes longer than all else it does.
    """
    return {name: value for name, value in given.items() if name != "PYTHONDONTWRITEBYTECODE"}


def run(command: list[str], limit_s: float) -> int:
    """The exit code of `command`; one that outlives `limit_s` is killed with all it started, and is 124."""
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment(os.environ), stdin=subprocess.DEVNULL, start_new_session=True
    )
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        print(f"stopped after {limit_s:.0f} s: {' '.join(command)}", flush=True)
        return 124
    except Ended:
        # Being a session of its own it heard nothing; a second signal ends the patience.
        try:
            os.killpg(process.pid, signal.SIGINT)
            process.wait(END_LIMIT_S)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass
        raise
    finally:
        # What a finished command left behind goes too, the group being its own.
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def static(limit_s: float) -> Tally:
    tally = Tally()
    for command in STATIC:
        print(f"$ {' '.join(command)}", flush=True)
        if run([str(BIN / command[0]), *command[1:]], limit_s) == 0:
            tally.passed += 1
        else:
            tally.failed += 1
    return tally


def tests(stage: Stage, limit_s: float) -> Tally:
    """The stage's tests. An exit code that the report does not explain (no test, a kill) is one failure."""
    report = REPORTS / f"{stage.name}.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-m", str(stage.marks), f"--junit-xml={report}"]
    command += stage.modules()
    if stage.shared_out is not None:
        command += [*SHARED_OUT, f"--dist={stage.shared_out}"]
    code = run(command, limit_s)
    tally = Tally()
    if report.is_file():
        for suite in ElementTree.parse(report).getroot().iter("testsuite"):
            failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            skipped = int(suite.get("skipped", 0))
            tally.add(Tally(int(suite.get("tests", 0)) - failed - skipped, failed, skipped))
    if code != 0 and tally.failed == 0:
        tally.failed = 1
    return tally


def main(names: list[str]) -> int:
    known = {stage.name: stage for stage in STAGES}
    if unknown := [name for name in names if name not in known]:
        print(f"no such stage: {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    REPORTS.mkdir(exist_ok=True)
    total = Tally()
    lines = []
    for stage in [known[name] for name in names] or STAGES:
        print(f"\n== {stage.name} ==", flush=True)
        started_s = time.monotonic()
        limit_s = float(stage.budget_s * LIMIT_BY_BUDGET)
        tally = static(limit_s) if stage.marks is None else tests(stage, limit_s)
        total.add(tally)
        took_s = time.monotonic() - started_s
        lines.append(
            f"{stage.name:8} {tally.passed:5} passed {tally.failed:4} failed {tally.skipped:4} skipped"
            f" {took_s:6.1f} s of {stage.budget_s} s"
        )
    print("\n" + "\n".join(lines))
    print(f"total: {total.passed} passed, {total.failed} failed, {total.skipped} skipped", flush=True)
    return 1 if total.failed else 0


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as a shell's background has it
            signal.signal(number, end)
    try:
        sys.exit(main(sys.argv[1:]))
    except Ended as ended:
        print(f"ended by {signal.Signals(ended.number).name}", flush=True)
        sys.exit(128 + ended.number)
