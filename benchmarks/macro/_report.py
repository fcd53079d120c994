"""The common part of every benchmark's JSON: the machine, the commit, the command, the settings."""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from _peers import REPOSITORY, file_system, require_real_disk


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _git(*words: str) -> str:
    command = ["git", "--no-optional-locks", "-C", str(REPOSITORY), *words]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() if found.returncode == 0 else ""


def commit() -> str:
    """The commit's id, with "+changes" where the sources differ from it; "unknown" outside of git."""
    identity = _git("rev-parse", "HEAD")
    if not identity:
        return "unknown"
    return identity + ("+changes" if _git("status", "--porcelain", "--", "src", "lab", "spark", "benchmarks") else "")


def machine(data: Path) -> dict[str, object]:
    """Cores, kernel, Python, memory, the disk's file system below `data`, and how busy the machine is."""
    model = next(
        (line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
         if line.startswith("model name")), platform.machine(),
    )  # fmt: skip
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_mb": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
        "kernel": platform.release().partition("-")[0],
        "python": platform.python_version(),
        "file_system": file_system(data),
        "load_average_before": os.getloadavg()[0],
    }


def begin(benchmark: str, options: argparse.Namespace) -> tuple[Path, dict[str, object]]:
    """The directory on a disk that `--data` names (made, or the system's temporary one), and the report's `frame`."""
    base: Path = (options.data or Path(tempfile.gettempdir())).resolve()
    base.mkdir(parents=True, exist_ok=True)
    require_real_disk(base)
    settings = {
        key: str(value) if isinstance(value, Path) else value  # JSON has no paths
        for key, value in vars(options).items()
        if key not in ("data", "json_out")
    }
    return base, frame(benchmark, base, settings)


def frame(benchmark: str, data: Path, settings: dict[str, object], seed: int | None = None) -> dict[str, object]:
    """The part of a report that says where it comes from. `seed` None: nothing in the load is random."""
    return {
        "benchmark": benchmark,
        "commit": commit(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(["python", *(os.path.relpath(word, REPOSITORY) if os.path.isabs(word) else word
                                         for word in sys.argv[:1]), *sys.argv[1:]]),
        "seed": seed,
        "settings": settings,
        "machine": machine(data),
    }  # fmt: skip


def emit(report: dict[str, object], json_out: Path | None, absent: Mapping[str, object] | None = None) -> None:
    """Prints the report on standard output, and writes it to a file where one is named. `absent`: the reason for each
    peer that was not measured, of a benchmark that compares peers."""
    if absent is not None:
        report["absent"] = absent
    report["load_average_after"] = os.getloadavg()[0]
    text = json.dumps(report, indent=2)
    print(text)
    if json_out is not None:
        json_out.write_text(text + "\n")
