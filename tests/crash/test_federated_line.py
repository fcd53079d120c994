"""A topic over three nodes in a line, as processes: the one in the middle is killed with -9 again and again, and each
message that is published at one end reaches the subscription at the other, once and in order (docs/federation.md)."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from holdfast.client import Message, Properties, Receiver, Sender, connect
from support.process import NodeProcess

pytestmark = pytest.mark.crash

MESSAGES = 2_000
KILLS = 3
LIMIT_S = 100.0
MIDDLE = """
[node]
name = "b"
create_queues = true

[[neighbour]]
name = "a"

[[neighbour]]
name = "c"

[[federation]]
topic = "flights"
neighbour = "a"

[[federation]]
topic = "flights"
neighbour = "c"
"""
END = """
[node]
name = "{name}"
create_queues = true

[[neighbour]]
name = "b"
remote = "{middle}"

[[federation]]
topic = "flights"
neighbour = "b"
"""


async def test_what_was_confirmed_comes_once_and_in_order_though_the_middle_is_killed(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), AsyncExitStack() as stack:
        file = tmp_path / "b.toml"
        file.write_text(MIDDLE)
        middle = await stack.enter_async_context(await NodeProcess.start(tmp_path / "b.holdfast", config=file))
        ends = {}
        for name in ("a", "c"):
            file = tmp_path / f"{name}.toml"
            file.write_text(END.format(name=name, middle=middle.ready["amqp"]))
            started = await NodeProcess.start(tmp_path / f"{name}.holdfast", config=file)
            ends[name] = await stack.enter_async_context(started)
        there = await stack.enter_async_context(await connect(ends["c"].url))
        receiver = await _confirmed(
            lambda: there.receiver("topic/flights/*", subscription="d", confirm_s=20), {"a", "b"}
        )
        here = await stack.enter_async_context(await connect(ends["a"].url))
        sender = await here.sender("topic/flights", producer="p")
        sending = asyncio.create_task(_send(sender))
        taking = asyncio.create_task(_take(receiver))
        for _ in range(KILLS):
            await asyncio.sleep(0.3)
            await middle.kill()
            await middle.restart(same_port=True)
        await sending
        assert await taking == [f"{number}" for number in range(MESSAGES)]
        assert await receiver.batch(timeout_s=1.0) == [], "none comes twice"


async def _confirmed(attach: Callable[[], Awaitable[Receiver]], names: set[str]) -> Receiver:
    """The receiver, once these nodes have confirmed it: they may not have met when it was attached first."""
    while True:
        receiver = await attach()
        assert receiver.confirmation is not None
        if names <= {*receiver.confirmation.confirmed}:
            return receiver
        await receiver.close()


async def _send(sender: Sender) -> None:
    """What is wanted at the other end, and between it what nobody wants there."""
    for number in range(MESSAGES):
        for subject, body in (("wanted", f"{number}"), ("not.wanted", "none")):
            await sender.submit(Message(properties=Properties(subject=subject), data=[body.encode()]))
    await sender.drain()


async def _take(receiver: Receiver) -> list[str]:
    found: list[str] = []
    async for delivery in receiver:
        found.append(delivery.message.body_bytes().decode())
        delivery.accept()
        if len(found) == MESSAGES:
            break
    return found
