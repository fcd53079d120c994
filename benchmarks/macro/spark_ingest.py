"""Bus → Parquet by the Spark source, against Spark streaming the same rows from local Parquet files.

Each repetition fills a fresh queue, reads it by one query into a fresh table, which the node lets go as the query's
checkpoint proves it, and lets the file source read a table with as many of the same rows, in the same session, in as
many triggers of as many tasks; the order changes with each repetition. Prints one JSON object; progress on standard
error.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from _figures import spread
from _report import begin, emit, progress
from _spark_bus import bodies, fill, from_bus, node, streamed
from pyspark.sql import SparkSession

from pyspark_holdfast import session
from pyspark_holdfast.ingest import default_checkpoint
from pyspark_holdfast.tables import read_arrow

GOAL = 0.5
"""Least ratio of our rows a second to the file source's."""
TASKS = 2
"""Tasks of a trigger, of both."""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--messages", type=int, default=500_000, help="rows (default %(default)s)")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body (default %(default)s)")
    parser.add_argument("--rows", type=int, default=50_000, help="rows of a trigger (default %(default)s)")
    parser.add_argument("--master", default="local[2]", help="Spark master (default %(default)s)")
    parser.add_argument("--repeat", type=int, default=5, help="runs of each (default %(default)s)")
    parser.add_argument("--data", type=Path, help="directory on a real disk (default: the temporary one)")
    parser.add_argument("--json-out", type=Path, help="write the report to this file as well")
    return parser.parse_args(arguments)


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
    seconds: dict[str, list[float]] = {"holdfast": [], "files": []}
    try:
        progress("a first table: warms up, and is the file source's input")
        warm, source = directory / "warm", directory / "source"
        from_queue(spark, url, warm, options)
        assert read_arrow(warm, ["sequence"]).num_rows == options.messages, "rows are missing"
        files = TASKS * -(-options.messages // options.rows)
        spark.read.parquet(str(warm)).repartition(files).write.parquet(str(source))
        from_files(spark, source, directory / "warm-files")
        for number in range(options.repeat):
            for which in ("holdfast", "files") if number % 2 == 0 else ("files", "holdfast"):
                out = directory / f"{which}-{number}"
                if which == "holdfast":
                    took = from_queue(spark, url, out, options)
                else:
                    took = from_files(spark, source, out)
                assert spark.read.parquet(str(out)).count() == options.messages, f"{out}: rows are missing"
                seconds[which].append(took)
                progress(f"{number + 1}/{options.repeat} {which}: {options.messages / took:,.0f} rows/s")
    finally:
        session.stop_session(spark)
    pairs = zip(seconds["holdfast"], seconds["files"], strict=True)
    return {
        "figure": "rows_per_s",
        "goal": GOAL,
        "ratio": spread([files / ours for ours, files in pairs], 3),
        "results": {which: spread([options.messages / took for took in all_]) for which, all_ in seconds.items()},
    }


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    base, report = begin("spark_ingest", options)
    with tempfile.TemporaryDirectory(dir=base, ignore_cleanup_errors=True) as name, node(Path(name), "bench") as url:
        report |= run(options, Path(name), url)
    emit(report, options.json_out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
