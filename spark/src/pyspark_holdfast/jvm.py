"""The JVM that pyspark starts for a session: it ends with a start that fails or is interrupted.

Rules of this file: ends what this process has started, and nothing else. An interrupt may come at any moment, also
before pyspark knows of the process that it starts. Source: `launch_gateway` of pyspark 4.3, which then takes away the
directory into which the JVM would write its port; without it the JVM lives on, whatever becomes of its parent.
"""

import os
import signal
import subprocess
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext, java_gateway

GONE_TIME_LIMIT_S: Final = 2.0
"""How long a JVM may take to be gone once it is told to, or once its connections are."""


@contextmanager
def ended_unless_up() -> Iterator[None]:
    """The JVM that the block starts, if it starts one, is ended where the block raises anything."""
    started: list[subprocess.Popen[bytes]] = []

    def start(arguments: Any, named: Any) -> None:
        """In a group of its own: spark-submit is a shell, which has children before it becomes the JVM."""
        started.append(subprocess.Popen(*arguments, process_group=0, **named))

    with ThreadPoolExecutor(1) as thread:
        thread.submit(int).result()  # it is there before anything can be asked of it

        def popen(*arguments: Any, **named: Any) -> "subprocess.Popen[bytes]":
            """In the thread, where no signal's exception comes between the start and our knowing of it."""
            thread.submit(start, arguments, named).result()
            return started[-1]

        names = vars(java_gateway)
        kept = names["Popen"]
        names["Popen"] = popen
        try:
            yield
        except BaseException:
            thread.shutdown()  # it may be about to start one
            for process in started:
                _end(process)
            if started:
                _forget_context()
            raise
        finally:
            names["Popen"] = kept


def _end(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdin is not None
    process.stdin.close()
    if process.poll() is not None:
        return
    os.killpg(process.pid, signal.SIGTERM)  # on which a JVM takes its temporary files away
    try:
        process.wait(GONE_TIME_LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _forget_context() -> None:
    """What pyspark has of a JVM that is gone."""
    with suppress(Py4JError, OSError), warnings.catch_warnings(action="ignore"):  # pyspark warns of such a JVM
        if SparkContext._active_spark_context is not None:
            SparkContext._active_spark_context.stop()
        if SparkContext._gateway is not None:
            SparkContext._gateway.shutdown()
    forget_gateway()


def forget_gateway() -> None:
    """A later session of this process must start a JVM of its own."""
    SparkContext._gateway = None
    SparkContext._jvm = None
