"""What drives a NodeCore (events) and what it asks for (commands).

Rules of this file: events are in the past tense and never change; commands are imperative; both are frozen. Times
`now` are monotonic seconds and always an argument of `NodeCore.handle`; wall time arrives as event data, in
milliseconds since the epoch. Connections are named by integers that the driver gives out, never used twice.
"""

from dataclasses import dataclass
from typing import Any

from holdfast.engine.port import Batch

# --------------------------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOpened:
    """A transport is up. `neighbour` names the neighbour that we dialled; None for one that came to us."""

    connection: int
    peer: str
    loopback: bool
    neighbour: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesReceived:
    """What one read of the socket gave; never empty."""

    connection: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLost:
    """The transport is gone, for whatever reason; comes exactly once for each ConnectionOpened."""

    connection: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFailed:
    """The driver failed with a connection, has logged why, and ends it: `status` counts it, once.

    It may fail with it again before the transport is gone. `connection`: 0 of one that was not opened.
    """

    connection: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectFailed:
    """A `Connect` came to nothing."""

    neighbour: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WritingPaused:
    """The socket's buffer is above its high mark: give it control frames only."""

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
    """The loop has handed over all that it had; the only event that yields `Commit`.

    `wall_ms` is the wall clock, `resident_bytes` the process's memory where the driver measured it anew.
    `put_off_bytes`: all that was read and not handed in yet. `unsent`: by connection, what the driver holds for its
    socket, of those where that may have changed. `cpu_s`: the processor time of the turn before, where the driver
    measures it, and `kinds`, the events that were handed in during it, by the name of their type.
    """

    wall_ms: int
    resident_bytes: int | None = None
    put_off_bytes: int = 0
    unsent: tuple[tuple[int, int], ...] = ()
    cpu_s: float | None = None
    kinds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardingChanged:
    """Routes were computed anew. `table`: destination -> neighbour that its messages go to next, all of them."""

    table: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkChanged:
    """The system says that an interface, an address or a route came or went; of a burst some are told."""


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
    """Of the process's file descriptors, `most` by its soft limit, `left` are free. `of_system`: the whole system has
    none left."""

    left: int
    most: int
    of_system: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPutOff:
    """So many bytes were read of the connection that `BytesReceived` will bring in a later turn."""

    connection: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverWarned:
    """What the driver has to say in the log, which bounds lines (engine/log.py). `about`: what is short."""

    about: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """The operator wants the node to end: close every peer properly, commit what is taken."""


Event = (
    ConnectionOpened
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
    | CommandEnded
    | DriverWarned
    | OutputMeasured
    | DescriptorsMeasured
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
    """Flush what was given, then close; `abort` drops what is not yet written."""

    connection: int
    abort: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseReading:
    """Read nothing more of the connection until `ResumeReading`; what was read already may still be handed in."""

    connection: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeReading:
    """Read the connection again."""

    connection: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureOutput:
    """Say how far the connection's output has come: `OutputMeasured`, or nothing where the system cannot tell."""

    connection: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Connect:
    """Dial the neighbour of that name; answer with ConnectionOpened or ConnectFailed.

    A dial of the same neighbour that is still under way is given up, and not answered.
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
    CommandEnded. `environment` comes to the process's own."""

    trigger: str
    command: tuple[str, ...]
    environment: dict[str, str]
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A telemetry record (telemetry/records.py gives its schema); dropped where no file is configured."""

    kind: str
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """One line for the operator; `level` is a name of the logging module."""

    level: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """After `Stopping`: every peer was told and nothing is left to commit; the driver may exit."""


Command = (
    SendBytes
    | CloseConnection
    | PauseReading
    | ResumeReading
    | MeasureOutput
    | Connect
    | RunCommand
    | Commit
    | Record
    | Log
    | Stopped
)
