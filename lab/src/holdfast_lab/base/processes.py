"""Child processes of a run: started, watched and ended by their ids; none is left behind.

Rules of this file: every child leads a session of its own, so that a terminal's Ctrl-C reaches this process
alone and everything that a child started (a JVM, its workers) is found again by the session's id. What ends
children is synchronous up to the last signal: a second Ctrl-C finds nothing left to interrupt. Linux
(`/proc`); elsewhere the process group stands in for the session.
"""

import asyncio
import ctypes
import json
import os
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final

from holdfast.errors import HoldfastError
from holdfast.signals import MEANINGLESS, ignore

READY_TIMEOUT_S: Final = 30.0
STOP_TIMEOUT_S: Final = 8.0
KILL_ROUNDS_MAX: Final = 100
KILL_ROUND_S: Final = 0.005
"""A killed process needs a moment to be gone; what it started meanwhile is found in the next round."""
OUTPUT_AFTER_END_S: Final = 0.5
"""How long output that is still on its way is waited for once a process has ended."""
LINE_BYTES_MAX: Final = 4 * 1024 * 1024
LINES_KEPT: Final = 1_000
"""Last lines of a child's standard output that stay in memory; all of them are in its file."""


class ChildFailed(HoldfastError):
    """A child ended, or said nothing, where it should have served; names it, its log and the log's last
    line.
    """


class ChildDied(ChildFailed):
    """A child ended with `code`, negative for a signal."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def holdfast_command(*arguments: str | Path | float) -> list[str]:
    """The command line of `holdfast ARGUMENTS` with the interpreter that runs us."""
    return [sys.executable, "-m", "holdfast", *map(str, arguments)]


def parse_ready(line: str) -> dict[str, str] | None:
    """`ready name=ewr amqp=127.0.0.1:5672 …` as a dict of its fields; None for any other line."""
    words = line.split()
    if not words or words[0] != "ready":
        return None
    return dict(word.split("=", 1) for word in words[1:] if "=" in word)


_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None) if sys.platform == "linux" else None


def die_with_parent() -> None:
    """Runs in the child before its work: a process that outlived even a kill -9 of this one would have no parent."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def cancel_on_signals() -> None:
    """SIGTERM and SIGHUP cancel the running task, as Ctrl-C does, so that its children are ended; what means nothing
    does not end us either."""
    ignore(MEANINGLESS, lambda text: print(text, file=sys.stderr))
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)


def first_of(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error that is no group itself, for `except BaseExceptionGroup`, where a task group's user wants that.

    Not for `except*`: Python before 3.11.4 would group what is raised there once more.
    """
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def session_members(session: int) -> list[int]:
    """Ids of the live processes of that session, ascending; zombies left out. Empty where there is no
    `/proc`.
    """
    members = []
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else []:
        if not entry.isdigit():
            continue
        try:
            text = Path("/proc", entry, "stat").read_text()
        except OSError:
            continue
        # The command's name stands in parentheses and may hold spaces and parentheses itself.
        fields = text.rpartition(")")[2].split()
        if fields[0] not in "ZX" and int(fields[3]) == session:
            members.append(int(entry))
    return sorted(members)


def kill_session(session: int) -> None:
    """SIGKILL to every process of the session; those that appear meanwhile too."""
    for _ in range(KILL_ROUNDS_MAX):
        members = session_members(session)
        for pid in members:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if not members:
            return
        time.sleep(KILL_ROUND_S)
    try:
        os.killpg(session, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


class Child:
    """One process and what it says. Made by `Children.start`.

    Its standard output goes to `NAME.out`, its standard error to `NAME.err` in the run's log directory; to
    `NAME-2.out` and so on for the next ones of that name.
    """

    def __init__(
        self, name: str, process: asyncio.subprocess.Process, logs: Path, file_name: str, output: BinaryIO
    ) -> None:
        self.name = name
        self.process = process
        self.pid = process.pid
        self.out_path = logs / f"{file_name}.out"
        self.err_path = logs / f"{file_name}.err"
        self.lines: deque[str] = deque(maxlen=LINES_KEPT)
        self._swept = False
        loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[dict[str, str]] = loop.create_future()
        self._reader = asyncio.create_task(self._read(output), name=f"{name} stdout")

    async def _read(self, output: BinaryIO) -> None:
        # A pipe of our own: asyncio's would hold back the process's end until its last descendant closes it.
        stream = asyncio.StreamReader(limit=LINE_BYTES_MAX)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream), output
        )
        try:
            with self.out_path.open("ab") as out:
                async for line in stream:
                    out.write(line)
                    out.flush()
                    text = line.decode(errors="replace").rstrip("\n")
                    self.lines.append(text)
                    fields = parse_ready(text)
                    if fields is not None and not self._ready.done():
                        self._ready.set_result(fields)
        finally:
            transport.close()
            if not self._ready.done():
                self._ready.cancel()

    @property
    def running(self) -> bool:
        return self.process.returncode is None

    def stderr_text(self) -> str:
        """What the child wrote to standard error so far."""
        return self.err_path.read_text(errors="replace")

    def summary(self) -> dict[str, Any] | None:
        """The JSON line that `send` and `receive` end with on standard error; None where there is none."""
        for line in reversed(self.stderr_text().splitlines()):
            if line.startswith("{"):
                try:
                    value = json.loads(line)
                except ValueError:
                    continue
                if isinstance(value, dict):
                    return value
        return None

    def failure(self, what: str) -> ChildFailed:
        """One line for people: what happened, the log file and its last line."""
        return ChildFailed(self._told(what))

    def died(self, code: int, when: str = "") -> ChildDied:
        """The same for one that ended with `code`."""
        return ChildDied(self._told(f"ended with {code}{when}"), code)

    def _told(self, what: str) -> str:
        last = [line for line in self.stderr_text().splitlines() if line.strip()][-1:] or ["(nothing)"]
        return f"{self.name}: {what}; the last line of {self.err_path} is: {last[0]}"

    async def ready(self, timeout_s: float = READY_TIMEOUT_S) -> dict[str, str]:
        """Waits for the ready line; its fields. Raises ChildFailed."""
        try:
            return await asyncio.wait_for(asyncio.shield(self._ready), timeout_s)
        except TimeoutError:
            raise self.failure(f"no ready line within {timeout_s:g} s") from None
        except asyncio.CancelledError:
            if not self._ready.cancelled():
                raise
            raise self.died(await self.process.wait(), " before its ready line") from None

    async def wait(self, timeout_s: float | None = None) -> int:
        """Waits for the end; the exit code, negative for a signal. Raises asyncio.TimeoutError."""
        code = await asyncio.wait_for(self.process.wait(), timeout_s)
        await asyncio.wait({self._reader}, timeout=OUTPUT_AFTER_END_S)
        return code

    async def success(self, timeout_s: float | None = None) -> None:
        """Waits for exit code 0; raises ChildFailed for any other, or none in time."""
        try:
            code = await self.wait(timeout_s)
        except TimeoutError:
            raise self.failure(f"still runs after {timeout_s:g} s") from None
        if code != 0:
            raise self.died(code)

    def signal(self, number: signal.Signals) -> None:
        """To the process itself; nothing where it has ended."""
        if self.running:
            try:
                self.process.send_signal(number)
            except ProcessLookupError:
                return

    async def kill(self, *, whole_session: bool = False) -> None:
        """SIGKILL, to the process alone or to all that it started, and waits until it is gone."""
        if whole_session:
            kill_session(self.pid)
        self.signal(signal.SIGKILL)
        await self.wait()

    async def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """SIGTERM, then SIGKILL after `timeout_s`; leaves nothing of the session. The exit code."""
        self.signal(signal.SIGTERM)
        try:
            await self.wait(timeout_s)
        except TimeoutError:
            await self.kill()
        self.sweep()
        assert self.process.returncode is not None
        return self.process.returncode

    def forget_output(self) -> None:
        """Stops reading: a descendant that outlived the process may hold its end of the pipe."""
        self._reader.cancel()

    def sweep(self) -> None:
        """Kills what is left of the session. Once: later the id may be another's."""
        if not self._swept:
            self._swept = True
            kill_session(self.pid)


class Children:
    """All children of a run: `async with Children(logs) as children`. Leaving it ends every one, at once."""

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self.all: list[Child] = []
        self._starts: Counter[str] = Counter()

    async def __aenter__(self) -> "Children":
        self.logs.mkdir(parents=True, exist_ok=True)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill_all()
        for child in self.all:
            await child.wait()
            child.forget_output()

    def kill_all(self) -> None:
        """SIGKILL to everything that still runs; returns without waiting."""
        for child in self.all:
            child.sweep()
            child.signal(signal.SIGKILL)

    async def start(
        self, name: str, command: Sequence[str], *, cwd: Path | None = None, more: Mapping[str, str] | None = None
    ) -> Child:
        """Starts `command` (see `holdfast_command`) with no standard input; `more` is added to our environment."""
        for child in self.all:
            if not child.running:
                child.sweep()
        self.all = [child for child in self.all if child.running]
        self._starts[name] += 1
        file_name = name if self._starts[name] == 1 else f"{name}-{self._starts[name]}"
        read_end, write_end = os.pipe()
        output = os.fdopen(read_end, "rb")
        try:
            with (self.logs / f"{file_name}.err").open("wb") as err:
                process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=write_end,
                    stderr=err,
                    cwd=cwd,
                    env=None if more is None else {**os.environ, **more},
                    start_new_session=True,
                    preexec_fn=die_with_parent,
                )
        except BaseException:
            output.close()
            raise
        finally:
            os.close(write_end)
        child = Child(name, process, self.logs, file_name, output)
        self.all.append(child)
        return child

    async def node(self, name: str, *arguments: str | Path) -> tuple[Child, str]:
        """`holdfast node ARGUMENTS`, ready; the child and its HOST:PORT. Raises ChildFailed."""
        return await self.started_node(name, holdfast_command("node", *arguments))

    async def started_node(self, name: str, command: Sequence[str]) -> tuple[Child, str]:
        """The node that `command` runs, ready; the child and its HOST:PORT. Raises ChildFailed."""
        child = await self.start(name, command)
        fields = await child.ready()
        if "amqp" not in fields:
            raise child.failure(f"its ready line has no amqp=: {fields}")
        return child, fields["amqp"].split(",")[0]
