"""Many real nodes and queues in one query: exact rows of each, though nodes are killed and stay away."""

import asyncio
import json
import threading
from collections import Counter
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import StructType

from holdfast.client import connect
from holdfast.errors import ConfigError, HoldfastError
from pipeline.test_spark_node import LIMIT_S, StartNode, run
from pyspark_holdfast.checkpoint import SinkLog
from pyspark_holdfast.ingest import IngestJob, default_checkpoint, run_ingest
from pyspark_holdfast.queries import FAILED_STARTS_MAX, NO_WORKER
from pyspark_holdfast.source import HoldfastDataSource
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


async def test_a_node_that_goes_in_the_middle_of_a_batch_is_left_out_of_it(
    spark: "SparkSession", tmp_path: Path, start_node: StartNode
) -> None:
    """The other's rows come meanwhile; its own, all of them and each once, when it is back."""
    a, b = await start_node("a"), await start_node("b")
    await send(a.url, "flights-1", 1, 10)
    await send(b.url, "flights-1", 1, 3_000)
    ingest = job(tmp_path, a.url, b.url, available_now=False, onNodeAway="leaveOut", retrySeconds="1")
    stop = threading.Event()
    running = asyncio.create_task(asyncio.to_thread(run_ingest, spark, ingest, stop, lambda progress: None))

    def has(node: str, first: int, last: int) -> bool:
        found = sorted(rows(ingest.out).get((node, "flights-1"), []), key=lambda body: int(body.split()[1]))
        return running.done() or (first <= len(found) <= last and found == bodies("flights-1", len(found)))

    try:
        await eventually_true(partial(has, "b", 1, 3_000), what="rows of both", limit_s=LIMIT_S)
        await b.kill()  # which has rows for eight batches more
        await send(a.url, "flights-1", 11, 20)
        await eventually_true(partial(has, "a", 20, 20), what="rows of the other node", limit_s=LIMIT_S)
        assert len(rows(ingest.out)["b", "flights-1"]) < 3_000
        await b.restart(same_port=True)
        await eventually_true(partial(has, "b", 3_000, 3_000), what="what it has", limit_s=LIMIT_S)
    finally:
        stop.set()
        await running
    found = rows(ingest.out)
    assert found["a", "flights-1"] == bodies("flights-1", 20)
    assert sorted(found["b", "flights-1"]) == sorted(bodies("flights-1", 3_000))


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


async def test_several_sources_of_one_query(spark: "SparkSession", tmp_path: Path, start_node: StartNode) -> None:
    """Under one name, at two nodes: each releases what is its own, over a restart of the query."""
    a, b = await start_node("a"), await start_node("b")
    checkpoint = str(tmp_path / "checkpoint")

    def query() -> None:
        sources = []
        for url, queue in ((a.url, "flights-1"), (b.url, "flights-1"), (a.url, "flights-2")):
            reader = spark.readStream.format("holdfast").option("url", url).option("address", queue)
            sources.append(reader.option("subscription", "s").option("checkpoint", checkpoint).load())
        rows = sources[0].union(sources[1]).union(sources[2])
        writer = rows.writeStream.format("parquet").option("checkpointLocation", checkpoint)
        writer = writer.option("path", str(tmp_path / "table")).trigger(availableNow=True)
        for start in range(FAILED_STARTS_MAX):
            try:
                writer.start().awaitTermination()
                return
            except PySparkException as error:
                if NO_WORKER not in str(error) or start == FAILED_STARTS_MAX - 1:
                    raise

    for first in (1, 21):
        for url, queue in ((a.url, "flights-1"), (b.url, "flights-1"), (a.url, "flights-2")):
            await send(url, queue, first, first + 19)
        await asyncio.to_thread(query)
    last = {("a", "flights-1"), ("a", "flights-2"), ("b", "flights-1")}
    assert rows(tmp_path / "table") == {key: bodies(key[1], 40) for key in last}
    for url, queue in ((a.url, "flights-1"), (b.url, "flights-1"), (a.url, "flights-2")):
        async with await connect(url) as connection:
            told = await connection.manage("READ", "holdfast:subscription", "s", {"queue": queue})
        assert told["advanced"] == 41


async def test_what_a_node_dropped_is_told(tmp_path: Path, start_node: StartNode) -> None:
    """Between the planning of a batch and its reading."""
    node = await start_node("a")
    async with await connect(node.url) as connection:
        limits = {"messages_max": 5, "when_full": "drop-oldest"}
        await connection.manage("CREATE", "holdfast:queue", "flights-1", limits)
    await send(node.url, "flights-1", 1, 5)
    options = job(tmp_path, node.url).options | {"checkpoint": str(tmp_path / "checkpoint")}
    reader = HoldfastDataSource(options).streamReader(StructType())
    start = await asyncio.to_thread(reader.initialOffset)
    end = await asyncio.to_thread(reader.latestOffset, start, ReadMaxRows(100))
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    (tmp_path / "checkpoint" / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps(end)}")
    (task,) = await asyncio.to_thread(reader.partitions, start, end)
    await send(node.url, "flights-1", 6, 8)
    with pytest.raises(HoldfastError, match=r"from 1 to 3 3 are missing: 3 dropped to make room for later ones"):
        await asyncio.to_thread(lambda: list(reader.read(task)))
    await asyncio.to_thread(reader.stop)


async def test_a_batch_of_a_node_has_no_more_bytes_than_its_limit(tmp_path: Path, start_node: StartNode) -> None:
    """Messages of very different sizes, which an average does not tell."""
    node = await start_node("a")
    sizes = [100] * 50 + [400_000] * 5 + [100] * 50
    async with await connect(node.url) as connection:
        sender = await connection.sender("flights-1")
        for size in sizes:
            await sender.submit(b"x" * size)
        await sender.close()
    options = job(tmp_path, node.url, maxBytesPerTrigger="1000000").options
    options |= {"checkpoint": str(tmp_path / "checkpoint"), "maxRowsPerTrigger": "1000", "startingFrom": "11"}
    reader = HoldfastDataSource(options).streamReader(StructType())
    offset = await asyncio.to_thread(reader.initialOffset)
    ends = []
    while True:
        found = await asyncio.to_thread(reader.latestOffset, offset, ReadMaxRows(1000))
        if found == offset:
            break
        offset = found
        ends.append(offset["at"]["a/flights-1"])
    await asyncio.to_thread(reader.stop)
    assert ends == [53, 55, 106]


async def test_a_subscription_begins_at_a_time(tmp_path: Path, start_node: StartNode) -> None:
    """As the node's clock says, which stamped the messages."""
    node = await start_node("a")
    await send(node.url, "flights-1", 1, 5)
    async with await connect(node.url) as connection:
        told = await connection.manage("QUERY", "holdfast:entry", "flights-1", {})
    at = datetime.fromtimestamp((max(entry["enqueued"] for entry in told["entries"]) + 1) / 1000, UTC)
    await eventually_true(lambda: datetime.now(UTC) > at, what="a later millisecond", limit_s=LIMIT_S)
    await send(node.url, "flights-1", 6, 9)
    options = job(tmp_path, node.url).options | {"checkpoint": str(tmp_path / "checkpoint")}
    reader = HoldfastDataSource(options | {"startingFrom": at.isoformat()}).streamReader(StructType())
    start = await asyncio.to_thread(reader.initialOffset)
    await asyncio.to_thread(reader.stop)
    assert start["at"] == {"a/flights-1": 6}


async def test_a_wrong_password_at_one_node_ends_the_query(tmp_path: Path, start_node: StartNode) -> None:
    """It is not away: nothing but a mistake keeps its part back."""
    config = tmp_path / "b.toml"
    password = tmp_path / "password"
    config.write_text(
        f'[node]\nname = "b"\nlisten = ["127.0.0.1:0"]\ndata = "{tmp_path / "b.holdfast"}"\n\n'
        f'[[user]]\nname = "jane"\npassword_file = "{password}"\n'
    )
    password.write_text("right\n")
    password.chmod(0o600)
    a, b = await start_node("a"), await start_node("b", config=config)
    await send(a.url, "flights-1", 1, 2)
    url = b.url.replace("amqp://", "amqp://jane:guessed@")
    options = job(tmp_path, a.url, url).options | {"checkpoint": str(tmp_path / "checkpoint")}
    reader = HoldfastDataSource(options).streamReader(StructType())
    with pytest.raises(ConfigError) as caught:
        await asyncio.to_thread(reader.initialOffset)
    assert str(caught.value) == f"{b.url}: wrong user or password"
    await asyncio.to_thread(reader.stop)


async def test_a_pattern_means_the_queues_that_the_user_may_read(tmp_path: Path, start_node: StartNode) -> None:
    """Without any right to administer."""
    config = tmp_path / "b.toml"
    password = tmp_path / "password"
    config.write_text(
        f'[node]\nname = "b"\nlisten = ["127.0.0.1:0"]\ndata = "{tmp_path / "b.holdfast"}"\n\n'
        f'[[user]]\nname = "jane"\npassword_file = "{password}"\n\n'
        '[[access]]\nname = "hers"\nusers = ["jane"]\naddresses = ["flights-1", "flights-3"]\nallow = ["receive"]\n'
        + "".join(f'\n[[queue]]\nname = "flights-{number}"\n' for number in range(1, 4))
    )
    password.write_text("right\n")
    password.chmod(0o600)
    node = await start_node("b", config=config)
    url = node.url.replace("amqp://", "amqp://jane:right@")
    options = job(tmp_path, url).options | {"checkpoint": str(tmp_path / "checkpoint")}
    reader = HoldfastDataSource(options).streamReader(StructType())
    start = await asyncio.to_thread(reader.initialOffset)
    await asyncio.to_thread(reader.stop)
    assert start["at"] == {"b/flights-1": 1, "b/flights-3": 1}
