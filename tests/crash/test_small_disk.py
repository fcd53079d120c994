"""Real nodes on small file systems: a full one takes messages again once its consumers have taken what it held, and
once somebody else has freed what he took. Skipped where no file system can be mounted (it needs root).

Rules of this file: a node is told to be full or not by its own `status`.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import holdfast.client as holdfast
from holdfast.units import MIB
from support import today
from support.disks import disk_of, fill_disk, free_bytes, small_disk, until_disk
from support.process import NodeProcess

LIMIT_S = 60.0
IDLE_S = 0.5
"""A queue that gives nothing for so long is empty: it is read by one consumer alone."""

BODY = bytes(10_000)

pytestmark = pytest.mark.crash


@contextmanager
def mounted(place: Path, mib: int) -> Iterator[Path]:
    with small_disk(place, mib * MIB) as disk:
        yield disk


async def fill(node: NodeProcess, size: int = len(BODY)) -> int:
    """Sends until the node says that its disk is full, and has answered what it took; how many it accepted."""
    async with asyncio.timeout(LIMIT_S), await holdfast.connect(node.url) as connection:
        sender = await connection.sender("work")
        answers = []
        while (await disk_of(connection))["state"] != "full":
            answers += [asyncio.ensure_future(sender.send(BODY[:size], check=False)) for _ in range(400)]
            done, _ = await asyncio.wait(answers, timeout=IDLE_S)
            assert all(isinstance(answer.result(), holdfast.Accepted) for answer in done)
        await asyncio.wait(answers, timeout=IDLE_S)
        accepted = sum(answer.done() for answer in answers)
        for answer in answers:
            answer.cancel()
        await asyncio.gather(*answers, return_exceptions=True)
        await connection.abort()
    return accepted


async def drain(node: NodeProcess) -> int:
    """Takes all that the node has; how many."""
    taken = 0
    async with asyncio.timeout(LIMIT_S), await holdfast.connect(node.url) as connection:
        receiver = await connection.receiver("work")
        while batch := await receiver.batch(count_max=500, timeout_s=IDLE_S):
            await asyncio.gather(*[delivery.accept() for delivery in batch])
            taken += len(batch)
        await until_disk(connection, "ok", limit_s=LIMIT_S)
    return taken


@pytest.mark.parametrize(("mib", "least"), today.some([(64, 2_500), (12, 250), (6, 100)], 2))
async def test_a_small_full_disk_takes_messages_again_once_they_are_consumed(
    tmp_path: Path, mib: int, least: int
) -> None:
    with mounted(tmp_path / "disk", mib) as disk:
        async with await NodeProcess.start(disk / "store", name="hub") as node:
            assert free_bytes(disk) > mib * MIB // 4, "an idle node leaves some of the disk to others"
            for killed in (False, True, False):
                accepted = await fill(node)
                assert accepted > least
                if killed:
                    await node.kill()
                    await node.restart()
                assert await drain(node) >= accepted
            assert await node.stop() == 0


async def test_a_disk_that_somebody_else_fills_is_full_until_he_frees_it(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", 64) as disk:
        ballast = fill_disk(disk)
        with ballast.open("r+b") as file:
            file.truncate(63 * MIB)
        async with await NodeProcess.start(disk / "store", name="hub") as node:
            async with await holdfast.connect(node.url) as connection:
                await until_disk(connection, "full", limit_s=LIMIT_S)  # 1 MiB is too little
                ballast.unlink()
                await until_disk(connection, "ok", limit_s=LIMIT_S)
            rest = fill_disk(disk)
            accepted = await fill(node)
            assert accepted > 200
            rest.unlink()
            async with await holdfast.connect(node.url) as connection:
                await until_disk(connection, "ok", limit_s=LIMIT_S)  # nothing was consumed
            more = await fill(node)
            assert more > 200
            assert accepted + more > 3_000, "how the two share the disk depends on how far the store's file had grown"
            assert await drain(node) >= accepted + more
            assert await node.stop() == 0


async def test_dead_letters_take_their_part_of_the_disk_and_no_more(tmp_path: Path) -> None:
    """Nobody reads them: a bound by `[store] bytes_max` alone let them fill a small disk for a month."""
    config = tmp_path / "hub.toml"
    config.write_text('[node]\nname = "hub"\nunknown_destination = "dead-letter"\ncreate_queues = true\n')
    with mounted(tmp_path / "disk", 64) as disk:
        async with (
            await NodeProcess.start(disk / "store", config=config) as node,
            asyncio.timeout(LIMIT_S),
            await holdfast.connect(node.url) as connection,
        ):
            sender = await connection.sender("work@nowhere")
            for _ in range(20):
                answers = await asyncio.gather(*[sender.send(bytes(20_000), check=False) for _ in range(100)])
                assert all(isinstance(answer, holdfast.Accepted) for answer in answers)
            told = await connection.manage("STATUS", "holdfast:node")
            assert told["dead_letters"]["bytes"] <= told["dead_letters"]["bytes_max"] <= 4 * MIB
            assert told["dead_letters"]["dropped"] > 1_000 and told["disk"]["state"] == "ok"
