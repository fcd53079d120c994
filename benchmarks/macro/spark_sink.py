"""Parquet → bus by the Spark sink, against one program that sends the same bodies with the client library.

Each repetition sends `--messages` bodies of random bytes to a fresh queue, by a streaming query over Parquet files, in
triggers of `--rows` rows and two tasks, and by one program over one connection, which has them in memory; the order
changes with each repetition. Both end when the node has stored all. Prints one JSON object; progress on standard error.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path

from _figures import spread
from _report import begin, emit, progress
from _spark_bus import bodies, fill, node, stored, streamed, write_files
from pyspark.sql import SparkSession

from pyspark_holdfast import session

GOAL = 0.5
"""Least ratio of the sink's messages a second to the client library's."""
TASKS = 2
IN_MEMORY = 1000
"""Different bodies of the program that sends from memory, in turn."""


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


def by_sink(spark: SparkSession, source: Path, url: str, queue: str, checkpoint: Path) -> float:
    rows = spark.readStream.schema("body binary").option("maxFilesPerTrigger", TASKS).parquet(str(source))
    return streamed(rows, "holdfast", {"url": url, "address": queue}, checkpoint)


def by_client(url: str, queue: str, options: argparse.Namespace) -> float:
    some = list(bodies(min(IN_MEMORY, options.messages), options.size))
    return fill(url, queue, islice(cycle(some), options.messages))


def run(options: argparse.Namespace, directory: Path, url: str) -> dict[str, object]:
    source = directory / "source"
    write_files(source, TASKS * -(-options.messages // options.rows), options.messages, options.size)
    spark = session.start_session("spark_sink", logs=directory / "logs", master=options.master)
    seconds: dict[str, list[float]] = {"holdfast": [], "client": []}
    try:
        progress("a first query and a first program, which warm up")
        by_sink(spark, source, url, "warm", directory / "warm.checkpoint")
        by_client(url, "warm-client", options)
        for number in range(options.repeat):
            for which in ("holdfast", "client") if number % 2 == 0 else ("client", "holdfast"):
                queue = f"{which}-{number}"
                if which == "holdfast":
                    took = by_sink(spark, source, url, queue, directory / f"{queue}.checkpoint")
                else:
                    took = by_client(url, queue, options)
                assert stored(url, queue) == options.messages, f"{queue}: not all messages once"
                seconds[which].append(took)
                progress(f"{number + 1}/{options.repeat} {which}: {options.messages / took:,.0f} messages/s")
    finally:
        session.stop_session(spark)
    pairs = zip(seconds["holdfast"], seconds["client"], strict=True)
    return {
        "figure": "messages_per_s",
        "goal": GOAL,
        "ratio": spread([client / ours for ours, client in pairs], 3),
        "results": {which: spread([options.messages / took for took in all_]) for which, all_ in seconds.items()},
    }


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    base, report = begin("spark_sink", options)
    with tempfile.TemporaryDirectory(dir=base, ignore_cleanup_errors=True) as name, node(Path(name), "bench") as url:
        report |= run(options, Path(name), url)
    emit(report, options.json_out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
