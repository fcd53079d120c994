"""Real processes for the tests: nodes and commands, started as `python -m holdfast …`, ended by their id.

Every wait has a limit, and what a process said on standard error is part of the failure when it passes.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

START_LIMIT_S = 60.0
STOP_LIMIT_S = 45.0


@dataclass(frozen=True)
class Completed:
    """A command that ended: its exit code and all it printed."""

    code: int
    stdout: str
    stderr: str


def summary(stderr: str) -> dict[str, Any]:
    """The object of JSON that a verb prints last on its standard error."""
    told = json.loads(stderr.splitlines()[-1])
    assert isinstance(told, dict)
    return told


@asynccontextmanager
async def killed_at_the_end(process: asyncio.subprocess.Process) -> AsyncIterator[asyncio.subprocess.Process]:
    """Leaving the block kills the process, if it still runs, and waits for its end."""
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


class NodeProcess:
    """A node in a process of its own, listening on a free port of 127.0.0.1.

    `async with await NodeProcess.start(data, name="hub") as node:` or `stop()` in the end; leaving the
    block, or `close()`, kills what still runs. `restart()` starts the same node anew: same data,
    same arguments.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        log: Path | None = None,
        source: Path | None = None,
        directory: Path | None = None,
        program: Path | None = None,
    ) -> None:
        self.arguments = tuple(arguments)
        self._program = program
        """An installed `holdfast` that is run instead of ours."""
        self.source = source
        """Where the package is that is run, if it is another than ours; it may change between two starts."""
        self._log = log
        self._directory = directory
        self.ready: dict[str, str] = {}
        self._stderr: list[str] = []
        self._stdout: list[str] = []
        self._said = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._readers: list[asyncio.Task[None]] = []

    @classmethod
    async def start(
        cls,
        data: Path | None = None,
        *arguments: str,
        config: Path | None = None,
        name: str | None = None,
        listen: str | None = "127.0.0.1:0",
        limit_s: float = START_LIMIT_S,
        log: Path | None = None,
        source: Path | None = None,
    ) -> Self:
        """Starts `holdfast node` and returns once it has printed its ready line.

        `listen=None` leaves the listening address to the configuration. `log`: a file that its standard error goes
        to, instead of to us. Raises AssertionError with what the node said if it ends, or stays silent for `limit_s`.
        """
        command = ["node"]
        if config is not None:
            command.append(str(config))
        for option, value in (("--name", name), ("--listen", listen), ("--data", data)):
            if value is not None:
                command += [option, str(value)]
        node = cls([*command, *arguments], log, source)
        await node.restart(limit_s=limit_s)
        return node

    async def restart(self, *, limit_s: float = START_LIMIT_S, same_port: bool = False) -> None:
        """Starts the process (again); with `same_port`, where it listened before. It must not be running."""
        assert self._process is None or self._process.returncode is not None, "still running"
        arguments = list(self.arguments)
        if same_port and self.ready:
            arguments[arguments.index("--listen") + 1] = self.ready["amqp"]
        self._process = await _spawn(
            arguments, log=self._log, source=self.source, directory=self._directory, program=self._program
        )
        came = asyncio.get_running_loop().create_future()
        self._readers = [
            asyncio.create_task(self._read_stdout(self._process.stdout, came)),
        ]
        if self._process.stderr is not None:
            self._readers.append(asyncio.create_task(self._read_stderr(self._process.stderr)))
        try:
            self.ready = await asyncio.wait_for(came, limit_s)
        except (TimeoutError, EOFError) as error:
            code = self._process.returncode
            await self.close()
            raise AssertionError(
                f"no ready line ({error!r}, exit code {code}): {' '.join(arguments)}\n{self.stderr}"
            ) from None

    async def _read_stdout(self, stream: asyncio.StreamReader | None, came: "asyncio.Future[dict[str, str]]") -> None:
        assert stream is not None
        async for line in stream:
            text = line.decode(errors="replace").rstrip("\n")
            self._stdout.append(text)
            if text.startswith("ready ") and not came.done():
                came.set_result(dict(field.split("=", 1) for field in text.split()[1:]))
        if not came.done():
            came.set_exception(EOFError("standard output ended"))

    async def _read_stderr(self, stream: asyncio.StreamReader) -> None:
        async for line in stream:
            self._stderr.append(line.decode(errors="replace").rstrip("\n"))
            self._said.set()

    async def logged(self, text: str, limit_s: float = STOP_LIMIT_S) -> None:
        """Waits until the node's log has that text."""
        assert self._log is None, "its log is a file"
        async with asyncio.timeout(limit_s):
            while text not in self.stderr:
                self._said.clear()
                await self._said.wait()

    @property
    def name(self) -> str:
        return self.ready["name"]

    @property
    def port(self) -> int:
        return int(self.ready["amqp"].rpartition(":")[2])

    @property
    def url(self) -> str:
        return f"amqp://{self.ready['amqp']}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code (negative: the signal), None while it runs."""
        return None if self._process is None else self._process.returncode

    @property
    def stderr(self) -> str:
        """All that the node has logged so far, over all its starts."""
        if self._log is not None:
            return self._log.read_text(errors="replace") if self._log.exists() else ""
        return "\n".join(self._stderr)

    @property
    def stdout(self) -> str:
        return "\n".join(self._stdout)

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    async def wait(self, limit_s: float = STOP_LIMIT_S) -> int:
        """Waits for the process to end by itself; its exit code."""
        assert self._process is not None
        await asyncio.wait_for(self._process.wait(), limit_s)
        await asyncio.wait_for(asyncio.gather(*self._readers), limit_s)
        assert self._process.returncode is not None
        return self._process.returncode

    async def stop(self, limit_s: float = STOP_LIMIT_S) -> int:
        """SIGTERM, then the exit code; 0 is a clean stop."""
        self.signal(signal.SIGTERM)
        return await self.wait(limit_s)

    async def kill(self) -> None:
        """SIGKILL, as a crash of the process."""
        self.signal(signal.SIGKILL)
        await self.wait()

    async def close(self) -> None:
        """Whatever happened, nothing runs or reads afterwards."""
        if self._process is None:
            return
        if self._process.returncode is None:
            try:
                os.kill(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        await self._process.wait()
        await asyncio.gather(*self._readers, return_exceptions=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def run_holdfast(*arguments: str, stdin: str | None = None, limit_s: float = 60.0) -> Completed:
    """Runs `holdfast ARGUMENTS` to its end; killed, and an AssertionError, after `limit_s`."""
    process = await _spawn(arguments, stdin=stdin is not None)
    try:
        stdout, stderr = await asyncio.wait_for(process.communicate(None if stdin is None else stdin.encode()), limit_s)
    except TimeoutError:
        process.kill()
        stdout, stderr = await process.communicate()
        said = stderr.decode(errors="replace")
        raise AssertionError(f"still running after {limit_s:g} s: holdfast {' '.join(arguments)}\n{said}") from None
    assert process.returncode is not None
    return Completed(process.returncode, stdout.decode(), stderr.decode(errors="replace"))


async def _spawn(
    arguments: Sequence[str],
    *,
    stdin: bool = False,
    log: Path | None = None,
    source: Path | None = None,
    directory: Path | None = None,
    program: Path | None = None,
) -> asyncio.subprocess.Process:
    """`program`: an installed `holdfast`, which runs without our variables for Python."""
    command = [sys.executable, "-m", "holdfast"] if program is None else [str(program)]
    environment = None
    if source is not None:
        environment = {**os.environ, "PYTHONPATH": str(source)}
    elif program is not None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    with nullcontext(asyncio.subprocess.PIPE) if log is None else log.open("ab") as stderr:
        return await asyncio.create_subprocess_exec(
            *command,
            *arguments,
            stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            limit=16 * 1024 * 1024,
            env=environment,
            cwd=directory,
        )
