"""A fleet under traffic: a hub and any number of sites, each a node with a directory and a certificate of its own,
with a client each that sends to the hub, and what became of every message.

Rules of this file: work for one site costs the same however many there are. All sites together send a fixed number of
messages a second, processes start a few at a time, and nothing is polled site by site.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

from holdfast.client import connect
from holdfast.fleet.agent import Agent, Reload, reload_by
from holdfast.fleet.caller import Caller
from holdfast.fleet.service import Service
from holdfast.fleet.tokens import Token
from holdfast.fleet.upgrade import Versions
from holdfast.fleet.versions import push
from holdfast.names import HostPort
from support.eventually import eventually_async
from support.fleets import Fleet
from support.postgresql import free_port
from support.process import NodeProcess, run_holdfast

LIMIT_S: Final = 600.0
START_S: Final = 120.0
MESSAGES_PER_S: Final = 20
"""Of all sites together."""
AT_ONCE: Final = 4
"""So many nodes start at the same time."""


Act = Callable[[], Coroutine[Any, Any, None]]


class Restart(NamedTuple):
    """What a service manager does: in place of the command that an operator gives `fleet upgrade`."""

    act: Callable[[], None]
    words: tuple[str, ...] = ("restart",)

    def run(self) -> None:
        self.act()


class Drill:
    """Sites `s1`, `s2` … around `hub`. Nodes run with the version that is current in their `Versions`."""

    def __init__(self, directory: Path, count: int, stack: AsyncExitStack) -> None:
        self.names = [f"s{number}" for number in range(1, count + 1)]
        # Addresses of their own: while a node is being started anew, no connection of another gets its port.
        self.places = {
            name: HostPort(f"127.1.0.{number}", free_port(f"127.1.0.{number}"))
            for number, name in enumerate(("service", "hub", "local", *self.names), 1)
        }
        self.fleet = Fleet(directory, self.topology(), str(self.places["service"]))
        sites = self.fleet.directory.sites
        for name in self.names:
            (sites / f"{name}.toml").write_text(f'[node]\nlisten = ["{self.places[name]}"]\n')
        listen = f'["amqps://{self.places["hub"]}", "{self.places["local"]}"]'
        reader = '[[user]]\nname = "reader"\npassword_file = "reader.password"\n'
        (sites / "hub.toml").write_text(f'[node]\nlisten = {listen}\n{reader}[[queue]]\nname = "work"\n')
        push(self.fleet.directory)
        hub = self.fleet.site("hub").path
        hub.mkdir(parents=True)
        (hub / "reader.password").write_text("secret\n")
        self.versions: dict[str, Versions] = {}
        self.nodes: dict[str, NodeProcess] = {}
        self.sent: Counter[str] = Counter()
        self.received: Counter[str] = Counter()
        self.log: list[str] = []
        """What the service and the agents say."""
        self._clients: dict[str, asyncio.Task[None]] = {}
        self._stopping = asyncio.Event()
        self._stack = stack
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:6.1f} s  {text}", flush=True)

    @property
    def hub_url(self) -> str:
        return f"amqp://reader:secret@{self.places['local']}"

    def url(self, name: str) -> str:
        return f"amqp://{self.places[name]}"

    def topology(self, *but: str) -> str:
        text = f'[[node]]\nname = "hub"\naddress = "amqps://{self.places["hub"]}"\nroles = ["super"]\n'
        for name in self.names:
            if name not in but:
                text += f'[[node]]\nname = "{name}"\n[[link]]\nfrom = "{name}"\nto = "hub"\nkind = "tls"\n'
        return text

    # ----------------------------------------------------------------------------------------- operator's work

    async def serve(self) -> None:
        service = Service(self.fleet.directory, self.fleet.authority, "0.1.0", self.log.append)
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(service.run(self.places["service"], ready.set_result))

        async def end() -> None:
            service.stop()
            await serving

        self._stack.push_async_callback(end)
        await ready

    async def enrol(self, name: str) -> None:
        token = Token(name, self.places["service"], self.fleet.fingerprint, self.fleet.token(name))
        site = self.fleet.site(name)
        text = await asyncio.to_thread(self._caller().enrol, site, token)
        site.install(text, self.fleet.fingerprint, time.time())

    def _caller(self) -> Caller:
        return Caller(self.places["service"], time.time, self.log.append)

    async def agents(self, *but: str) -> None:
        """Each asks, installs what it gets, has its node reload, and reports."""
        for name, node in self.nodes.items():
            if name not in but:
                reload = reload_by("--reload", f"kill -HUP {node.pid}")
                agent = Agent(self.fleet.site(name), self._caller(), reload, time.time, self.log.append)
                for _ in range(2):
                    await asyncio.to_thread(agent.step, wait=False)

    async def upgrade(self, versions: Versions, bundle: Path, restart: Act | None) -> str:
        key = self.fleet.site("hub").fleets_key()
        return await asyncio.to_thread(versions.upgrade, bundle, key, self._restart(restart))

    async def roll_back(self, versions: Versions, restart: Act) -> str:
        return await asyncio.to_thread(versions.back, self._restart(restart))

    def _restart(self, act: Act | None) -> Reload:
        if act is None:
            return reload_by("--restart", None)
        loop = asyncio.get_running_loop()
        return Restart(lambda: asyncio.run_coroutine_threadsafe(act(), loop).result(START_S))  # type: ignore[return-value]

    async def network(self) -> dict[str, Any]:
        """A row for each node, as the hub knows them."""
        done = await run_holdfast("network", "status", "--limit", "30", "--json", "--url", self.hub_url)
        assert done.code == 0, done.stderr
        return {row["node"]: row for row in json.loads(done.stdout)}

    # --------------------------------------------------------------------------------------------------- nodes

    async def start(self, *names: str) -> None:
        await self._each(names, self._start)

    async def restart(self, *names: str) -> None:
        """Each node by itself: others are up meanwhile."""
        await self._each(names, self._restarted)

    async def _each(self, names: Iterable[str], act: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        places = asyncio.Semaphore(AT_ONCE)

        async def one(name: str) -> None:
            async with places:
                await act(name)

        await asyncio.gather(*map(one, names))

    async def _start(self, name: str) -> None:
        program = self.versions[name].current / "bin" / "holdfast"
        node = NodeProcess(["node", "config.toml"], directory=self.fleet.site(name).path, program=program)
        await self._stack.enter_async_context(node)
        await node.restart(limit_s=START_S)
        self.nodes[name] = node

    async def _restarted(self, name: str) -> None:
        assert await self.nodes[name].stop() == 0
        await self.nodes[name].restart(limit_s=START_S)

    # ------------------------------------------------------------------------------------------------- clients

    def begin_traffic(self) -> None:
        """A client at each site, and one that receives at the hub, to the end of the drill."""
        for name in self.names:
            self.begin_client(name)
        reading = asyncio.create_task(self._receive())

        async def end() -> None:
            tasks = [*self._clients.values(), reading]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self._stack.push_async_callback(end)

    def begin_client(self, name: str) -> None:
        self._clients[name] = asyncio.create_task(self._send(name))

    async def end_client(self, name: str) -> None:
        """What it was told is taken was taken; the message under way may be."""
        task = self._clients.pop(name)
        task.cancel()
        await asyncio.wait([task])

    async def end_traffic(self) -> None:
        self._stopping.set()
        await asyncio.gather(*self._clients.values())

    async def _send(self, name: str) -> None:
        pause_s = len(self.names) / MESSAGES_PER_S
        async with await connect(self.url(name), retry_s=LIMIT_S) as connection:
            sender = await connection.sender("work@hub", producer=f"client-{name}")
            while not self._stopping.is_set():
                number = self.sent[name] + 1
                await sender.send(f"{name} {number}", number=number)
                self.sent[name] = number
                await asyncio.sleep(pause_s)

    async def _receive(self) -> None:
        async with await connect(self.hub_url, retry_s=LIMIT_S) as connection, connection.receiver("work") as receiver:
            async for delivery in receiver:
                await delivery.accept()
                self.received[str(delivery.body)] += 1

    async def arrived(self, *but: str) -> None:
        """All that the nodes of all sites have taken so far, but for those, is at the hub's reader."""
        wanted = {
            f"{name} {number}" for name in self.names if name not in but for number in range(1, self.sent[name] + 1)
        }

        async def missing() -> int:
            return len(wanted - self.received.keys())

        await eventually_async(
            missing, lambda found: not found, what="messages that arrive", limit_s=LIMIT_S, step_s=0.1
        )
