"""A root that gives rates, and its clients, as processes (docs/pacing.md)."""

import asyncio
import time
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.client import Message, connect
from support.eventually import eventually_async
from support.process import NodeProcess

RATE = 60_000
SIZE = 500
CAPACITY = 2_000_000
MEASURED_S = 5.0
LIMIT_S = 100.0

ROOT = f"""
[node]
name = "hub"
create_queues = true

[pacing]
rate = {RATE}
policy = "weights"

[[neighbour]]
name = "jfk"

[[neighbour]]
name = "ewr"
"""
CLIENT = """
[node]
name = "{name}"

[pacing]
roots = ["hub"]
capacity_bytes = {capacity}

[[neighbour]]
name = "hub"
remote = "{hub}"
"""


async def status(node: NodeProcess) -> dict[str, Any]:
    async with await connect(node.url) as connection:
        return await connection.manage("STATUS", "holdfast:node")


async def send(node: NodeProcess, queue: str, count: int) -> None:
    async with await connect(node.url) as connection:
        sender = await connection.sender(f"{queue}@hub")
        outcomes = [await sender.submit(Message(data=[bytes(SIZE)])) for _ in range(count)]
        await asyncio.gather(*outcomes)


async def received(root: NodeProcess) -> dict[str, int]:
    """Bytes that the root has, by queue: each client sends to one of its own."""
    return {queue["name"]: int(queue["bytes"]) for queue in (await status(root))["queues"]}


async def given(root: NodeProcess) -> dict[str, int]:
    """The rates that the root gave last, by client."""
    return {row["client"]: int(row["rate"]) for row in (await status(root))["paces"]}


async def test_a_root_receives_its_rate_shared_by_weights(tmp_path: Path) -> None:
    """One client's queue is full, its weight 9; the other's is a little more than half full, its weight 5."""
    config = tmp_path / "hub.toml"
    config.write_text(ROOT)
    async with asyncio.timeout(LIMIT_S), await NodeProcess.start(tmp_path / "hub.holdfast", config=config) as root:
        configs = {name: tmp_path / f"{name}.toml" for name in ("jfk", "ewr")}
        for name, path in configs.items():
            path.write_text(CLIENT.format(name=name, capacity=CAPACITY, hub=root.ready["amqp"]))
        async with (
            await NodeProcess.start(tmp_path / "jfk.holdfast", config=configs["jfk"]) as jfk,
            await NodeProcess.start(tmp_path / "ewr.holdfast", config=configs["ewr"]) as ewr,
        ):
            await eventually_async(partial(given, root), lambda rates: len(rates) == 2)
            await asyncio.gather(send(jfk, "full", 4_800), send(ewr, "half", 2_340))
            by_weights = {"jfk": RATE * 9 // 14, "ewr": RATE * 5 // 14}
            await eventually_async(partial(given, root), lambda rates: rates == by_weights)
            before, began = await received(root), time.monotonic()
            await asyncio.sleep(MEASURED_S)
            after, over_s = await received(root), time.monotonic() - began
    got = {name: (after[name] - before.get(name, 0)) / over_s for name in ("full", "half")}
    assert 0.9 * RATE <= sum(got.values()) <= 1.1 * RATE, got
    assert 0.9 * 9 / 14 * RATE <= got["full"] <= 1.1 * 9 / 14 * RATE, got
    assert 0.85 * 5 / 14 * RATE <= got["half"] <= 1.15 * 5 / 14 * RATE, got
