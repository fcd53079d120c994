"""Bus → Parquet by one Spark query over 1, 2 and 4 nodes, the same rows in all: how reading scales with nodes.

Each repetition starts, for each number of nodes, that many node processes with an equal share of `--messages` durable
messages, and reads all of them by one streaming query with one fresh subscription into a fresh table; the order changes
with each repetition. Nodes, Spark and its workers share the machine, so reading scales only as far as its cores go: the
report has their number. Prints one JSON object; progress on standard error.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event

from _figures import spread
from _report import emit, frame, progress
from pyspark.sql import SparkSession

from holdfast.client import connect
from pyspark_holdfast.ingest import IngestJob, default_checkpoint, run_ingest
from pyspark_holdfast.session import start_session, stop_session
from pyspark_holdfast.tables import read_arrow

NODES = (1, 2, 4)
QUEUE = "rows"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--messages", type=int, default=200_000, help="rows of all nodes (default %(default)s)")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body (default %(default)s)")
    parser.add_argument("--rows", type=int, default=100_000, help="rows of a trigger (default %(default)s)")
    parser.add_argument("--partition", type=int, default=25_000, help="rows of a task (default %(default)s)")
    parser.add_argument("--master", default="local[*]", help="Spark master (default %(default)s)")
    parser.add_argument("--repeat", type=int, default=5, help="runs of each (default %(default)s)")
    parser.add_argument("--data", type=Path, help="directory on a real disk (default: the temporary one)")
    parser.add_argument("--json-out", type=Path, help="write the report to this file as well")
    return parser.parse_args(arguments)


@contextmanager
def node(directory: Path, name: str) -> Iterator[str]:
    """A node process; its URL."""
    command = [sys.executable, "-m", "holdfast", "node", "--name", name, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        [*command, "--data", str(directory / name)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            ready = dict(word.split("=", 1) for word in process.stdout.readline().split()[1:])
            yield f"amqp://{ready['amqp']}"
        finally:
            process.terminate()


async def fill(url: str, messages: int, size: int) -> None:
    """Bodies begin with their numbers, and do not compress."""
    async with await connect(url) as connection:
        sender = await connection.sender(QUEUE, in_doubt_max=2_000)
        for number in range(messages):
            await sender.submit(str(number).encode() + b" " + os.urandom(size))
        await sender.close()


def read(spark: SparkSession, urls: list[str], out: Path, options: argparse.Namespace) -> float:
    """Seconds from starting the query to its end, everything released."""
    job = IngestJob(
        options={
            "url": ",".join(urls), "address": QUEUE, "subscription": "bench", "onNodeAway": "fail",
            "maxRowsPerTrigger": str(options.rows), "rowsPerPartition": str(options.partition),
        },
        out=out, checkpoint=default_checkpoint(out), available_now=True,
    )  # fmt: skip
    began = time.perf_counter()
    run_ingest(spark, job, Event(), lambda told: None)
    return time.perf_counter() - began


def measured(spark: SparkSession, directory: Path, nodes: int, options: argparse.Namespace) -> float:
    """Rows a second with so many nodes."""
    share = options.messages // nodes
    with ExitStack() as stack:
        urls = [stack.enter_context(node(directory, f"n{number}")) for number in range(nodes)]
        for url in urls:
            asyncio.run(fill(url, share, options.size))
        took = read(spark, urls, directory / "table", options)
    rows = read_arrow(directory / "table", ["node", "sequence"]).num_rows
    assert rows == share * nodes, f"{rows} rows of {share * nodes}"
    return rows / took


def run(options: argparse.Namespace, directory: Path) -> dict[str, object]:
    spark = start_session("spark_nodes", logs=directory / "logs", master=options.master)
    rates: dict[int, list[float]] = {nodes: [] for nodes in NODES}
    try:
        progress("a first run, which warms up")
        (directory / "warm").mkdir()
        measured(spark, directory / "warm", 1, options)
        for number in range(options.repeat):
            for nodes in NODES if number % 2 == 0 else NODES[::-1]:
                with tempfile.TemporaryDirectory(dir=directory) as own:
                    rates[nodes].append(measured(spark, Path(own), nodes, options))
                progress(f"{number + 1}/{options.repeat} nodes {nodes}: {rates[nodes][-1]:,.0f} rows/s")
    finally:
        stop_session(spark)
    return {
        "figure": "rows_per_s",
        "cores": os.cpu_count(),
        "results": {str(nodes): spread(found) for nodes, found in rates.items()},
        "scaling": {
            str(nodes): spread([many / one for many, one in zip(rates[nodes], rates[1], strict=True)], 3)
            for nodes in NODES
        },
    }


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    names = ("messages", "size", "rows", "partition", "master", "repeat")
    with tempfile.TemporaryDirectory(dir=options.data, ignore_cleanup_errors=True) as name:
        directory = Path(name)
        report = frame("spark_nodes", directory, {name: getattr(options, name) for name in names})
        report |= run(options, directory)
    emit(report, options.json_out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
