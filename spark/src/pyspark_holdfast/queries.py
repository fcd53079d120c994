"""Streaming queries run to their end, or until they are told to stop, and what is told of them.

Rules of this file: knows Spark, no terminal and no signals; what a query reads and writes is its caller's.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryTerminatedEvent,
)
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.errors import ConfigError, HoldfastError
from pyspark_holdfast.batch_log import BatchLog, lag_of, late_of
from pyspark_holdfast.session import first_line, reason

POLL_S: Final = 1
LAST_EVENTS_S: Final = 5.0
"""How long the listener's last events may take once a query has ended; they come on a thread of their own."""

NO_WORKER: Final = "Python worker failed to connect back"
"""What Spark says where a Python process that it started is not up within 10 s, which no setting changes. On a busy
machine that happens now and then; the query begins again from its checkpoint."""
UNREACHABLE: Final = "pyspark_holdfast.bus.NodeUnreachable:"
"""What Python says where a task's node is away. A query that may leave that out begins again, and does."""
FAILED_STARTS_MAX: Final = 3
"""After so many starts in a row that ended so the failure is told; one that wrote a batch begins the count at 1."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Progress:
    """Counts of this run: rows read and batches written; `late`: rows that came too late for their window; `behind`:
    what lay in the queues behind the last batch."""

    rows: int = 0
    batches: int = 0
    rows_per_s: float = 0.0
    late: int = 0
    behind: int = 0


class _Listener(BatchLog):
    """Counts what a query writes, and logs its batches. Its methods run on a thread of py4j's."""

    def __init__(self, progress: Progress, tell: Callable[[Progress], None]) -> None:
        self.progress = progress
        self.tell = tell
        self.ended = threading.Semaphore(0)
        """Released as each query has ended: one listener hears of all that a run starts."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        super().onQueryProgress(event)
        found = event.progress
        late = late_of(found)
        if late:
            self.progress.late += late
            log.warning("batch %d: %d rows came later than the watermark, and are left out", found.batchId, late)
        if found.numInputRows:
            self.progress.rows += found.numInputRows
            self.progress.batches += 1
            self.progress.rows_per_s = found.processedRowsPerSecond
            self.progress.behind = sum(lag_of(found).values())
            self.tell(self.progress)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        self.ended.release()


def run_queries(
    spark: SparkSession,
    start: Callable[[], StreamingQuery],
    stop: threading.Event,
    tell: Callable[[Progress], None],
    *,
    leaves_out: bool = False,
) -> Progress:
    """Runs what `start` begins until `stop` is set, or to its end; `tell` hears of each batch. `leaves_out`: a batch
    may do without a node that is away, once it is begun again.

    Raises ConfigError or HoldfastError with one line where the query fails.
    """
    progress = Progress()
    listener = _Listener(progress, tell)
    try:
        spark.streams.addListener(listener)
        _run_queries(start, stop, listener, (NO_WORKER, UNREACHABLE) if leaves_out else (NO_WORKER,))
    except (PySparkException, Py4JError, OSError) as error:
        # A stop from the terminal reaches Spark's workers too: what they say of it is no failure.
        if not stop.is_set():
            raise failure(error, reason(error, spark)) from error
    finally:
        with suppress(Py4JError, OSError):  # a JVM that is gone has no listeners
            spark.streams.removeListener(listener)
    return progress


def _run_queries(
    start: Callable[[], StreamingQuery], stop: threading.Event, listener: _Listener, passing: Sequence[str]
) -> None:
    """Runs the query to its end, and again where it fails with one of the texts `passing`."""
    failed_starts = 0
    while not stop.is_set():
        batches = listener.progress.batches
        try:
            _run_query(start, stop)
            listener.ended.acquire(timeout=LAST_EVENTS_S)
            return
        except (PySparkException, Py4JError) as error:
            if not any(text in str(error) for text in passing):
                raise
            listener.ended.acquire(timeout=LAST_EVENTS_S)  # events come on another thread, the last batch's among them
            failed_starts = 1 if listener.progress.batches > batches else failed_starts + 1
            if failed_starts >= FAILED_STARTS_MAX:
                raise
            no_worker = NO_WORKER in str(error)
            why = "Spark's Python worker was not up within 10 s" if no_worker else first_line(error)
            log.warning("%s; the query begins again from its checkpoint", why)


def _run_query(start: Callable[[], StreamingQuery], stop: threading.Event) -> None:
    query = start()
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
