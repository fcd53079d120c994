"""A message that cannot be decoded is a row of its own, and those behind it are rows as well (ADR 0033)."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as parquet
from pyspark.sql.types import StructType

from holdfast.amqp.message.message import Message
from holdfast.client import connect
from holdfast.client.messages import payload as cutting
from holdfast.client.messages.payload import Cut
from holdfast.errors import HoldfastError, StorageError
from pyspark_holdfast.bus import Entry
from pyspark_holdfast.dead_letters import DeadLetterTable
from pyspark_holdfast.node_bus import NodeBus
from pyspark_holdfast.options import parse_options
from pyspark_holdfast.rows import record_batch
from pyspark_holdfast.source import HoldfastDataSource
from support.process import NodeProcess

StartNode = Callable[..., Awaitable[NodeProcess]]

ODD = bytes.fromhex("005377d000000005000000013f")
GOOD = [Message(data=[b"%d" % number]).encode() for number in range(3)]


async def send(node: NodeProcess, monkeypatch: pytest.MonkeyPatch, *payloads: bytes) -> None:
    monkeypatch.setattr(cutting, "cut", lambda payload: Cut(b"", None, payload))
    async with await connect(node.url) as connection:
        sender = await connection.sender("q")
        for payload in payloads:
            await sender.post(payload)  # type: ignore[arg-type]  # the test's own `cut` takes bytes as a message
        await sender.drain()


async def test_it_is_a_row_and_so_are_the_others(start_node: StartNode, monkeypatch: pytest.MonkeyPatch) -> None:
    node = await start_node("hub")
    await send(node, monkeypatch, ODD, GOOD[0], ODD, ODD, GOOD[1], GOOD[2], ODD)

    def read() -> list[Entry]:
        bus = NodeBus(parse_options({"url": node.url, "address": "q"}))
        try:
            return [*bus.entries(1, 8, None)]
        finally:
            bus.close()

    entries = await asyncio.to_thread(read)
    assert [entry.sequence for entry in entries] == list(range(1, 8))
    rows = record_batch("q", entries).to_pylist()
    assert [row["body_kind"] == "undecodable" for row in rows] == [True, False, True, True, False, False, True]
    assert [row["body"] for row in rows if row["body_kind"] == "data"] == [b"0", b"1", b"2"]
    assert all(row["body"].endswith(ODD) for row in rows if row["body_kind"] == "undecodable")
    assert rows[0]["enqueued"] is not None and "not a format code" in rows[0]["body_value"]


async def test_the_query_s_options_say_what_becomes_of_it(
    start_node: StartNode, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    node = await start_node("hub")
    await send(node, monkeypatch, GOOD[0], ODD, GOOD[1])

    def read(**options: str) -> list[int]:
        source = HoldfastDataSource({"url": node.url, "address": "q", **options})
        reader = source.reader(StructType())
        found: list[int] = []
        for partition in reader.partitions():
            for batch in reader.read(partition):
                assert isinstance(batch, pa.RecordBatch)
                found += batch.column("sequence").to_pylist()
        return found

    assert await asyncio.to_thread(read) == [1, 2, 3]
    with pytest.raises(HoldfastError, match="queue 'q', sequence 2: no row can tell it: "):
        await asyncio.to_thread(read, onUnreadable="fail")
    for _ in range(2):
        found = await asyncio.to_thread(read, onUnreadable="deadLetter", deadLetterPath=str(tmp_path / "dead"))
        assert found == [1, 3]
    (row,) = parquet.read_table(str(tmp_path / "dead")).to_pylist()
    assert (row["address"], row["sequence"]) == ("q", 2) and row["payload"].endswith(ODD)
    async with await connect(node.url) as connection:
        told = await connection.manage("READ", "holdfast:queue", "q")
    assert row["queue_uuid"] == str(told["uuid"])


def test_a_dead_letter_is_whole_though_another_attempt_writes_it_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors in containers have the same numbers of processes: an attempt that was given up is not known by them."""
    monkeypatch.setattr(os, "getpid", lambda: 12)
    entry, real, depth = Entry(7, 0, Message()), DeadLetterTable._write, 0
    written: list[Path] = []

    def write(table: DeadLetterTable, part: Path, *arguments: object) -> None:
        nonlocal depth
        depth += 1
        if depth == 1:  # the other one begins, and ends, while this one writes
            DeadLetterTable(tmp_path / "dead", "q", "u").put(entry, b"payload", "why")
        written.append(part)
        real(table, part, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(DeadLetterTable, "_write", write)
    DeadLetterTable(tmp_path / "dead", "q", "u").put(entry, b"payload", "why")
    assert len(written) == len(set(written)) == 2
    assert [row["payload"] for row in parquet.read_table(str(tmp_path / "dead")).to_pylist()] == [b"payload"]


def test_all_directories_that_a_dead_letter_may_have_made_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    real = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda number: (synced.append(Path(os.readlink(f"/proc/self/fd/{number}"))), real(number))
    )
    table = DeadLetterTable(tmp_path / "a" / "b" / "c", "q", "u")
    table.put(Entry(7, 0, Message()), b"payload", "why")
    assert {tmp_path / "a" / "b" / "c", tmp_path / "a" / "b", tmp_path / "a", tmp_path} <= set(synced)
    synced.clear()
    table.put(Entry(8, 0, Message()), b"payload", "why")
    assert tmp_path / "a" / "b" / "c" in synced and tmp_path not in synced


def test_a_dead_letter_that_breaks_off_leaves_no_part_of_it(tmp_path: Path) -> None:
    """Each attempt of the task would leave another."""

    def payload() -> Iterator[bytes]:
        yield bytes(100_000)
        raise StorageError("the node is gone")

    for _ in range(2):
        with pytest.raises(StorageError, match="the node is gone"):
            DeadLetterTable(tmp_path, "q", "u-1").put(Entry(1, None, None), payload(), "too large")
    assert list(tmp_path.iterdir()) == []
