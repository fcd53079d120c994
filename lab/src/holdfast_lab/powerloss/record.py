"""Runs the lives of a store under the shim, and reads the log that they produce.

Rules of this file: the log is trusted only after `prove_complete`: what its records make of an empty directory is,
byte for byte, what the directory holds.
"""

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from holdfast_lab.powerloss.calls import Record, RecordingFailed, read_log
from holdfast_lab.powerloss.disk import Directory, Disk

SHIM: Final = Path(__file__).with_name("shim.c")
COMPILERS: Final = ("cc", "gcc", "clang")
LIFE_LIMIT_S: Final = 120.0
STORE: Final = Path("made", "on", "start", "store")
"""Below the recorded directory: its parents are made by the store too."""
MAKING_CALLS: Final = 22
"""Recorded calls, from the first of a new store, in which a first life is killed: through its making."""
LIFE_CALLS: Final = 160


@dataclass(frozen=True, slots=True)
class LifePlan:
    """Steps of one process, and the number of its recorded call with which it is killed; 0: it ends properly."""

    steps: int
    kill_at: int = 0


def draw_lives(seed: int, *, lives: int, steps: int) -> list[LifePlan]:
    """The first dies while the store is made, some of the others somewhere, the last ends properly."""
    random = Random(f"lives {seed}")
    plans = [LifePlan(steps, random.randint(1, MAKING_CALLS))]
    for _ in range(lives - 2):
        plans.append(LifePlan(steps, random.choice((0, random.randint(1, LIFE_CALLS)))))
    return [*plans, LifePlan(steps)]


def find_compiler() -> str | None:
    """A C compiler of this machine, or None."""
    return next((found for name in COMPILERS if (found := shutil.which(name))), None)


def build_shim(work: Path) -> Path:
    """The shim, compiled into `work`. Raises `RecordingFailed` where there is no compiler, or it fails."""
    compiler = find_compiler()
    if compiler is None:
        raise RecordingFailed(f"no C compiler found; looked for {', '.join(COMPILERS)}")
    shim = work / "shim.so"
    command = [compiler, "-O2", "-Wall", "-shared", "-fPIC", "-U_FORTIFY_SOURCE", "-o", str(shim), str(SHIM), "-ldl"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if answer.returncode != 0:
        raise RecordingFailed(f"{compiler} could not compile {SHIM}: {answer.stderr.strip()}")
    return shim


def record(work: Path, seed: int, plans: list[LifePlan]) -> list[Record]:
    """Run `plans` one after the other on one store in `work/root`. The whole log, proven complete."""
    root, log = work / "root", work / "log"
    root.mkdir(parents=True)
    root = root.resolve()
    log.touch()
    shim = build_shim(work)
    first = 1
    for plan in plans:
        _live(root, log, shim, seed, first, plan)
        first += plan.steps
    records = read_log(log, root)
    prove_complete(records, root)
    return records


def _live(root: Path, log: Path, shim: Path, seed: int, first: int, plan: LifePlan) -> None:
    module = "holdfast_lab.powerloss.workload"
    last = first + plan.steps - 1
    command = [sys.executable, "-m", module, str(root / STORE), str(log), str(seed), str(first), str(last)]
    environment = {
        **os.environ,
        "LD_PRELOAD": str(shim),
        "HOLDFAST_POWERLOSS_ROOT": str(root),
        "HOLDFAST_POWERLOSS_LOG": str(log),
        "HOLDFAST_POWERLOSS_KILL": str(plan.kill_at),
    }
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIFE_LIMIT_S, check=False)
    if answer.returncode not in (0, -signal.SIGKILL if plan.kill_at else 0):
        raise RecordingFailed(f"the recorded process ended with {answer.returncode}: {answer.stderr.strip()[-2000:]}")


def prove_complete(records: list[Record], root: Path) -> None:
    """Raise `RecordingFailed` unless the records, replayed, make what is in `root`: then nothing went unseen."""
    disk = Disk()
    for one in records:
        disk.apply(one)
    said = dict(disk.visible())
    found = {path.relative_to(root).as_posix(): path for path in root.rglob("*")}
    if said.keys() != found.keys():
        raise RecordingFailed(f"the log makes {sorted(said)}, the directory holds {sorted(found)}")
    for name, node in said.items():
        if isinstance(node, Directory) or found[name].is_dir():
            continue
        if node.mapped:
            raise RecordingFailed(f"{name}: written through a mapping, where nobody sees it")
        if node.shown != found[name].read_bytes():
            raise RecordingFailed(f"{name}: the log makes other bytes of it than the process did")
