"""A Spark session with the settings that Holdfast's jobs need, on this machine or on a cluster.

Rules of this file: sets JAVA_HOME before the JVM starts; whatever a JVM prints goes to a file, so that a
person sees one line and not two hundred. The settings for one machine are measured (docs/spark.md,
"Settings").
"""

import logging
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from holdfast.cli.process import need_files
from holdfast.errors import ConfigError
from pyspark_holdfast.java import find_java_home
from pyspark_holdfast.jvm import GONE_TIME_LIMIT_S, ended_unless_up, forget_gateway

TASK_ATTEMPTS: Final = 4
"""Plain `local[N]` retries no task; a worker that is killed would end the query."""

FILES_MIN: Final = 1024
"""Open files that a JVM may need. Spark's jars alone are 300, and one with two cores has had 358; each core more takes
a few, for its task and its Python worker."""

STOP_TIME_LIMIT_S: Final = 20.0

_LOCAL: Final = re.compile(r"local(?:\[(\d+|\*)\])?")

_LOG4J2: Final = """\
status = off
appender.file.type = File
appender.file.name = file
appender.file.fileName = {path}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd'T'HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
"""

_FILE_MANAGER: Final = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def with_retries(master: str) -> str:
    """`local[N]` as `local[N,4]`; any other master as it is."""
    found = _LOCAL.fullmatch(master)
    return f"local[{found[1] or 1},{TASK_ATTEMPTS}]" if found else master


def settings(master: str, logs: Path) -> dict[str, str]:
    """What `start_session` sets, by Spark's names; a loopback address for local masters alone."""
    values = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={(logs / 'log4j2.properties').as_uri()}",
        "spark.sql.session.timeZone": "UTC",
        # It cuts a shuffle anew by sizes and cores, and the sink knows a row by its partition: a batch that is
        # computed again on other cores would be sent twice.
        "spark.sql.adaptive.streaming.stateless.enabled": "false",
        "spark.sql.streaming.checkpointFileManagerClass": _FILE_MANAGER,
        # A kill in the first batch leaves temporary files, for which Spark would refuse the checkpoint for ever;
        # `ingest.check_pair` tells which checkpoint belongs to which table.
        "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
        # The driver keeps so many progress reports, each with three offsets of all queues: 100 by default.
        "spark.sql.streaming.numRecentProgressUpdates": "10",
    }
    if master.startswith("local"):
        values |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(logs / "warehouse"),
        }
    return values


def start_session(
    name: str,
    *,
    logs: Path,
    master: str = "local[*]",
    extra: Mapping[str, str] | None = None,
) -> SparkSession:
    """Starts a Spark session with the source `holdfast` registered.

    - `logs`: a directory, made if missing, for `spark.log` (the JVM's log), `jvm.log` (what the JVM prints) and
      `python.log` (the log of this process, for as long as it lives).
    - `master`: any Spark master; `local[N]` retries a task as a cluster does. `local-cluster[N,CORES,MB]` starts N
      executors on this machine, for tests; what they print is below `logs`.
    - `extra`: settings by Spark's names, in place of those made here (docs/spark.md, "Settings").

    Raises ConfigError if there is no Java, too few files may be opened, or Spark does not start. Then, and where a
    signal's exception ends the start, the JVM that this call has started is ended.
    """
    need_files(FILES_MIN)
    home = find_java_home(os.environ)
    logs = logs.resolve()
    logs.mkdir(parents=True, exist_ok=True)
    (logs / "log4j2.properties").write_text(_LOG4J2.format(path=logs / "spark.log"), encoding="utf-8")
    os.environ["JAVA_HOME"] = str(home)
    # Workers must run in this very environment, where the source is installed.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if master.startswith("local"):
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    if master.startswith("local-cluster"):
        os.environ["SPARK_HOME"] = str(_own_home(logs / "spark-home"))
    builder = SparkSession.builder.appName(name).master(with_retries(master))
    for key, value in (settings(master, logs) | dict(extra or {})).items():
        builder = builder.config(key, value)
    try:
        with _standard_error_to(logs / "jvm.log"), ended_unless_up():
            session = builder.getOrCreate()
    except Exception as error:
        raise ConfigError(
            f"Spark at {master!r} did not start ({first_line(error)}); {logs / 'jvm.log'} says more"
        ) from error
    from pyspark_holdfast.delta import DeltaDataSource
    from pyspark_holdfast.postgresql import PostgresqlDataSource
    from pyspark_holdfast.source import HoldfastDataSource

    session.dataSource.register(HoldfastDataSource)
    session.dataSource.register(PostgresqlDataSource)
    session.dataSource.register(DeltaDataSource)
    _log_python_to(logs / "python.log", session)
    return session


def _own_home(home: Path) -> Path:
    """Spark's directory by links: its workers write what executors print below the home, which others share."""
    import pyspark

    home.mkdir(exist_ok=True)
    for name in ("bin", "jars"):
        if not (home / name).exists():
            (home / name).symlink_to(Path(pyspark.__file__).parent / name)
    return home


def jvm_of(session: SparkSession) -> "subprocess.Popen[bytes] | None":
    """The JVM, where this process has started it."""
    process: subprocess.Popen[bytes] | None = getattr(session.sparkContext._gateway, "proc", None)
    return process


def stop_session(session: SparkSession) -> None:
    """Stops the session and its JVM, and waits until the JVM is gone. One that has ended already is no error."""
    gateway = session.sparkContext._gateway
    process = jvm_of(session)
    try:
        with warnings.catch_warnings(action="ignore"):  # pyspark warns of a JVM that is gone
            session.stop()
        if gateway is not None:
            gateway.shutdown()
    except (Py4JError, OSError):
        pass
    finally:
        if process is not None:
            if process.stdin is not None:
                process.stdin.close()  # the JVM ends when its standard input does
            try:
                process.wait(STOP_TIME_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(STOP_TIME_LIMIT_S)
            forget_gateway()


def _log_python_to(path: Path, session: SparkSession) -> None:
    """What this process's side of Spark says goes to the file `path`, for as long as the process lives.

    py4j and pyspark write pages, from several threads, when the JVM is gone.
    """
    logging.getLogger().addHandler(logging.FileHandler(path))

    def handle_error(request: object, address: object) -> None:
        logging.getLogger(__name__).exception("request of %s", address)

    server = getattr(session.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = handle_error


def reason(error: BaseException, session: SparkSession) -> str:
    """`first_line`; where the JVM is gone, how it ended: the exception says what was asked of it just then."""
    process = jvm_of(session)
    if process is None or isinstance(error, Py4JJavaError) or not isinstance(error, Py4JError | OSError):
        return first_line(error)
    try:
        code = process.wait(GONE_TIME_LIMIT_S)
    except subprocess.TimeoutExpired:
        return first_line(error)
    return f"Spark's JVM ended ({f'signal {-code}' if code < 0 else f'exit code {code}'})"


def first_line(error: BaseException) -> str:
    """What a person is shown of an exception of Spark's: our own message inside it where there is one."""
    text = str(error)
    own = re.findall(r"^(?:(?:pyspark_)?holdfast\.[\w.]+|pyspark\.errors[\w.]*): (.+)$", text, re.MULTILINE)
    if own:
        return str(own[-1]).strip()
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)


@contextmanager
def _standard_error_to(path: Path) -> Iterator[None]:
    """What is started inside inherits a standard error that goes to `path`."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
