"""Qpid Proton in C and C++: Debian's example programs, and `proton_c/peer.c` and `peer.cpp`, compiled for the tests.

Rules of this file: what is compiled lies in a temporary directory of the test run, each program once, whichever of its
processes needs it first; where the compiler, the library's headers or the examples lack, the reason is the tests'
reason to skip.
"""

import fcntl
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from interop.peer_process import PeerProcess

OURS: Final = Path(__file__).parent / "proton_c"
EXAMPLES: Final = Path("/usr/share/proton/examples")
COMPILE_LIMIT_S: Final = 120.0
"""What a compiler may take on a machine that is busy otherwise; alone it takes 1 to 2 s."""

_COMPILERS: Final = {
    ".c": ("gcc", "-std=gnu11", "-lqpid-proton", "Debian: gcc libqpid-proton11-dev"),
    ".cpp": ("g++", "-std=c++17", "-lqpid-proton-cpp", "Debian: g++ libqpid-proton-cpp12-dev"),
}
_HEADERS: Final = {".c": "proton/proactor.h", ".cpp": "proton/container.hpp"}


class Lacking(Exception):
    """What this machine lacks to build a program."""


class Workshop:
    """Compiles programs into `folder`, which must exist and may be that of other processes too."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._built: dict[Path, Path] = {}
        self._checked: dict[str, str | None] = {}

    def start(self, name: str, *arguments: object) -> PeerProcess:
        """Starts one of Debian's examples ("c/send.c") or of our programs ("peer.c"), compiled. Raises Lacking."""
        return PeerProcess([str(self.build(name)), *map(str, arguments)])

    def build(self, name: str) -> Path:
        """That program, compiled once, which takes many seconds on a busy machine. Raises Lacking."""
        if "/" not in name:
            return self._build(OURS / name)
        source = EXAMPLES / name
        if not source.is_file():
            raise Lacking(f"no {source} (Debian: libqpid-proton11-dev-examples)")
        return self._build(source)

    def _build(self, source: Path) -> Path:
        if source in self._built:
            return self._built[source]
        kind = source.suffix
        if kind not in self._checked:
            self._checked[kind] = self._why_not(kind)
        if (reason := self._checked[kind]) is not None:
            raise Lacking(reason)
        program = self._folder / f"{source.stem}{kind.replace('.', '-')}"
        compiler, standard, library, _ = _COMPILERS[kind]
        with self._alone(program.name):
            if not program.exists():
                made = program.with_suffix(".made")
                command = [compiler, standard, "-o", str(made), str(source), library, "-pthread"]
                done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=COMPILE_LIMIT_S)
                assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
                made.rename(program)
        self._built[source] = program
        return program

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        """No other process is in such a block of this name meanwhile."""
        with (self._folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _why_not(self, kind: str) -> str | None:
        """Compiles a program that only includes the library's header; None where that works."""
        compiler, standard, library, packages = _COMPILERS[kind]
        if shutil.which(compiler) is None:
            return f"no {compiler} here ({packages})"
        trial = self._folder / f"trial-{kind[1:]}{kind}"
        with self._alone(trial.name):
            if not trial.with_suffix(".out").exists():
                trial.write_text(f"#include <{_HEADERS[kind]}>\nint main() {{ return 0; }}\n")
                command = [compiler, standard, "-o", str(trial.with_suffix(".out")), str(trial), library]
                subprocess.run(command, check=False, capture_output=True, timeout=COMPILE_LIMIT_S)
            there = trial.with_suffix(".out").exists()
        return None if there else f"Qpid Proton's headers for {kind[1:]} are not here ({packages})"
