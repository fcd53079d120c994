"""The job behind `holdfast pipeline ingest`: a queue into a Parquet table, each message once (docs/spark.md).

Rules of this file: knows Spark and directories, no terminal and no signals. The table's own log,
`_spark_metadata`, is the truth about the table; checkpoint and table belong together, and a pair that cannot
be one is refused before Spark starts, since the file sink silently skips batches whose number it has seen.
"""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.errors import ConfigError, HoldfastError
from pyspark_holdfast.checkpoint import SINK_LOG, SinkLog, batches_in
from pyspark_holdfast.session import reason

POLL_S: Final = 1
LAST_EVENTS_S: Final = 5.0
"""How long the listener's last events may take once a query has ended; they come on a thread of their own."""

NO_WORKER: Final = "Python worker failed to connect back"
"""What Spark says where a Python process that it started is not up within 10 s, which no setting changes. On a busy
machine that happens now and then; the query begins again from its checkpoint."""
FAILED_STARTS_MAX: Final = 3
"""After so many starts in a row that ended so the failure is told; one that wrote a batch begins the count at 1."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestJob:
    """`options` are the source's (docs/spark.md) but checkpoint and sinkPath; `trigger_s` is ignored where
    `available_now`, which ends when what lay in the queue at the start is in the table."""

    options: dict[str, str]
    out: Path
    checkpoint: Path
    available_now: bool = False
    trigger_s: float = 1.0


@dataclass(slots=True)
class Progress:
    """Counts of this run: rows and batches written."""

    rows: int = 0
    batches: int = 0
    rows_per_s: float = 0.0


def default_checkpoint(out: Path) -> Path:
    """Beside the table, never inside it: a reader that lists the directory would take it for data."""
    return out.with_name(f"{out.name}.checkpoint")


def check_pair(out: Path, checkpoint: Path) -> None:
    """Raises ConfigError where `out` and `checkpoint` cannot have been written together."""
    if checkpoint == out or out in checkpoint.parents:
        raise ConfigError(f"{checkpoint} is inside the table {out}; give --checkpoint a place outside it")
    if out.exists() and not out.is_dir():
        raise ConfigError(f"invalid value {out} for --out; expected a directory or a new name")
    written = max(SinkLog(out).batches(), default=-1)
    planned = max(batches_in(checkpoint / "offsets"), default=-1)
    done = max(batches_in(checkpoint / "commits"), default=-1)
    if written > planned:
        known = f"knows none beyond {planned}" if planned >= 0 else "is empty or not there"
        raise ConfigError(
            f"table {out} holds batch {written}, checkpoint {checkpoint} {known}: Spark would skip what comes; give "
            "the checkpoint that the table was written with, or a new table with --out"
        )
    if done > written:
        raise ConfigError(
            f"table {out} ends at batch {written}, checkpoint {checkpoint} says that {done} is done; give --out the "
            "table that was written with it, or a new table with a new checkpoint"
        )
    # A first start that was killed leaves the sink's log made and empty.
    if written < 0 and planned < 0 and out.exists() and any(found.name != SINK_LOG for found in out.iterdir()):
        raise ConfigError(f"there are files in {out} that no ingest wrote; give --out an empty or new directory")


class _Listener(StreamingQueryListener):
    """Counts what a query writes. Its methods run on a thread of py4j's."""

    def __init__(self, progress: Progress, tell: Callable[[Progress], None]) -> None:
        self.progress = progress
        self.tell = tell
        self.ended = threading.Semaphore(0)
        """Released as each query has ended: one listener hears of all that a run starts."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        return

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        found = event.progress
        if found.numInputRows:
            self.progress.rows += found.numInputRows
            self.progress.batches += 1
            self.progress.rows_per_s = found.processedRowsPerSecond
            self.tell(self.progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        return

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        self.ended.release()


def start_query(spark: SparkSession, job: IngestJob, source: str = "holdfast") -> StreamingQuery:
    """The streaming query, running. Table and checkpoint are made where missing."""
    reader = spark.readStream.format(source)
    for key, value in job.options.items():
        reader = reader.option(key, value)
    rows = reader.option("checkpoint", str(job.checkpoint)).option("sinkPath", str(job.out)).load()
    writer = rows.writeStream.format("parquet").outputMode("append")
    writer = writer.option("path", str(job.out)).option("checkpointLocation", str(job.checkpoint))
    if job.available_now:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{max(1, round(job.trigger_s * 1000))} milliseconds")
    return writer.start()


def run_ingest(
    spark: SparkSession,
    job: IngestJob,
    stop: threading.Event,
    tell: Callable[[Progress], None],
    source: str = "holdfast",
) -> Progress:
    """Runs until `stop` is set, or to the end with `available_now`; `tell` hears of each batch.

    Raises ConfigError or HoldfastError with one line where the query fails.
    """
    check_pair(job.out, job.checkpoint)
    progress = Progress()
    listener = _Listener(progress, tell)
    try:
        spark.streams.addListener(listener)
        _run_queries(spark, job, stop, source, listener)
    except (PySparkException, Py4JError, OSError) as error:
        # A stop from the terminal reaches Spark's workers too: what they say of it is no failure.
        if not stop.is_set():
            raise failure(error, reason(error, spark)) from error
    finally:
        with suppress(Py4JError, OSError):  # a JVM that is gone has no listeners
            spark.streams.removeListener(listener)
    return progress


def _run_queries(spark: SparkSession, job: IngestJob, stop: threading.Event, source: str, listener: _Listener) -> None:
    """Runs the query to its end, and again where no Python worker came up for it (NO_WORKER)."""
    failed_starts = 0
    while not stop.is_set():
        batches = listener.progress.batches
        try:
            _run_query(spark, job, stop, source)
            listener.ended.acquire(timeout=LAST_EVENTS_S)
            return
        except (PySparkException, Py4JError) as error:
            if NO_WORKER not in str(error):
                raise
            listener.ended.acquire(timeout=LAST_EVENTS_S)  # events come on another thread, the last batch's among them
            failed_starts = 1 if listener.progress.batches > batches else failed_starts + 1
            if failed_starts >= FAILED_STARTS_MAX:
                raise
            log.warning("Spark's Python worker was not up within 10 s; the query begins again from its checkpoint")


def _run_query(spark: SparkSession, job: IngestJob, stop: threading.Event, source: str) -> None:
    query = start_query(spark, job, source)
    try:
        while not stop.is_set():
            if query.awaitTermination(POLL_S):
                break
    finally:
        query.stop()


def failure(error: BaseException, line: str) -> HoldfastError:
    """Spark's exception as one of ours that says `line`."""
    text = str(error)
    if "holdfast.errors.ConfigError:" in text or "QueueMadeAnew:" in text:
        return ConfigError(line)
    return HoldfastError(line)


def summary(progress: Progress, seconds: float, advanced: int | None) -> dict[str, Any]:
    """The last line that the verb prints. `advanced` is None where the node could not be asked."""
    return {
        "rows": progress.rows,
        "batches": progress.batches,
        "seconds": round(seconds, 3),
        "advanced": advanced,
    }
