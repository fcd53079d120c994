"""Which tests and which seeds reach a mistake; measured once for a state of sources and tests, and kept.

Rules of this file: what is measured is a run of a copy with probes (`probes.py`), at about the speed of the sources. A
test that fails in it is left out, and named: it looks at the sources' text, or has an hour or a machine of its own.
"""

import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from mutation import probes
from mutation.copied import Copy
from mutation.operators import Mutant
from mutation.places import MARKS, ROOT


def state(mutants: Sequence[Mutant]) -> str:
    """Of all sources, tests and drawn mistakes, as one word."""
    digest = hashlib.sha256("\n".join(map(str, mutants)).encode())
    for directory in ("src", "lab/src", "spark/src", "tests"):
        for path in sorted((ROOT / directory).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


class Reached:
    """Over the drawn mistakes; `failed`: tests that fail without any."""

    def __init__(self, directory: Path, mutants: Sequence[Mutant], seeds: int, jobs: int) -> None:
        self._directory = directory
        self._numbers = {mutant: number for number, mutant in enumerate(mutants)}
        directory.mkdir(parents=True, exist_ok=True)
        known, now = directory / "state", state(mutants)
        if not known.exists() or known.read_text() != now:
            for path in directory.glob("*.json"):
                path.unlink()
            known.write_text(now)
        tests_at, seeds_at = directory / "tests.json", directory / f"seeds-{seeds}.json"
        if not (tests_at.exists() and seeds_at.exists()):
            with tempfile.TemporaryDirectory(prefix="holdfast-probes-") as made:
                copy = Copy(Path(made))
                probes.plant(copy, mutants)
                if not tests_at.exists():
                    parts = _parts(jobs)
                    found = self._each(jobs, lambda number: self._tests(copy, number, parts[number]))
                    tests_at.write_text(json.dumps(found))
                if not seeds_at.exists():
                    shares = [range(1 + first, seeds + 1, jobs) for first in range(jobs)]
                    found = self._each(jobs, lambda number: self._seeds(copy, number, shares[number]))
                    seeds_at.write_text(json.dumps(found))
        tests: dict[str, dict[str, Any]] = json.loads(tests_at.read_text())
        self.failed = [name for name, told in tests.items() if not told["passed"]]
        self._tests_at = {name: told for name, told in tests.items() if told["passed"]}
        self._seeds_at: dict[str, dict[str, Any]] = json.loads(seeds_at.read_text())

    def tests_of(self, mutant: Mutant) -> dict[str, float]:
        """The tests that come to it, the quickest first, each with its seconds without a mistake."""
        return _coming(self._tests_at, self._numbers[mutant])

    def seeds_of(self, mutant: Mutant) -> dict[str, float]:
        """The seeds that come to it, as `tests_of`."""
        return _coming(self._seeds_at, self._numbers[mutant])

    # ------------------------------------------------------------------------------------------------ measuring

    def _each(self, jobs: int, measure: Any) -> dict[str, Any]:
        """What the shares found, as one."""
        with ThreadPoolExecutor(jobs) as threads:
            return {name: told for found in threads.map(measure, range(jobs)) for name, told in found.items()}

    def _tests(self, copy: Copy, number: int, paths: Sequence[str]) -> dict[str, Any]:
        found = self._directory / f"tests-{number}"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "mutation.contexts", "-p", "no:cacheprovider"]
        environment = copy.environment | {"HOLDFAST_TEST_HITS": str(found)}
        return self._measured([*command, "-m", MARKS, *paths], environment, found)

    def _seeds(self, copy: Copy, number: int, seeds: Sequence[int]) -> dict[str, Any]:
        found = self._directory / f"swarm-{number}"
        command = [sys.executable, "-m", "mutation.seeds", "--hits", str(found), *map(str, seeds)]
        told = self._measured(command, copy.environment, found)
        if failed := {seed: row["failure"] for seed, row in told.items() if row["failure"]}:
            raise SystemExit(f"seeds fail before any mistake is planted: {failed}")
        return told

    def _measured(self, command: list[str], environment: dict[str, str], found: Path) -> dict[str, Any]:
        """What the command wrote to `found`."""
        found.unlink(missing_ok=True)
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode not in (0, 1) or not found.exists():  # 1: something failed, and was measured all the same
            raise SystemExit(f"nothing was measured:\n{done.stdout[-2_000:]}")
        told: dict[str, Any] = json.loads(found.read_text())
        return told


def _coming(found: dict[str, dict[str, Any]], number: int) -> dict[str, float]:
    coming = sorted((told["seconds"], name) for name, told in found.items() if number in told["hits"])
    return {name: seconds for seconds, name in coming}


def _parts(jobs: int) -> list[list[str]]:
    """Test modules, in shares of about the same size."""
    modules = sorted((ROOT / "tests").rglob("test_*.py"), key=lambda path: -path.stat().st_size)
    parts: list[list[str]] = [[] for _ in range(jobs)]
    for number, path in enumerate(modules):
        parts[number % jobs].append(str(path.relative_to(ROOT)))
    return parts
