"""Runs the pipeline that a file describes: `holdfast pipeline run` (docs/spark.md, "Jobs").

Rules of this file: knows Spark and directories, no terminal and no signals. Everything that can be wrong is checked
before Spark starts.
"""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.client.network.url import Url
from holdfast.errors import ConfigError
from pyspark_holdfast.bus import NodeUnreachable
from pyspark_holdfast.checkpoint import Checkpoint
from pyspark_holdfast.columns import FIELDS
from pyspark_holdfast.delta import FORMAT as DELTA
from pyspark_holdfast.delta import reach_delta
from pyspark_holdfast.delta_options import parse_delta_options
from pyspark_holdfast.ingest import check_pair, leaves_out
from pyspark_holdfast.job_file import Job
from pyspark_holdfast.leftovers import Leftovers
from pyspark_holdfast.node_bus import NodeLink
from pyspark_holdfast.options import SourceOptions, parse_options
from pyspark_holdfast.postgresql import FORMAT as POSTGRESQL
from pyspark_holdfast.postgresql import parse_postgresql_options, reach_table
from pyspark_holdfast.queries import Progress, run_queries
from pyspark_holdfast.sink_options import SinkOptions, parse_sink_options
from pyspark_holdfast.steps import check_places, check_steps, through

T = TypeVar("T")

ASKED_AT_ONCE: Final = 32
"""Nodes of the source that are asked for their names at the same time."""

FORMATS: Final = {"postgresql": POSTGRESQL, "delta": DELTA}
"""Of sinks whose name in a job is not that of their format."""


def source_options(job: Job) -> dict[str, str]:
    """All options of the job's source."""
    options = {**job.source, "checkpoint": str(job.checkpoint)}
    if job.sink.path is not None:
        options["sinkPath"] = str(job.sink.path)
    return options


def sink_options(job: Job) -> dict[str, str]:
    """All options of the job's sink."""
    options = {**job.sink.options, "checkpointLocation": str(job.checkpoint)}
    if job.sink.path is not None:
        options["path"] = str(job.sink.path)
    return options


def _of(part: str, parse: Callable[[Mapping[str, str]], T], options: Mapping[str, str]) -> T:
    """What `parse` makes of the options of a part, which its errors name."""
    try:
        return parse(options)
    except ConfigError as error:
        raise ConfigError(f"{part}: {error}") from None


def check_job(job: Job) -> SourceOptions:
    """The options of the source. Raises ConfigError where the job cannot run."""
    options = _of("source", parse_options, source_options(job))
    if options.subscription is None:
        raise ConfigError("source.subscription is missing; expected the name of this job's place in its queues")
    if options.ending_at is not None:
        raise ConfigError("source.endingAt belongs to a batch query of a program; leave it out")
    if job.sink.path is not None:
        check_pair(job.sink.path, job.checkpoint, "sink.path")
    Checkpoint(job.checkpoint, options.subscription).check()
    check_steps(job.steps)
    for column in () if job.steps else job.sink.partition_by:
        if column not in FIELDS:
            raise ConfigError(f"sink.partition_by names no column {column!r}; expected some of {', '.join(FIELDS)}")
    if job.sink.format == "postgresql":
        _of("sink", parse_postgresql_options, sink_options(job))
    if job.sink.format == "delta":
        _of("sink", parse_delta_options, sink_options(job))
    if job.sink.format == "holdfast":
        sink = _of("sink", parse_sink_options, sink_options(job))
        check_places(job.steps, by_column=sink.address is None)
        if sink.url in options.urls and _node_of(sink, "") == "":
            _check_apart(options, sink)
    return options


def reach(job: Job, options: SourceOptions) -> None:
    """Returns once the node of the source, if it has but one (of many, one may be away), and what the sink writes to
    have answered. Raises HoldfastError: Spark would take half a minute before anybody heard of a mistake there, or of a
    queue that another subscription takes."""
    names = [_source_at(options)] if len(options.urls) == 1 else _sources_at(options)
    if job.sink.format == "postgresql":
        reach_table(parse_postgresql_options(sink_options(job)))
    if job.sink.format == "delta":
        reach_delta(parse_delta_options(sink_options(job)))
    if job.sink.format == "holdfast":
        sink = parse_sink_options(sink_options(job))
        own = replace(options, urls=(sink.url,), ca_file=sink.ca_file, retry_s=sink.retry_s)
        if _node_of(sink, _at("sink", own, NodeLink.name)) in names:
            _check_apart(options, sink)


def _at(part: str, options: SourceOptions, ask: Callable[[NodeLink], str]) -> str:
    """What `ask` returns of the node of a part of a job, which its errors name."""
    link = NodeLink(options)
    try:
        return ask(link)
    except (ConfigError, NodeUnreachable) as error:
        raise type(error)(f"{part}: {error}") from error
    finally:
        link.close()


def _source_at(options: SourceOptions) -> str:
    """The name of a node of the source, at which the queues that are named can be read."""

    def ask(link: NodeLink) -> str:
        name = link.name()
        for address in options.addresses:
            if not address.is_pattern:
                link.bus(address.name).check()
        return name

    return _at("source", options, ask)


def _sources_at(options: SourceOptions) -> list[str]:
    """The names of those of the source's nodes that are there."""

    def name(url: Url) -> str | None:
        try:
            return _source_at(replace(options.at(url), retry_s=0.0))
        except NodeUnreachable:
            return None

    with ThreadPoolExecutor(ASKED_AT_ONCE) as threads:
        return [found for found in threads.map(name, options.urls) if found is not None]


def _node_of(sink: SinkOptions, own: str) -> str:
    """The node whose queue the sink writes into; `own`: that which its URL reaches."""
    node = (sink.address or "").rpartition("@")
    if not node[1] or node[2] in ("", "localhost", sink.url.host, f"{sink.url.host}:{sink.url.port}"):
        return own
    return node[2] if sink.url.vhost is None else f"{sink.url.vhost}@{node[2]}"


def _check_apart(options: SourceOptions, sink: SinkOptions) -> None:
    """Raises ConfigError where the sink, which writes to a node that the source reads, writes into what it reads."""
    queue = None if sink.address is None else sink.address.rpartition("@")[0] or sink.address
    if queue is None or any(address.matching([queue]) for address in options.addresses):
        raise ConfigError(
            f"the sink writes into queue {sink.address or options.address!r} at {sink.url}, which the source reads; "
            "give sink.address another"
        )


def start_job(spark: SparkSession, job: Job, *, available_now: bool) -> StreamingQuery:
    """The job's query, running."""
    reader = spark.readStream.format("holdfast")
    for key, value in source_options(job).items():
        reader = reader.option(key, value)
    return _writing(through(reader.load(), job.steps), job, available_now=available_now)


def _writing(rows: DataFrame, job: Job, *, available_now: bool) -> StreamingQuery:
    writer = rows.writeStream.format(FORMATS.get(job.sink.format, job.sink.format)).outputMode("append")
    for key, value in sink_options(job).items():
        writer = writer.option(key, value)
    if job.sink.partition_by:
        writer = writer.partitionBy(*job.sink.partition_by)
    if available_now:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{max(1, round(job.trigger_s * 1000))} milliseconds").start()


def run_job(
    spark: SparkSession,
    job: Job,
    stop: threading.Event,
    tell: Callable[[Progress], None],
    *,
    available_now: bool,
) -> Progress:
    """Runs until `stop` is set, or to the end with `available_now`; `tell` hears of each batch. Raises HoldfastError
    with one line where the query fails."""
    return run_queries(
        spark,
        lambda: start_job(spark, job, available_now=available_now),
        stop,
        tell,
        leaves_out=leaves_out(job.source),
    )


def places_of(options: SourceOptions) -> Mapping[str, int]:
    """By queue, the sequence below which every message is in the sink, as the checkpoint proves."""
    assert options.checkpoint is not None and options.subscription is not None
    proven = Checkpoint(options.checkpoint, options.subscription).proven()
    if proven is None:
        return {}
    left = Leftovers(options.checkpoint, options.subscription).after(proven.batch, proven.lines)
    places = {key: place for line in proven.lines for key, place in sorted(line.places.items())}
    return {key: place.before(left.get(key)).seq for key, place in places.items()}


def summary(progress: Progress, seconds: float, places: Mapping[str, int]) -> dict[str, Any]:
    """The last line that the verb prints."""
    return {
        "rows": progress.rows,
        "batches": progress.batches,
        "seconds": round(seconds, 3),
        "late": progress.late,
        "at": dict(places),
    }
