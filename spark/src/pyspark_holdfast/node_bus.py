"""The source's way to a real node: `$management` requests and range reads, over the blocking client.

Rules of this file: nothing starts before the first call; what the node says becomes one of `bus.py`'s errors, in one
line. Connections are made anew inside the client for `retry_s`; then the call fails, and with it the query.
"""

from collections.abc import Generator
from typing import Any, Final

from holdfast.client import Message
from holdfast.client.blocking import BlockingConnection
from holdfast.client.errors import ConnectionFailed, LinkError, LinkStolen, ManagementError, UndecodableMessage
from holdfast.errors import ConfigError, HoldfastError
from pyspark_holdfast.bus import Entry, Lease, NodeUnreachable, Position, QueueMadeAnew, ReaderFenced
from pyspark_holdfast.options import SourceOptions

MANAGE_LIMIT_S: Final = 30.0

_NEWER_HOLDER: Final = "newer holder"
_ILLEGAL_STATE: Final = "amqp:illegal-state"


class NodeBus:
    """`Bus` over one connection; `retry_s` overrides the option's. `manage_limit_s`: how long a request may take."""

    def __init__(
        self, options: SourceOptions, *, retry_s: float | None = None, manage_limit_s: float = MANAGE_LIMIT_S
    ) -> None:
        self._options = options
        self._retry_s = options.retry_s if retry_s is None else retry_s
        self._manage_limit_s = manage_limit_s
        self._connection: BlockingConnection | None = None

    def reach(self) -> None:
        """Returns once there is a connection, for which everything else would wait too."""
        try:
            self._connected().open()
        except ConnectionFailed as error:
            raise self._told(error) from error

    # ------------------------------------------------------------------------------------------ management

    def open(self, start: str, mode: str) -> Position:
        return _position(self._subscription("OPEN", {"mode": mode, "start": start}))

    def place(self) -> Position:
        return _position(self._subscription("READ", {}))

    def bounds(self) -> Position:
        answer = self._manage("READ", "holdfast:queue", self._options.address, {})
        # A node that does not tell the head has entries from 1 on, as far as we know: tasks may find nothing.
        head, tail = int(answer.get("head", 1)), int(answer["next_sequence"])
        return Position(str(answer["uuid"]), head, head, tail, 0)

    def peek(self, lease: Lease, start: int, rows_max: int | None, bytes_max: int | None) -> int:
        arguments: dict[str, Any] = {"start": start}
        if rows_max is not None:
            arguments["messages_max"] = rows_max
        if bytes_max is not None:
            arguments["bytes_max"] = bytes_max
        return int(self._subscription("PEEK", arguments, lease)["end"])

    def advance(self, lease: Lease, sequence: int) -> int:
        return int(self._subscription("ADVANCE", {"sequence": sequence}, lease)["advanced"])

    def _subscription(self, operation: str, arguments: dict[str, Any], lease: Lease | None = None) -> dict[str, Any]:
        told = {"queue": self._options.address, **arguments}
        if lease is not None:
            told |= {"queue_uuid": lease.queue_uuid, "lease_epoch": lease.lease_epoch}
        return self._manage(operation, "holdfast:subscription", self._options.subscription, told)

    def _manage(self, operation: str, type: str, name: str | None, arguments: dict[str, Any]) -> dict[str, Any]:
        """One request. Its time limit is the retry time, within which the client asks anew by itself."""
        limit_s = max(self._manage_limit_s, self._retry_s)
        try:
            return self._connected().manage(operation, type, name, arguments, limit_s=limit_s)
        except (ManagementError, ConnectionFailed) as error:
            raise self._told(error) from error

    # ------------------------------------------------------------------------------------------------ reading

    def entries(self, start: int, end: int, lease: Lease | None) -> Generator[Entry, None, None]:
        while start < end:
            try:
                for entries in self._read(start, end, lease):
                    yield from entries
                    start = entries[-1].sequence + 1
                return
            except UndecodableMessage as error:
                if error.sequence < start:  # nothing says where to go on
                    raise HoldfastError(f"at {self._options.url}: {error.description}: it cannot be told") from error
                yield Entry(error.sequence, error.enqueued_ms, Message(), (error.payload, error.description))
                start = error.sequence + 1
            except (LinkError, ConnectionFailed) as error:
                raise self._told(error) from error

    def _read(self, start: int, end: int, lease: Lease | None) -> Generator[list[Entry], None, None]:
        held = (None, None, None) if lease is None else lease
        before = 0
        for entries in self._connected().read_range(self._options.address, start, end, *held):
            found = [Entry(*entry) for entry in entries]
            for entry in found:
                assert entry.sequence > before, "a range came out of order"
                before = entry.sequence
            yield found

    # --------------------------------------------------------------------------------------------- connection

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except HoldfastError:
                pass  # the node sees the connection end, that is all that is wanted

    def _connected(self) -> BlockingConnection:
        if self._connection is None:
            self._connection = BlockingConnection(
                self._options.url, retry_s=self._retry_s, ca_file=self._options.ca_file
            )
        return self._connection

    # -------------------------------------------------------------------------------------------------- errors

    def _told(self, error: HoldfastError) -> HoldfastError:
        """What the client met, as one line about the queue and the subscription."""
        options = self._options
        where = f"queue {options.address!r} at {options.url}"
        if isinstance(error, ConnectionFailed):
            return NodeUnreachable(f"{where}: {error}")
        if isinstance(error, LinkStolen) or _NEWER_HOLDER in str(error):
            return ReaderFenced(
                f"subscription {options.subscription!r} of {where}: taken over by another reader, "
                "which goes on from here; one query, and one source of it, for each subscription"
            )
        if isinstance(error, ManagementError):
            if error.code == 412:
                return QueueMadeAnew(f"{where}: {error.description}; use a new checkpoint")
            if error.code < 500:
                return ConfigError(f"{where}: {error.description}")
        if isinstance(error, LinkError):
            if error.condition == _ILLEGAL_STATE:
                return QueueMadeAnew(f"{where}: {error}; use a new checkpoint")
            return ConfigError(f"{where}: {error}")
        return HoldfastError(f"{where}: {error}")


def _position(answer: dict[str, Any]) -> Position:
    return Position(
        str(answer["queue_uuid"]),
        int(answer["advanced"]),
        int(answer["head"]),
        int(answer["tail"]),
        int(answer["lease_epoch"]),
    )
