"""The source's way to a real node: `$management` requests and range reads, over the blocking client.

Rules of this file: nothing starts before the first call; what the node says becomes one of `bus.py`'s errors, in one
line. Connections are made anew inside the client for `retry_s`; then the call fails, and with it the query.
"""

import time
from collections.abc import Generator
from contextlib import closing
from datetime import datetime
from itertools import chain
from typing import Any, Final

from holdfast.client import Message
from holdfast.client.blocking import BlockingConnection
from holdfast.client.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    DeliveryBroken,
    LinkError,
    LinkStolen,
    ManagementError,
)
from holdfast.entity_types import QUEUE, SUBSCRIPTION
from holdfast.errors import ConfigError, HoldfastError
from pyspark_holdfast.bus import (
    LARGE_BYTES,
    Entry,
    Lease,
    NodeUnreachable,
    Position,
    QueueMadeAnew,
    ReaderFenced,
    Start,
    Window,
)
from pyspark_holdfast.options import SourceOptions

MANAGE_LIMIT_S: Final = 30.0

NOT_FOUND: Final = 404
NOT_IMPLEMENTED: Final = 501

ROW_BYTES_MAX: Final = (1 << 31) - 1
"""A message with more bytes is no row: Arrow holds no value of 2 GiB."""

BREAKS_MAX: Final = 3
"""How often a connection may break in the middle of a large message of a range."""

_NEWER_HOLDER: Final = "newer holder"
_ILLEGAL_STATE: Final = "amqp:illegal-state"
_TOO_LARGE: Final = "amqp:link:message-size-exceeded"


class NodeLink:
    """The connection to one node, made when it is first needed, and anew after it has failed, until `close`. `retry_s`
    overrides the option's. `manage_limit_s`: how long a request may take."""

    def __init__(
        self, options: SourceOptions, *, retry_s: float | None = None, manage_limit_s: float = MANAGE_LIMIT_S
    ) -> None:
        self.options = options
        self._retry_s = options.retry_s if retry_s is None else retry_s
        self.limit_s = max(manage_limit_s, self._retry_s)
        """The time limit of a request: within it the client asks anew by itself."""
        self.answered_at = 0.0
        self._connection: BlockingConnection | None = None
        self._closed = False

    def connected(self) -> BlockingConnection:
        connection = self._connection
        if connection is None:
            options = self.options
            connection = BlockingConnection(options.url, retry_s=self._retry_s, ca_file=options.ca_file)
            self._connection = connection
        if self._closed:  # looked at last: `close` is another thread's
            raise HoldfastError(f"{self.options.url}: the connection was closed")
        return connection

    def name(self) -> str:
        """The node's name, with the virtual host before it where the URL names one."""
        try:
            name = self.connected().node()
        except ConnectionFailed as error:
            raise self.unreachable(str(error), error) from error
        vhost = self.options.url.vhost
        return name if vhost is None else f"{vhost}@{name}"

    def request(self, operation: str, type: str, name: str | None, arguments: dict[str, Any]) -> dict[str, Any]:
        """Raises ConnectionFailed, ManagementError."""
        answer = self.connected().manage(operation, type, name, arguments, limit_s=self.limit_s)
        self.answered_at = time.monotonic()
        return answer

    def queues(self) -> list[str]:
        """The names of the node's ordinary queues that this user may read, in order."""
        found: list[str] = []
        asked: dict[str, Any] = {}
        where = f"queues at {self.options.url}"
        try:
            while True:
                told = self.request("QUERY", QUEUE, "", asked)
                found += [str(row["name"]) for row in told["queues"]]
                before = asked
                if told["more"] and "offset" in told:  # a user who is no administrator
                    asked = {"offset": told["offset"]}
                elif told["more"] and told["queues"]:
                    asked = {"after": found[-1]}
                else:
                    return sorted({name for name in found if not name.startswith(("@", "$"))})
                if asked == before:
                    (place,) = asked.values()
                    raise HoldfastError(f"{where}: the node's pages do not go on behind {place!r}; expected others")
        except ConnectionFailed as error:
            raise self.unreachable(str(error), error) from error
        except ManagementError as error:
            raise ConfigError(f"{where}: {error.description}") from error

    def unreachable(self, text: str, error: ConnectionFailed) -> HoldfastError:
        """What it means that there is no connection: a node that is away may come back, a wrong password is a mistake.
        The next call makes a connection anew."""
        self._disconnect()
        if isinstance(error, AuthenticationFailed):
            return ConfigError(text)
        return NodeUnreachable(text)

    def bus(self, address: str) -> "NodeBus":
        return NodeBus(self.options.at(self.options.url, address), link=self)

    def close(self) -> None:
        self._closed = True
        if self._connection is not None:  # it stays: another thread that was about to use it has opened it again
            _end(self._connection)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            _end(connection)


class NodeBus:
    """`Bus` over a connection of its own, or over `link`, which others may use too."""

    def __init__(
        self,
        options: SourceOptions,
        *,
        link: NodeLink | None = None,
        retry_s: float | None = None,
        manage_limit_s: float = MANAGE_LIMIT_S,
    ) -> None:
        self._options = options
        self._owned = link is None
        self._link = link or NodeLink(options, retry_s=retry_s, manage_limit_s=manage_limit_s)

    def reach(self) -> None:
        """Returns once there is a connection, for which everything else would wait too."""
        try:
            self._link.connected().open()
        except ConnectionFailed as error:
            raise self._told(error) from error

    def check(self) -> None:
        """Raises ConfigError, with its line, where `open` would be refused because of a subscription that is there.
        Changes nothing."""
        queue, own, wanted = self._options.address, self._options.subscription, self._options.mode
        answer = self._asked("QUERY", None, {"queue": queue}, NOT_FOUND, NOT_IMPLEMENTED)  # `open` may make the queue
        modes = {one["name"]: one["mode"] for one in answer["subscriptions"]} if answer is not None else {}
        if modes.get(own, wanted) != wanted:
            raise ConfigError(f"{self._where()}: subscription {own!r} is there as {modes[own]}")
        if wanted == "take" and own not in modes and "take" in modes.values():
            taker = next(name for name, mode in modes.items() if mode == "take")
            raise ConfigError(f"{self._where()}: queue {queue!r} is taken by subscription {taker!r}")

    # ------------------------------------------------------------------------------------------ management

    def open(self, start: Start, mode: str) -> Position:
        if isinstance(start, datetime):
            begin: dict[str, Any] = {"start_ms": round(start.timestamp() * 1000)}
        else:
            begin = {"start": start}
        return self._position(self._subscription("OPEN", {"mode": mode, **begin}))

    def place(self) -> Position:
        return self._position(self._subscription("READ", {}))

    def advanced(self) -> int | None:
        """Where the subscription is; None where it is not there, as for a query that was stopped before it began."""
        answer = self._asked("READ", self._options.subscription, {"queue": self._options.address}, NOT_FOUND)
        return None if answer is None else self._number(answer, "advanced")

    def bounds(self) -> Position:
        answer = self._manage("READ", QUEUE, self._options.address, {})
        # A node that does not tell the head has entries from 1 on, as far as we know: tasks may find nothing.
        head = self._number(answer, "head") if "head" in answer else 1
        return Position(self._uuid(answer, "uuid"), head, head, self._number(answer, "next_sequence"), 0)

    def peek(self, lease: Lease, start: int, rows_max: int | None, bytes_max: int | None) -> Window:
        arguments: dict[str, Any] = {"start": start}
        if rows_max is not None:
            arguments["messages_max"] = rows_max
        if bytes_max is not None:
            arguments["bytes_max"] = bytes_max
        told = self._subscription("PEEK", arguments, lease)
        end = self._number(told, "end")
        tail = self._number(told, "tail") if "tail" in told else end
        return Window(end, tail, self._number(told, "average") if "average" in told else 0)

    def measure(self, lease: Lease, start: int, rows_max: int, bytes_max: int) -> Window:
        """A node looks at a bounded part of a queue at a time, and says whether there is more."""
        end, messages, size = start, 0, 0
        while True:
            arguments = {"start": end, "messages_max": rows_max - messages, "bytes_max": bytes_max - size}
            told = self._subscription("PEEK", arguments | {"exact": True}, lease)
            if "messages" not in told:
                raise ConfigError(
                    f"{self._where()}: the node is of a version that does not count the bytes of a batch; leave out "
                    "maxBytesPerTrigger"
                )
            reached, tail, own = (self._number(told, name) for name in ("end", "tail", "bytes"))
            if messages and own > bytes_max - size:
                return Window(end, tail, 0, messages, size, True)
            before, end = end, reached
            messages, size = messages + self._number(told, "messages"), size + own
            if not told.get("more") or messages >= rows_max or size >= bytes_max:
                return Window(end, tail, 0, messages, size, end < tail)
            if end <= before:
                raise HoldfastError(
                    f"{self._where()}: the node counts from {before} to {end}, and says that there is more; expected "
                    "that it goes on"
                )

    def gaps(self, lease: Lease, ranges: list[tuple[int, int]]) -> tuple[int, int]:
        numbers = [number for one in ranges for number in one]
        told = {"queue": self._options.address, "queue_uuid": lease.queue_uuid, "ranges": numbers}
        answer = self._asked("GAPS", lease.subscription, told, NOT_IMPLEMENTED)
        if answer is None:  # a node of an earlier version
            return 0, 0
        return self._number(answer, "expired"), self._number(answer, "dropped")

    def advance(self, lease: Lease, sequence: int) -> int:
        return self._number(self._subscription("ADVANCE", {"sequence": sequence}, lease), "advanced")

    def _subscription(self, operation: str, arguments: dict[str, Any], lease: Lease | None = None) -> dict[str, Any]:
        told = {"queue": self._options.address, **arguments}
        if lease is not None:
            told |= {"queue_uuid": lease.queue_uuid, "lease_epoch": lease.lease_epoch}
        return self._manage(operation, SUBSCRIPTION, self._options.subscription, told)

    def _asked(
        self, operation: str, name: str | None, arguments: dict[str, Any], *passing: int
    ) -> dict[str, Any] | None:
        """One request about subscriptions; None where the node refuses it with one of these codes."""
        try:
            return self._link.request(operation, SUBSCRIPTION, name, arguments)
        except (ManagementError, ConnectionFailed) as error:
            if isinstance(error, ManagementError) and error.code in passing:
                return None
            raise self._told(error) from error

    def _manage(self, operation: str, type: str, name: str | None, arguments: dict[str, Any]) -> dict[str, Any]:
        """One request."""
        try:
            return self._link.request(operation, type, name, arguments)
        except (ManagementError, ConnectionFailed) as error:
            raise self._told(error) from error

    def _number(self, answer: dict[str, Any], name: str) -> int:
        value = answer.get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise HoldfastError(f"{self._where()}: the node's answer has {value!r:.80} as {name!r}; expected a number")
        return int(value)

    def _uuid(self, answer: dict[str, Any], name: str) -> str:
        if not answer.get(name):
            raise HoldfastError(
                f"{self._where()}: the node's answer has nothing as {name!r}; expected the queue's UUID"
            )
        return str(answer[name])

    def _position(self, answer: dict[str, Any]) -> Position:
        numbers = (self._number(answer, name) for name in ("advanced", "head", "tail", "lease_epoch"))
        return Position(self._uuid(answer, "queue_uuid"), *numbers)

    # ------------------------------------------------------------------------------------------------ reading

    def entries(self, start: int, end: int, lease: Lease | None) -> Generator[Entry, None, None]:
        is_large, breaks = False, 0
        while start < end:
            try:
                if is_large:
                    start, is_large = (yield from self._large(start, end, lease)), False
                    continue
                for entries in self._read(start, end, lease):
                    yield from entries
                    start = entries[-1].sequence + 1
                return
            except DeliveryBroken as error:
                breaks += 1
                if breaks > BREAKS_MAX:
                    raise self._told(error) from error
            except LinkError as error:
                if error.condition != _TOO_LARGE:
                    raise self._told(error) from error
                is_large = True  # it is the next: what lies before it has come
            except ConnectionFailed as error:
                raise self._told(error) from error

    def _large(self, start: int, end: int, lease: Lease | None) -> Generator[Entry, None, int]:
        """The first entry of that range, which is too large to be read with others; returns where to go on."""
        held = (None, None, None) if lease is None else lease
        bytes_max = max(self._options.message_bytes_max or ROW_BYTES_MAX, LARGE_BYTES)
        with closing(self._link.connected().read_first(self._options.address, start, end, *held)) as found:
            for sequence, enqueued_ms, parts in found:
                if sequence < start:
                    raise HoldfastError(f"{self._where()}: a message behind {start} has no sequence: it cannot be told")
                begun, size = [], 0
                for part in parts:
                    begun.append(part)
                    size += len(part)
                    if size > bytes_max:
                        reason = f"it has more than {bytes_max} bytes"
                        yield Entry(sequence, enqueued_ms, Message(), (chain(begun, parts), reason))
                        return sequence + 1
                payload = b"".join(begun)
                del begun
                yield Entry(sequence, enqueued_ms, payload)
                return sequence + 1
        return end

    def _read(self, start: int, end: int, lease: Lease | None) -> Generator[list[Entry], None, None]:
        held = (None, None, None) if lease is None else lease
        connection, queue = self._link.connected(), self._options.address
        for found in connection.read_range_encoded(queue, start, end, *held, message_bytes_max=LARGE_BYTES):
            entries = []
            for sequence, enqueued_ms, payload in found:
                if sequence < start:
                    raise HoldfastError(f"{self._where()}: expected {start} or a later sequence, and {sequence} came")
                entries.append(Entry(sequence, enqueued_ms, payload))
                start = sequence + 1
            yield entries

    def close(self) -> None:
        if self._owned:
            self._link.close()

    # -------------------------------------------------------------------------------------------------- errors

    def _told(self, error: HoldfastError) -> HoldfastError:
        """What the client met, as one line about the queue and the subscription."""
        options, where = self._options, self._where()
        if isinstance(error, ConnectionFailed):
            return self._link.unreachable(f"{where}: {error}", error)
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

    def _where(self) -> str:
        return f"queue {self._options.address!r} at {self._options.url}"


def _end(connection: BlockingConnection) -> None:
    try:
        connection.close()
    except HoldfastError:
        pass  # the node sees the connection end, that is all that is wanted
