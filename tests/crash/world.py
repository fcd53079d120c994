"""A site and a hub as real processes, the link between them through the fault proxy; senders and
receivers.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast_lab.base.processes import Child, Children, holdfast_command
from holdfast_lab.real.configs import Neighbour, NodeFile
from holdfast_lab.real.proxy import Proxy

QUEUE = "events"
LIMIT_S = 60.0


class World:
    """`site` dials `hub` through `proxy`. Both keep their ports over restarts."""

    def __init__(self, children: Children, work: Path, proxy: Proxy) -> None:
        self.children = children
        self.work = work
        self.proxy = proxy
        self.nodes: dict[str, Child] = {}
        self.addresses: dict[str, str] = {}
        self._sends = 0

    async def start_hub(self) -> None:
        file = NodeFile(
            name="hub",
            role="root",
            data=self.work / "hub.holdfast",
            neighbours=[Neighbour(name="site", keepalive_s=0.2, hold_time_s=0.6)],
            queues=[QUEUE],
        )
        await self.start("hub", file.write(self.work))
        self.proxy.retarget(self.addresses["hub"])

    async def start_site(self) -> None:
        hub = Neighbour(name="hub", remote=self.proxy.address, keepalive_s=0.2, hold_time_s=0.6)
        file = NodeFile(name="site", role="client", data=self.work / "site.holdfast", neighbours=[hub])
        await self.start("site", file.write(self.work))

    async def start(self, name: str, config: Path) -> None:
        listen = ["--listen", self.addresses[name]] if name in self.addresses else []
        self.nodes[name], self.addresses[name] = await self.children.node(name, config, *listen)

    async def restart(self, name: str) -> None:
        await self.start(name, self.work / f"{name}.toml")

    async def sender(self, url: str, address: str, lines: Sequence[str], producer: str | None = None) -> Child:
        self._sends += 1
        file = self.work / f"send-{self._sends}.lines"
        await asyncio.to_thread(file.write_text, "\n".join(lines) + "\n")
        named = [] if producer is None else ["--producer", producer, "--resume"]
        return await self.children.start(
            "send", holdfast_command("send", address, file, "--url", f"amqp://{url}", *named)
        )

    async def receive(self, url: str, address: str, count: int) -> list[str]:
        """`count` bodies in order, and whatever comes within half a second more."""
        lines: list[str] = []
        for more in (["--count", str(count), "--idle-timeout", "20"], ["--idle-timeout", "0.5"]):
            command = holdfast_command("receive", address, "--url", f"amqp://{url}", *more)
            receiver = await self.children.start("receive", command)
            await receiver.wait(LIMIT_S)
            lines += receiver.out_path.read_text().splitlines()
        return lines


@asynccontextmanager
async def world(work: Path) -> AsyncIterator[World]:
    """Nothing runs yet but the proxy, which leads nowhere until the hub is started."""
    async with Children(work / "logs") as children, Proxy("127.0.0.1", 1) as proxy:
        yield World(children, work, proxy)
