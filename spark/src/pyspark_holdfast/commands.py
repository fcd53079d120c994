"""`holdfast pipeline ingest | swarm | sweep | report`: arguments, signals, the terminal and the exit code.

Rules of this file: everything heavy is imported after the arguments were checked. Progress is drawn on a
terminal and nowhere else; the last line on standard error is the summary, as JSON. SIGTERM and Ctrl-C end the
query between two steps and leave no process behind.
"""

import argparse
import getpass
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import ConfigError, HoldfastError, missing_package
from holdfast.lines import CLEAR_LINE, json_line, one_line, say
from holdfast.signals import MEANINGLESS, ignore
from pyspark_holdfast.addresses import escaped

if TYPE_CHECKING:
    import subprocess

    from pyspark.sql import DataFrame, SparkSession

    from pyspark_holdfast.ingest import IngestJob, Progress

TRIGGER_S: Final = 1.0
STOP_S: Final = 5.0
"""How long a query may take to stop. Then its JVM is killed, which costs no row: a node that does not answer would hold
it for as long as it may be tried again."""
ASK_S: Final = 2.0
"""How long the node is asked for the place reached, at the end."""
INTERRUPTED: Final = 130


def ingest(args: argparse.Namespace) -> int:
    """`args`: address, url, password_file, retry, out, checkpoint, subscription, start, master, max_rows,
    trigger_s, available_now (docs/spark.md). Returns 0, or 130 if Ctrl-C ended it; raises HoldfastError with one line.
    """
    try:
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
    bus = NodeBus(options)
    try:
        bus.reach()  # Spark would take half a minute before anybody heard of a mistake there
    finally:
        bus.close()
    _draw("starting Spark …")
    stop = threading.Event()
    heard: list[int] = []
    screen = os.dup(2)  # while Spark starts, all else that is written there goes to a file (session.py)

    def tell() -> None:
        if heard == [signal.SIGINT]:
            _write(screen, "holdfast pipeline ingest: stopped before Spark was up; nothing was written")
            raise KeyboardInterrupt  # what has started of the JVM ends with this process
        _write(screen, "holdfast pipeline ingest: stops once Spark is up")

    before = _on_signals(stop, tell, heard)
    logs = Path(tempfile.mkdtemp(prefix="holdfast-spark-"))
    started = time.monotonic()
    try:
        progress = _run(job, args.master, logs, stop, heard)
    except HoldfastError as error:
        message = f"{error} (Spark's log: {logs / 'spark.log'})"
        raise (ConfigError(message) if isinstance(error, ConfigError) else HoldfastError(message)) from error
    except KeyboardInterrupt:
        shutil.rmtree(logs, ignore_errors=True)
        raise
    finally:
        _end_line()
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(screen)
    seconds = time.monotonic() - started
    shutil.rmtree(logs, ignore_errors=True)
    from pyspark_holdfast.ingest import summary

    advanced: int | None = None
    bus = NodeBus(options, retry_s=ASK_S, manage_limit_s=ASK_S)
    try:
        advanced = bus.place().advanced
    except HoldfastError as error:
        say(f"holdfast pipeline ingest: the place reached is not known: {error}", file=sys.stderr)
    finally:
        bus.close()
    say(json_line(summary(progress, seconds, advanced)), file=sys.stderr, flush=True)
    return INTERRUPTED if heard[:1] == [signal.SIGINT] else 0


def swarm(args: argparse.Namespace) -> int:
    """`args`: scenario, seeds, first_seed, master, out (docs/simulator.md). Returns 1 where a seed failed."""

    def verdicts(spark: "SparkSession", slots: int) -> "DataFrame":
        from pyspark_holdfast import swarm_job

        return swarm_job.verdicts(spark, args.scenario, first_seed=args.first_seed, seeds=args.seeds, slots=slots)

    return _into_table("swarm", args, lambda spark, slots: [verdicts(spark, slots)])


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

    def verdicts(spark: "SparkSession", slots: int) -> "Iterator[DataFrame]":
        from pyspark_holdfast import swarm_job
        from pyspark_holdfast.sweep_parts import Forecast, parts, told

        forecast, done, began = Forecast(todo, slots), len(wanted) - len(todo), time.monotonic()
        say(f"{len(todo)} runs to make, {slots} at once{told(forecast.left_s(0.0))}", file=sys.stderr, flush=True)
        for part in parts(todo, slots):
            yield swarm_job.swept(spark, part, slots=slots)
            done += len(part)
            forecast.made(part, slots)
            left = told(forecast.left_s(time.monotonic() - began)) if done < len(wanted) else ""
            say(f"{done} of {len(wanted)} runs{left}", file=sys.stderr, flush=True)

    return _into_table("sweep", args, verdicts, resume=args.resume)


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
    resume: bool = False,
) -> int:
    """Writes the rows to `args.out`, by `args.master`, a part after the other; returns 1 where one of them failed.
    `resume`: there may be a table already."""
    out = Path(args.out).absolute()
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not resume)):
        raise ConfigError(f"there are files in {out}; give --out an empty or new directory")
    check_writable("--out", out)
    try:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException

        from pyspark_holdfast.session import reason, start_session, stop_session
        from pyspark_holdfast.swarm_job import summary
    except ModuleNotFoundError as error:
        raise missing_package(error.name, "./spark") from None
    logs = Path(tempfile.mkdtemp(prefix="holdfast-spark-"))
    started = time.monotonic()
    spark = start_session(f"holdfast {what}", logs=logs, master=args.master)
    try:
        for part in verdicts(spark, spark.sparkContext.defaultParallelism):
            part.write.mode("append").parquet(str(out))
        found = summary(spark.read.parquet(str(out)))
    except (PySparkException, Py4JError, OSError) as error:
        raise HoldfastError(f"{reason(error, spark)} (Spark's log: {logs / 'spark.log'})") from error
    finally:
        stop_session(spark)
    shutil.rmtree(logs, ignore_errors=True)
    for failure in found.pop("failures"):
        say(f"failed: {failure}", file=sys.stderr)
    say(json_line(found | {"wall_s": round(time.monotonic() - started, 3)}), flush=True)
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


def _run(job: "IngestJob", master: str, logs: Path, stop: threading.Event, heard: list[int]) -> "Progress":
    from pyspark_holdfast.ingest import Progress, run_ingest
    from pyspark_holdfast.session import jvm_of, start_session, stop_session

    if stop.is_set():
        return Progress()
    spark = start_session("holdfast ingest", logs=logs, master=master)
    _on_signals(stop, heard=heard)  # Spark's own handler for Ctrl-C took ours away
    ended = threading.Event()
    threading.Thread(target=_end_jvm, args=(jvm_of(spark), stop, ended), daemon=True).start()
    try:
        return run_ingest(spark, job, stop, _draw_progress)
    finally:
        stop_session(spark)
        ended.set()


def _end_jvm(process: "subprocess.Popen[bytes] | None", stop: threading.Event, ended: threading.Event) -> None:
    """Once it is to stop, kills a JVM that has not stopped in STOP_S."""
    stop.wait()
    if not ended.wait(STOP_S) and process is not None:
        process.kill()


def _job(args: argparse.Namespace) -> "IngestJob":
    from pyspark_holdfast.ingest import IngestJob, default_checkpoint

    out = Path(args.out).absolute()
    checkpoint = Path(args.checkpoint).absolute() if args.checkpoint else default_checkpoint(out)
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


def _on_signals(
    stop: threading.Event, tell: Callable[[], object] | None = None, heard: list[int] | None = None
) -> dict[signal.Signals, Any]:
    """SIGTERM, SIGINT and SIGHUP set `stop`, are added to `heard`, and call `tell` the first time; returns the handlers
    that were there."""

    def stops(number: int, _: object) -> None:
        if heard is not None:
            heard.append(number)
        if tell is not None and not stop.is_set():
            tell()
        stop.set()

    ignore(MEANINGLESS, lambda text: say(f"holdfast pipeline: {text}", file=sys.stderr))
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    found = {number: signal.getsignal(number) for number in numbers}
    for number, handler in found.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, stops)
    return found


def _draw_progress(progress: "Progress") -> None:
    _draw(f"{progress.rows:,} rows in {progress.batches:,} batches, {progress.rows_per_s:,.0f} rows/s")


def _draw(line: str) -> None:
    """In the place of what was drawn before; nothing in a pipe."""
    if sys.stderr.isatty():
        print(CLEAR_LINE + one_line(line), end="", file=sys.stderr, flush=True)


def _write(screen: int, line: str) -> None:
    """As `_draw`, to a file descriptor, in a pipe too, and the line ends."""
    with suppress(OSError):
        os.write(screen, ((CLEAR_LINE if os.isatty(screen) else "") + line + "\n").encode())


def _end_line() -> None:
    if sys.stderr.isatty():
        print(file=sys.stderr)
