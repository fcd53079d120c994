"""Runs tests or seeds with a mistake, in a fork of a process that has everything loaded already.

Rules of this file: a fork gets one mistake (`live.py`), runs until something fails, and ends; so a mistake costs what
its tests cost, and no imports. Each test and each seed has a time of its own, of the processor above all: a machine
that does other things beside this one finds no mistake. One that does not end in its time has found the mistake.

`Server` is the process that forks, seen from the tool; `serve` is its inside.
"""

import json
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any, Final

from mutation.live import Functions
from mutation.operators import Mutant
from mutation.places import ROOT, python_path

PROCESSOR_S: Final = 20.0
"""Besides five times what a test or a seed takes without a mistake."""
WAITING: Final = 8
"""A fork that waits may take so many times its processor time."""

Run = Callable[[str], str]
"""Runs the test or the seed of that name; returns how it failed, or nothing."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`by`: the first test or seed that fails, empty where none does; `why` in one line."""

    by: str = ""
    why: str = ""


class Server:
    """A process that waits for mistakes. `command` ends in a call of `serve`."""

    def __init__(self, command: Sequence[str]) -> None:
        requests, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": python_path(), "HOLDFAST_FORKS": f"{requests} {answers}"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(requests, answers),
        )
        os.close(requests)
        os.close(answers)
        self._lines = os.fdopen(self._answers)

    def run(self, mutant: Mutant, items: dict[str, float]) -> Verdict:
        """The first of these that fails with the mistake; each takes about so many seconds without it."""
        request = json.dumps({"mutant": asdict(mutant), "items": items}).encode()
        view = memoryview(b"%d\n%s" % (len(request), request))
        while view:
            view = view[os.write(self._requests, view) :]
        line = self._lines.readline()
        if not line:
            raise SystemExit(f"the process that forks has ended with {self._process.wait()}")
        return Verdict(**json.loads(line))

    def close(self) -> None:
        os.close(self._requests)
        self._process.wait()
        self._lines.close()


# ------------------------------------------------------------------------------------------------ inside the server


def serve(run: Run) -> None:
    """Answers one request after the other, until there are no more. Loads nothing itself: what the forks need is
    loaded before.
    """
    incoming, outgoing = map(int, os.environ.pop("HOLDFAST_FORKS").split())
    functions = Functions()
    with os.fdopen(incoming, "rb") as requests, os.fdopen(outgoing, "w") as answers:
        while size := requests.readline():
            request: dict[str, Any] = json.loads(requests.read(int(size)))
            fork = Fork(functions, run, Mutant(**request["mutant"]), request["items"])
            answers.write(json.dumps(asdict(fork.verdict())) + "\n")
            answers.flush()


class Fork:
    """Runs the items, one after the other, with the mistake."""

    def __init__(self, functions: Functions, run: Run, mutant: Mutant, items: dict[str, float]) -> None:
        self._items = items
        self._current = next(iter(items))
        self._told, writing = os.pipe()
        self._process = os.fork()
        if self._process:
            os.close(writing)
            return
        code = 1
        try:
            os.setsid()
            os.close(self._told)
            with os.fdopen(writing, "w", buffering=1) as told:
                told.writelines(_inside(functions, run, mutant, items))
            code = 0
        finally:
            os._exit(code)

    def verdict(self) -> Verdict:
        """When it ends, or does not in its time."""
        found = None
        for line in self._lines():
            word, _, rest = line.partition(" ")
            match word:
                case "begin":
                    self._current = rest
                case "failed":
                    found = Verdict(self._current, rest[:200])
                case "passed":
                    found = Verdict()
                case _:
                    raise SystemExit(f"the mistake cannot be planted: {rest}")
        os.close(self._told)
        try:
            os.killpg(self._process, signal.SIGKILL)  # with all that it started
        except ProcessLookupError:
            pass
        code = os.waitstatus_to_exitcode(os.waitpid(self._process, 0)[1])
        return found or Verdict(self._current, f"does not end, or ends with {code}")

    def _lines(self) -> Iterator[str]:
        held = b""
        while select.select([self._told], [], [], WAITING * _limit_s(self._items[self._current]))[0]:
            read = os.read(self._told, 65_536)
            if not read:
                return
            *whole, held = (held + read).split(b"\n")
            yield from (line.decode(errors="replace") for line in whole)


def _inside(functions: Functions, run: Run, mutant: Mutant, items: dict[str, float]) -> Iterator[str]:
    """What a fork tells."""
    try:
        functions.plant(mutant)
    except LookupError as error:
        yield f"absent {error}\n"
        return
    for name, took_s in items.items():
        yield f"begin {name}\n"
        spent = resource.getrusage(resource.RUSAGE_SELF)
        ends_s = ceil(spent.ru_utime + spent.ru_stime + _limit_s(took_s))
        resource.setrlimit(resource.RLIMIT_CPU, (ends_s, resource.RLIM_INFINITY))
        failure = run(name)
        if failure:
            yield f"failed {' '.join(failure.split())}\n"
            return
    yield "passed\n"


def _limit_s(took_s: float) -> float:
    return PROCESSOR_S + 5 * took_s
