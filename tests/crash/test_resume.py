"""Our client resumes its links over cuts at any byte and kills of the node: nothing lost, nothing doubled, and only
what is in doubt goes again (docs/client.md; ADR 0012).
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from holdfast.client import Connection, Delivery, Receiver, connect
from holdfast_lab.real.proxy import Direction, Manner, Proxy
from support import today
from support.process import NodeProcess
from support.stored import stored_bodies

pytestmark = pytest.mark.crash

MESSAGES = 6_000
BODY_BYTES = 200
IN_DOUBT_MAX = 300
CUTS = 10


@asynccontextmanager
async def world(path: Path) -> AsyncIterator[tuple[NodeProcess, Proxy, Connection]]:
    """A node, and a client behind the proxy."""
    async with (
        await NodeProcess.start(path / "data", name="n") as node,
        Proxy("127.0.0.1", node.port) as proxy,
        await connect(f"amqp://{proxy.address}", idle_time_out_s=0.5, rng=Random(1)) as connection,
    ):
        yield node, proxy, connection


async def cuts(proxy: Proxy, random: Random, direction: Direction, bytes_between: int, done: asyncio.Event) -> None:
    """CUTS cuts, or as many as there were until `done`."""
    for _ in range(CUTS):
        manner = Manner.LOUD if random.random() < 0.8 else Manner.SILENT
        proxy.cut_after(manner, direction, random.randrange(1, bytes_between))
        happened = asyncio.create_task(proxy.cut_happened())
        over = asyncio.create_task(done.wait())
        await asyncio.wait({happened, over}, return_when=asyncio.FIRST_COMPLETED)
        happened.cancel()
        over.cancel()
        proxy.heal()
        if done.is_set():
            return


def bodies(first: int, last: int) -> list[bytes]:
    return [str(number).encode().ljust(BODY_BYTES) for number in range(first, last + 1)]


@pytest.mark.parametrize("direction", today.some(list(Direction), 1))
async def test_a_sender_without_a_name_doubles_nothing(tmp_path: Path, direction: Direction) -> None:
    random, done = Random(f"sender {direction}"), asyncio.Event()
    async with asyncio.timeout(100), world(tmp_path) as (node, proxy, connection):
        sender = await connection.sender("q", in_doubt_max=IN_DOUBT_MAX)
        bytes_between = 200_000 if direction is Direction.FROM_CLIENT else 1_500
        cutting = asyncio.create_task(cuts(proxy, random, direction, bytes_between, done))
        for body in bodies(1, MESSAGES):
            await sender.post(body)
        await sender.drain()
        done.set()
        await cutting
        assert connection.reconnects >= 3
        assert sorted(await stored_bodies(node.url)) == sorted(bodies(1, MESSAGES))
        assert sender.accepted == MESSAGES


async def test_a_sender_without_a_name_doubles_nothing_over_kills_of_the_node(tmp_path: Path) -> None:
    random = Random(5)
    kills = sorted(random.sample(range(200, MESSAGES), 4))
    async with asyncio.timeout(100), world(tmp_path) as (node, _, connection):
        sender = await connection.sender("q", in_doubt_max=IN_DOUBT_MAX)
        for number, body in enumerate(bodies(1, MESSAGES)):
            if kills and number == kills[0]:
                kills.pop(0)
                await node.kill()
                await node.restart(same_port=True)
            await sender.post(body)
        await sender.drain()
        assert connection.reconnects >= 4
        assert sorted(await stored_bodies(node.url)) == sorted(bodies(1, MESSAGES))


class Took:
    """What a receiver's connection brought: whole deliveries, counted at the engine."""

    def __init__(self, receiver: Receiver) -> None:
        self.whole = 0
        self.resumed = 0
        take = receiver.delivery

        def delivery(event: object) -> None:
            if getattr(event, "resume", False):
                self.resumed += 1
            if getattr(event, "payload", b""):
                self.whole += 1
            take(event)  # type: ignore[arg-type]  # what it was called with

        receiver.delivery = delivery  # type: ignore[method-assign]  # a tap


@pytest.mark.parametrize("resume_s", today.some([0.0, 20.0], 1))
async def test_only_what_a_receiver_has_not_got_comes_again(tmp_path: Path, resume_s: float) -> None:
    """With a hold, messages that the program holds over a cut do not cross the link again."""
    held: list[Delivery] = []
    async with asyncio.timeout(100), world(tmp_path) as (node, proxy, connection):
        async with await connect(node.url) as direct:
            sender = await direct.sender("q")
            for body in bodies(1, 500):
                await sender.post(body)
            await sender.drain()
        receiver = await connection.receiver("q", credit=400, resume_s=resume_s)
        took = Took(receiver)
        while len(held) < 300:
            held += await receiver.batch(count_max=300 - len(held))
        came = took.whole
        for _ in range(3):
            proxy.cut_loudly()
            await connection.manage("STATUS", "holdfast:node")  # it is there again
            for delivery in held[:50]:
                await delivery.accept()
            del held[:50]
        while len(held) < 500 - 150:
            held += await receiver.batch()
        for delivery in held:
            await delivery.accept()
        await receiver.close()
        numbers = [int(delivery.message.body_bytes()) for delivery in held]
        assert sorted(numbers) == list(range(151, 501))
        if resume_s:
            assert took.resumed >= 300 and took.whole <= 500 + 100  # what was under way in a cut came once more
        else:
            assert took.resumed == 0 and took.whole > came + 300
        async with await connect(node.url) as direct:
            assert (await direct.manage("READ", "holdfast:queue", "q"))["messages"] == 0


async def test_a_receiver_over_random_cuts_hands_out_each_once(tmp_path: Path) -> None:
    random, done = Random(7), asyncio.Event()
    async with asyncio.timeout(100), world(tmp_path) as (node, proxy, connection):
        async with await connect(node.url) as direct:
            sender = await direct.sender("q")
            for body in bodies(1, MESSAGES):
                await sender.post(body)
            await sender.drain()
        receiver = await connection.receiver("q", credit=200, resume_s=20)
        cutting = asyncio.create_task(cuts(proxy, random, Direction.FROM_SERVER, 300_000, done))
        seen: list[bytes] = []
        held: list[Delivery] = []
        while len(seen) < MESSAGES:
            for delivery in await receiver.batch(timeout_s=0.5):
                seen.append(delivery.message.body_bytes())
                held.append(delivery)
            random.shuffle(held)
            for delivery in held[: len(held) // 2 + 1]:
                await delivery.accept()
            del held[: len(held) // 2 + 1]
        done.set()
        await cutting
        for delivery in held:
            await delivery.accept()
        await receiver.close()
        assert connection.reconnects >= 3
        assert sorted(seen) == sorted(bodies(1, MESSAGES))
        async with await connect(node.url) as direct:
            assert (await direct.manage("READ", "holdfast:queue", "q"))["messages"] == 0
