"""The events that drive a NodeCore, and the commands that it returns.

Rules of this file: events are in the past tense and never change; commands are imperative; both are frozen. Times
`now` are monotonic seconds and always an argument of `NodeCore.handle`; wall time arrives as event data, in
milliseconds since the epoch. Connections are named by integers that the driver gives out, never used twice.
"""

from dataclasses import dataclass, field
from typing import Any

from holdfast.engine.port import Batch

# --------------------------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOpened:
    """A connection was opened. `neighbour`: the neighbour or remote that was dialled; None for an accepted connection.

    `encrypted`: the connection uses TLS; Secured comes before its first bytes. `nonce`: random bytes for SASL
    mechanisms that need some; without them these mechanisms are not offered.
    """

    connection: int
    peer: str
    loopback: bool
    neighbour: str | None = None
    encrypted: bool = False
    nonce: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Secured:
    """The TLS of a connection is established. `certificate`: the name in its peer's certificate, which was checked;
    None without one. `version`: of TLS, for people."""

    connection: int
    version: str
    certificate: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuringFailed:
    """The TLS handshake of a connection failed, or the peer is not trusted; ConnectionLost follows."""

    connection: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesReceived:
    """What one read of the socket gave; never empty."""

    connection: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLost:
    """The connection has ended, for whatever reason; comes exactly once for each ConnectionOpened."""

    connection: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFailed:
    """The driver had an error with a connection, has logged it, and ends the connection; `status` counts this once.
    Further errors may follow before the connection is gone. `connection`: 0 if it was not opened.
    """

    connection: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectFailed:
    """A `Connect` failed."""

    neighbour: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WritingPaused:
    """The socket's buffer is above its high mark: only control frames may be written."""

    connection: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WritingResumed:
    """The socket's buffer fell below its low mark."""

    connection: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """Commit `number` is on disk; `room_bytes` as `Store.room_bytes` says after it."""

    number: int
    room_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRefused:
    """Commit `number` found no space and changed nothing."""

    number: int
    room_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFired:
    """`next_deadline` has passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnded:
    """The loop has handed over all events of this iteration; the only event that yields `Commit`.

    `wall_ms` is the wall clock, `resident_bytes` the process's memory where the driver measured it anew.
    `put_off_bytes`: bytes that were read and not handed over yet. `unsent`: by connection, the bytes that the driver
    holds for its socket, if they may have changed. `cpu_s`: the processor time of the turn before, if the driver
    measures it, and `kinds`, the types of its events.
    """

    wall_ms: int
    resident_bytes: int | None = None
    put_off_bytes: int = 0
    unsent: tuple[tuple[int, int], ...] = ()
    cpu_s: float | None = None
    kinds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardingChanged:
    """The forwarding table changed. `table`: destination -> next hop, complete."""

    table: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkChanged:
    """The system reports that an interface, an address or a route was added or removed; of a burst only some are
    reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsersChanged:
    """The file of users was read. `users`: all users, as (virtual host, name, credential). `seed`: from which SCRAM
    challenges for unknown names are computed; b"" if the file has none."""

    users: tuple[tuple[str, str, str], ...] = field(repr=False)
    seed: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsersFileProblem:
    """`problem`: why the file of users cannot be used, so that the previous users are kept; empty if it can be used
    again."""

    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRead:
    """The configuration was read again, after `ReadConfig` or SIGHUP. `config`: the settings of the core, checked; None
    if they have a mistake, which `problem` names. `changed` and `restart`: settings of the driver that change now, and
    those that wait for a restart."""

    config: Any = field(repr=False)
    problem: str = ""
    changed: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusAsked:
    """Requests the node's measurements; `StatusTold` answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEnded:
    """The answer to `RunCommand`. `problem`: how it failed; empty where it ended with 0."""

    trigger: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputMeasured:
    """The answer to `MeasureOutput`: of `written_bytes` given to the connection so far, the other end's system has
    acknowledged `acknowledged_bytes`."""

    connection: int
    acknowledged_bytes: int
    written_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DescriptorsMeasured:
    """`left` of the process's file descriptors (`most`: its soft limit) are free. `of_system`: the whole system has
    none left."""

    left: int
    most: int
    of_system: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateRead:
    """The certificate that the node shows now is valid from `begins_ms` until `ends_ms` of the wall clock; None: it
    shows none. `problem`: why the files of `[tls]` cannot be used, so that the previous certificates stay in use; empty
    if they can be used."""

    begins_ms: int = 0
    ends_ms: int | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPutOff:
    """So many bytes were read from the connection; `BytesReceived` follows in a later turn."""

    connection: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverWarned:
    """A warning of the driver, which goes through the rate limit of the log (engine/log.py). `about`: the scarce
    resource."""

    about: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """The operator stops the node: it closes every connection properly, and commits what it has taken."""


Event = (
    ConnectionOpened
    | Secured
    | SecuringFailed
    | BytesReceived
    | ConnectionLost
    | DriverFailed
    | ConnectFailed
    | WritingPaused
    | WritingResumed
    | Committed
    | CommitRefused
    | TimerFired
    | TurnEnded
    | ForwardingChanged
    | NetworkChanged
    | UsersChanged
    | UsersFileProblem
    | ConfigRead
    | StatusAsked
    | CommandEnded
    | DriverWarned
    | OutputMeasured
    | DescriptorsMeasured
    | CertificateRead
    | ReadPutOff
    | Stopping
)

# --------------------------------------------------------------------------------------------------- commands


@dataclass(frozen=True, slots=True, kw_only=True)
class SendBytes:
    """Write these chunks, in order, with one `writelines`."""

    connection: int
    chunks: list[bytes | memoryview]


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseConnection:
    """Flush the output, then close; `abort` drops the output that is not written yet."""

    connection: int
    abort: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseReading:
    """Read nothing more from the connection until `ResumeReading`; bytes that were read already may still be handed
    over."""

    connection: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeReading:
    """Read the connection again."""

    connection: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureOutput:
    """Report how far the connection's output was acknowledged: `OutputMeasured`, or nothing if the system cannot report
    it."""

    connection: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Connect:
    """Dial the neighbour or remote of that name; answer with ConnectionOpened or ConnectFailed.

    A dial of the same one that is still in progress is cancelled, and not answered.
    """

    neighbour: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One transaction, one sync, in the writer's thread; answer with Committed or CommitRefused. One at a time."""

    number: int
    batch: Batch


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCommand:
    """Run a trigger's `command`, a program and its arguments, without a shell and for at most `timeout_s`; answer with
    CommandEnded. `environment` is added to that of the process."""

    trigger: str
    command: tuple[str, ...]
    environment: dict[str, str]
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadConfig:
    """Read the configuration again; answer with ConfigRead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigDecided:
    """The answer to ConfigRead; it precedes all commands that follow from the change. `accepted`: apply the driver's
    own settings and reopen files; otherwise change nothing. `config`: the settings of the core from now on."""

    accepted: bool
    config: Any = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusTold:
    """The answer to StatusAsked (management/status/measured.py)."""

    fields: dict[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A telemetry record (its schema is in telemetry/records.py); dropped if no file is configured."""

    kind: str
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """A record for the audit log (docs/security.md); only sent if a file is configured."""

    fields: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """One line for the operator; `level` is a name of the logging module."""

    level: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """After `Stopping`: every connection was closed, and nothing is left to commit; the driver may exit."""


Command = (
    SendBytes
    | CloseConnection
    | PauseReading
    | ResumeReading
    | MeasureOutput
    | Connect
    | RunCommand
    | ReadConfig
    | ConfigDecided
    | StatusTold
    | Commit
    | Record
    | Audit
    | Log
    | Stopped
)
