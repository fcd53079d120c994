"""A node whose file system is frozen, or whose device hangs, under traffic over a mesh: it lives on, and nobody loses.

Rules of this file: real nodes; of one of them everything lies on the disk that stops (store, telemetry, log). For root
with loop devices; skipped elsewhere.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import holdfast.client as holdfast
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from holdfast_lab.real.configs import Neighbour, NodeFile
from support.eventually import eventually_async, eventually_true
from support.mounts import disk
from support.process import NodeProcess, run_holdfast

pytestmark = pytest.mark.crash

LIMIT_S = 120.0
HOLD_S = 5.0
"""Of the sessions: a busy machine's pauses are no silence."""
STOPPED_S = 2.2 * HOLD_S
"""How long the disk does not answer at the least: more than two hold times of the sessions."""
STALL_S = 1.0
ASKED_S = 5.0
"""What every answer of a store comes within, with much to spare."""
EVERY_S = 0.01

TOPOLOGY = """
[[node]]
name = "field"
[[node]]
name = "near"
[[node]]
name = "far"
[[node]]
name = "hub"
roles = ["super"]
[[link]]
kind = "serial"
from = "field"
to = "near"
cost = 1.0
[[link]]
kind = "serial"
from = "near"
to = "hub"
cost = 1.0
[[link]]
kind = "serial"
from = "field"
to = "far"
cost = 3.0
[[link]]
kind = "serial"
from = "far"
to = "hub"
cost = 3.0
"""
"""Links that are probed each second: a busy machine answers within three."""
ORDERED = QueueConfig(name="ordered", order="strict")
LOOSE = QueueConfig(name="loose", order="none")


class Mesh:
    """Four nodes, `near` on the shortest path from `field` to `hub`, with all that it writes on `place`."""

    def __init__(self, work: Path, place: Path) -> None:
        self.work = work
        self.place = place
        self.nodes: dict[str, NodeProcess] = {}
        self.links: dict[str, holdfast.Connection] = {}
        (work / "topology.toml").write_text(TOPOLOGY)

    async def start(self, name: str, dials: tuple[str, ...], dialled: tuple[str, ...], *queues: QueueConfig) -> None:
        neighbours = [
            Neighbour(name=other, remote=self.nodes[other].ready["amqp"], hold_time_s=HOLD_S) for other in dials
        ]
        file = NodeFile(
            name=name,
            role=None,
            data=(self.place if name == "near" else self.work) / name,
            neighbours=[*neighbours, *(Neighbour(name=other, hold_time_s=HOLD_S) for other in dialled)],
            queues=queues,
            limits=Limits(commit_stall_s=STALL_S),
            topology=self.work / "topology.toml",
        )
        path = file.write(self.work)
        log = None
        if name == "near":
            log = self.place / "log"
            with path.open("a") as text:
                text.write(f'[telemetry]\nfile = "{self.place}/telemetry"\nmessages = true\ninterval_s = 0.2\n')
        self.nodes[name] = await NodeProcess.start(config=path, listen=None, log=log)

    async def status(self, name: str) -> dict[str, Any]:
        return await self.links[name].manage("STATUS", "holdfast:node")

    async def until(self, what: str, name: str, holds: Callable[[dict[str, Any]], bool]) -> None:
        """Asks `name` for its status until that holds."""
        await eventually_async(
            lambda: self.status(name), holds, what=f"{name}: {what}", limit_s=LIMIT_S, step_s=EVERY_S
        )


@asynccontextmanager
async def mesh(work: Path, place: Path) -> AsyncIterator[Mesh]:
    """All sessions up; a connection to each node, which must not break."""
    made = Mesh(work, place)
    async with AsyncExitStack() as stack:
        await made.start("hub", (), ("near", "far"), ORDERED, LOOSE)
        stack.push_async_callback(made.nodes["hub"].close)
        for name, queues in (("near", ("local",)), ("far", ("own",))):
            await made.start(name, ("hub",), ("field",), *(QueueConfig(name=queue) for queue in queues))
            stack.push_async_callback(made.nodes[name].close)
        await made.start("field", ("near", "far"), ())
        stack.push_async_callback(made.nodes["field"].close)
        for name, node in made.nodes.items():
            made.links[name] = await holdfast.connect(node.url)
            stack.push_async_callback(made.links[name].abort)
        await made.until("the way leads through near", "field", lambda told: next_hop(told) == "near")
        for name in made.nodes:
            await made.until(
                "sessions", name, lambda told: all(of["state"] == "Established" for of in told["sessions"])
            )
        yield made


def next_hop(told: dict[str, Any]) -> str | None:
    return next((route["next_hop"] for route in told["routes"] if route["destination"] == "hub"), None)


def session(told: dict[str, Any], neighbour: str) -> dict[str, Any]:
    return next(of for of in told["sessions"] if of["neighbour"] == neighbour)


class Feed:
    """Numbers from 0, one after another, until `end`; how many were sent and accepted so far."""

    def __init__(self, tasks: asyncio.TaskGroup, sender: holdfast.Sender) -> None:
        self._sender = sender
        self._ends = asyncio.Event()
        self.sent = self.accepted = 0
        self._task = tasks.create_task(self._run())

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as under_way:
            while not self._ends.is_set():
                future = await self._sender.submit(b"%d" % self.sent)
                self.sent += 1
                under_way.create_task(self._see(future))
                await asyncio.sleep(EVERY_S)

    async def _see(self, future: "asyncio.Future[holdfast.Outcome]") -> None:
        outcome = await future
        assert isinstance(outcome, holdfast.Accepted), outcome
        self.accepted += 1

    async def end(self) -> int:
        """Waits until all is accepted; how many."""
        self._ends.set()
        async with asyncio.timeout(LIMIT_S):
            await asyncio.shield(self._task)
        return self.sent


class Take:
    """Whatever comes, in its order, and accepted."""

    def __init__(self, tasks: asyncio.TaskGroup, receiver: holdfast.Receiver) -> None:
        self.numbers: list[int] = []
        self._came = asyncio.Event()
        self._task = tasks.create_task(self._run(receiver))

    async def _run(self, receiver: holdfast.Receiver) -> None:
        async for delivery in receiver:
            self.numbers.append(int(delivery.message.body_bytes()))
            self._came.set()
            await delivery.accept()

    async def until(self, count: int) -> list[int]:
        async with asyncio.timeout(LIMIT_S):
            while len(self.numbers) < count:
                self._came.clear()
                await self._came.wait()
        return self.numbers

    def end(self) -> None:
        self._task.cancel()


class Traffic:
    """Through the node on the disk (`ordered`, `loose`), at it (`local`), and beside it (`own`, which nobody takes)."""

    def __init__(self, feeds: dict[str, Feed], takes: dict[str, Take]) -> None:
        self.feeds = feeds
        self.takes = takes

    @classmethod
    async def begin(cls, tasks: asyncio.TaskGroup, links: dict[str, holdfast.Connection]) -> "Traffic":
        where = {"ordered@hub": "field", "loose@hub": "field", "local": "near", "own": "far"}
        feeds = {
            address.partition("@")[0]: Feed(tasks, await links[node].sender(address)) for address, node in where.items()
        }
        takes = {
            name: Take(tasks, await links[node].receiver(name))
            for name, node in (("ordered", "hub"), ("loose", "hub"), ("local", "near"))
        }
        for take in takes.values():
            await take.until(20)
        return cls(feeds, takes)

    async def passes_round_it(self) -> None:
        """What is sent from now on comes by the other way, and other nodes notice nothing."""
        loose, own = self.feeds["loose"].sent + 20, self.feeds["own"].accepted + 20
        await eventually_true(
            lambda: max(self.takes["loose"].numbers) >= loose and self.feeds["own"].accepted >= own,
            what="messages pass round it",
            limit_s=LIMIT_S,
            step_s=EVERY_S,
        )

    async def end(self) -> None:
        """All is accepted, and comes once, in order where there is one."""
        counts = {name: await feed.end() for name, feed in self.feeds.items()}
        for name, take in self.takes.items():
            numbers = await take.until(counts[name])
            assert sorted(numbers) == list(range(counts[name])), name
            assert name == "loose" or numbers == sorted(numbers), name
            take.end()


async def stops(here: Mesh, traffic: Traffic, before: int) -> None:
    """While the disk does not answer, for the time after the `before` that it did not before."""
    began = asyncio.get_running_loop().time()
    await here.until("near says so", "near", lambda told: told["disk"]["state"] == "stalled")
    for other in ("field", "hub"):
        await here.until("its neighbour knows it", other, lambda told: session(told, "near")["disk_stalled"])
    await here.until("the way leads round it", "field", lambda told: next_hop(told) == "far")
    said = await run_holdfast("status", "--url", here.nodes["near"].url)
    assert said.code == 0 and "no answer to a commit" in said.stdout, said
    accepted = traffic.feeds["local"].accepted
    await traffic.passes_round_it()
    while asyncio.get_running_loop().time() < began + STOPPED_S:
        told = await here.status("near")
        assert told["disk"]["state"] == "stalled" and told["disk"]["stalls"] == before + 1
        await asyncio.sleep(10 * EVERY_S)
    assert traffic.feeds["local"].accepted == accepted  # nothing is accepted that is not stored


async def test_a_node_on_a_disk_that_stops_lives_on_and_nothing_is_lost(tmp_path: Path) -> None:
    with disk(tmp_path) as stopping:
        async with mesh(tmp_path, stopping.path) as here, asyncio.timeout(4 * LIMIT_S), asyncio.TaskGroup() as tasks:
            traffic = await Traffic.begin(tasks, here.links)
            for before, how in enumerate(("frozen", "hung")):
                with stopping.stopped(how):
                    await stops(here, traffic, before)
                await here.until("near goes on", "near", lambda told: told["disk"]["state"] == "ok")
                await here.until("the way leads through it again", "field", lambda told: next_hop(told) == "near")
            await traffic.end()
            for name, link in here.links.items():
                told = await here.status(name)
                for of in told["sessions"]:
                    assert of["lost"] == 0 and of["established"] == 1, (name, of)
                assert told["disk"]["stalls"] == (2 if name == "near" else 0)
                assert link.reconnects == 0, name
            await here.links["near"].close()
            assert await here.nodes["near"].stop() == 0
            log = here.nodes["near"].stderr
            assert log.count("the disk has not answered a commit for 1 s") == 2, log
            assert log.count("the disk answers again") == 2
            assert log.count("WARNING") == 2 and "ERROR" not in log, log


ASKING = """
import sys
from pathlib import Path
from threading import Thread
from holdfast.engine.port import Batch
from holdfast.storage.lmdb import LmdbStore
from holdfast.units import MIB
store = LmdbStore(Path(sys.argv[1]), ahead_bytes=4 * MIB)
store.commit(Batch(appends=[(1, number, bytes(1_000)) for number in range(1, 100)], pieces=[(1, 0, b"piece")]))
writer = Thread(target=store.commit, args=(Batch(appends=[(1, 100, b"x")]),))
print("ready", flush=True)
for line in sys.stdin:
    word = line.strip()
    if word == "write":
        writer.start()
    elif word == "written":
        writer.join()
        assert store.get(1, 100) == b"x"
        store.close()
    elif word == "read":
        assert len(store.read(1, 1, count_max=1_000, bytes_max=1 << 30)) == 99
        assert store.get(1, 1) == bytes(1_000) and store.piece(1, 0) == b"piece" and not list(store.table("node"))
    elif word == "measure":
        store._room._ahead_bytes += 8 * MIB  # the file is to grow
        store._room._measure_at = 0.0
        assert store.room_bytes() > 0 and store.bytes_on_disk() > 0
    print(word, writer.is_alive(), flush=True)
"""


async def test_what_the_loop_asks_of_a_store_does_not_wait_for_a_frozen_disk(tmp_path: Path) -> None:
    """Each answer comes while the disk is stopped, with a commit that hangs beside it too."""
    pipe = asyncio.subprocess.PIPE
    with disk(tmp_path) as stopping:
        asked = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", ASKING, str(stopping.path / "data")), stdin=pipe, stdout=pipe
        )
        assert asked.stdin is not None and asked.stdout is not None
        try:
            assert await asked.stdout.readline() == b"ready\n"
            with stopping.stopped("frozen"):
                for word in ("read", "measure", "read", "write", "read", "measure", "read"):
                    asked.stdin.write(f"{word}\n".encode())
                    async with asyncio.timeout(ASKED_S):
                        answer = await asked.stdout.readline()
                assert answer == b"read True\n"
            assert (await asked.communicate(b"written\n"))[0] == b"written False\n"
        finally:
            if asked.returncode is None:
                asked.kill()
            await asked.wait()
