"""The real bed: a topology's nodes as processes, each link through a proxy that can be cut, clients on asyncio's loop.

Rules of this file: ports are the system's and stay a node's own over restarts; a node that ends without a request fails
the run. What a workload may ask is `holdfast_lab/workloads/bed.py`.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, ClassVar, Final

from holdfast.client import Connection, Delivery, connect
from holdfast.errors import ConfigError
from holdfast_lab.base.client_history import History, Violation, key_in
from holdfast_lab.base.notes import Note
from holdfast_lab.base.processes import Children
from holdfast_lab.base.seed_tree import SeedTree
from holdfast_lab.plan.networks import Link, Topology
from holdfast_lab.real.configs import Neighbour, NodeFile
from holdfast_lab.real.proxy import Proxy
from holdfast_lab.real.real_node import RealNode

CLIENT_RETRY_S: Final = 86_400.0 * 365
ASK_S: Final = 10.0
STEP_S: Final = 0.02
"""Between two looks at whether a run is done."""


class TestBed:
    """`async with TestBed(topology, directory, seed) as bed`: all nodes are ready. Leaving ends everything.

    A link has the delay and the rate of its `there` both ways; jitter and losses are the machine's own.
    """

    __test__: ClassVar[bool] = False
    """pytest takes every class of such a name for tests of its own."""

    def __init__(self, topology: Topology, directory: Path, seed: int) -> None:
        topology.validate()
        for link in topology.links:
            for shape in link.shapes:
                if shape.loss:
                    raise ConfigError(
                        f"invalid value {shape.loss} for link {link.one} to {link.other} loss; expected 0 on real nodes"
                    )
        self.topology = topology
        self.directory = directory
        self.seeds = SeedTree(seed)
        self.history = History()
        self.notes: list[Note] = []
        self.real_nodes: dict[str, RealNode] = {}
        self.proxies: dict[tuple[str, str], Proxy] = {}
        """By link, (who dials, who is dialled)."""
        self.tasks: dict[asyncio.Task[None], None] = {}
        self.background: dict[asyncio.Task[None], None] = {}
        self.failure: BaseException | None = None
        self._clients: list[Connection] = []
        self._asking: dict[str, Connection] = {}
        self._stack = AsyncExitStack()
        self._began = time.monotonic()

    # ------------------------------------------------------------------------------------------------ life

    async def __aenter__(self) -> "TestBed":
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def _start(self) -> None:
        children = await self._stack.enter_async_context(Children(self.directory / "logs"))
        for link in self.topology.links:
            proxy = Proxy("127.0.0.1", 1)  # leads nowhere until the node that is dialled has its port
            self.proxies[link.one, link.other] = await self._stack.enter_async_context(proxy)
            proxy.delay_s, proxy.rate = link.there.delay_s, link.there.rate
        for name in self.topology.nodes:
            config = self._config(name).write(self.directory)
            self.real_nodes[name] = RealNode(name, children, config, self.fail)
        await asyncio.gather(*(self.start_node(name) for name in self.topology.nodes))
        self._began = time.monotonic()
        self.notes = [Note(0.0, name, "start", "life 1") for name in self.topology.nodes]

    def _config(self, name: str) -> NodeFile:
        remotes = {other: proxy.address for (one, other), proxy in self.proxies.items() if one == name}
        told = self.topology.config(name, remotes)
        return NodeFile(
            name=name,
            role=told.roles[0],
            data=self.directory / f"{name}.holdfast",
            neighbours=[
                Neighbour(
                    name=found.name,
                    remote=found.remote,
                    keepalive_s=found.keepalive_s,
                    hold_time_s=found.hold_time_s,
                    hosts=found.hosts,
                )
                for found in told.neighbours
            ],
            queues=told.queues,
            routes=told.forwarding,
            create_queues=told.create_queues,
            limits=told.limits,
        )

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks = [*self.tasks, *self.background]
        for task in tasks:
            task.cancel()
        for node in self.real_nodes.values():
            node.forget()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(client.abort() for client in (*self._clients, *self._asking.values())))
        await self._stack.aclose()

    async def start_node(self, name: str) -> None:
        """Starts it, or starts it again on its store; links that lead to it do so from now on."""
        node = self.real_nodes[name]
        await node.start()
        for (_, other), proxy in self.proxies.items():
            if other == name:
                proxy.retarget(node.address)
        self.note(name, "start", f"life {node.lives}")

    def link(self, one: str, other: str) -> Link:
        """The link between the two, in either order. Raises ConfigError."""
        for link in self.topology.links:
            if {link.one, link.other} == {one, other}:
                return link
        raise ConfigError(f"the topology has no link {one} to {other}")

    def proxy(self, one: str, other: str) -> Proxy:
        """What stands on that link; its client is the link's `one`."""
        link = self.link(one, other)
        return self.proxies[link.one, link.other]

    # ------------------------------------------------------------------------------------------------ for workloads

    @property
    def nodes(self) -> Sequence[str]:
        return self.topology.nodes

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def wall_ms(self, node: str) -> int:
        return int(time.time() * 1000)

    def stream(self, name: str) -> Random:
        return self.seeds.stream(f"workload/{name}")

    async def connect(self, node: str, client: str, *, vhost: str = "") -> Connection:
        connection = await self._connect(node, client, vhost)
        self._clients.append(connection)
        return connection

    async def _connect(self, node: str, client: str, vhost: str = "") -> Connection:
        return await connect(
            f"amqp://{self.real_nodes[node].address}/{vhost}",
            container_id=client,
            retry_s=CLIENT_RETRY_S,
            rng=self.seeds.stream(f"client/{client}"),
            wait=False,
        )

    async def dial(
        self, node: str, client: str, protocol: Callable[[], asyncio.Protocol], *, honest: bool = False
    ) -> asyncio.Transport:
        host, _, port = self.real_nodes[node].address.rpartition(":")
        transport, _ = await asyncio.get_running_loop().create_connection(protocol, host, int(port))
        return transport

    def disk_of(self, node: str, delivery: Delivery) -> int:
        return self.history.disks_changed[node]  # no fault here takes a disk away

    def spawn(self, work: Coroutine[Any, Any, None], name: str, *, background: bool = False) -> None:
        task = asyncio.create_task(work, name=name)
        (self.background if background else self.tasks)[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self.tasks.pop(task, None)
        self.background.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.fail(error)

    # ------------------------------------------------------------------------------------------------ running

    @property
    def elapsed_s(self) -> float:
        """Since all nodes were ready."""
        return time.monotonic() - self._began

    def note(self, place: str, kind: str, text: str = "") -> None:
        """Adds to the log of what happened."""
        self.notes.append(Note(self.elapsed_s, place, kind, text))

    def fail(self, error: BaseException) -> None:
        """The run has its verdict."""
        self.failure = self.failure or error

    def finished(self) -> bool:
        """All that the workloads planned is done, and all that was accepted has been shown."""
        return not self.tasks and self.history.settled

    def at_work(self) -> list[str]:
        """Names of the programs that are not done."""
        return [task.get_name() for task in self.tasks]

    async def wait(self, seconds: float, done: Callable[[], bool]) -> bool:
        """Lets time pass, up to `seconds`, or until `done()`. Raises what failed meanwhile."""
        until = time.monotonic() + seconds
        while True:
            if self.failure is not None:
                raise self.failure
            if done():
                return True
            if time.monotonic() >= until:
                return False
            await asyncio.sleep(STEP_S)

    # ------------------------------------------------------------------------------------------------ asking

    async def status(self, node: str) -> dict[str, Any]:
        """The node's STATUS. Raises ConnectionFailed."""
        return await (await self._asker(node)).manage("STATUS", "holdfast:node", limit_s=ASK_S)

    async def _asker(self, node: str) -> Connection:
        found = self._asking.get(node)
        if found is None:
            found = self._asking[node] = await self._connect(node, f"bed-{node}")
        return found

    async def at_rest(self, limit_s: float) -> int:
        """Waits until nothing is on its way; how many messages the transmission queues have passed on.

        Raises Violation where something stays on its way, is left in a queue a second time, or came out of order.
        """
        until = time.monotonic() + limit_s
        while True:
            told = {name: (await self.status(name))["queues"] for name in self.nodes}
            left = [
                f"{item['messages']} messages and {item['tombstones']} tombstones lie in {item['name']} at {node}"
                for node, queues in told.items()
                for item in queues
                if int(item["messages"]) + int(item["tombstones"])
                and (item["name"].startswith("@") or item["name"] == "$waiting")
            ]
            if not left:
                break
            if time.monotonic() >= until:
                raise Violation(f"after {limit_s:g} s of rest {left[0]}")
            await asyncio.sleep(STEP_S)
        for node, queues in told.items():
            for item in queues:
                if int(item["messages"]) and not item["name"].startswith("$"):
                    await self._look_into(node, item["name"], int(item["next_sequence"]))
        self._judge()
        return sum(int(item["out_total"]) for queues in told.values() for item in queues if item["name"][0] == "@")

    async def _look_into(self, node: str, queue: str, end: int) -> None:
        """What is left in a queue is held against what was shown: a second copy would lie there unseen."""
        receiver = await (await self._asker(node)).receiver(queue, start_sequence=0, end_sequence=end)
        async for delivery in receiver:
            key = key_in(delivery.payload)
            if key is not None and key in self.history.received:
                place = f"{queue} at {node}"
                self.history.see(key, place, delivery.sequence)

    def _judge(self) -> None:
        """Each key lies at one sequence of its place, and each producer's keys in the order of their numbers."""
        history = self.history
        for key, (place, sequence) in history.doubled.items():
            first_place, first = history.places[key]
            if place == first_place and key not in history.may_repeat:
                raise Violation(f"{key.decode()} is sequence {first} of {place}, and sequence {sequence} too")
        last: dict[tuple[str, bytes], tuple[int, bytes]] = {}
        for key, (place, sequence) in sorted(history.places.items(), key=lambda item: item[1]):
            if key in history.refused or key in history.excused:
                continue
            before = last.get((place, key[:3]))
            if before is not None and before[1] > key:
                raise Violation(f"{key.decode()} is sequence {sequence} of {place}, behind {before[1].decode()}")
            last[place, key[:3]] = sequence, key
