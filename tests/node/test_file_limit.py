"""A node that may write no larger file (ulimit -f) says that, not that the disk is full, and goes on when it may."""

import asyncio
import resource
from pathlib import Path

from holdfast.client import connect
from holdfast.units import MIB
from support.disks import disk_of
from support.eventually import eventually_async
from support.process import NodeProcess

LIMIT_S = 60.0
COUNT, SIZE = 220, 100_000


async def test_a_limit_of_file_size_is_told_as_what_it_is(tmp_path: Path) -> None:
    config, file = tmp_path / "t.toml", tmp_path / "data" / "data.mdb"
    config.write_text("[node]\ncreate_queues = true\n[store]\nbytes_max = 64_000_000\n")
    async with asyncio.timeout(LIMIT_S), await NodeProcess.start(tmp_path / "data", config=config) as node:
        size = file.stat().st_size
        most = size + 2 * MIB
        limits = resource.prlimit(node.pid, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
        async with await connect(node.url) as connection:
            sender = await connection.sender("q")
            sending = asyncio.gather(*[sender.send(bytes(SIZE)) for _ in range(COUNT)])

            async def reason() -> str:
                return str((await disk_of(connection))["reason"] or "")

            told = await eventually_async(reason, what="the node is full")
            assert told.startswith(f"the node may write no file larger than {most / MIB:.1f} MiB (ulimit -f), and the ")
            await node.logged(f"new messages wait or are refused until there is room; {told}", LIMIT_S)
            assert file.stat().st_size == most, "it grows as far as it may"
            assert not sending.done()
            resource.prlimit(node.pid, resource.RLIMIT_FSIZE, limits)
            assert len(await sending) == COUNT
        assert await node.stop() == 0
