"""Bus → Parquet by the Spark source, against Spark streaming the same rows from local Parquet files.

Each repetition fills a fresh queue, reads it by one query into a fresh table, which the node lets go as the query's
checkpoint proves it, and lets the file source read a table with as many of the same rows, in the same session, in as
many triggers of as many tasks; the order changes with each repetition. Prints one JSON object; progress on standard
error.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from _report import progress
from _spark_bus import TASKS, against_a_peer, bodies, fill, from_bus, in_turn, streamed
from pyspark.sql import SparkSession

from pyspark_holdfast import session
from pyspark_holdfast.ingest import default_checkpoint
from pyspark_holdfast.tables import read_arrow


def from_queue(spark: SparkSession, url: str, out: Path, options: argparse.Namespace) -> float:
    """Seconds to read a queue of its own, which is filled first."""
    queue = out.name
    fill(url, queue, bodies(options.messages, options.size))
    read = {
        "url": url, "address": queue, "subscription": "bench", "maxRowsPerTrigger": str(options.rows),
        "rowsPerPartition": str(-(-options.rows // TASKS)),
    }  # fmt: skip
    return from_bus(spark, read, out)


def from_files(spark: SparkSession, source: Path, out: Path) -> float:
    schema = spark.read.parquet(str(source)).schema
    rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", TASKS).parquet(str(source))
    return streamed(rows, "parquet", {"path": str(out)}, default_checkpoint(out))


def run(options: argparse.Namespace, directory: Path, url: str) -> dict[str, object]:
    spark = session.start_session("spark_ingest", logs=directory / "logs", master=options.master)
    warm, source = directory / "warm", directory / "source"
    try:
        progress("a first table: warms up, and is the file source's input")
        from_queue(spark, url, warm, options)
        assert read_arrow(warm, ["sequence"]).num_rows == options.messages, "rows are missing"
        files = TASKS * -(-options.messages // options.rows)
        spark.read.parquet(str(warm)).repartition(files).write.parquet(str(source))
        from_files(spark, source, directory / "warm-files")
        return in_turn(
            options,
            "rows",
            lambda name: from_queue(spark, url, directory / name, options),
            "files",
            lambda name: from_files(spark, source, directory / name),
            lambda name: spark.read.parquet(str(directory / name)).count(),
        )
    finally:
        session.stop_session(spark)


def main(arguments: Sequence[str]) -> int:
    against_a_peer("spark_ingest", __doc__, arguments, run)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
