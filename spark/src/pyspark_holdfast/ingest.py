"""The job behind `holdfast pipeline ingest`: a queue into a Parquet table, each message once (docs/spark.md).

Rules of this file: knows Spark and directories, no terminal and no signals. The table's own log,
`_spark_metadata`, is the truth about the table; checkpoint and table belong together, and a pair that cannot
be one is refused before Spark starts, since the file sink silently skips batches whose number it has seen.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.errors import ConfigError
from pyspark_holdfast.checkpoint import SINK_LOG, SinkLog, batches_in
from pyspark_holdfast.damage import is_torn
from pyspark_holdfast.queries import Progress, run_queries


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestJob:
    """`options` are the source's (docs/spark.md) but checkpoint and sinkPath; `trigger_s` is ignored where
    `available_now`, which ends when what lay in the queue at the start is in the table."""

    options: dict[str, str]
    out: Path
    checkpoint: Path
    available_now: bool = False
    trigger_s: float = 1.0


def default_checkpoint(out: Path) -> Path:
    """Beside the table, never inside it: a reader that lists the directory would take it for data."""
    return out.with_name(f"{out.name}.checkpoint")


def check_pair(out: Path, checkpoint: Path, option: str = "--out") -> None:
    """Raises ConfigError where `out`, which `option` gives, and `checkpoint` cannot have been written together."""
    if checkpoint == out or out in checkpoint.parents:
        raise ConfigError(f"{checkpoint} is inside the table {out}; give the checkpoint a place outside it")
    if out.exists() and not out.is_dir():
        raise ConfigError(f"invalid value {out} for {option}; expected a directory or a new name")
    logs = SinkLog(out).batches()
    written = max(logs, default=-1)
    planned = max(batches_in(checkpoint / "offsets"), default=-1)
    done = max(batches_in(checkpoint / "commits"), default=-1)
    if written >= 0 and is_torn(logs[written]):
        raise ConfigError(
            f"table {out}: {logs[written]} is not whole, as after a power loss; remove it and "
            f"{checkpoint / 'commits' / str(written)}, each with its .crc: the batch is written anew"
        )
    if written > planned:
        known = f"knows none beyond {planned}" if planned >= 0 else "is empty or not there"
        raise ConfigError(
            f"table {out} holds batch {written}, checkpoint {checkpoint} {known}: Spark would skip what comes; give "
            f"the checkpoint that the table was written with, or a new table with {option}"
        )
    if done > written:
        raise ConfigError(
            f"table {out} ends at batch {written}, checkpoint {checkpoint} says that {done} is done; give {option} the "
            "table that was written with it, or a new table with a new checkpoint"
        )
    # A first start that was killed leaves the sink's log made and empty.
    if written < 0 and planned < 0 and out.exists() and any(found.name != SINK_LOG for found in out.iterdir()):
        raise ConfigError(f"there are files in {out} that no query wrote; give {option} an empty or new directory")


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


def leaves_out(options: Mapping[str, str]) -> bool:
    """Whether a source with these options may leave out a node that is away."""
    return any(key.lower() == "onnodeaway" and value.lower() == "leaveout" for key, value in options.items())


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
    return run_queries(spark, lambda: start_query(spark, job, source), stop, tell, leaves_out=leaves_out(job.options))


def summary(progress: Progress, seconds: float, advanced: int | None) -> dict[str, Any]:
    """The last line that the verb prints. `advanced` is None where the node could not be asked."""
    return {
        "rows": progress.rows,
        "batches": progress.batches,
        "seconds": round(seconds, 3),
        "advanced": advanced,
    }
