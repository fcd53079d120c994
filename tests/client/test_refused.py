"""The client and its commands at a real node that has no place for them."""

import asyncio
from pathlib import Path

import pytest

from holdfast.client import Accepted, ConnectionFailed, connect
from support.process import NodeProcess, run_holdfast

CONFIG = """
[node]
name = "hub"
data = "{folder}/hub.holdfast"
listen = ["127.0.0.1:0"]
create_queues = true

[limits]
{bound} = 1
"""


@pytest.mark.parametrize("bound", ["connections_max", "address_connections_max", "user_connections_max"])
async def test_who_finds_no_place_is_told_why_and_comes_in_once_there_is_one(tmp_path: Path, bound: str) -> None:
    config = tmp_path / "hub.toml"
    config.write_text(CONFIG.format(folder=tmp_path, bound=bound))
    async with await NodeProcess.start(None, config=config, listen=None) as node:
        first = await connect(node.url)
        with pytest.raises(
            ConnectionFailed, match=rf"(?:have|has) 1 connections.*\({bound}\) \(amqp:resource-limit-exc"
        ):
            await connect(node.url, retry_s=0)
        done = await run_holdfast("send", "q", "--url", node.url, "--count", "1", "--size", "1", "--retry", "0")
        assert done.code == 1 and f"({bound}) (amqp:resource-limit-exceeded)" in done.stderr
        waiting = asyncio.create_task(connect(node.url, retry_s=30))
        await node.logged("refused: ")
        await first.close()
        async with await asyncio.wait_for(waiting, 30) as second:
            assert await (await second.sender("q")).send(b"x") == Accepted()
