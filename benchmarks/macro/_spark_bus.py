"""What the benchmarks of Spark share: nodes, messages in them, tables of Parquet, and queries that are timed.

Rules of this file: bodies are random bytes, so neither Parquet nor anything else makes them small; a time is from the
start of a query to its end, when the node has been told of the last batch.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pyarrow as pa
import pyarrow.parquet as parquet
from _figures import spread
from _report import begin, emit, progress
from pyspark.sql import DataFrame, SparkSession

from holdfast.client import connect
from pyspark_holdfast.ingest import IngestJob, default_checkpoint, run_ingest

IN_DOUBT_MAX = 1000
"""Messages without an outcome: the client's default, and what the Spark sink has too."""
GOAL = 0.5
"""Least ratio of our rows or messages a second to the peer's."""
TASKS = 2
"""Tasks of a trigger, of both."""


def against_a_peer(
    name: str, document: str | None, arguments: Sequence[str], run: Callable[[argparse.Namespace, Path, str], object]
) -> None:
    """A benchmark as a program: its options, a directory, a node and its URL; then its report, `name` with what `run`
    returns."""
    parser = argparse.ArgumentParser(description=(document or "").partition("\n")[0])
    parser.add_argument("--messages", type=int, default=500_000, help="rows (default %(default)s)")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body (default %(default)s)")
    parser.add_argument("--rows", type=int, default=50_000, help="rows of a trigger (default %(default)s)")
    parser.add_argument("--master", default="local[2]", help="Spark master (default %(default)s)")
    parser.add_argument("--repeat", type=int, default=5, help="runs of each (default %(default)s)")
    parser.add_argument("--data", type=Path, help="directory on a real disk (default: the temporary one)")
    parser.add_argument("--json-out", type=Path, help="write the report to this file as well")
    options = parser.parse_args(arguments)
    base, report = begin(name, options)
    with tempfile.TemporaryDirectory(dir=base, ignore_cleanup_errors=True) as made, node(Path(made), "bench") as url:
        report |= run(options, Path(made), url)
    emit(report, options.json_out)


Timed = Callable[[str], float]
"""Seconds that a repetition of that name takes."""


def in_turn(
    options: argparse.Namespace, what: str, ours: Timed, peer: str, theirs: Timed, count: Callable[[str], int]
) -> dict[str, object]:
    """Both, `options.repeat` times, the order changed each time. `what` is counted: rows or messages; `count`: how many
    there are after the repetition of that name."""
    runs, seconds = {"holdfast": ours, peer: theirs}, {"holdfast": list[float](), peer: list[float]()}
    for number in range(options.repeat):
        for which in list(runs)[:: 1 if number % 2 == 0 else -1]:
            name = f"{which}-{number}"
            took = runs[which](name)
            assert count(name) == options.messages, f"{name}: not all {what} once"
            seconds[which].append(took)
            progress(f"{number + 1}/{options.repeat} {which}: {options.messages / took:,.0f} {what}/s")
    pairs = zip(seconds["holdfast"], seconds[peer], strict=True)
    return {
        "figure": f"{what}_per_s",
        "goal": GOAL,
        "ratio": spread([peers / own for own, peers in pairs], 3),
        "results": {which: spread([options.messages / took for took in all_]) for which, all_ in seconds.items()},
    }


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


def bodies(messages: int, size: int) -> Iterator[bytes]:
    return (os.urandom(size) for _ in range(messages))


def fill(url: str, queue: str, messages: Iterable[bytes]) -> float:
    """Seconds in which one program sends them over one connection, until all are stored."""
    return asyncio.run(_fill(url, queue, messages))


async def _fill(url: str, queue: str, messages: Iterable[bytes]) -> float:
    async with await connect(url) as connection:
        began = time.perf_counter()
        sender = await connection.sender(queue, in_doubt_max=IN_DOUBT_MAX)
        for body in messages:
            await sender.submit(body)
        await sender.close()
        return time.perf_counter() - began


def stored(url: str, queue: str) -> int:
    """How many messages the queue has ever had."""

    async def ask() -> int:
        async with await connect(url) as connection:
            return int((await connection.manage("READ", "holdfast:queue", queue))["next_sequence"]) - 1

    return asyncio.run(ask())


def from_bus(spark: SparkSession, options: Mapping[str, str], out: Path) -> float:
    """Seconds in which a query reads all that is there into a table; the node lets it go meanwhile."""
    job = IngestJob(options=dict(options), out=out, checkpoint=default_checkpoint(out), available_now=True)
    began = time.perf_counter()
    run_ingest(spark, job, Event(), lambda told: None)
    return time.perf_counter() - began


def streamed(rows: DataFrame, form: str, options: Mapping[str, str], checkpoint: Path) -> float:
    """Seconds in which a query writes all rows there are."""
    writer = rows.writeStream.format(form).options(**options).option("checkpointLocation", str(checkpoint))
    began = time.perf_counter()
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return time.perf_counter() - began


def write_files(directory: Path, files: int, messages: int, size: int) -> None:
    """Parquet files of one column, `body`, with an equal share of the messages each."""
    directory.mkdir(parents=True)
    for number in range(files):
        share = messages * (number + 1) // files - messages * number // files
        table = pa.table({"body": pa.array(list(bodies(share, size)), pa.binary())})
        parquet.write_table(table, str(directory / f"{number:04}.parquet"))
