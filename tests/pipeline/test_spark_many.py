"""Many real nodes and queues in one query: exact rows of each, though nodes are killed and stay away."""

import asyncio
import threading
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from holdfast.client import connect
from holdfast.errors import HoldfastError
from pipeline.test_spark_node import LIMIT_S, StartNode, run
from pyspark_holdfast.checkpoint import SinkLog
from pyspark_holdfast.ingest import IngestJob, default_checkpoint, run_ingest
from pyspark_holdfast.tables import read_arrow
from support.eventually import eventually_true

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


async def send(url: str, queue: str, first: int, last: int) -> None:
    async with await connect(url, retry_s=LIMIT_S) as connection:
        sender = await connection.sender(queue)
        for number in range(first, last + 1):
            await sender.submit(f"{queue} {number}")
        await sender.close()


def job(tmp_path: Path, *urls: str, available_now: bool = True, **more: str) -> IngestJob:
    out = tmp_path / "table"
    options = {
        "url": ",".join(urls),
        "address": "flights-*",
        "subscription": "s",
        "maxRowsPerTrigger": "300",
        "rowsPerPartition": "100",
        "retrySeconds": str(LIMIT_S),
        **more,
    }
    return IngestJob(
        options=options, out=out, checkpoint=default_checkpoint(out), available_now=available_now, trigger_s=0.1
    )


def rows(out: Path) -> dict[tuple[str, str], list[str]]:
    """The bodies by node and queue, by sequence; none while there is no table."""
    if not SinkLog(out).batches():
        return {}
    found: dict[tuple[str, str], list[str]] = {}
    sequences: Counter[tuple[str, str, int]] = Counter()
    for row in read_arrow(out, ["node", "address", "sequence", "body"]).sort_by("sequence").to_pylist():
        sequences[row["node"], row["address"], row["sequence"]] += 1
        found.setdefault((row["node"], row["address"]), []).append(row["body"].decode())
    assert set(sequences.values()) <= {1}, "an entry is there twice"
    return found


def bodies(queue: str, last: int) -> list[str]:
    return [f"{queue} {number}" for number in range(1, last + 1)]


async def test_queues_of_two_nodes_and_one_of_them_away(
    spark: "SparkSession", tmp_path: Path, start_node: StartNode
) -> None:
    """The node that is there is read on; the other's part is whole once it is back. Both are killed in the middle."""
    a, b = await start_node("a"), await start_node("b")
    for url, queue in ((a.url, "flights-1"), (a.url, "flights-2"), (a.url, "others"), (b.url, "flights-1")):
        await send(url, queue, 1, 400)
    ingest = job(tmp_path, a.url, b.url, available_now=False)
    stop = threading.Event()
    running = asyncio.create_task(asyncio.to_thread(run_ingest, spark, ingest, stop, lambda progress: None))

    def has(node: str, queue: str, last: int) -> bool:
        return running.done() or rows(ingest.out).get((node, queue)) == bodies(queue, last)

    try:
        for node, queue in (("a", "flights-1"), ("a", "flights-2"), ("b", "flights-1")):
            await eventually_true(partial(has, node, queue, 400), what=f"the rows of {queue}", limit_s=LIMIT_S)
        await b.kill()
        await send(a.url, "flights-1", 401, 500)
        await eventually_true(partial(has, "a", "flights-1", 500), what="rows of the other node", limit_s=LIMIT_S)
        await b.restart(same_port=True)
        await send(b.url, "flights-1", 401, 900)
        await a.kill()  # in the middle of a batch, perhaps
        await a.restart(same_port=True)
        await send(a.url, "flights-2", 401, 500)
        await eventually_true(partial(has, "b", "flights-1", 900), what="what came while it was back", limit_s=LIMIT_S)
        await eventually_true(partial(has, "a", "flights-2", 500), what="the last rows", limit_s=LIMIT_S)
    finally:
        stop.set()
        await running
    assert rows(ingest.out) == {
        ("a", "flights-1"): bodies("flights-1", 500),
        ("a", "flights-2"): bodies("flights-2", 500),
        ("b", "flights-1"): bodies("flights-1", 900),
    }


async def test_a_node_that_is_needed_ends_the_query_if_it_is_away(
    spark: "SparkSession", tmp_path: Path, start_node: StartNode
) -> None:
    a, b = await start_node("a"), await start_node("b")
    await send(a.url, "flights-1", 1, 10)
    await b.kill()
    ingest = job(tmp_path, a.url, b.url, onNodeAway="fail", retrySeconds="1")
    with pytest.raises(HoldfastError, match=b.url):
        await run(spark, ingest)
    await run(spark, job(tmp_path, a.url, b.url, retrySeconds="1"))
    assert rows(ingest.out) == {("a", "flights-1"): bodies("flights-1", 10)}


async def test_a_batch_query_of_many_queues(spark: "SparkSession", tmp_path: Path, start_node: StartNode) -> None:
    a, b = await start_node("a"), await start_node("b")
    for number in range(5):
        await send(a.url, f"flights-{number}", 1, 3)
    await send(b.url, "flights-0", 1, 4)
    reader = spark.read.format("holdfast").option("url", f"{a.url}, {b.url}").option("address", "flights-*")
    counted = await asyncio.to_thread(reader.load().groupBy("node").count().collect)
    assert {row["node"]: row["count"] for row in counted} == {"a": 15, "b": 4}
