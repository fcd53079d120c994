"""Sixteen real nodes: `holdfast fleet` runs them, `$management` is asked what they know.

Rules of this file: from the nodes' outside alone. Links are cut by the request that `holdfast fleet cut` makes, sent
from here, so that its moment is known to the millisecond rather than to an interpreter's start.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

from _peers import listens_at
from _process import TICKS_PER_S

from holdfast.client import Connection, Url, connect
from holdfast.errors import HoldfastError
from holdfast_lab.base.processes import holdfast_command
from holdfast_lab.real import fleet_state

UP_S_MAX = 120.0
DOWN_S_MAX = 60.0
CHANGE_S_MAX = 60.0
ANSWER_S_MAX = 5.0
AGREE_S_MAX = 45.0
POLL_S = 0.05
"""Between two rounds of questions: what is found out by asking is known no better than this."""
LOOK_S = 0.02
"""Between two looks at whether a node is ready."""


class FleetFailed(HoldfastError):
    """The fleet did not do what was asked; the text says what."""


class Disagreement(FleetFailed):
    """After AGREE_S_MAX the nodes still say something else; the text says who and what."""


async def command(*words: str | Path, limit_s: float) -> str:
    """Standard output of `holdfast WORDS`. Raises FleetFailed."""
    said = f"holdfast {' '.join(map(str, words))}"
    process = await asyncio.create_subprocess_exec(
        *holdfast_command(*words),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        out, err = await asyncio.wait_for(process.communicate(), limit_s)
    except BaseException as error:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
        if isinstance(error, TimeoutError):
            raise FleetFailed(f"{said}: no end within {limit_s:g} s") from None
        raise
    if process.returncode != 0:
        raise FleetFailed(f"{said}: exit code {process.returncode}: {err.decode()[-500:]}")
    return out.decode()


class Nodes:
    """Connections to the nodes' `$management`, kept open, so that a question costs one message each way."""

    def __init__(self) -> None:
        self.addresses: dict[str, tuple[str, int]] = {}
        self._connections: dict[str, Connection] = {}

    async def status(self, name: str) -> dict[str, Any] | None:
        """What the node tells of itself; None where it does not answer."""
        try:
            return await asyncio.wait_for(self._ask(name), ANSWER_S_MAX)
        except (HoldfastError, OSError, TimeoutError):
            await self.forget(name)
            return None

    async def _ask(self, name: str) -> dict[str, Any]:
        if name not in self._connections:
            host, port = self.addresses[name]
            self._connections[name] = await connect(Url(host=host, port=port), retry_s=0.0)
        answer = await self._connections[name].manage("STATUS", "holdfast:node", limit_s=ANSWER_S_MAX)
        return answer

    async def all(self, names: Iterable[str]) -> dict[str, dict[str, Any] | None]:
        names = list(names)
        return dict(zip(names, await asyncio.gather(*map(self.status, names)), strict=True))

    async def forget(self, name: str) -> None:
        connection = self._connections.pop(name, None)
        if connection is not None:
            await connection.abort()

    async def close(self) -> None:
        for name in list(self._connections):
            await self.forget(name)


class Fleet:
    """A running fleet. `changes`: the moment before and after each request, on time.monotonic's scale."""

    def __init__(self, file: Path, directory: Path) -> None:
        self.file = file
        self.directory = directory
        self.nodes = Nodes()
        self.ready_at: dict[str, float] = {}
        self.pids: dict[str, int] = {}
        self._started: dict[str, str] = {}
        """By node, `fleet_state.Process.started`."""

    async def up(self, names: Iterable[str], watch: Callable[[str], Any] | None = None) -> None:
        """Returns when `holdfast fleet up` does. `watch(name)` is called as each node says `ready`."""
        starting = asyncio.create_task(
            command("fleet", "up", self.file, "--dir", self.directory, "--json", limit_s=UP_S_MAX)
        )
        waiting = set(names)
        try:
            while waiting and not starting.done():
                await asyncio.sleep(LOOK_S)
                for name in sorted(waiting):
                    self._look(name, waiting, watch)
            state = json.loads(await starting)
        finally:
            starting.cancel()
        for name in sorted(waiting):
            self._look(name, waiting, watch)
        self._note(state)

    def _look(self, name: str, waiting: set[str], watch: Callable[[str], Any] | None) -> None:
        log = self.directory / fleet_state.LOGS / f"{name}.out"
        found = listens_at(log.read_text()) if log.exists() else None
        if found is not None:
            waiting.discard(name)
            self.ready_at[name] = time.monotonic()
            self.nodes.addresses[name] = found
            if watch is not None:
                watch(name)

    def _note(self, state: dict[str, Any]) -> None:
        processes = {node["node"]: node["process"] for node in state["nodes"] if node["process"]}
        self.pids = {name: process["pid"] for name, process in processes.items()}
        self._started = {name: process["started"] for name, process in processes.items()}

    async def request(self, do: str, **more: Any) -> tuple[float, float]:
        """`cut`, `heal`, `stop` or `start`: the moments before it was asked for and after it was done."""
        before = time.monotonic()
        state = await fleet_state.ask(self.directory, {"do": do, **more}, CHANGE_S_MAX)
        after = time.monotonic()
        self._note(state)
        if do == "stop":
            await self.nodes.forget(more["node"])
        return before, after

    async def link_states(self) -> dict[frozenset[str], str]:
        """What `holdfast fleet status` shows: "up" (green) or "down" (black) for each link."""
        told = json.loads(await command("fleet", "status", "--dir", self.directory, "--json", limit_s=ANSWER_S_MAX * 4))
        return {frozenset((link["from"], link["to"])): link["state"] for link in told["links"]}

    def started_at(self, name: str) -> float:
        """When its process was started, on time.monotonic's scale, to a hundredth of a second."""
        ticks = int(self._started[name].rpartition("/")[2])
        return ticks / TICKS_PER_S + time.monotonic() - time.clock_gettime(time.CLOCK_BOOTTIME)

    async def down(self) -> None:
        await self.nodes.close()
        if fleet_state.is_fleet(self.directory):
            await command("fleet", "down", "--dir", self.directory, limit_s=DOWN_S_MAX)


@contextlib.asynccontextmanager
async def running(file: Path, directory: Path, names: Iterable[str]) -> AsyncIterator[Fleet]:
    """A fleet that is up, and is ended however this ends."""
    fleet = Fleet(file, directory)
    try:
        await fleet.up(names)
        yield fleet
    finally:
        await fleet.down()


async def agree(
    nodes: Nodes,
    names: Iterable[str],
    check: Callable[[str, dict[str, Any]], str | None],
    since: float,
    limit_s: float = AGREE_S_MAX,
) -> float:
    """Seconds from `since` until every node of `names` says what `check` finds right (None), and says so again when
    all do. Who is right is not asked meanwhile, so that asking costs little. Raises Disagreement.
    """
    names = list(names)
    wrong = dict.fromkeys(names, "not asked yet")
    right_at: dict[str, float] = {}
    while True:
        for name, told in (await nodes.all(wrong)).items():
            found = "no answer" if told is None else check(name, told)
            if found is None:
                del wrong[name]
                right_at[name] = time.monotonic()
            else:
                wrong[name] = found
        if not wrong:
            last = max(right_at.values())
            again = await nodes.all(names)
            wrong = {
                name: found
                for name, told in again.items()
                if (found := "no answer" if told is None else check(name, told)) is not None
            }
            if not wrong:
                return last - since
        if time.monotonic() - since > limit_s:
            said = "; ".join(f"{name}: {what}" for name, what in sorted(wrong.items())[:4])
            raise Disagreement(f"after {limit_s:g} s {len(wrong)} of {len(names)} nodes say something else: {said}")
        await asyncio.sleep(POLL_S)
