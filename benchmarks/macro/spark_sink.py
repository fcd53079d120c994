"""Parquet → bus by the Spark sink, against one program that sends the same bodies with the client library.

Each repetition sends `--messages` bodies of random bytes to a fresh queue, by a streaming query over Parquet files, in
triggers of `--rows` rows and two tasks, and by one program over one connection, which has them in memory; the order
changes with each repetition. Both end when the node has stored all. Prints one JSON object; progress on standard error.
"""

import argparse
import sys
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path

from _report import progress
from _spark_bus import TASKS, against_a_peer, bodies, fill, in_turn, stored, streamed, write_files
from pyspark.sql import SparkSession

from pyspark_holdfast import session

IN_MEMORY = 1000
"""Different bodies of the program that sends from memory, in turn."""


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

    def sink(queue: str) -> float:
        return by_sink(spark, source, url, queue, directory / f"{queue}.checkpoint")

    def client(queue: str) -> float:
        return by_client(url, queue, options)

    try:
        progress("a first query and a first program, which warm up")
        sink("warm")
        client("warm-client")
        return in_turn(options, "messages", sink, "client", client, lambda queue: stored(url, queue))
    finally:
        session.stop_session(spark)


def main(arguments: Sequence[str]) -> int:
    against_a_peer("spark_sink", __doc__, arguments, run)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
