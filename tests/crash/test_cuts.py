"""Connections cut at any byte, each day at others, loudly and silently: nothing is lost, doubled or reordered."""

import asyncio
from itertools import product
from pathlib import Path
from random import Random

import pytest

from crash.world import LIMIT_S, World, world
from holdfast_lab.judge.arrivals import judge
from holdfast_lab.real.proxy import Direction, Manner
from support import today

pytestmark = pytest.mark.crash

SOME = today.some(list(product(Manner, Direction)), 2)

# The AMQP header is 8 bytes, SASL's another 8; frames of the opening lie within the first few hundred.
# Once all is sent, what keeps the session alive goes by every 0.2 s; it is too little to reach most places.
QUIET_S = 2.0
OPENING = [*range(20), 27, 64, 100, 150, 200, 300, 450, 700]


def places(random: Random, direction: Direction) -> list[int]:
    """Byte counts after which to cut: through the opening, and anywhere in what follows.

    The server's side of a transfer is short: it speaks of many messages in one frame.
    """
    most = 60_000 if direction is Direction.FROM_CLIENT else 1_200
    later = [random.randrange(most // 10, most) for _ in range(6)]
    return [*random.sample(OPENING, 10), *later]


async def cut_and_heal(here: World, manner: Manner, direction: Direction, count: int) -> None:
    here.proxy.cut_after(manner, direction, count)
    await here.proxy.cut_happened()
    here.proxy.heal()


@pytest.mark.parametrize(("manner", "direction"), SOME)
async def test_between_nodes(tmp_path: Path, manner: Manner, direction: Direction, day: int) -> None:
    random = Random(f"nodes {manner} {direction} {day}")
    cuts = places(random, direction)[::2]
    lines = [f"{number} {'x' * random.randrange(200)}" for number in range(4_000)]
    async with world(tmp_path) as here, asyncio.timeout(100):
        await here.start_hub()
        await here.start_site()
        sender = await here.sender(here.addresses["site"], "events@hub", lines, "p")
        sent = asyncio.create_task(sender.success())
        for count in cuts:
            cut = asyncio.create_task(cut_and_heal(here, manner, direction, count))
            await asyncio.wait({cut, sent}, timeout=LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({cut}, timeout=QUIET_S)
            if not cut.done():
                cut.cancel()
                here.proxy.heal()
                break
        await sent
        assert here.proxy.counters.cuts_loud + here.proxy.counters.cuts_silent >= 5
        assert judge(lines, await here.receive(here.addresses["hub"], "events", len(lines))).ok


@pytest.mark.parametrize(("manner", "direction"), SOME)
async def test_between_a_numbered_sender_and_its_node(
    tmp_path: Path, manner: Manner, direction: Direction, day: int
) -> None:
    random = Random(f"sender {manner} {direction} {day}")
    cuts = places(random, direction)[:: 2 if manner is Manner.LOUD else 8]
    lines = [f"{number} {'x' * random.randrange(200)}" for number in range(4_000)]
    async with world(tmp_path) as here, asyncio.timeout(100):
        await here.start_hub()
        sender = await here.sender(here.proxy.address, "events", lines, "p")
        ended = asyncio.create_task(sender.wait())
        for count in cuts:
            cut = asyncio.create_task(cut_and_heal(here, manner, direction, count))
            await asyncio.wait({cut, ended}, timeout=LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                cut.cancel()
                break
        assert await ended == 0, sender.stderr_text()
        assert here.proxy.counters.cuts_loud + here.proxy.counters.cuts_silent > 0
        assert judge(lines, await here.receive(here.addresses["hub"], "events", len(lines))).ok
