"""A Spark session for one verb: it is ended by signals, draws progress, and leaves no process and no log behind.

Rules of this file: what the verb does is its caller's. Progress is drawn on a terminal and nowhere else. SIGTERM and
Ctrl-C end the work within seconds: what has not stopped by itself is killed, which loses no row.
"""

import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from holdfast.errors import ConfigError, HoldfastError
from holdfast.lines import CLEAR_LINE, one_line, say
from holdfast.signals import MEANINGLESS, ignore

if TYPE_CHECKING:
    import subprocess

    from pyspark.sql import SparkSession

STOP_S: Final = 5.0
"""How long the work may take to stop. Then its JVM is killed, which costs no row: a node that does not answer would
hold it for as long as it may be tried again."""
TASKS_S: Final = 1.0
"""Between two looks at how far Spark's tasks are."""
SIGNAL_CODES: Final = 128
"""Added to a signal's number, it is the exit code of who ended by it."""

T = TypeVar("T")


class Ran(NamedTuple, Generic[T]):
    """What came of the work. `signal`: that which ended it, None where it came to its end."""

    result: T
    seconds: float
    signal: int | None

    @property
    def code(self) -> int:
        """The exit code: one for Ctrl-C, 0 where it ended by itself or was told to."""
        return SIGNAL_CODES + signal.SIGINT if self.signal == signal.SIGINT else 0


def on_spark(
    verb: str, master: str, work: "Callable[[SparkSession, threading.Event], T]", nothing: T, *, cancel: bool = False
) -> Ran[T]:
    """What `work` returns, which gets a session and ends once the event is set; `nothing` where it was set before.
    `cancel`: Spark's jobs are cancelled then, on which `work` waits. Errors name Spark's log, which then stays. Raises
    KeyboardInterrupt for Ctrl-C while Spark starts."""
    draw("starting Spark …")
    stop = threading.Event()
    heard: list[int] = []
    screen = os.dup(2)  # while Spark starts, all else that is written there goes to a file (session.py)

    def tell() -> None:
        if heard == [signal.SIGINT]:
            write(screen, f"holdfast pipeline {verb}: stopped before Spark was up; nothing was written")
            stop.set()  # a second signal has nothing to say
            raise KeyboardInterrupt  # on which `start_session` ends what it has started of the JVM
        write(screen, f"holdfast pipeline {verb}: stops once Spark is up")

    before = on_signals(stop, tell, heard)
    logs = Path(tempfile.mkdtemp(prefix="holdfast-spark-"))
    started = time.monotonic()
    try:
        result = _run(verb, master, logs, work, nothing, stop, heard, cancel=cancel)
    except HoldfastError as error:
        if not any(logs.iterdir()):  # nothing of Spark was begun
            logs.rmdir()
            raise
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
    return Ran(result, seconds, heard[0] if heard else None)


def _run(
    verb: str,
    master: str,
    logs: Path,
    work: "Callable[[SparkSession, threading.Event], T]",
    nothing: T,
    stop: threading.Event,
    heard: list[int],
    *,
    cancel: bool,
) -> T:
    from pyspark_holdfast.session import jvm_of, start_session, stop_session

    if stop.is_set():
        return nothing
    spark = start_session(f"holdfast {verb}", logs=logs, master=master)
    on_signals(stop, heard=heard)  # Spark's own handler for Ctrl-C took ours away
    ended = threading.Event()
    cancels = spark.sparkContext.cancelAllJobs if cancel else None
    threading.Thread(target=_end_jvm, args=(jvm_of(spark), cancels, stop, ended), daemon=True).start()
    try:
        return work(spark, stop)
    finally:
        stop_session(spark)
        ended.set()


def _end_jvm(
    process: "subprocess.Popen[bytes] | None",
    cancel: "Callable[[], None] | None",
    stop: threading.Event,
    ended: threading.Event,
) -> None:
    """Once it is to stop, kills a JVM that has not stopped in STOP_S."""
    stop.wait()
    if cancel is not None:
        with suppress(Exception):  # a JVM that is gone has no jobs
            cancel()
    if not ended.wait(STOP_S) and process is not None:
        process.kill()


def on_signals(
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


def draw(line: str) -> None:
    """In the place of what was drawn before; nothing in a pipe."""
    if sys.stderr.isatty():
        print(CLEAR_LINE + one_line(line), end="", file=sys.stderr, flush=True)


@contextmanager
def tasks_drawn(spark: "SparkSession") -> Iterator[None]:
    """While the block runs, a terminal shows how many tasks of Spark's jobs have ended."""
    over = threading.Event()
    tracker = spark.sparkContext.statusTracker()

    def watch() -> None:
        with suppress(Exception):  # the JVM may be gone: that is told elsewhere
            while not over.wait(TASKS_S):
                stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
                found = [stage for stage in stages if stage is not None]
                tasks = sum(stage.numTasks for stage in found)
                if tasks and not over.is_set():
                    draw(f"{sum(stage.numCompletedTasks for stage in found)} of {tasks} tasks have ended")

    if not sys.stderr.isatty():
        yield
        return
    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join(STOP_S)


def write(screen: int, line: str) -> None:
    """As `draw`, to a file descriptor, in a pipe too, and the line ends."""
    with suppress(OSError):
        os.write(screen, ((CLEAR_LINE if os.isatty(screen) else "") + line + "\n").encode())


def _end_line() -> None:
    if sys.stderr.isatty():
        print(file=sys.stderr)
