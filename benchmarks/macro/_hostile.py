"""Hostile clients of every kind, a process of their own: what `holdfast_lab/hostile` draws, half hellos, floods unread.

`python _hostile.py hostile` takes one line of JSON first, {"host", "port", "seed", "clients", "pause_s"}, prints
`{"attached": true}`, and answers each further line of input with what it has done so far: {"acts": {name: count},
"connections", "half_hellos", "flooded_bytes", "refused"}. `{"rest": true}` ends all its connections first, `{"rest":
false}` lets others begin. End of input ends it.
"""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Coroutine
from random import Random
from typing import Any

from holdfast.amqp.wire.frames import AMQP_HEADER, SASL_HEADER
from holdfast.amqp.wire.performatives import Flow
from holdfast_lab.hostile import ACTS, HostileClient, Places

OWN = ("h0", "h1", "h2")
PLACES = Places(own=OWN, nodes=("bench",))
LIVES_ACTS = 60
"""Acts of one connection, in the mean."""
RUDE = (0.0, 0.05, 0.3)
HALVES = (AMQP_HEADER[:3], AMQP_HEADER, SASL_HEADER, AMQP_HEADER + b"\x00\x00\x00\x30\x02")
HALF_S = 1.0
"""From one half hello to the next."""
FLOOD_S, FLOOD_PAUSE_S = 5.0, 20.0
FLOOD_FLOWS = 500


class Hostile:
    """All of them on one loop; `told` is what they have done."""

    def __init__(self, host: str, port: int, seed: int, clients: int, pause_s: float) -> None:
        self.host, self.port, self.seed = host, port, seed
        self.clients, self.pause_s = clients, pause_s
        self.rounds = 0
        self.acts: Counter[str] = Counter()
        self.counts = Counter(connections=0, half_hellos=0, flooded_bytes=0, refused=0)

    def told(self) -> dict[str, Any]:
        return {"acts": dict(self.acts), **self.counts}

    async def run(self) -> None:
        """Until it is cancelled, which ends all connections; each time other clients."""
        self.rounds += 1
        async with asyncio.TaskGroup() as group:
            works: list[Coroutine[Any, Any, None]] = [self._misuse(number) for number in range(self.clients)]
            for work in (*works, self._half_hellos(), self._floods()):
                group.create_task(work)

    def _random(self, whose: object) -> Random:
        return Random(f"{self.seed}/{self.rounds}/{whose}")

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        try:
            pair = await asyncio.open_connection(self.host, self.port)
        except OSError:
            self.counts["refused"] += 1
            await asyncio.sleep(1.0)
            return None
        self.counts["connections"] += 1
        return pair

    async def _misuse(self, number: int) -> None:
        """One connection after the other."""
        random = self._random(number)
        life = 0
        while True:
            life += 1
            client = HostileClient(random, PLACES, name=f"x{number}-{life}", acts=ACTS, rude_share=random.choice(RUDE))
            pair = await self._open()
            if pair is not None:
                await self._live(random, client, *pair)
            self.acts.update(client.said)
            await asyncio.sleep(random.expovariate(1.0 / self.pause_s))

    async def _live(
        self, random: Random, client: HostileClient, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        deaf = random.random() < 0.1
        ends = asyncio.get_running_loop().time() + 10 * LIVES_ACTS * self.pause_s
        try:
            async with asyncio.timeout_at(ends):  # who does not read is not waited for
                writer.write(client.opening())
                for _ in range(1 + int(random.expovariate(1.0 / LIVES_ACTS))):
                    await asyncio.sleep(random.expovariate(1.0 / self.pause_s))
                    if not deaf and not await self._hear(client, reader):
                        break
                    writer.write(client.act()[1])
                    await writer.drain()
        except (TimeoutError, ConnectionError):
            pass
        finally:
            writer.transport.abort()

    @staticmethod
    async def _hear(client: HostileClient, reader: asyncio.StreamReader) -> bool:
        """What has come by now; False: the connection is over."""
        try:
            async with asyncio.timeout(0.001):
                data = await reader.read(1 << 20)
        except TimeoutError:
            return True
        client.hear(data)
        return bool(data) and not client.over

    async def _half_hellos(self) -> None:
        random = self._random("half")
        left: list[asyncio.StreamWriter] = []
        while True:
            pair = await self._open()
            if pair is not None:
                self.counts["half_hellos"] += 1
                pair[1].write(random.choice(HALVES))
                left.append(pair[1])
            if len(left) > 20:  # the node has ended most of them by then
                left.pop(0).transport.abort()
            await asyncio.sleep(random.expovariate(1.0 / HALF_S))

    async def _floods(self) -> None:
        """Asks for answers as fast as the node reads, and reads none of them."""
        random = self._random("flood")
        while True:
            await asyncio.sleep(random.expovariate(1.0 / FLOOD_PAUSE_S))
            pair = await self._open()
            if pair is None:
                continue
            client = HostileClient(random, PLACES, name="flood", acts=ACTS)
            data = client.frames(*[Flow(0, 5_000, 0, 5_000, echo=True)] * FLOOD_FLOWS)
            writer = pair[1]
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket's transport can
            try:
                async with asyncio.timeout(FLOOD_S):
                    writer.write(client.opening())
                    while True:
                        writer.write(data)
                        self.counts["flooded_bytes"] += len(data)
                        await writer.drain()
                        await asyncio.sleep(0.05)
            except (TimeoutError, ConnectionError):
                pass
            finally:
                writer.transport.abort()


async def main() -> int:
    hostile = Hostile(**json.loads(sys.stdin.readline()))
    print(json.dumps({"attached": True}), flush=True)
    loop = asyncio.get_running_loop()
    orders: asyncio.Queue[str] = asyncio.Queue()
    loop.add_reader(sys.stdin, lambda: orders.put_nowait(sys.stdin.readline().strip()))
    work: asyncio.Task[None] | None = asyncio.create_task(hostile.run())
    ordered = asyncio.create_task(orders.get())
    while True:
        await asyncio.wait([ordered, *([] if work is None else [work])], return_when=asyncio.FIRST_COMPLETED)
        if work is not None and work.done():
            work.result()  # raises what ended it
        line = ordered.result()
        rest = json.loads(line).get("rest") if line else True
        if rest and work is not None:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            work = None
        if not line:
            loop.remove_reader(sys.stdin)
            return 0
        if rest is False and work is None:
            work = asyncio.create_task(hostile.run())
        print(json.dumps(hostile.told()), flush=True)
        ordered = asyncio.create_task(orders.get())


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
