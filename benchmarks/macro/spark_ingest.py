"""Bus → Parquet by the Spark source, against Spark streaming the same rows from local Parquet files.

One node holds `--messages` durable messages. Each repetition reads all of them by a fresh copying subscription into a
fresh table, then the file source reads a table with the same rows, in the same session, with the same bounds of a
trigger; the order changes with each repetition. Prints one JSON object; progress on standard error.
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Event

from _figures import spread
from _report import emit, frame, progress
from pyspark.sql import SparkSession

from holdfast.client import connect
from pyspark_holdfast.ingest import IngestJob, default_checkpoint, run_ingest
from pyspark_holdfast.session import start_session, stop_session
from pyspark_holdfast.tables import read_arrow

GOAL = 0.5
"""Least ratio of our rows a second to the file source's."""
QUEUE = "rows"
FILES_MAX = 16
"""Files of the file source's input; it takes its bound in files, so each trigger's rows are whole files."""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--messages", type=int, default=200_000, help="rows (default %(default)s)")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body (default %(default)s)")
    parser.add_argument("--rows", type=int, default=100_000, help="rows of a trigger (default %(default)s)")
    parser.add_argument("--master", default="local[2]", help="Spark master (default %(default)s)")
    parser.add_argument("--repeat", type=int, default=5, help="runs of each (default %(default)s)")
    parser.add_argument("--data", type=Path, help="directory on a real disk (default: the temporary one)")
    parser.add_argument("--json-out", type=Path, help="write the report to this file as well")
    return parser.parse_args(arguments)


async def fill(url: str, messages: int, size: int) -> None:
    """A copying subscription that keeps everything, then the messages; each body begins with its number."""
    async with await connect(url) as connection:
        arguments = {"queue": QUEUE, "mode": "copy", "start": "first"}
        await connection.manage("OPEN", "holdfast:subscription", "keeper", arguments)
        sender = await connection.sender(QUEUE, in_doubt_max=2_000)
        for number in range(messages):
            await sender.submit(str(number).encode().ljust(size, b"."))
        await sender.close()


def from_bus(spark: SparkSession, url: str, out: Path, name: str, rows: int) -> float:
    """Seconds from starting the query to its end, everything released."""
    options = {
        "url": url, "address": QUEUE, "subscription": name, "mode": "copy", "maxRowsPerTrigger": str(rows),
    }  # fmt: skip
    job = IngestJob(options=options, out=out, checkpoint=default_checkpoint(out), available_now=True)
    began = time.perf_counter()
    run_ingest(spark, job, Event(), lambda told: None)
    return time.perf_counter() - began


def from_files(spark: SparkSession, source: Path, out: Path, files_a_trigger: int) -> float:
    schema = spark.read.parquet(str(source)).schema
    began = time.perf_counter()
    rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", files_a_trigger).parquet(str(source))
    writer = rows.writeStream.format("parquet").option("path", str(out))
    query = writer.option("checkpointLocation", str(default_checkpoint(out))).trigger(availableNow=True).start()
    query.awaitTermination()
    return time.perf_counter() - began


def make_source(spark: SparkSession, table: Path, source: Path, messages: int, rows: int) -> int:
    """The table's rows as files without a log; returns how many files make a trigger's rows."""
    a_trigger = max(1, FILES_MAX * rows // max(messages, rows))
    files = max(1, a_trigger * -(-messages // rows))
    spark.read.parquet(str(table)).repartition(files).write.parquet(str(source))
    return a_trigger


def run(options: argparse.Namespace, directory: Path, url: str) -> dict[str, object]:
    progress(f"sending {options.messages:,} messages")
    asyncio.run(fill(url, options.messages, options.size))
    spark = start_session("spark_ingest", logs=directory / "logs", master=options.master)
    seconds: dict[str, list[float]] = {"holdfast": [], "files": []}
    try:
        progress("a first table: warms up, and is the file source's input")
        warm = directory / "warm"
        from_bus(spark, url, warm, "warm", options.rows)
        assert read_arrow(warm, ["sequence"]).num_rows == options.messages, "rows are missing"
        source = directory / "source"
        a_trigger = make_source(spark, warm, source, options.messages, options.rows)
        from_files(spark, source, directory / "warm files", a_trigger)
        for number in range(options.repeat):
            for which in ("holdfast", "files") if number % 2 == 0 else ("files", "holdfast"):
                out = directory / f"{which} {number}"
                if which == "holdfast":
                    took = from_bus(spark, url, out, f"run-{number}", options.rows)
                else:
                    took = from_files(spark, source, out, a_trigger)
                assert spark.read.parquet(str(out)).count() == options.messages, f"{out}: rows are missing"
                seconds[which].append(took)
                progress(f"{number + 1}/{options.repeat} {which}: {options.messages / took:,.0f} rows/s")
    finally:
        stop_session(spark)
    pairs = zip(seconds["holdfast"], seconds["files"], strict=True)
    return {
        "figure": "rows_per_s",
        "goal": GOAL,
        "ratio": spread([files / ours for ours, files in pairs], 3),
        "results": {which: spread([options.messages / took for took in all_]) for which, all_ in seconds.items()},
    }


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    settings = {name: getattr(options, name) for name in ("messages", "size", "rows", "master", "repeat")}
    with tempfile.TemporaryDirectory(dir=options.data, ignore_cleanup_errors=True) as name:
        directory = Path(name)
        report = frame("spark_ingest", directory, settings)
        command = [sys.executable, "-m", "holdfast", "node", "--name", "bench", "--listen", "127.0.0.1:0"]
        with subprocess.Popen(
            [*command, "--data", str(directory / "node")], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as node:
            try:
                assert node.stdout is not None
                ready = dict(word.split("=", 1) for word in node.stdout.readline().split()[1:])
                report |= run(options, directory, f"amqp://{ready['amqp']}")
            finally:
                node.terminate()
    emit(report, options.json_out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
