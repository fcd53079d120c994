"""`holdfast pipeline ingest | run | compact | swarm | sweep | report`: arguments, signals, terminal, exit code.

Rules of this file: everything heavy is imported after the arguments were checked. Progress is drawn on a
terminal and nowhere else; the last line on standard error is the summary, as JSON. SIGTERM and Ctrl-C end the
query between two steps and leave no process behind.
"""

import argparse
import getpass
import logging
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.columns import counted
from holdfast.errors import ConfigError, HoldfastError, missing_package
from holdfast.lines import json_line, say
from holdfast.units import MIB
from pyspark_holdfast.addresses import escaped
from pyspark_holdfast.running import SIGNAL_CODES, draw, on_spark, tasks_drawn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pyspark_holdfast.ingest import IngestJob
    from pyspark_holdfast.queries import Progress

TRIGGER_S: Final = 1.0
UNFINISHED: Final = "_temporary"
"""Spark's directory in a table for what it has not finished."""
ASK_S: Final = 2.0
"""How long the node is asked for the place reached, at the end."""


def ingest(args: argparse.Namespace) -> int:
    """`args`: address, url, password_file, retry, out, checkpoint, subscription, start, master, max_rows,
    trigger_s, available_now (docs/spark.md). Returns 0, or 130 if Ctrl-C ended it; raises HoldfastError with one line.
    """
    try:
        from pyspark_holdfast.checkpoint import Checkpoint
        from pyspark_holdfast.ingest import check_pair
        from pyspark_holdfast.node_bus import NodeBus
        from pyspark_holdfast.options import parse_options
    except ModuleNotFoundError as error:
        raise missing_package(error.name, "./spark") from None
    job = _job(args)
    options = parse_options(job.options)
    check_writable("--out", job.out)
    check_writable("--checkpoint", job.checkpoint)
    check_pair(job.out, job.checkpoint)
    assert options.subscription is not None
    Checkpoint(job.checkpoint, options.subscription).check()
    draw(f"asking {options.url} …")
    bus = NodeBus(options)
    try:
        bus.reach()  # Spark would take half a minute before anybody heard of a mistake there
        bus.check()
    finally:
        bus.close()
        draw("")
    from pyspark_holdfast.queries import Progress

    def work(spark: "SparkSession", stop: threading.Event) -> Progress:
        from pyspark_holdfast.ingest import run_ingest

        return run_ingest(spark, job, stop, _draw_progress)

    with _batch_log(args.batch_log):
        ran = on_spark("ingest", args.master, work, Progress())
    from pyspark_holdfast.ingest import summary

    advanced: int | None = None
    bus = NodeBus(options, retry_s=ASK_S, manage_limit_s=ASK_S)
    try:
        advanced = bus.advanced()
    except HoldfastError as error:
        say(f"holdfast pipeline ingest: the place reached is not known: {error}", file=sys.stderr)
    finally:
        bus.close()
    say(json_line(summary(ran.result, ran.seconds, advanced)), file=sys.stderr, flush=True)
    return ran.code


def run(args: argparse.Namespace) -> int:
    """`args`: file, master, available_now (docs/spark.md, "Jobs"). Returns 0, or 130 if Ctrl-C ended it; raises
    HoldfastError with one line."""
    from pyspark_holdfast.job_file import read_job

    job = read_job(args.file)
    try:
        from pyspark_holdfast.jobs import check_job, places_of, reach, run_job, summary
        from pyspark_holdfast.queries import Progress
    except ModuleNotFoundError as error:
        raise missing_package(error.name, "./spark") from None
    try:
        options = check_job(job)
    except ConfigError as error:
        raise ConfigError(f"{args.file}: {error}") from None
    check_writable("checkpoint", job.checkpoint)
    if job.sink.path is not None:
        check_writable("sink.path", job.sink.path)
    draw("asking what the job reads and writes …")
    try:
        reach(job, options)
    except ConfigError as error:
        raise ConfigError(f"{args.file}: {error}") from None
    finally:
        draw("")

    def work(spark: "SparkSession", stop: threading.Event) -> Progress:
        return run_job(spark, job, stop, _draw_progress, available_now=args.available_now)

    with _batch_log(args.batch_log):
        ran = on_spark("run", args.master, work, Progress())
    say(json_line(summary(ran.result, ran.seconds, places_of(options))), file=sys.stderr, flush=True)
    return ran.code


def compact_table(args: argparse.Namespace) -> int:
    """`args`: table, file_mib, keep (docs/spark.md, "Small files")."""
    try:
        import pyarrow  # noqa: F401  # said before anything is read
    except ModuleNotFoundError as error:
        raise missing_package(error.name, "./spark") from None
    from pyspark_holdfast.compaction import compact

    found = compact(Path(args.table).absolute(), file_bytes=args.file_mib * MIB, keep_s=args.keep)
    say(json_line(found._asdict()), flush=True)
    return 0


def swarm(args: argparse.Namespace) -> int:
    """`args`: scenario, seeds, first_seed, master, out (docs/simulator.md). Returns 1 where a seed failed, and 130
    where Ctrl-C ended it."""

    def verdicts(spark: "SparkSession", slots: int) -> "DataFrame":
        from pyspark_holdfast import swarm_job

        return swarm_job.verdicts(spark, args.scenario, first_seed=args.first_seed, seeds=args.seeds, slots=slots)

    stopped = f"stopped before all {args.seeds} seeds had run; nothing was written"
    return _into_table(
        "swarm", args, lambda spark, slots: [verdicts(spark, slots)], stopped=lambda: stopped, meanwhile=tasks_drawn
    )


def sweep(args: argparse.Namespace) -> int:
    """`args`: file, master, out, resume (docs/mpls.md). Returns 1 where a run failed. The table grows by parts
    (sweep_parts.py), so that one that was ended can go on from there."""
    from pyspark_holdfast.sweep_file import read_sweep

    wanted = read_sweep(args.file)
    todo = wanted
    if args.resume:
        try:
            from pyspark_holdfast.sweep_table import still_to_do
        except ModuleNotFoundError as error:
            raise missing_package(error.name, "./spark") from None
        todo = still_to_do(args.file, wanted, Path(args.out).absolute())
        say(f"{len(wanted) - len(todo)} of {len(wanted)} runs are in {args.out}", file=sys.stderr, flush=True)

    done = [len(wanted) - len(todo)]

    def verdicts(spark: "SparkSession", slots: int) -> "Iterator[DataFrame]":
        from pyspark_holdfast import swarm_job
        from pyspark_holdfast.sweep_parts import Forecast, parts, told

        forecast, began = Forecast(todo, slots), time.monotonic()
        say(
            f"{counted(len(todo), 'run')} to make, {slots} at once{told(forecast.left_s(0.0))}",
            file=sys.stderr,
            flush=True,
        )
        for part in parts(todo, slots):
            yield swarm_job.swept(spark, part, slots=slots)
            done[0] += len(part)
            forecast.made(part, slots)
            left = told(forecast.left_s(time.monotonic() - began)) if done[0] < len(wanted) else ""
            say(f"{done[0]} of {len(wanted)} runs{left}", file=sys.stderr, flush=True)

    def stopped() -> str:
        further = "; --resume does the others" if done[0] else ""
        return f"stopped; {done[0]} of {len(wanted)} runs are in {args.out}{further}"

    return _into_table("sweep", args, verdicts, stopped=stopped, resume=args.resume)


def report(args: argparse.Namespace) -> int:
    """`args`: tables, page, picture, json (docs/results/traffic-control.md). Returns 1 where a line does not hold."""
    try:
        import pyarrow  # noqa: F401  # said before anything is read
    except ModuleNotFoundError as error:
        raise missing_package(error.name, "./spark") from None
    from pyspark_holdfast.traffic.report import report_traffic

    return report_traffic(args)


def _into_table(
    what: str,
    args: argparse.Namespace,
    verdicts: "Callable[[SparkSession, int], Iterable[DataFrame]]",
    *,
    stopped: Callable[[], str],
    resume: bool = False,
    meanwhile: "Callable[[SparkSession], AbstractContextManager[None]]" = lambda spark: nullcontext(),
) -> int:
    """Writes the rows to `args.out`, by `args.master`, a part after the other; returns 1 where one of them failed.
    `stopped`: what is said where a signal ends it before all are there. `resume`: there may be a table already.
    `meanwhile`: what shows how far it is."""
    from pyspark_holdfast.options import local_path

    out = local_path("--out", args.out)
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not resume)):
        raise ConfigError(f"there are files in {out}; give --out an empty or new directory")
    check_writable("--out", out)
    try:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException

        from pyspark_holdfast.session import reason
        from pyspark_holdfast.swarm_job import summary
    except ModuleNotFoundError as error:
        raise missing_package(error.name, "./spark") from None

    def work(spark: "SparkSession", stop: threading.Event) -> dict[str, Any] | None:
        try:
            with meanwhile(spark):
                for part in verdicts(spark, spark.sparkContext.defaultParallelism):
                    part.write.mode("append").parquet(str(out))
            return summary(spark.read.parquet(str(out)))
        except (PySparkException, Py4JError, OSError) as error:
            if stop.is_set():
                return None
            raise HoldfastError(reason(error, spark)) from error

    ran = on_spark(what, args.master, work, None, cancel=True)
    found = ran.result
    if found is None:
        shutil.rmtree(out / UNFINISHED, ignore_errors=True)
        with suppress(OSError):  # the runs that came into it stay
            out.rmdir()
        assert ran.signal is not None
        say(f"holdfast pipeline {what}: {stopped()}", file=sys.stderr, flush=True)
        return SIGNAL_CODES + ran.signal
    for failure in found.pop("failures"):
        say(f"failed: {failure}", file=sys.stderr)
    say(json_line(found | {"wall_s": round(ran.seconds, 3)}), flush=True)
    return 1 if found["failed"] else 0


def check_writable(option: str, directory: Path) -> None:
    """Raises ConfigError where no file could be made in it; of one that is to be made, in the nearest that is there.

    Makes no directory: another command may be about to use the same.
    """
    try:
        for place in (directory, *directory.parents):
            try:
                place.lstat()
            except FileNotFoundError:
                continue
            with tempfile.TemporaryFile(dir=place):
                return
    except OSError as error:
        reason = error.strerror or str(error)
        text = f"invalid value {directory} for {option} ({reason}); expected a directory that can be written"
        raise ConfigError(text) from None


@contextmanager
def _batch_log(file: str | None) -> Iterator[None]:
    """A line of JSON for each batch goes to the end of that file."""
    if file is None:
        yield
        return
    from pyspark_holdfast.batch_log import LOGGER, BatchFile

    try:
        handler = BatchFile(file)
    except OSError as error:
        reason = error.strerror or str(error)
        text = f"invalid value {file} for --batch-log ({reason}); expected a file that can be written"
        raise ConfigError(text) from None
    log = logging.getLogger(LOGGER)
    level, log.propagate = log.level, False
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        log.propagate = True
        handler.close()


def _job(args: argparse.Namespace) -> "IngestJob":
    from pyspark_holdfast.ingest import IngestJob, default_checkpoint
    from pyspark_holdfast.options import local_path

    out = local_path("--out", args.out)
    checkpoint = local_path("--checkpoint", args.checkpoint) if args.checkpoint else default_checkpoint(out)
    options = {
        "url": _with_prompted_password(_with_vhost(args.url, args.vhost), args.password_file),
        "address": escaped(args.address),
        "subscription": args.subscription or f"pipeline-{out.name}",
        "startingFrom": args.start,
        "retrySeconds": str(args.retry),
    }
    if args.password_file:
        options["passwordFile"] = str(Path(args.password_file).absolute())
    if args.ca_file:
        options["caFile"] = str(Path(args.ca_file).absolute())
    if args.max_rows is not None:
        options["maxRowsPerTrigger"] = str(args.max_rows)
    return IngestJob(
        options=options,
        out=out,
        checkpoint=checkpoint,
        available_now=args.available_now,
        trigger_s=TRIGGER_S if args.trigger_s is None else args.trigger_s,
    )


def _with_vhost(url: str, vhost: str | None) -> str:
    if vhost is None:
        return url
    from holdfast.client.network.url import parse_url

    return replace(parse_url(url), vhost=vhost).with_login()


def _with_prompted_password(url: str, password_file: str | None) -> str:
    """A user without a password is asked for it, on a terminal alone."""
    if password_file or not sys.stdin.isatty():
        return url
    from holdfast.client.network.url import parse_url

    place = parse_url(url)
    if place.user is None or place.password is not None:
        return url
    return place.with_password(getpass.getpass(f"password of {place.user} at {place}: ")).with_login()


def _draw_progress(progress: "Progress") -> None:
    behind = f", {progress.behind:,} behind" if progress.behind else ""
    draw(f"{progress.rows:,} rows in {progress.batches:,} batches, {progress.rows_per_s:,.0f} rows/s{behind}")
