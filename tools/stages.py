"""Runs the checks stage by stage, each in a process group of its own under a time limit, and adds them up.

    .venv/bin/python tools/stages.py [STAGE …]

Without a name all stages run; one that fails does not keep the others from running. Stages whose tests wait for much of
their time run beside stages that compute (ROUNDS); what such a stage prints appears when it has ended. A skip that
nothing about this machine explains counts as a failure; so does, where all stages ran, a test that docs/GUARANTEES.md
names and no stage had (tools/verdicts.py). The last line is `total: N passed, N failed, N skipped`, over all tests (the
static checks count one each). Exit code 1 if anything failed or a stage ran no test. SIGTERM and Ctrl-C end the stages'
processes first, then this one.
"""

import os
import re
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import IO

import turns
import verdicts

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.prefix, "bin")
TESTS = ROOT / "tests"
GUARANTEES = ROOT / "docs" / "GUARANTEES.md"
TURNS = TESTS / "turns.txt"
REPORTS = ROOT / ".checks"

# A hung stage is ended at this many times its budget: the budget is for a quiet machine, and none is.
LIMIT_BY_BUDGET = 6

# Told to end, pytest takes down what its tests started, some of it in sessions of its own; then the group is killed.
END_LIMIT_S = 10.0

# Workers of a stage that shares itself out: one for each core, but no more than this, because each may hold nodes and
# a JVM. Where tests wait for other processes most of the time there are half as many again.
WORKERS_MAX = 4
WAITING_MORE = 1.5
# A worker that is done early takes what another has left.
ONE_BY_ONE = "worksteal"
# Tests of these folders take the time as an argument and start no process: they can wait for the machine.
WITHOUT_CLOCK = ("tests/amqp", "tests/core", "tests/federation", "tests/pacing", "tests/routing")
# How far a stage that can wait gives way to those beside it (nice(1)): about a ninth of their share of a core.
GIVES_WAY = 10

# Tests that share something dear, as Spark's session, are of one group (`xdist_group`) and go to one worker, first.
BY_GROUP = "loadgroup"


@dataclass(frozen=True)
class Stage:
    """`marks` selects tests; None for the static checks. `budget_s` is what it should take, in seconds, on two cores.
    `named`: the mark that a test module names or has no test of this stage; `folders`: where its tests are, `without`:
    where they are not. `shared_out` over several processes, in this way, or None for one process. `waits`: its tests
    wait for other processes most of the time; `gives_way`: they need no time but the machine's that is left over.
    """

    name: str
    budget_s: int
    marks: str | None
    named: str | None = None
    shared_out: str | None = ONE_BY_ONE
    waits: bool = False
    gives_way: bool = False
    folders: tuple[str, ...] = (TESTS.name,)
    without: tuple[str, ...] = ()

    def workers(self) -> int:
        """Processes that share it."""
        cores = len(os.sched_getaffinity(0))
        return min(WORKERS_MAX, int(cores * WAITING_MORE) if self.waits else cores)

    def collected(self) -> list[str]:
        """What pytest is to collect: to import every module costs each worker some seconds."""
        if self.named is None:
            marked = (path for path in sorted(TESTS.rglob("test_*.py")) if MARKED.search(path.read_text()))
            left_out = [*self.without, *(str(path.relative_to(ROOT)) for path in marked)]
            return [*self.folders, *(f"--ignore={place}" for place in left_out)]
        naming = (path for path in sorted(TESTS.rglob("test_*.py")) if f"mark.{self.named}" in path.read_text())
        return [str(path.relative_to(ROOT)) for path in naming]


MARKED = re.compile(r"^pytestmark = (?:\[\s+)?[^\n]*mark\.(?:interop|spark|crash|fuzz|sim)\b", re.MULTILINE)
"""A module that has one of these marks whole: no test of it is without."""

UNMARKED = "not interop and not spark and not crash and not sim and not fuzz and not slow"

STAGES = (
    Stage("static", 90, None, gives_way=True),
    Stage("unit", 240, UNMARKED, waits=True, without=WITHOUT_CLOCK),
    Stage("core", 240, UNMARKED, folders=WITHOUT_CLOCK, gives_way=True),
    Stage("fuzz", 30, "fuzz and not slow", "fuzz", shared_out=None, gives_way=True),
    Stage("spark", 180, "spark and not interop and not crash and not slow", "spark", BY_GROUP),
    Stage("interop", 60, "interop and not slow", "interop", waits=True),
    Stage("crash", 120, "crash and not interop and not slow", "crash", waits=True),
    Stage("sim", 180, "sim and not interop and not spark and not crash and not slow", "sim", gives_way=True),
)

# Rounds follow each other. The lanes of a round run at the same time, the stages of a lane one after the other. The
# first lane's stages wait for other processes for much of their time; those of the second lane compute, and take the
# time that they leave. Spark gives each Python process that it starts 10 s, which no setting changes: beside its stage
# only stages that give way run.
ROUNDS = ((("spark", "crash", "unit"), ("static", "core", "fuzz", "interop", "sim")),)

STATIC = (
    ("python", "tools/collected.py"),  # first: the stages that follow collect in a third of the time
    ("ruff", "check"),
    ("ruff", "format", "--check"),
    ("mypy",),
    ("lint-imports",),
    ("python", "tools/reference.py"),
)


@dataclass
class Tally:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    processor_s: float = 0.0
    """What the tests took of a processor, with the processes that they waited for (tests/support/processor.py)."""

    def add(self, other: "Tally") -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.processor_s += other.processor_s


class Ended(BaseException):
    """This process got the signal of this number, and ends."""

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


class Running:
    """The processes that run now, each the leader of a session of its own; any thread starts one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._ending = False

    def start(self, command: list[str], output: IO[bytes] | None) -> subprocess.Popen[bytes] | None:
        """The process, whose output goes to the file; None once all are to end."""
        with self._lock:
            if self._ending:
                return None
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment(os.environ),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=None if output is None else subprocess.STDOUT,
                start_new_session=True,
            )
            self._processes.append(process)
            return process

    def finish(self, process: subprocess.Popen[bytes]) -> None:
        """Ends the process, and what it left behind, the group being its own."""
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        with self._lock:
            self._processes.remove(process)

    def end(self) -> None:
        """Ends all of them, and prevents new ones. Being sessions of their own they did not get the signal."""
        with self._lock:
            self._ending = True
            processes = list(self._processes)
        for process in processes:
            try:
                os.killpg(process.pid, signal.SIGINT)
            except ProcessLookupError:
                pass
        until_s = time.monotonic() + END_LIMIT_S
        try:
            for process in processes:
                process.wait(max(0.0, until_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            pass
        finally:  # a second signal ends the patience
            for process in processes:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)


RUNNING = Running()


def run(command: list[str], limit_s: float, output: IO[bytes] | None = None) -> int:
    """The exit code of `command`; one that outlives `limit_s` is killed with all it started, and is 124."""
    process = RUNNING.start(command, output)
    if process is None:
        return 1
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        print(f"stopped after {limit_s:.0f} s: {' '.join(command)}", flush=True)
        return 124
    finally:
        RUNNING.finish(process)


def nicely(stage: Stage) -> list[str]:
    """The prefix of a command of this stage."""
    return ["nice", "-n", str(GIVES_WAY)] if stage.gives_way else []


def static(stage: Stage, limit_s: float, output: IO[bytes] | None) -> Tally:
    tally = Tally()
    for command in STATIC:
        print(f"$ {' '.join(command)}", flush=True)
        if run([*nicely(stage), str(BIN / command[0]), *command[1:]], limit_s, output) == 0:
            tally.passed += 1
        else:
            tally.failed += 1
    return tally


def tests(stage: Stage, limit_s: float, output: IO[bytes] | None) -> Tally:
    """The stage's tests. An exit code that the report does not explain (no test, a kill) is one failure."""
    report = REPORTS / f"{stage.name}.xml"
    report.unlink(missing_ok=True)
    command = [*nicely(stage), sys.executable, "-m", "pytest", "-q", "--turns", "-m", str(stage.marks)]
    command += [f"--junit-xml={report}"]
    command += stage.collected()
    if stage.shared_out is not None:
        command += [f"--numprocesses={stage.workers()}", f"--dist={stage.shared_out}"]
    code = run(command, limit_s, output)
    tally = Tally()
    if report.is_file():
        root = ElementTree.parse(report).getroot()
        tally.processor_s = sum(
            float(found.get("value", 0)) for found in root.iterfind(".//property[@name='processor_s']")
        )
        for suite in root.iter("testsuite"):
            failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            skipped = int(suite.get("skipped", 0))
            tally.add(Tally(int(suite.get("tests", 0)) - failed - skipped, failed, skipped))
    if code != 0 and tally.failed == 0:
        tally.failed = 1
    return tally


def run_stage(stage: Stage, *, alone: bool) -> tuple[Tally, float]:
    """What the stage counted, and its seconds. Beside others it prints all at once, at its end."""
    started_s = time.monotonic()
    limit_s = float(stage.budget_s * LIMIT_BY_BUDGET)
    run_kind = partial(static if stage.marks is None else tests, stage)
    if alone:
        print(f"\n== {stage.name} ==", flush=True)
        tally = run_kind(limit_s, None)
    else:
        printed = REPORTS / f"{stage.name}.txt"
        with printed.open("wb") as output:
            tally = run_kind(limit_s, output)
        print(f"\n== {stage.name} ==\n{printed.read_text(errors='replace')}", flush=True)
    return tally, time.monotonic() - started_s


def run_lane(lane: list[Stage], *, alone: bool) -> list[tuple[Stage, Tally, float]]:
    return [(stage, *run_stage(stage, alone=alone)) for stage in lane]


def rounds(names: Iterable[str]) -> list[list[list[Stage]]]:
    """The rounds with the named stages alone."""
    known = {stage.name: stage for stage in STAGES}
    wanted = set(names)
    chosen = [[[known[name] for name in lane if name in wanted] for lane in round_] for round_ in ROUNDS]
    return [lanes for round_ in chosen if (lanes := [lane for lane in round_ if lane])]


def judge(stages: list[Stage], total: Tally, *, whole: bool) -> None:
    """Prints what `verdicts` finds in the reports of these stages, and counts it in `total`; `whole`: these are all."""
    ran = verdicts.Ran.of(REPORTS / f"{stage.name}.xml" for stage in stages if stage.marks is not None)
    for line in verdicts.unexpected_skips(ran):
        print(f"skipped for no reason of this machine: {line}")
        total.add(Tally(failed=1, skipped=-1))
    if not whole:
        return
    found = verdicts.promises(GUARANTEES.read_text(encoding="utf-8"), ran, turns.listed(TURNS))
    for outcome, lines in (("failed", found.failed), ("skipped", found.skipped), ("not run", found.not_run)):
        for line in lines:
            print(f"promise not held, {outcome}: {line}")
    total.failed += len(found.not_run)
    print(f"promises: {found.held} of {found.count} held in this run")


def main(names: list[str]) -> int:
    known = [stage.name for stage in STAGES]
    if unknown := [name for name in names if name not in known]:
        print(f"no such stage: {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    REPORTS.mkdir(exist_ok=True)
    done: list[tuple[Stage, Tally, float]] = []
    started_s = time.monotonic()
    with ThreadPoolExecutor(max_workers=max(map(len, ROUNDS))) as threads:
        try:
            for lanes in rounds(names or known):
                alone = len(lanes) == 1
                for lane in [threads.submit(run_lane, lane, alone=alone) for lane in lanes]:
                    done += lane.result()
        except Ended:
            RUNNING.end()
            raise
    total = Tally()
    print()
    for stage, tally, took_s in done:
        total.add(tally)
        print(
            f"{stage.name:8} {tally.passed:5} passed {tally.failed:4} failed {tally.skipped:4} skipped"
            f" {took_s:6.1f} s of {stage.budget_s} s"
            + (f", tests' processor time {tally.processor_s:6.1f} s" if tally.processor_s else "")
        )
    print(f"all      {time.monotonic() - started_s:.1f} s, tests' processor time {total.processor_s:.1f} s")
    judge([stage for stage, _, _ in done], total, whole=len(done) == len(STAGES))
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
