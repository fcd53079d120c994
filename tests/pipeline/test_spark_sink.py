"""The sink in Spark, at a real node: each row once through killed tasks, batches that are computed again, and kills.

The rows come from text files, so that a batch has the same rows each time. A task dies in a function of Python's that
kills its own worker once, after the sink has sent what came before.
"""

import asyncio
import os
import shutil
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException

from holdfast.client import ManagementError, Message, Properties, connect
from holdfast.client.messages.message_json import exact_rest
from pyspark_holdfast.cleaning import in_order
from pyspark_holdfast.session import first_line
from pyspark_holdfast.sink_state import DIRECTORY
from support.documents import python_in
from support.process import NodeProcess
from support.stored import stored_bodies

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

StartNode = Callable[..., Awaitable[NodeProcess]]
LIMIT_S = 150.0


@pytest.fixture(autouse=True)
def small_batches(spark: "SparkSession") -> Iterator[None]:
    """So that the sink has rows of a task before the task dies."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, "100")
    yield
    spark.conf.set(name, before)


def put_lines(directory: Path, first: int, last: int) -> None:
    """A file of lines, each a number; it appears whole."""
    directory.mkdir(exist_ok=True)
    part = directory / f".{first}"
    part.write_text("".join(f"{number}\n" for number in range(first, last + 1)))
    part.rename(directory / f"{first}.txt")


def dying(rows: "DataFrame", mark: Path, at: int) -> "DataFrame":
    """`rows`, handed on by a process that kills itself at its row `at`, unless one has done so before."""
    from pyspark.sql.functions import udf

    seen = [0]

    def body(value: str) -> str:
        seen[0] += 1
        if seen[0] >= at and not mark.exists():
            mark.write_text("")
            os.kill(os.getpid(), signal.SIGKILL)
        return value

    return rows.select(udf(body, "string", useArrow=False)("body").alias("body"))


async def bodies(node: NodeProcess, queue: str = "out") -> list[int]:
    return sorted(int(body) for body in await stored_bodies(node.url, queue))


def stream(spark: "SparkSession", tmp_path: Path) -> "DataFrame":
    reader = spark.readStream.format("text").option("maxFilesPerTrigger", "1")
    return reader.load(str(tmp_path / "in")).withColumnRenamed("value", "body")


async def write(rows: "DataFrame", tmp_path: Path, url: str, **options: str) -> None:
    """Runs the query until all files are sent. Spark looks for a sink in the thread's own session, so that queries are
    started in the thread that has it."""
    writer = rows.writeStream.format("holdfast").option("url", url).option("address", "out").options(**options)
    query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    await asyncio.wait_for(asyncio.to_thread(query.awaitTermination), LIMIT_S)


async def test_a_batch_that_is_computed_again_on_other_cores_is_sent_once(
    spark: "SparkSession", tmp_path: Path, start_node: StartNode
) -> None:
    """Adaptive execution would cut the shuffle into as many partitions as there are cores for."""
    node = await start_node("hub")
    put_lines(tmp_path / "in", 1, 40)
    rows = in_order(stream(spark, tmp_path).repartition("body"), ["body"])
    name = "spark.sql.adaptive.coalescePartitions"
    try:
        spark.conf.set(f"{name}.minPartitionSize", "1b")
        for cores in ("2", "1"):
            spark.conf.set(f"{name}.minPartitionNum", cores)
            await write(rows, tmp_path, node.url)
            for file in ("commits/0", f"{DIRECTORY}/0"):  # as after a crash before the sink's end of the batch
                (tmp_path / "c" / file).unlink()
    finally:
        spark.conf.unset(f"{name}.minPartitionSize")
        spark.conf.unset(f"{name}.minPartitionNum")
    assert await bodies(node) == list(range(1, 41))


async def test_each_row_once_though_a_task_is_killed_and_batches_are_computed_again(
    spark: "SparkSession", tmp_path: Path, start_node: StartNode
) -> None:
    node = await start_node("hub")
    for number in range(3):
        put_lines(tmp_path / "in", 1_000 * number + 1, 1_000 * number + 1_000)
    rows = stream(spark, tmp_path).repartition(2)
    rows = dying(rows, tmp_path / "died", 300)
    await write(rows, tmp_path, node.url)
    assert (tmp_path / "died").exists()
    assert await bodies(node) == list(range(1, 3_001))
    # As after a crash between the sink's end of the batch and Spark's.
    (tmp_path / "c" / "commits" / "2").unlink()
    put_lines(tmp_path / "in", 3_001, 3_100)
    await write(rows, tmp_path, node.url)
    assert await bodies(node) == list(range(1, 3_101))
    # As after a crash before the sink's end of the batch.
    (tmp_path / "c" / "commits" / "3").unlink()
    (tmp_path / "c" / DIRECTORY / "3").unlink()
    await write(rows, tmp_path, node.url)
    assert await bodies(node) == list(range(1, 3_101))


async def test_an_older_copy_of_the_checkpoint_sends_nothing_and_says_so(
    spark: "SparkSession", tmp_path: Path, start_node: StartNode
) -> None:
    node = await start_node("hub")
    put_lines(tmp_path / "in", 1, 100)
    await write(stream(spark, tmp_path), tmp_path, node.url)
    shutil.copytree(tmp_path / "c", tmp_path / "old")
    put_lines(tmp_path / "in", 101, 200)
    await write(stream(spark, tmp_path), tmp_path, node.url)
    shutil.rmtree(tmp_path / "c")
    (tmp_path / "old").rename(tmp_path / "c")
    shutil.rmtree(tmp_path / "in")
    put_lines(tmp_path / "in", 301, 400)
    for _ in range(2):
        with pytest.raises(PySparkException) as caught:
            await write(stream(spark, tmp_path), tmp_path, node.url)
        said = first_line(caught.value)
        assert "the node has number 200" in said and "it is an older copy" in said
    assert await bodies(node) == list(range(1, 201))


async def test_a_mistake_ends_the_query_in_a_line(spark: "SparkSession", tmp_path: Path, start_node: StartNode) -> None:
    node = await start_node("hub")
    put_lines(tmp_path / "in", 1, 10)
    rows = stream(spark, tmp_path)
    with pytest.raises(PySparkException) as caught:
        await write(rows.selectExpr("body", "300 AS priority"), tmp_path, node.url)
    assert first_line(caught.value).startswith("row 1 of partition 0: invalid value 300 for priority; expected")
    with pytest.raises(PySparkException) as caught:
        await write(rows.selectExpr("body AS value"), tmp_path, node.url)
    assert first_line(caught.value).startswith("unknown column 'value'; expected some of address")
    with pytest.raises(ManagementError, match="404"):  # nothing was sent that would have made the queue
        await bodies(node)


async def test_a_dataframe_is_written_once_though_a_task_is_killed(
    spark: "SparkSession", tmp_path: Path, start_node: StartNode
) -> None:
    node = await start_node("hub")
    rows = spark.range(1, 3_001, numPartitions=2).selectExpr("cast(id AS string) AS body")

    def run(rows: "DataFrame", mode: str = "append", **options: str) -> None:
        rows.write.format("holdfast").mode(mode).option("url", node.url).options(**options).save()

    run(dying(rows, tmp_path / "died", 300), address="out")
    assert (tmp_path / "died").exists()
    assert await bodies(node) == list(range(1, 3_001))
    # A program that names its producer may be run again.
    for _ in range(2):
        run(rows, address="named", producer="nightly")
    assert await bodies(node, "named") == list(range(1, 3_001))
    with pytest.raises(PySparkException, match="invalid mode overwrite; expected append"):
        run(rows, "overwrite", address="out")
    with pytest.raises(PySparkException, match="option 'address' is missing, and there is no column 'address'"):
        run(rows)


async def test_rows_of_the_source_are_the_same_messages_again(
    spark: "SparkSession", tmp_path: Path, start_node: StartNode
) -> None:
    node = await start_node("hub")
    messages = [
        Message(properties=Properties(message_id="1", reply_to="r"), application_properties={"delay": 5}, data=[b"x"]),
        Message(value={"a": [1, 2.5, None]}),
        Message(sequences=[[1], ["b"]]),
        Message(value="text"),
        Message(properties=Properties(subject="no body")),
    ]
    async with await connect(node.url) as connection:
        sender = await connection.sender("in")
        for message in messages:
            await sender.post(message)
        await sender.drain()

    rows = spark.read.format("holdfast").option("url", node.url).option("address", "in").load()
    writer = rows.coalesce(1).write.format("holdfast").mode("append")
    writer.option("url", node.url).option("address", "out").save()
    async with await connect(node.url) as connection:
        receiver = await connection.receiver("out", start_sequence=1, end_sequence=len(messages) + 1)
        found = [delivery.message async for delivery in receiver]
    assert [exact_rest(message) for message in found] == [exact_rest(message) for message in messages]
    assert [message.application_properties for message in found] == [{"delay": 5}, None, None, None, None]


async def test_the_example_of_the_document(spark: "SparkSession", tmp_path: Path, start_node: StartNode) -> None:
    node = await start_node("hub")
    put_lines(tmp_path / "in", 1, 10)
    program = python_in("docs/spark.md", 'writeStream.format("holdfast")')
    program = program.replace("amqp://127.0.0.1:5672", node.url).replace("/data/", f"{tmp_path}/")
    names: dict[str, Any] = {"spark": spark}
    exec(program, names)
    await asyncio.wait_for(asyncio.to_thread(names["query"].awaitTermination), LIMIT_S)
    assert await bodies(node, "results") == list(range(1, 11))
