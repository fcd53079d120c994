"""A fleet under traffic: all sites enrol, one is revoked and let in again, one gets another machine, all get another
configuration, and all are started anew. Whatever was accepted arrives once."""

import asyncio
import shutil
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from holdfast.client import connect
from holdfast.fleet.agent import Agent, reload_by
from holdfast.fleet.caller import Caller
from holdfast.fleet.service import Service
from holdfast.fleet.tokens import Token
from holdfast.fleet.versions import push, roll_back
from holdfast.names import HostPort
from support.eventually import eventually_async
from support.fleets import Fleet
from support.postgresql import free_port
from support.process import NodeProcess

pytestmark = pytest.mark.slow
SITES = 6
LIMIT_S = 600.0
NEW = '[[queue]]\nname = "new"\n'


class Drill:
    """Sites `s1`, `s2` … around `hub`, and what their clients sent."""

    def __init__(self, directory: Path, count: int, stack: AsyncExitStack) -> None:
        self.names = [f"s{number}" for number in range(1, count + 1)]
        self.ports = {name: free_port() for name in ("hub", "local", "service", *self.names)}
        nodes = f'[[node]]\nname = "hub"\naddress = "amqps://127.0.0.1:{self.ports["hub"]}"\nroles = ["super"]\n'
        links = ""
        for name in self.names:
            nodes += f'[[node]]\nname = "{name}"\n'
            links += f'[[link]]\nfrom = "{name}"\nto = "hub"\nkind = "tls"\n'
        self.fleet = Fleet(directory, nodes + links, f"127.0.0.1:{self.ports['service']}")
        sites = self.fleet.directory.sites
        for name in self.names:
            (sites / f"{name}.toml").write_text(f'[node]\nlisten = ["127.0.0.1:{self.ports[name]}"]\n')
        listen = f'["amqps://127.0.0.1:{self.ports["hub"]}", "127.0.0.1:{self.ports["local"]}"]'
        reader = '[[user]]\nname = "reader"\npassword_file = "reader.password"\n'
        (sites / "hub.toml").write_text(f'[node]\nlisten = {listen}\n{reader}[[queue]]\nname = "work"\n')
        push(self.fleet.directory)
        hub = self.fleet.site("hub").path
        hub.mkdir(parents=True)
        (hub / "reader.password").write_text("secret\n")
        self._stack = stack
        self.nodes: dict[str, NodeProcess] = {}
        self.sent: Counter[str] = Counter()
        self.received: Counter[str] = Counter()
        self.stopping = asyncio.Event()

    async def enrol(self, name: str) -> None:
        where = HostPort("127.0.0.1", self.ports["service"])
        token = Token(name, where, self.fleet.fingerprint, self.fleet.token(name))
        site = self.fleet.site(name)
        text = await asyncio.to_thread(Caller(where, time.time, print).enrol, site, token)
        site.install(text, self.fleet.fingerprint, time.time())

    async def start(self, name: str) -> None:
        node = NodeProcess(["node", "config.toml"], directory=self.fleet.site(name).path)
        await self._stack.enter_async_context(node)
        await node.restart(limit_s=120)
        self.nodes[name] = node

    async def agents(self, *but: str) -> None:
        """Each asks once, installs, and has its node reload."""
        where = HostPort("127.0.0.1", self.ports["service"])
        for name, node in self.nodes.items():
            if name not in but:
                reload = reload_by("--reload", f"kill -HUP {node.pid}")
                agent = Agent(self.fleet.site(name), Caller(where, time.time, print), reload, time.time, print)
                for _ in range(2):
                    await asyncio.to_thread(agent.step, wait=False)

    async def send(self, name: str) -> None:
        """Until the drill stops, or the site's node goes for good."""
        url = f"amqp://127.0.0.1:{self.ports[name]}"
        async with await connect(url, retry_s=LIMIT_S) as connection:
            sender = await connection.sender("work@hub", producer=f"client-{name}")
            number = 0
            while not self.stopping.is_set():
                number += 1
                await sender.send(f"{name} {number}", number=number)
                self.sent[name] = number
                await asyncio.sleep(0.05)

    async def receive(self) -> None:
        url = f"amqp://reader:secret@127.0.0.1:{self.ports['local']}"
        async with await connect(url, retry_s=LIMIT_S) as connection, connection.receiver("work") as receiver:
            async for delivery in receiver:
                await delivery.accept()
                self.received[str(delivery.body)] += 1

    def wanted(self, *but: str) -> set[str]:
        return {f"{name} {n}" for name in self.names if name not in but for n in range(1, self.sent[name] + 1)}

    async def arrived(self, *but: str) -> None:
        wanted = self.wanted(*but)

        async def missing() -> int:
            return len(wanted - self.received.keys())

        await eventually_async(missing, lambda found: not found, what="messages that arrive", limit_s=LIMIT_S)


async def test_a_fleet_under_traffic(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        drill = Drill(tmp_path, SITES, stack)
        fleet = drill.fleet
        service = Service(fleet.directory, fleet.authority, "0.1.0", print)
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        where = HostPort("127.0.0.1", drill.ports["service"])
        serving = asyncio.create_task(service.run(where, ready.set_result))
        stack.callback(service.stop)
        await ready
        for name in ("hub", *drill.names):
            await drill.enrol(name)
            await drill.start(name)
        clients = {name: asyncio.create_task(drill.send(name)) for name in drill.names}
        reading = asyncio.create_task(drill.receive())
        for task in (*clients.values(), reading):
            stack.callback(task.cancel)
        first, second = drill.names[:2]
        await drill.arrived()

        # One is revoked: what it accepts meanwhile waits at it.
        with fleet.directory.changing() as register:
            for each in register.sites[first].certificates:
                each.revoked_s = int(time.time())
            register.crl_number += 1
        await drill.agents(first)
        await drill.nodes["hub"].logged(
            f"neighbour {first}: Established -> Idle: TLS: the peer's certificate is revoked"
        )
        before = drill.sent[first]
        await drill.arrived(first)

        # All others get another configuration, and lose it again.
        (fleet.directory.sites / "common.toml").write_text(NEW)
        assert len(push(fleet.directory).changed) == len(drill.names) + 1
        await drill.agents(first)
        await drill.nodes[second].logged("reload: queue 'new' added")
        roll_back(fleet.directory, None)
        await drill.agents(first)
        assert fleet.site(second).known().version == 4 and NEW not in fleet.site(second).config_file.read_text()

        # One gets another machine, once it has passed on what it had.
        clients[second].cancel()
        await drill.arrived(first)
        await drill.nodes.pop(second).stop()
        shutil.rmtree(fleet.site(second).path)
        await drill.enrol(second)
        await drill.start(second)
        sent = drill.sent.pop(second)

        # All are started anew, one by one.
        for node in drill.nodes.values():
            await node.stop()
            await node.restart(limit_s=120)

        # The one that was revoked is let in again.
        assert drill.sent[first] > before, "it took messages all the time"
        await drill.enrol(first)
        drill.stopping.set()
        await asyncio.gather(*(task for name, task in clients.items() if name != second))
        await drill.arrived()
        drill.sent[second] = sent
        await drill.arrived()
        assert set(drill.received.values()) == {1}, "and nothing twice"
        reading.cancel()
        service.stop()
        await serving
