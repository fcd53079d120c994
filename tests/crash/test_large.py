"""Messages that no memory holds, through real nodes: flat memory, and kill -9 in their middle (ADR 0014)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.amqp.wire.performatives import Accepted, Rejected
from holdfast.storage.lmdb import LmdbStore
from holdfast.units import MIB
from holdfast_lab.real.large_client import Highest, LargeClient, sum_of
from support import today
from support.large import Relay
from support.process import NodeProcess

pytestmark = pytest.mark.crash

SIZE = 256 * MIB
GROWTH_BYTES_MAX = 30 * MIB
KILLED_SIZE = 64 * MIB


def blobs_of(data: Path) -> tuple[int, int]:
    """(records, first pieces) of blobs in the store of a node that is down."""
    store = LmdbStore(data)
    try:
        numbers = range(1, 50)
        return len(list(store.table("blobs"))), sum(store.piece(number, 0) is not None for number in numbers)
    finally:
        store.close()


async def taken(node: NodeProcess, address: str, size: int) -> None:
    """Takes the one message of that size which is there."""
    async with await LargeClient.connect(node.port) as consumer:
        await consumer.receiver(address)
        await consumer.until(lambda: consumer.sums, 120)
        assert consumer.sums == [sum_of(size)]
        await consumer.flush()


async def emptied(node: NodeProcess, data: Path) -> None:
    """Waits until the node has dropped all blobs; it is stopped then."""
    for _ in range(50):
        assert await node.stop() == 0
        if blobs_of(data) == (0, 0):
            return
        await node.restart()
    raise AssertionError(f"blobs are left: {blobs_of(data)}")


async def test_256_mb_pass_a_node_with_flat_memory(tmp_path: Path) -> None:
    async with await NodeProcess.start(tmp_path / "data", name="hub") as node:
        async with await LargeClient.connect(node.port) as client:
            link = await client.sender("work")
            highest = Highest(node.pid)
            await client.send(link, SIZE)
            await client.until(lambda: client.outcomes)
            assert [type(state) for _, state in client.outcomes] == [Accepted]
        await taken(node, "work", SIZE)
        growth = await highest.growth()
        assert growth < GROWTH_BYTES_MAX, f"{growth / MIB:.1f} MiB"
        await emptied(node, tmp_path / "data")


async def test_killed_in_the_middle_of_taking_it_in_it_never_was(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with await NodeProcess.start(data, name="hub") as node:
        async with await LargeClient.connect(node.port) as client:
            link = await client.sender("work")
            await client.send(link, KILLED_SIZE, upto=KILLED_SIZE * 3 // 4)
            await node.kill()
            assert client.outcomes == []
        assert blobs_of(data)[1] == 1
        await node.restart()
        async with await LargeClient.connect(node.port) as client:
            link = await client.sender("work")
            await client.send(link, KILLED_SIZE + 1)
            await client.until(lambda: client.outcomes)
        await node.kill()
        await node.restart()
        await taken(node, "work", KILLED_SIZE + 1)
        await emptied(node, data)


async def test_killed_in_the_middle_of_sending_it_begins_anew(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with await NodeProcess.start(data, name="hub") as node:
        async with await LargeClient.connect(node.port) as client:
            link = await client.sender("work")
            await client.send(link, KILLED_SIZE)
            await client.until(lambda: client.outcomes)
        async with await LargeClient.connect(node.port) as consumer:
            await consumer.receiver("work")
            await consumer.until(lambda: consumer.received > KILLED_SIZE // 4)
            await node.kill()
            assert not consumer.sums
        await node.restart()
        await taken(node, "work", KILLED_SIZE)
        await emptied(node, data)


@asynccontextmanager
async def neighbours(place: Path) -> AsyncIterator[tuple[NodeProcess, NodeProcess, Relay]]:
    """jfk and hub, which jfk dials through the relay."""
    hub_file, jfk_file = place / "hub.toml", place / "jfk.toml"
    hub_file.write_text('[node]\nname = "hub"\n[[queue]]\nname = "work"\n[[neighbour]]\nname = "jfk"\n')
    async with await NodeProcess.start(place / "hub", config=hub_file) as hub, Relay(hub.port) as relay:
        jfk_file.write_text(
            f'[node]\nname = "jfk"\n[[neighbour]]\nname = "hub"\nremote = "127.0.0.1:{relay.port}"\nkeepalive_s = 0.2\n'
        )
        async with await NodeProcess.start(place / "jfk", config=jfk_file) as jfk:
            yield jfk, hub, relay


async def test_it_crosses_from_node_to_node_with_flat_memory(tmp_path: Path) -> None:
    async with neighbours(tmp_path) as (jfk, hub, _):
        async with await LargeClient.connect(jfk.port) as client:
            link = await client.sender("work@hub")
            highest = [Highest(jfk.pid), Highest(hub.pid)]
            await client.send(link, SIZE // 2)
            await client.until(lambda: client.outcomes)
        await taken(hub, "work", SIZE // 2)
        growth = [await one.growth() for one in highest]
        assert max(growth) < GROWTH_BYTES_MAX, f"{[one / MIB for one in growth]} MiB"


@pytest.mark.parametrize("killed", today.some(["jfk", "hub"], 1))
async def test_either_node_killed_in_the_middle_it_crosses_once(tmp_path: Path, killed: str) -> None:
    async with neighbours(tmp_path) as (jfk, hub, relay):
        async with await LargeClient.connect(jfk.port) as client:
            link = await client.sender("work@hub")
            await client.send(link, KILLED_SIZE)
            await client.until(lambda: client.outcomes)
        node = jfk if killed == "jfk" else hub
        await relay.passed(KILLED_SIZE // 2)
        await node.kill()
        await node.restart(same_port=True)
        await taken(hub, "work", KILLED_SIZE)
        await emptied(jfk, tmp_path / "jfk")
        await emptied(hub, tmp_path / "hub")


async def test_one_that_the_store_has_no_room_for_is_rejected_and_small_ones_go_on(tmp_path: Path) -> None:
    file, data = tmp_path / "hub.toml", tmp_path / "data"
    file.write_text(f'[node]\nname = "hub"\ncreate_queues = true\n[store]\nbytes_max = {64 * MIB}\n')
    async with await NodeProcess.start(data, config=file) as node:
        async with await LargeClient.connect(node.port) as client:
            link = await client.sender("work")
            for count, size in enumerate((20 * MIB, 200 * MIB, 1_000, 10 * MIB), 1):
                await client.send(link, size)
                await client.until(lambda count=count: len(client.outcomes) == count)
        states = [type(state) for _, state in client.outcomes]
        assert states == [Accepted, Rejected, Accepted, Accepted]
        assert (data / "data.mdb").stat().st_size <= 64 * MIB
        async with await LargeClient.connect(node.port) as consumer:
            await consumer.receiver("work")
            await consumer.until(lambda: len(consumer.sums) == 2 and consumer.whole)
            assert consumer.sums == [sum_of(20 * MIB), sum_of(10 * MIB)]
            await consumer.flush()
        await emptied(node, data)
