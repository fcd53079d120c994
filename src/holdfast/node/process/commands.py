"""Commands of triggers as processes of their own (docs/triggers.md).

Rules of this file: no shell. A command has no input, writes to the node's log, and leads a process group, which is
ended after its time-out or with the node.
"""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from holdfast.engine.events import CommandEnded, RunCommand
from holdfast.units import written

END_S: Final = 5.0
"""Seconds that a command has to end after SIGTERM."""


class Commands:
    """The running commands. `ended` is called on the loop for each, except for those that end with the node."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ended: Callable[[CommandEnded], None]) -> None:
        self._loop = loop
        self._ended = ended
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: set[Process] = set()

    def run(self, command: RunCommand) -> None:
        """Starts it; `ended` is called in any case."""
        task = self._loop.create_task(self._run(command))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Sends all commands SIGTERM, and does not wait."""
        for process in self._running:
            _signal(process, signal.SIGTERM)
        for task in self._tasks:
            task.cancel()

    async def _run(self, command: RunCommand) -> None:
        try:
            process = await asyncio.create_subprocess_exec(
                *command.command,
                stdin=DEVNULL,
                stdout=sys.stderr,
                env={**os.environ, **command.environment},
                start_new_session=True,
            )
        except OSError as error:
            self._tell(command, f"{command.command[0]!r} cannot be run ({error.strerror}); look at its command")
            return
        self._running.add(process)
        try:
            problem = await _waited(process, command.timeout_s)
        finally:
            if process.returncode is not None:
                self._running.discard(process)
        self._tell(command, problem)

    def _tell(self, command: RunCommand, problem: str) -> None:
        self._ended(CommandEnded(trigger=command.trigger, problem=problem))


async def _waited(process: Process, timeout_s: float) -> str:
    """How it failed; "" if it succeeded."""
    try:
        code = await asyncio.wait_for(process.wait(), timeout_s)
    except TimeoutError:
        _signal(process, signal.SIGTERM)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), END_S)
        _signal(process, signal.SIGKILL)
        await process.wait()
        return f"its command had not ended after {written(timeout_s)} s, and was ended"
    if code < 0:
        return f"its command was ended by signal {-code}"
    return f"its command ended with {code}" if code else ""


def _signal(process: Process, number: signal.Signals) -> None:
    """Signals the whole group, whose leader may have ended already."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
