"""A core that a test scripts, and a store that fails when told, to drive the runtime with."""

import asyncio
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from holdfast.engine.events import BytesReceived, Command, Commit, Event, SendBytes, Stopped, Stopping, TurnEnded
from holdfast.names import HostPort
from holdfast.node.config import NodeSettings
from holdfast.node.process.memory import ResidentMemory
from holdfast.node.process.points import Points
from holdfast.node.process.telemetry import TelemetryFile
from holdfast.node.runtime import NodeRuntime
from holdfast.settings.limits import Limits
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.settings.node import NodeConfig
from holdfast.storage.memory import MemoryStore
from holdfast.storage.port import Batch

LIMIT_S = 30.0

Reaction = Callable[[Event, float], Iterable[Command]]


def echo(event: Event, now: float) -> Iterable[Command]:
    """A reaction: what a connection says is said back to it."""
    if isinstance(event, BytesReceived):
        yield SendBytes(connection=event.connection, chunks=[event.data])


def commit(number: int, batch: Batch | None = None) -> Commit:
    """Of one message, unless `batch` is given."""
    return Commit(number=number, batch=Batch(appends=[(1, number, b"body")]) if batch is None else batch)


class FakeCore:
    """Keeps every event; answers by `reaction`, and Stopping by Stopped unless `stops` is False."""

    def __init__(self, reaction: Reaction = lambda event, now: (), *, stops: bool = True) -> None:
        self.events: list[Event] = []
        self.deadline: float | None = None
        self.reaction = reaction
        self._stops = stops
        self._arrived = asyncio.Event()

    def handle(self, event: Event, now: float) -> list[Command]:
        self.events.append(event)
        self._arrived.set()
        commands = list(self.reaction(event, now))
        if self._stops and isinstance(event, Stopping):
            commands.append(Stopped())
        return commands

    def next_deadline(self) -> float | None:
        return self.deadline

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if type(event) is kind]

    async def until(self, kind: type, count: int = 1) -> Any:
        """The `count`-th event of that kind."""
        async with asyncio.timeout(LIMIT_S):
            while len(found := self.of(kind)) < count:
                self._arrived.clear()
                await self._arrived.wait()
        return found[count - 1]


class FailingStore(MemoryStore):
    """Raises `error` instead of committing, and counts what it was asked."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.error = error
        self.asked = 0

    def commit(self, batch: Batch) -> None:
        self.asked += 1
        if self.error is not None:
            raise self.error
        super().commit(batch)


class HangingStore(MemoryStore):
    """Whose first commit does not come back before `go_on`."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Event()
        self.go_on = threading.Event()

    def commit(self, batch: Batch) -> None:
        self.entered.set()
        self.go_on.wait()
        super().commit(batch)


def neighbour(port: int) -> NeighbourConfig:
    return NeighbourConfig(name="hub", remote=f"127.0.0.1:{port}")


def settings(
    tmp_path: Path, *, neighbours: tuple[NeighbourConfig, ...] = (), connections_max: int = 100, reserved: int = 64
) -> NodeSettings:
    core = NodeConfig(
        name="ewr",
        neighbours=neighbours,
        limits=Limits(connections_max=connections_max, reserved_connections_max=reserved),
    )
    return NodeSettings(core=core, listen=(HostPort("127.0.0.1", 0),), data=tmp_path / "ewr.holdfast")


class Running:
    """A runtime in a task; `async with Running(core, settings) as running`."""

    def __init__(
        self,
        core: FakeCore,
        given: NodeSettings,
        *,
        store: MemoryStore | None = None,
        telemetry: TelemetryFile | None = None,
        points: Points | None = None,
    ) -> None:
        self.core = core
        self.store = MemoryStore() if store is None else store
        self._served: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        self.runtime = NodeRuntime(
            given,
            core,
            self.store,
            memory=ResidentMemory(),
            telemetry=telemetry,
            points=points,
        )
        self.task = asyncio.ensure_future(self.runtime.run(self._served.set_result))

    async def __aenter__(self) -> "Running":
        async with asyncio.timeout(LIMIT_S):
            await asyncio.wait([self._served, self.task], return_when=asyncio.FIRST_COMPLETED)
            self.served = self._served.result()
            await self.core.until(TurnEnded)
        self.port = int(self.served[0].rpartition(":")[2])
        return self

    async def __aexit__(self, *_: object) -> None:
        self.runtime.stop()
        await self.code()

    async def code(self) -> int:
        """What `run` returned."""
        async with asyncio.timeout(2 * LIMIT_S):
            return await self.task

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with asyncio.timeout(LIMIT_S):
            return await asyncio.open_connection("127.0.0.1", self.port)


class Once:
    """A reaction: answers the first event of kind `at` with `command`."""

    def __init__(self, command: Command, at: type) -> None:
        self._left: list[Command] = [command]
        self._at = at

    def __call__(self, event: Event, now: float) -> Iterable[Command]:
        if isinstance(event, self._at):
            commands, self._left = self._left, []
            return commands
        return ()


async def read(reader: asyncio.StreamReader, count: int) -> bytes:
    async with asyncio.timeout(LIMIT_S):
        return await reader.readexactly(count)
