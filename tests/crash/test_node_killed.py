"""A node killed with -9 at once after the last accept: all is there, in order."""

import asyncio
from pathlib import Path

import pytest

from crash.world import world
from holdfast_lab.judge.arrivals import judge
from support import today

pytestmark = pytest.mark.crash


async def test_20000_lines_survive_a_kill_at_once(tmp_path: Path) -> None:
    lines = [f"line {number}" for number in range(20_000)]
    async with world(tmp_path) as here, asyncio.timeout(100):
        arguments = ("--name", "alone", "--data", tmp_path / "alone.holdfast", "--listen")
        node, address = await here.children.node("alone", *arguments, "127.0.0.1:0")
        sender = await here.sender(address, "q", lines)
        await sender.success()
        await node.kill()
        await here.children.node("alone", *arguments, address)
        received = await here.receive(address, "q", len(lines))
        assert judge(lines, received).ok
        summary = sender.summary()
        assert summary is not None and summary["accepted"] == len(lines)


@pytest.mark.parametrize(
    "order", today.some(["sender site hub", "site sender hub", "hub sender site", "site hub sender"], 2)
)
async def test_any_order_of_starting(tmp_path: Path, order: str) -> None:
    """What is sent before there is anyone to take it waits, and arrives once, in order."""
    lines = [f"{number}" for number in range(300)]
    async with world(tmp_path) as here, asyncio.timeout(60):
        # The site has to have had an address once before a sender can be pointed at it.
        await here.start_site()
        await here.nodes["site"].stop()
        sender = None
        for who in order.split():
            if who == "sender":
                sender = await here.sender(here.addresses["site"], "events@hub", lines, "p")
            elif who == "site":
                await here.restart("site")
            else:
                await here.start_hub()
        assert sender is not None
        await sender.success()
        assert judge(lines, await here.receive(here.addresses["hub"], "events", len(lines))).ok


@pytest.mark.parametrize("victim", today.some(["site", "hub"], 1))
async def test_either_side_killed_while_messages_flow(tmp_path: Path, victim: str) -> None:
    lines = [f"{number}" for number in range(6_000)]
    async with world(tmp_path) as here, asyncio.timeout(100):
        await here.start_hub()
        await here.start_site()
        sender = await here.sender(here.addresses["site"], "events@hub", lines, "p")
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await here.nodes[victim].wait(0.15)
            await here.nodes[victim].kill()
            await here.restart(victim)
        await sender.success()
        assert judge(lines, await here.receive(here.addresses["hub"], "events", len(lines))).ok
