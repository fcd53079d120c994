"""Plants one mistake at a time in a copy of the sources, and runs the tests and the swarm on it.

Rules of this file: a copy belongs to one lane; compiled modules are kept but for the one that is changed. A run that
does not end in time has found the mistake: it hangs.
"""

import compileall
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mutation.operators import Mutant
from mutation.places import MARKS, ROOT, SOURCES, TOOLS

TESTS_LIMIT_S: Final = 120.0
"""Besides four times what the tests take without a mistake."""
SEED_LIMIT_S: Final = 90.0
"""No seed takes a fifth of it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`by`: the first test or seed that fails, empty where none does; `why` in one line."""

    by: str = ""
    why: str = ""


def _given() -> list[str]:
    """Where a second checkout in one environment has its own packages."""
    return [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]


class Copy:
    """The sources of one lane, at a path of their own that comes before the installed ones."""

    def __init__(self, directory: Path) -> None:
        self._root = directory
        self._package = directory / "holdfast"
        shutil.copytree(SOURCES, self._package, ignore=shutil.ignore_patterns("__pycache__"))
        compileall.compile_dir(self._package, quiet=2)
        self.environment = os.environ | {
            "PYTHONPATH": os.pathsep.join((str(directory), str(TOOLS), *_given())),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def rewrite(self, name: str, change: Callable[[str], str]) -> str:
        """Changes the text of the module that has that path in the sources; returns what it was. It is not compiled."""
        path = self._package / Path(name).relative_to(SOURCES.relative_to(ROOT))
        text = path.read_text()
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            compiled.unlink()
        path.write_text(change(text))
        return text

    def add(self, name: str, text: str) -> None:
        """A module beside the copy."""
        (self._root / f"{name}.py").write_text(text)

    @contextmanager
    def planted(self, mutant: Mutant) -> Iterator[None]:
        """The mistake is in the copy within the block."""
        text = self.rewrite(mutant.path, mutant.applied)
        try:
            yield
        finally:
            self.rewrite(mutant.path, lambda _: text)

    def tests(self, tests: Sequence[str], limit_s: float) -> Verdict:
        """The first of these that fails."""
        with tempfile.NamedTemporaryFile("w", suffix=".txt", dir=self._root) as named:
            named.write("\n".join(tests) + "\n")
            named.flush()
            command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--no-header", "--tb=line"]
            code, lines = self._run([*command, "-m", MARKS, f"@{named.name}"], TESTS_LIMIT_S + 4 * limit_s)
        if code is None:
            return Verdict("a test", "hangs")
        if code == 0:
            return Verdict()
        found = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
        by = re.sub(r"^(FAILED|ERROR) ", "", found[0]) if found else "collection"
        return Verdict(by.partition(" - ")[0], by.partition(" - ")[2][:200])

    def swarm(self, seeds: Sequence[int]) -> Verdict:
        """The first of these that fails."""
        command = [sys.executable, "-m", "mutation.seeds", *map(str, seeds)]
        code, lines = self._run(command, SEED_LIMIT_S, each_line=True)
        done = [line for line in lines if re.match(r"\d+ (ok|failed)", line)]
        if done and " failed " in done[-1]:
            seed, _, why = done[-1].partition(" failed ")
            return Verdict(seed, why[:200])
        if code == 0:
            return Verdict()
        seed = str(seeds[len(done)]) if len(done) < len(seeds) else "?"
        return Verdict(seed, "hangs" if code is None else f"the process ends with {code}: {lines[-1:]}"[:200])

    def _run(self, command: list[str], limit_s: float, *, each_line: bool = False) -> tuple[int | None, list[str]]:
        """Exit code (None: ended after `limit_s`, of the whole or since the last line) and what it printed."""
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        late = threading.Event()

        def end() -> None:
            late.set()
            _kill(process)

        timer = threading.Timer(limit_s, end)
        timer.start()
        lines = []
        assert process.stdout is not None
        with process.stdout as output:
            for line in output:
                lines.append(line.rstrip("\n"))
                if each_line:
                    timer.cancel()
                    timer = threading.Timer(limit_s, end)
                    timer.start()
        code = process.wait()
        timer.cancel()
        _kill(process)
        return (None if late.is_set() else code), lines


def _kill(process: subprocess.Popen[str]) -> None:
    """With all that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
