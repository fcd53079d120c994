"""`holdfast receive --confirm`: who has confirmed what it wants (docs/federation.md)."""

import asyncio
from pathlib import Path

from support.process import NodeProcess, run_holdfast


async def test_receive_tells_who_has_confirmed(tmp_path: Path) -> None:
    async with asyncio.timeout(60), await NodeProcess.start(tmp_path / "alone.holdfast") as node:
        line = ("--url", node.url, "--idle-timeout", "0.5", "--confirm", "2")
        ended = await run_holdfast("receive", "topic/flights/#", *line)
        assert ended.code == 0 and "topic/flights/#: confirmed by no other node" in ended.stderr
        ended = await run_holdfast("receive", "queue", *line)
        assert ended.code == 1 and "nothing is confirmed: it is no topic" in ended.stderr


async def test_what_cannot_be_confirmed_is_told(tmp_path: Path) -> None:
    ended = await run_holdfast("receive", "topic/flights", "--confirm", "2", "--browse")
    assert ended.code == 2 and "--confirm excludes --browse" in ended.stderr
    async with asyncio.timeout(60), await NodeProcess.start(tmp_path / "alone.holdfast") as node:
        ended = await run_holdfast("receive", "topic/flights", "--url", node.url, "--confirm", "601")
        assert ended.code in (1, 2) and "invalid value 601" in ended.stderr
