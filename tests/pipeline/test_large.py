"""Large messages of a range: read alone, set aside without being in memory, and the others are rows as ever."""

import asyncio
import threading
import tracemalloc
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

import pyarrow.parquet as parquet
from pyspark.sql.types import StructType

from holdfast.client import Message, connect
from holdfast.errors import HoldfastError
from holdfast.units import MIB
from pyspark_holdfast.bus import LARGE_BYTES
from pyspark_holdfast.ingest import IngestJob, default_checkpoint, run_ingest
from pyspark_holdfast.source import HoldfastDataSource
from pyspark_holdfast.tables import read_arrow
from support.process import NodeProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

StartNode = Callable[..., Awaitable[NodeProcess]]
LIMIT_S = 60.0


async def send(node: NodeProcess, *messages: Message) -> None:
    async with await connect(node.url) as connection:
        sender = await connection.sender("q")
        for message in messages:
            assert await sender.send(message)


def rows(node: NodeProcess, **options: str) -> list[tuple[int, str, bytes]]:
    """What a batch query reads: sequence, kind and body of each row."""
    source = HoldfastDataSource({"url": node.url, "address": "q", **options})
    reader = source.reader(StructType())
    return [
        (row["sequence"], row["body_kind"], row["body"])
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for row in batch.to_pylist()  # type: ignore[union-attr]
    ]


async def test_messages_of_any_size_are_rows_in_their_order(start_node: StartNode) -> None:
    node = await start_node("hub")
    bodies = [b"first", b"a" * LARGE_BYTES, b"b" * (LARGE_BYTES // 2), b"c" * 70 * MIB, b"last"]
    await send(node, *(Message(data=[body]) for body in bodies), Message(value=["v" * LARGE_BYTES]))
    found = await asyncio.wait_for(asyncio.to_thread(rows, node), LIMIT_S)
    assert [(sequence, kind) for sequence, kind, _ in found] == [(1 + at, "data") for at in range(5)] + [(6, "value")]
    assert [body for _, _, body in found[:5]] == bodies


async def test_one_that_is_larger_than_allowed_is_never_in_memory(start_node: StartNode, tmp_path: Path) -> None:
    node = await start_node("hub")
    dead, body = tmp_path / "dead", bytes(range(256)) * (70 * MIB // 256)
    await send(node, Message(data=[b"1"]), Message(data=[body]), Message(data=[b"2" * 2 * MIB]), Message(data=[b"3"]))
    options = {"onUnreadable": "deadLetter", "deadLetterPath": str(dead), "maxMessageBytes": str(MIB)}
    for _ in range(2):  # a range that is read again writes nothing twice
        tracemalloc.start()
        found = await asyncio.wait_for(asyncio.to_thread(rows, node, **options), LIMIT_S)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert [(sequence, text) for sequence, _, text in found] == [(1, b"1"), (4, b"3")]
        assert peak < 2 * LARGE_BYTES + 16 * MIB
    letters = sorted(parquet.read_table(str(dead)).to_pylist(), key=lambda row: row["sequence"])
    assert [(row["sequence"], row["payload"] is None) for row in letters] == [(2, True), (3, False)]
    (whole,) = dead.glob("_*.message")
    assert whole.name in letters[0]["reason"] and f"more than {LARGE_BYTES} bytes" in letters[0]["reason"]
    assert Message.decode(whole.read_bytes()).data == [body]
    assert not list(dead.glob(".*")), "nothing is left of how it was written"


async def test_one_that_no_row_can_tell_is_named(start_node: StartNode) -> None:
    node = await start_node("hub")
    await send(node, Message(data=[b"1"]), Message(data=[b"2" * 20 * MIB]))
    with pytest.raises(HoldfastError, match="queue 'q', sequence 2: no row can tell it: it has more than 16777216 byt"):
        await asyncio.to_thread(rows, node, onUnreadable="fail", maxMessageBytes="1000")


@pytest.mark.spark
async def test_a_query_of_spark_goes_on_past_a_message_of_70_mib(
    spark: "SparkSession", tmp_path: Path, start_node: StartNode
) -> None:

    node = await start_node("hub")
    await send(node, Message(data=[b"1"]), Message(data=[b"2" * 70 * MIB]), Message(data=[b"3"]))
    out = tmp_path / "table"
    options = {"url": node.url, "address": "q", "subscription": "s"}
    ingest = IngestJob(options=options, out=out, checkpoint=default_checkpoint(out), available_now=True)
    await asyncio.to_thread(run_ingest, spark, ingest, threading.Event(), lambda progress: None)
    found = read_arrow(out, ["sequence", "body"]).sort_by("sequence").to_pylist()
    assert [(row["sequence"], len(row["body"])) for row in found] == [(1, 1), (2, 70 * MIB), (3, 1)]
