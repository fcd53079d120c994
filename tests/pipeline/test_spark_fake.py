"""The source inside Spark, over a bus in a file: exact tables, restarts, and failures told in one line."""

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from holdfast.errors import ConfigError, HoldfastError
from pipeline.fake_bus import FakeQueue
from pyspark_holdfast.columns import COLUMNS, arrow_schema
from pyspark_holdfast.commands import _batch_log
from pyspark_holdfast.ingest import IngestJob, default_checkpoint, run_ingest
from pyspark_holdfast.queries import Progress
from pyspark_holdfast.tables import identities, read_arrow, read_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def job(tmp_path: Path, queue: FakeQueue, rows_max: int, *, available_now: bool = True) -> IngestJob:
    out = tmp_path / "table"
    options = {
        "url": "amqp://jane:secret@fake:1",
        "address": str(queue.path),
        "subscription": "s",
        "maxRowsPerTrigger": str(rows_max),
        "rowsPerPartition": "400",
        "rowsPerBatch": "100",
    }
    return IngestJob(
        options=options,
        out=out,
        checkpoint=default_checkpoint(out),
        available_now=available_now,
        trigger_s=0.05,
    )


def run(spark: "SparkSession", job: IngestJob) -> Progress:
    return run_ingest(spark, job, threading.Event(), lambda progress: None, source="fakebus")


def test_the_schema_is_what_spark_makes_of_the_columns(spark: "SparkSession") -> None:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    assert arrow_schema().equals(to_arrow_schema(StructType.fromDDL(COLUMNS), timezone="UTC"))


def test_everything_once_released_and_once_more(spark: "SparkSession", tmp_path: Path, queue: FakeQueue) -> None:
    queue.put(2_500)
    with _batch_log(str(tmp_path / "batches.log")):
        progress = run(spark, job(tmp_path, queue, 1_000))
    assert (progress.rows, progress.batches, progress.behind) == (2_500, 3, 0)
    told = [json.loads(line) for line in (tmp_path / "batches.log").read_text().splitlines()]
    assert [(line["batch"], line["rows"], line["late"]) for line in told] == [(0, 1_000, 0), (1, 1_000, 0), (2, 500, 0)]
    key = f"fake/{queue.path}"
    assert [line["behind"] for line in told] == [{key: 1_500}, {key: 500}, {key: 0}]
    assert len({line["query"] for line in told}) == 1 and all(line["seconds"] > 0 for line in told)
    assert queue.calls("advance") == [1_001, 2_001, 2_501]
    queue.put(500)
    run(spark, job(tmp_path, queue, 1_000))
    table = read_arrow(tmp_path / "table", ["sequence", "body"])
    assert table.column("sequence").to_pylist() == list(range(1, 3_001))
    assert table.column("body").to_pylist() == [str(n).encode() for n in range(1, 3_001)]
    found = identities(read_table(spark, tmp_path / "table")).first()
    assert found is not None
    assert found.asDict() == {
        "rows": 3_000, "sequences": 3_000, "message_ids": 3_000, "bodies": 3_000, "first": 1, "last": 3_000,
    }  # fmt: skip


def test_what_a_kill_in_the_first_batch_leaves_refuses_nothing(
    spark: "SparkSession", tmp_path: Path, queue: FakeQueue
) -> None:
    """Killed between the making of a file of the checkpoint and its renaming."""
    first = job(tmp_path, queue, rows_max=1_000)
    for log in ("offsets", "commits"):
        (first.checkpoint / log).mkdir(parents=True)
        (first.checkpoint / log / ".0.3f1c.tmp").write_bytes(b"v1\n{")
        (first.checkpoint / log / "..0.3f1c.tmp.crc").write_bytes(b"crc")
    queue.put(100)
    assert run(spark, first).rows == 100


def test_a_running_query_releases_when_idle_and_stops(spark: "SparkSession", tmp_path: Path, queue: FakeQueue) -> None:
    queue.put(700)
    stop = threading.Event()
    written = threading.Event()

    def tell(progress: Progress) -> None:
        if progress.rows == 700:
            written.set()

    failed: list[BaseException] = []

    def work() -> None:
        try:
            run_ingest(spark, job(tmp_path, queue, 500, available_now=False), stop, tell, source="fakebus")
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert written.wait(60)
    released = threading.Event()
    for _ in range(600):
        if queue.advanced() == 701 or released.wait(0.1):
            break
    stop.set()
    thread.join(30)
    assert not thread.is_alive() and not failed
    assert queue.advanced() == 701


def test_a_queue_made_anew_ends_the_query_in_one_line(spark: "SparkSession", tmp_path: Path, queue: FakeQueue) -> None:
    queue.put(10)
    run(spark, job(tmp_path, queue, 1_000))
    queue.make()
    queue.put(10)
    with pytest.raises(ConfigError) as caught:
        run(spark, job(tmp_path, queue, 1_000))
    assert "deleted and created again" in str(caught.value) and "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_successor_fences_a_running_query(spark: "SparkSession", tmp_path: Path, queue: FakeQueue) -> None:
    from pipeline.fake_bus import FakeBus
    from pyspark_holdfast.options import parse_options

    queue.put(100)
    running = job(tmp_path, queue, 50, available_now=False)
    taken = threading.Event()

    def tell(progress: Progress) -> None:
        if not taken.is_set():
            taken.set()
            bus = FakeBus(parse_options(running.options))
            bus.open("first", "take")
            bus.close()

    with pytest.raises(HoldfastError) as caught:
        run_ingest(spark, running, threading.Event(), tell, source="fakebus")
    assert "taken over" in str(caught.value) and "\n" not in str(caught.value)


def test_the_batch_reader_counts_what_is_there_and_advances_nothing(
    spark: "SparkSession", tmp_path: Path, queue: FakeQueue
) -> None:
    queue.put(1_000)
    reader = spark.read.format("fakebus").option("url", "amqp://jane:secret@fake:1")
    rows = reader.option("address", str(queue.path)).option("rowsPerPartition", "300").load()
    assert rows.count() == 1_000
    assert rows.agg({"sequence": "max"}).first()[0] == 1_000  # type: ignore[index]  # there is one row
    assert queue.calls("advance") == []
