"""The file of a store, or its whole directory, is taken away under a running node."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

import holdfast.client as holdfast
from support.disks import until_disk
from support.process import NodeProcess, run_holdfast

LIMIT_S = 30.0
NOTICED_S = 3.0
"""A second, and what a busy machine adds."""
SETTLED_S = 1.0
"""An answer that has not come by then does not come: the node commits in milliseconds."""

BEFORE = 100
"""Messages of a stream that are accepted before the file goes."""

pytestmark = pytest.mark.crash


def unlinked(data: Path) -> None:
    (data / "data.mdb").unlink()


def renamed(data: Path) -> None:
    data.rename(data.with_name("elsewhere"))


def replaced(data: Path) -> None:
    data.rename(data.with_name("elsewhere"))
    shutil.copytree(data.with_name("elsewhere"), data)


@pytest.mark.parametrize("take_away", [unlinked, renamed, replaced])
async def test_nothing_is_accepted_into_a_file_that_is_gone(tmp_path: Path, take_away: Any) -> None:
    data = tmp_path / "store"
    async with await NodeProcess.start(data, name="hub") as node, asyncio.timeout(LIMIT_S):
        connection, other = await holdfast.connect(node.url), await holdfast.connect(node.url)
        sender = await connection.sender("work")
        assert isinstance(await sender.send(b"one"), holdfast.Accepted)
        take_away(data)
        late = asyncio.ensure_future(sender.send(b"two", check=False))  # in the next commit, or without credit
        await node.logged("the store's file is gone", NOTICED_S)
        await until_disk(other, "gone", limit_s=LIMIT_S)
        more = asyncio.ensure_future(sender.send(b"three", check=False))
        await asyncio.wait([late, more], timeout=SETTLED_S)
        for answer in (late, more):
            assert not answer.done() or isinstance(answer.result(), holdfast.Rejected)
            answer.cancel()
        told = await run_holdfast("status", "--url", node.url)
        assert told.code == 0 and f"warning: the store's file is gone: {data / 'data.mdb'}" in told.stdout
        receiver = await other.receiver("work")
        (delivery,) = await receiver.batch(count_max=5, timeout_s=LIMIT_S)
        await delivery.accept()
        assert node.stderr.count("ERROR the store's file is gone") == 1
        await connection.abort()
        await other.close()
        assert await node.stop() == 1
        assert "ends with this process" in node.stderr
        if take_away is unlinked:
            with pytest.raises(AssertionError, match=r"data\.mdb is missing or empty, though a store was here"):
                await node.restart()


async def test_a_file_that_is_put_back_is_gone_on_with(tmp_path: Path) -> None:
    data = tmp_path / "store"
    async with await NodeProcess.start(data, name="hub") as node, asyncio.timeout(LIMIT_S):
        async with await holdfast.connect(node.url) as connection:
            sender = await connection.sender("work")
            await sender.send(b"one")
            renamed(data)
            await until_disk(connection, "gone", limit_s=LIMIT_S)
            under_way = asyncio.ensure_future(sender.send(b"two", check=False))
            data.with_name("elsewhere").rename(data)
            assert isinstance(await under_way, holdfast.Accepted)
            await until_disk(connection, "ok", limit_s=LIMIT_S)
        assert await node.stop() == 0
        await node.restart()
        async with await holdfast.connect(node.url) as connection:
            assert (await connection.manage("READ", "holdfast:queue", "work"))["messages"] == 2


async def test_of_a_stream_of_messages_none_is_accepted_behind_it(tmp_path: Path) -> None:
    """What is accepted after the file is gone was in the commit that was under way then."""
    data = tmp_path / "store"
    async with await NodeProcess.start(data, name="hub") as node, asyncio.timeout(LIMIT_S):
        connection = await holdfast.connect(node.url)
        sender = await connection.sender("work")
        await sender.send(b"first")
        accepted, enough = 0, asyncio.Event()

        async def stream() -> None:
            nonlocal accepted
            while isinstance(await sender.send(bytes(100), check=False), holdfast.Accepted):
                accepted += 1
                if accepted == BEFORE:
                    enough.set()

        streams = [asyncio.ensure_future(stream()) for _ in range(4)]
        await enough.wait()
        unlinked(data)
        at_once = accepted
        await node.logged("the store's file is gone", NOTICED_S)
        await asyncio.wait(streams, timeout=SETTLED_S)
        assert accepted - at_once <= 3 * len(streams)  # a commit under way, one handed over, answers on their way
        for stream_task in streams:
            stream_task.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
        await connection.abort()
        await node.kill()
