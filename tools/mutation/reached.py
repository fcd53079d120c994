"""Which tests and which seeds reach a line, measured once for a commit, and kept in a directory.

Rules of this file: lines are those of the sources as they are now; a directory of another state is measured anew.
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from coverage import CoverageData

from mutation.places import MARKS, ROOT, SOURCES, TOOLS

Lines = dict[str, dict[int, list[str]]]
"""By file (from the root) and line: who reached it."""


def state() -> str:
    """Of all sources and tests, as one word."""
    digest = hashlib.sha256()
    for directory in ("src", "tests"):
        for path in sorted((ROOT / directory).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


class Reached:
    """`tests` and `seeds`: what reaches a line; `times`: seconds of each test."""

    def __init__(self, directory: Path, seeds: int, jobs: int) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        known = directory / "state"
        if not known.exists() or known.read_text() != state():
            for path in directory.glob("*.json"):
                path.unlink()
            known.write_text(state())
        self.tests, self.times = self._unit(jobs)
        self.seeds = self._swarm(seeds, jobs)

    def tests_of(self, path: str, line: int) -> list[str]:
        """The tests that reach the line, the quickest first."""
        return sorted(self.tests.get(path, {}).get(line, []), key=lambda test: self.times.get(test, 0.0))

    def seeds_of(self, path: str, line: int) -> list[int]:
        """The seeds that reach the line, ascending."""
        return sorted(int(seed) for seed in self.seeds.get(path, {}).get(line, []))

    # ------------------------------------------------------------------------------------------------ measuring

    def _unit(self, jobs: int) -> tuple[Lines, dict[str, float]]:
        lines_at, times_at = self._directory / "tests.json", self._directory / "times.json"
        if not lines_at.exists():
            parts = _parts(jobs)
            with ThreadPoolExecutor(jobs) as threads:
                list(threads.map(self._unit_part, range(len(parts)), parts))
            times: dict[str, float] = {}
            for number in range(len(parts)):
                times |= json.loads((self._directory / f"times-{number}").read_text())
            _write(lines_at, _lines(self._directory / f"unit-{number}" for number in range(len(parts))))
            times_at.write_text(json.dumps(times))
        return _read(lines_at), json.loads(times_at.read_text())

    def _unit_part(self, number: int, paths: Sequence[str]) -> None:
        environment = os.environ | {
            "PYTHONPATH": str(TOOLS),
            "HOLDFAST_TEST_TIMES": str(self._directory / f"times-{number}"),
        }
        data = self._directory / f"unit-{number}"
        data.unlink(missing_ok=True)
        command = [sys.executable, "-m", "coverage", "run", f"--data-file={data}", "--rcfile=/dev/null"]
        command += ["--source=holdfast", "-m", "pytest", "-q", "-p", "mutation.contexts", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, "-m", MARKS, *paths], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"the tests fail before any mistake is planted:\n{done.stdout[-2_000:]}")

    def _swarm(self, seeds: int, jobs: int) -> Lines:
        found = self._directory / f"seeds-{seeds}.json"
        if not found.exists():
            shares = [list(range(1 + first, seeds + 1, jobs)) for first in range(jobs)]
            with ThreadPoolExecutor(jobs) as threads:
                list(threads.map(self._swarm_part, range(jobs), shares))
            _write(found, _lines(self._directory / f"swarm-{number}" for number in range(jobs)))
        return _read(found)

    def _swarm_part(self, number: int, seeds: Sequence[int]) -> None:
        data = self._directory / f"swarm-{number}"
        data.unlink(missing_ok=True)
        command = [sys.executable, "-m", "mutation.seeds", "--coverage", str(data), *map(str, seeds)]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(TOOLS)},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        if " failed " in done.stdout:
            raise SystemExit(f"seeds fail before any mistake is planted:\n{done.stdout[-2_000:]}")


def _parts(jobs: int) -> list[list[str]]:
    """Test modules, in shares of about the same size."""
    modules = sorted((ROOT / "tests").rglob("test_*.py"), key=lambda path: -path.stat().st_size)
    parts: list[list[str]] = [[] for _ in range(jobs)]
    for number, path in enumerate(modules):
        parts[number % jobs].append(str(path.relative_to(ROOT)))
    return parts


def _lines(files: Iterable[Path]) -> Lines:
    found: Lines = {}
    for file in files:
        data = CoverageData(str(file))
        data.read()
        for name in data.measured_files():
            path = Path(name)
            if not path.is_relative_to(SOURCES):
                continue
            lines = found.setdefault(str(path.relative_to(ROOT)), {})
            for line, contexts in data.contexts_by_lineno(name).items():
                lines.setdefault(line, []).extend(context for context in contexts if context)
    return found


def _write(path: Path, lines: Lines) -> None:
    """Names once, lines by their numbers: some thousand tests reach some lines."""
    names = sorted({name for by_line in lines.values() for found in by_line.values() for name in found})
    numbers = {name: number for number, name in enumerate(names)}
    told = {
        file: {line: [numbers[name] for name in found] for line, found in by_line.items()}
        for file, by_line in lines.items()
    }
    path.write_text(json.dumps({"names": names, "lines": told}))


def _read(path: Path) -> Lines:
    told = json.loads(path.read_text())
    names = told["names"]
    return {
        file: {int(line): [names[number] for number in found] for line, found in by_line.items()}
        for file, by_line in told["lines"].items()
    }
