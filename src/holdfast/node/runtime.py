"""The asyncio driver of a NodeCore: it turns sockets, clock, writer and files into events, and carries out commands.

Rules of this file: it decides nothing. Every event of one iteration of the loop goes to the core as it comes, then
exactly one TurnEnded; commands are carried out in order. An event that a command causes (a full socket) waits until the
commands before it are done. After an error of the core or the disk nothing more is handed to either. Source:
docs/ARCHITECTURE.md, "How a core is driven"; docs/adr/0005-node-runtime.md.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from holdfast.engine import events
from holdfast.engine.events import Command, Event, SendBytes
from holdfast.engine.reads import Pause, Reads
from holdfast.errors import StorageFull
from holdfast.lines import one_line
from holdfast.names import HostPort
from holdfast.node.config import NodeSettings
from holdfast.node.driven import AdminTarget, Core
from holdfast.node.network.certificates import certificates_of
from holdfast.node.network.connections import Connections
from holdfast.node.network.descriptors import Descriptors
from holdfast.node.network.dials import Dials
from holdfast.node.network.netlink import NetworkWatch
from holdfast.node.network.transport import write
from holdfast.node.process.commands import Commands
from holdfast.node.process.memory import ResidentMemory
from holdfast.node.process.points import Points
from holdfast.node.process.records import Records
from holdfast.node.process.telemetry import AuditFile, TelemetryFile
from holdfast.node.process.writer import CommitWriter
from holdfast.node.reload import Load, LogTarget, Reloader
from holdfast.node.socket_errors import describe
from holdfast.node.users_file import UsersWatch
from holdfast.node.wakeups import WakeUps
from holdfast.storage.port import Store

RESIDENT_INTERVAL_S: Final = 10.0
"""How often memory is measured at most."""
STOP_TIME_OUT_S: Final = 4.0
"""What peers have for closing, and a slow one for reading its last bytes, once the node is to end."""
WRITER_TIME_OUT_S: Final = 0.5
"""What a commit in flight has beyond that; the operator is promised an end within 5 s."""

_log = logging.getLogger(__name__)


class NodeRuntime:
    """Drives `core` until it is stopped or fails. Created and run on the loop's thread, once."""

    def __init__(
        self,
        settings: NodeSettings,
        core: Core,
        store: Store,
        *,
        memory: ResidentMemory,
        telemetry: TelemetryFile | None = None,
        audit: AuditFile | None = None,
        load: Load | None = None,
        log: LogTarget | None = None,
        points: Points | None = None,
    ) -> None:
        """`load`: reads the settings again, in any thread; None: they are those of now."""
        self._core = core
        self._settings = settings
        self._store = store
        self._memory = memory
        self._records = Records(settings.core.name, telemetry, audit)
        self._points = points
        self._loop = asyncio.get_running_loop()
        self._writer = CommitWriter(store, self._loop, self._commit_done, points)
        self._descriptors = Descriptors(self._loop, self._feed)
        self._reads = Reads(self._feed, time.monotonic)
        self._certificates = certificates_of(settings)
        self._connections = Connections(settings.core, self._feed, self._reads, self._descriptors, self._certificates)
        self._peers = self._connections.peers
        if self._certificates is not None:
            self._certificates.changed, self._certificates.tell = self._connections.check_revoked, self._feed
        self._dials = Dials(settings.core.dialled, self._feed, self._connections, self._certificates)
        file = settings.users_file
        self._users = None if file is None else UsersWatch(self._loop, file, self._feed)
        self._commands = Commands(self._loop, self._command_ended)
        self._reloader = Reloader(
            self._loop, load or (lambda: settings), settings, self._feed, files=(telemetry, audit),
            certificates=self._certificates, check_revoked=self._connections.check_revoked, dials=self._dials,
            watch_network=self._watch_network, users=self._users, log=log,
        )  # fmt: skip
        self._network: NetworkWatch | None = None
        self._waiting: deque[Event] = deque()
        self._busy = self._turn_due = False
        self._thread_cpu_s = time.thread_time()
        """When the last turn ended: a turn includes all work of this thread since then."""
        self._turn_kinds: dict[str, None] = {}
        self._last_turn: tuple[float | None, tuple[str, ...]] = None, ()
        """The processor time of the last turn, and its events."""
        self._committed = self._settled = False  # used for points alone
        self._job: events.Commit | None = None
        """To be handed to the writer before the turn is over."""
        self._over = self._stopping = self._ready = False
        self._admin: AdminTarget | None = None
        self._wake_ups = WakeUps(self._loop, self._next_deadline, lambda: self._feed(events.TimerFired()), self._defect)
        self._measure_at = time.monotonic()
        self._ended: asyncio.Future[int] = self._loop.create_future()

    async def run(self, on_ready: Callable[[list[str]], None]) -> int:
        """Serves until `stop` or an error; returns the exit code. `on_ready` gets each listener's HOST:PORT. Raises
        ConfigError or HoldfastError if it cannot listen.
        """
        try:
            if self._settings.admin is not None:
                await self._begin_admin(self._settings.admin)
            if self._users is not None:
                self._users.start()
            served = await self._connections.listen(self._settings.listen, self._settings.listen_tls)
            self._writer.start()
            if self._dials.wanted:
                self._watch_network()
            self._descriptors.start()
            if self._certificates is not None:
                self._certificates.watch(self._loop)
            self._loop.call_soon(self._end_turn)
            self._begin_turn()
            self._thread_cpu_s = time.thread_time()
            on_ready(served)
            self._ready = True
            code = await self._ended
        finally:
            self._over = True
            self._connections.refuse()
            self._release()
        if code == 0 and not self._writer.stop(WRITER_TIME_OUT_S):
            text = (
                "the disk has not answered a commit for %.1f s: ending without it; what it holds was not answered, "
                "and may be stored or not"
            )
            _log.warning(text, self._writer.waited_s or 0.0)
            return 1  # closing the store must not block
        return code

    def reload(self) -> None:
        """Reads the configuration again, and takes up what may change; a mistake in it changes nothing."""
        if not self._stopping and not self._over:
            self._reloader.begin()

    def stop(self) -> None:
        """Closes every connection, and commits what was accepted; `run` returns 0 within 5 s, or 1 if the disk does not
        answer. Idempotent."""
        if self._stopping or self._over:
            return
        self._stopping = True
        self._connections.refuse()
        self._dials.cancel()
        self._loop.call_later(STOP_TIME_OUT_S, self._stop_overdue)
        self._feed(events.Stopping())

    # ------------------------------------------------------------------------------------ events to the core

    def _feed(self, event: Event) -> None:
        if not self._turn_due:
            self._begin_turn()
            self._loop.call_soon(self._end_turn)
        if self._busy:
            self._waiting.append(event)
        else:
            self._drive(event)

    def _begin_turn(self) -> None:
        self._turn_due = True
        self._reads.begin_turn()

    def _drive(self, event: Event) -> None:
        """Hands over `event`, then the events that its commands caused."""
        if self._over:
            return
        self._busy = True
        waiting = self._waiting
        try:
            while True:
                self._turn_kinds[type(event).__name__] = None
                for command in self._core.handle(event, time.monotonic()):
                    if self._job is not None:  # More is to be done: the disk need not wait for it.
                        self._hand_over()
                    try:
                        if type(command) is SendBytes:
                            peer = self._peers.get(command.connection)
                            if peer is not None:
                                if peer.encryption is None:
                                    peer.written_bytes += write(peer.transport, command.chunks)
                                else:
                                    peer.write_encrypted(peer.encryption, command.chunks)
                                self._connections.written[command.connection] = peer
                                if self._committed:
                                    self._settled = True
                        else:
                            self._execute(command)
                    except Exception as error:
                        peer = self._peers.get(getattr(command, "connection", 0))
                        if peer is None:
                            raise
                        self._connections.failed(peer, error)
                if not waiting:
                    break
                event = waiting.popleft()
        except Exception:
            self._defect(type(event).__name__)
        finally:
            self._busy = False

    def _defect(self, where: str) -> None:
        """An exception in the core: the node ends before it can store the damage."""
        _log.exception("defect at %s; ending before damage is stored; please report this", where)
        self._finish(1)

    def _end_turn(self) -> None:
        self._turn_due = False
        self._reads.end_turn()
        if self._over:
            return
        now = time.monotonic()
        resident: int | None = None
        if now >= self._measure_at:
            self._measure_at = now + RESIDENT_INTERVAL_S
            resident = self._memory.measure()
        self._drive(
            events.TurnEnded(
                wall_ms=time.time_ns() // 1_000_000,
                resident_bytes=resident,
                put_off_bytes=self._reads.put_off_bytes,
                unsent=self._connections.unsent() if self._connections.written else (),
                cpu_s=self._last_turn[0],
                kinds=self._last_turn[1],
            )
        )
        try:
            self._after_turn()
        except Exception:
            self._defect("the end of a turn")
        self._turn_kinds.pop("TurnEnded", None)  # of every turn
        now_s = time.thread_time()
        self._last_turn, self._thread_cpu_s = (now_s - self._thread_cpu_s, tuple(self._turn_kinds)), now_s
        self._turn_kinds.clear()

    def _after_turn(self) -> None:
        if not self._over:
            self._records.flush()
            if self._committed and self._settled:
                self._loop.call_soon(self._pass_settled)
                self._settled = False
            self._committed = False
            if self._reads.waiting:
                self._loop.call_soon(self._reads.take_later)
            self._wake_ups.look()
            if self._job is not None:
                self._hand_over()

    def _next_deadline(self) -> float | None:
        return None if self._over else self._core.next_deadline()

    def _hand_over(self) -> None:
        """Wakes the writer, at the very end of a turn: it needs the interpreter, which the loop then does not need; if
        it were woken earlier, each would wait for the other twice."""
        job, self._job = self._job, None
        if job is not None and not self._over:
            self._writer.commit(job)

    def _pass_settled(self) -> None:
        """Called after the loop has given the turn's writes to the kernel."""
        if self._points is not None:
            self._points.passed("settled")

    # ---------------------------------------------------------------------------------------------- commands

    def _execute(self, command: Command) -> None:
        match command:
            case events.Commit():
                self._job = command
                self._turn_kinds["Commit"] = None
            case events.Record(kind=kind, fields=fields):
                self._records.tell(kind, fields)
            case events.Audit(fields=fields):
                self._records.audit(fields)
            case events.Log(level=level, text=text):
                _log.log(logging.getLevelNamesMapping()[level], "%s", one_line(text))
            case events.CloseConnection(connection=connection, abort=abort):
                peer = self._peers.get(connection)
                if peer is not None:
                    self._connections.close(peer, abort=abort)
            case events.PauseReading(connection=connection) | events.ResumeReading(connection=connection):
                peer = self._peers.get(connection)
                if peer is not None:
                    (peer.resume if isinstance(command, events.ResumeReading) else peer.pause)(Pause.CORE)
            case events.MeasureOutput(connection=connection):
                peer = self._peers.get(connection)
                acknowledged_bytes = None if peer is None else peer.acknowledged_bytes()
                if peer is not None and acknowledged_bytes is not None:
                    written_bytes = peer.written_bytes
                    self._feed(events.OutputMeasured(
                        connection=connection, acknowledged_bytes=acknowledged_bytes, written_bytes=written_bytes
                    ))  # fmt: skip
            case events.Connect(neighbour=neighbour):
                self._dials.dial(neighbour)
            case events.RunCommand():
                self._commands.run(command)
            case events.ReadConfig():
                self._reloader.begin()
            case events.StatusTold(fields=fields):
                if self._admin is not None:
                    self._admin.told(fields)
            case events.ConfigDecided():
                self._reloader.decided(command)
            case events.Stopped():
                self._connections.close_all(lambda: self._finish(0))
            case _:
                raise AssertionError(f"unknown command {command!r}")

    def _command_ended(self, event: events.CommandEnded) -> None:
        if not self._over:
            self._feed(event)

    async def _begin_admin(self, where: HostPort) -> None:
        from holdfast.node.admin.port import AdminPort  # with its library, for who has one alone

        def why_not() -> str:
            return "" if self._ready and not self._stopping else "the node is stopping" if self._ready else "it starts"

        self._admin = AdminPort(lambda: self._feed(events.StatusAsked()), why_not)
        _log.info("admin port: http://%s/metrics", await self._admin.listen(where))

    def _watch_network(self) -> None:
        """Idempotent."""
        if self._network is None:
            self._network = NetworkWatch(self._network_changed)

    def _network_changed(self) -> None:
        if not self._stopping:
            self._feed(events.NetworkChanged())

    def _commit_done(self, number: int, error: Exception | None) -> None:
        if self._admin is not None:
            self._admin.commits.note(self._writer.took_s)
        if self._over:
            return
        if error is None:
            self._committed = self._points is not None
            event = events.Committed(number=number, room_bytes=self._store.room_bytes())
            if self._turn_due or self._busy:
                self._feed(event)
            else:  # Nothing else was read in this iteration of the loop: the turn is only this event.
                self._begin_turn()
                self._drive(event)
                self._end_turn()
        elif isinstance(error, StorageFull):
            self._feed(events.CommitRefused(number=number, room_bytes=self._store.room_bytes()))
        else:
            text = (
                "store %s: commit failed (%s): the node ends, and nothing that was accepted is lost; look at the disk "
                "and `holdfast store check`, then start it again"
            )
            _log.critical(text, self._settings.data, describe(error))
            self._finish(1)

    # ---------------------------------------------------------------------------------------- start and end

    def _stop_overdue(self) -> None:
        if not self._ended.done():
            if self._writer.waited_s is not None:  # the core waits for the disk, not for peers
                self._finish(0)
                return
            text = "stopping: %d connections have not closed in %g s; ending without them, nothing stored is lost"
            _log.warning(text, len(self._peers), STOP_TIME_OUT_S)
            self._finish(0)

    def _finish(self, code: int) -> None:
        self._over = True
        self._connections.refuse()
        if not self._ended.done():
            self._ended.set_result(code)

    def _release(self) -> None:
        self._descriptors.close()
        if self._reloader.certificates is not None:
            self._reloader.certificates.close()
        self._dials.cancel()
        self._commands.close()
        self._reloader.close()
        if self._admin is not None:
            self._admin.close()
        if self._users is not None:
            self._users.close()
        if self._network is not None:
            self._network.close()
        self._wake_ups.close()
        for peer in list(self._peers.values()):
            peer.transport.abort()
        self._records.close()
