"""`holdfast node`: from options to a running process and its exit code (docs/configuration.md).

Rules of this file: a mistake of the user is one line on standard error and exit code 2; any other error is one line and
1. Standard output only has the ready line.
"""

import argparse
import asyncio
import gc
import logging
import math
import os
import resource
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import SystemRandom
from typing import Any, Final, NoReturn

from holdfast import __version__
from holdfast.collecting import collect_rarely
from holdfast.errors import ConfigError, HoldfastError
from holdfast.lines import say
from holdfast.names import without_scheme
from holdfast.node.config import NodeSettings, load_settings
from holdfast.node.logs import JSON, LogSettings
from holdfast.node.process.appending import Opened
from holdfast.node.process.log import LogHandler
from holdfast.node.process.memory import ResidentMemory
from holdfast.node.process.notify import READY, STOPPING, manager_of
from holdfast.node.process.points import Points
from holdfast.node.process.telemetry import AuditFile, TelemetryFile
from holdfast.node.reload import Load
from holdfast.node.runtime import NodeRuntime
from holdfast.signals import MEANINGLESS, ignore

SWITCH_INTERVAL_S: Final = 0.0001
"""So that the writer's thread gets the interpreter soon enough beside a busy loop; the default is 5 ms."""
STOP_S: Final = 5.0
"""Within which an operator is promised an end."""
CLOSE_LEAST_S: Final = 0.5
"""What closing the store has of that, however long the peers took."""
FILES_SPARE: Final = 128
"""Descriptors beside the connections: the store, listeners, dials, files."""

_log = logging.getLogger(__name__)


def run_node(args: argparse.Namespace, points: Points | None = None) -> int:
    """Runs a node in the foreground; 0 after SIGTERM or SIGINT, 1 failed, 2 usage or configuration.

    `args`: config, name, data (text or None), listen (text, list of texts or None). `points` is called at named moments
    of the node.
    """
    signal.signal(signal.SIGTERM, _end_at_once)  # Until the loop runs there is nothing to close.
    signal.signal(signal.SIGINT, _end_at_once)
    log = LogHandler(sys.stderr.fileno())
    logging.basicConfig(handlers=[log], level=logging.INFO)
    ignore(MEANINGLESS, _log.warning)
    hang_up = HangUp()
    signal.signal(signal.SIGHUP, hang_up)
    try:
        settings = _load(args)
        try:
            code = NodeProcess(settings, points, log, hang_up, lambda: _load(args)).run()
        except ConfigError as error:  # found when it is used: an address, a file
            config = getattr(args, "config", None)
            if config is None or (getattr(args, "listen", None) and str(error).startswith("node listen")):
                raise
            raise ConfigError(f"{config}: {error}") from None
    except ConfigError as error:
        say(f"holdfast node: {error}", file=sys.stderr)
        return 2
    except (HoldfastError, OSError) as error:
        say(f"holdfast node: {error}", file=sys.stderr)
        return 1
    if code != 0:
        # The writer may hang on a disk that failed; there is nothing left to clean up.
        logging.shutdown()
        sys.stdout.flush()
        os._exit(code)
    return code


def _end_at_once(number: int, frame: object) -> NoReturn:
    raise SystemExit(0)


def _load(args: argparse.Namespace) -> NodeSettings:
    config = getattr(args, "config", None)
    data = getattr(args, "data", None)
    listen = getattr(args, "listen", None)
    settings = load_settings(
        None if config is None else Path(config),
        name=getattr(args, "name", None),
        listen=[listen] if isinstance(listen, str) else listen,
        data=None if data is None else Path(data),
    )
    try:
        settings.tls.check_readable()
    except ConfigError as error:
        raise ConfigError(f"{config}: {error}") from None
    return settings


class HangUp:
    """The handler of SIGHUP: calls `then`, if it is set. It never ends the process, even while the loop is closing."""

    def __init__(self) -> None:
        self.then: Callable[[], object] | None = None

    def __call__(self, number: int, frame: object) -> None:
        if self.then is not None:
            self.then()


class LogOutput:
    """Configures the log of the process. `name`: the node's, which is in each line."""

    def __init__(self, handler: LogHandler, name: str) -> None:
        self._handler = handler
        self._name = name

    def reopen(self, settings: LogSettings) -> Opened | None:
        """Opens the log's file again, if it has one. ConfigError if that is not possible."""
        return None if settings.file is None else self._handler.reopen(settings.file)

    def use(self, settings: LogSettings, opened: Opened | None) -> None:
        """Applies the settings, and writes to `opened` from now on."""
        logging.getLogger().setLevel(settings.level.upper())
        self._handler.shape(self._name, as_json=settings.format == JSON)
        self._handler.use(opened)


class NodeProcess:
    """A node's process: opens its files and its store, runs the loop, and closes the store."""

    def __init__(
        self, settings: NodeSettings, points: Points | None, handler: LogHandler, hang_up: HangUp, load: Load
    ) -> None:
        # Imported before memory is measured, so that only the store's own pages come after.
        from holdfast.core import NodeCore
        from holdfast.storage.lmdb import LmdbStore

        self._core_type = NodeCore
        self._points = points
        self._hang_up = hang_up
        self._load = load
        self._manager = manager_of(os.environ, os.getpid())
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self._name = settings.core.name
        self._log = LogOutput(handler, self._name)
        self._log.use(settings.log, self._log.reopen(settings.log))
        _raise_files_max(_files_wanted(settings))
        self._memory = ResidentMemory()
        self._telemetry = None if settings.telemetry_file is None else TelemetryFile(settings.telemetry_file)
        self._audit = None if settings.audit_file is None else AuditFile(settings.audit_file)
        self._store = LmdbStore(
            settings.data,
            bytes_max=settings.store_bytes_max,
            on_point=None if points is None else points.passed,
            must_exist=settings.store_must_exist,
        )
        self._settings = settings.on_disk(self._store.bytes_most())
        if not self._store.table_in_memory:
            text = "store %s: LMDB's reader table is the file readers.mdb, because memfd_create is not available"
            _log.warning(text + ": a file system that hangs will stop the node", settings.data)
        self._end_at = math.inf
        """On the monotonic clock: when a stop must have ended the process."""

    def run(self) -> int:
        """Runs the node until it is stopped or fails; returns the exit code."""
        store = self._store
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            code = runner.run(self._serve())
        for number in (signal.SIGTERM, signal.SIGINT):  # the loop restored their handlers
            signal.signal(number, signal.SIG_IGN)
        if code != 0:
            return code
        _log.info("node %s has stopped", self._name)
        gone = store.gone()
        code = _close(store, self._end_at - time.monotonic())
        if code == 0 and gone is not None:
            _log.error("store %s: %s: what it still held ends with this process", self._settings.data, gone)
            return 1
        return code

    async def _serve(self) -> int:
        settings, loop = self._settings, asyncio.get_running_loop()
        wall_ms = time.time_ns() // 1_000_000
        core = self._core_type(settings.core, self._store, rng=SystemRandom(), wall_ms=wall_ms, now=time.monotonic())
        runtime = NodeRuntime(
            settings,
            core,
            self._store,
            memory=self._memory,
            telemetry=self._telemetry,
            audit=self._audit,
            load=self._load,
            log=self._log,
            points=self._points,
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number, runtime)
        self._hang_up.then = lambda: loop.call_soon_threadsafe(runtime.reload)
        gc.collect()
        collect_rarely()
        try:
            return await runtime.run(self._ready)
        finally:
            self._hang_up.then = None
            self._manager.close()

    def _stop(self, number: signal.Signals, runtime: NodeRuntime) -> None:
        if self._end_at == math.inf:
            _log.info("%s: node %s stops", number.name, self._name)
        self._end_at = min(self._end_at, time.monotonic() + STOP_S)
        self._manager.tell(STOPPING)
        runtime.stop()

    def _ready(self, served: list[str]) -> None:
        listening = ", ".join(served)
        _log.info("node %s starts, holdfast %s: store %s, %s; listens on %s", self._name, __version__,
                  self._settings.data, self._store.uuid, listening)  # fmt: skip
        _ready(self._name, self._store.uuid, served)
        self._manager.tell(READY)
        self._manager.watch(asyncio.get_running_loop())


def _files_wanted(settings: NodeSettings) -> int:
    """The open files that the node's limits need."""
    from holdfast.peers.limits.refusals import REFUSALS_MAX

    limits = settings.core.limits
    return limits.connections_max + limits.reserved_connections_max + REFUSALS_MAX + FILES_SPARE


def _close(store: Any, left_s: float) -> int:
    """Closes the store; 1 if its disk does not answer in time: on a frozen file system that would take as long as it is
    frozen."""
    failures: list[Exception] = []

    def close() -> None:
        try:
            store.close()
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=close, name="holdfast-closing", daemon=True)
    thread.start()
    thread.join(min(STOP_S, max(CLOSE_LEAST_S, left_s)))
    if thread.is_alive():
        _log.warning("the disk does not answer: ending with the store not closed; nothing that was answered is lost")
        return 1
    if failures:
        raise failures[0]
    return 0


def _loop_factory() -> Any:
    """uvloop's loop; if uvloop is not installed, asyncio's own, at about half the speed."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _raise_files_max(wanted: int) -> None:
    """Raises the soft limit of open files as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        if hard != resource.RLIM_INFINITY:
            wanted = min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def _ready(name: str, store: object, served: list[str]) -> None:
    """`ready name=N amqp=HOST:PORT store=UUID`, further listeners as amqp2=, amqp3=, those with TLS as amqps=, amqps2=;
    flushed."""
    counts: Counter[str] = Counter()
    pairs = []
    for where in served:
        tls, place = without_scheme(where)
        key = "amqps" if tls else "amqp"
        counts[key] += 1
        pairs.append(f"{key}{counts[key] if counts[key] > 1 else ''}={place}")
    addresses = " ".join(pairs)
    try:
        say(f"ready name={name} {addresses} store={store}", flush=True)
    except OSError as error:
        _log.warning("standard output: %s; the ready line is lost", error.strerror)
        # Otherwise the rest in its buffer would fail again when the process ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
