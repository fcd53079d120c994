"""The source's way to a real node: `$management` requests and range reads, for a thread that has no event loop.

Rules of this file: the client's loop runs in a thread of its own, so that the connection stays alive while Spark is
busy; nothing starts before the first call. What the node says becomes one of `bus.py`'s errors, in one line.
"""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from typing import Any, Final, TypeVar

from holdfast.client.connection import Connection, connect
from holdfast.client.errors import ConnectionFailed, LinkError, LinkStolen, ManagementError
from holdfast.client.receiver import Delivery, Receiver
from holdfast.client.receiver import Lease as RangeLease
from holdfast.errors import ConfigError, HoldfastError
from holdfast.pipeline.bus import Entry, Lease, NodeUnreachable, Position, QueueMadeAnew, ReaderFenced
from holdfast.pipeline.options import SourceOptions, hidden

CREDIT: Final = 4_000
"""Entries under way to a task: two Arrow batches, so that one comes while the other is made."""

MANAGE_LIMIT_S: Final = 30.0
CLOSE_LIMIT_S: Final = 5.0

_NEWER_HOLDER: Final = "newer holder"
_ILLEGAL_STATE: Final = "amqp:illegal-state"

T = TypeVar("T")


class _Loop:
    """An event loop in a daemon thread. `run` may be called from one other thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="holdfast-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_LIMIT_S)
        if not self._thread.is_alive():
            self._loop.close()


class NodeBus:
    """`Bus` over one connection; `retry_s` overrides the option's."""

    def __init__(self, options: SourceOptions, *, retry_s: float | None = None) -> None:
        self._options = options
        self._retry_s = options.retry_s if retry_s is None else retry_s
        self._running: _Loop | None = None
        self._connection: Connection | None = None

    # ------------------------------------------------------------------------------------------ management

    def open(self, start: str, mode: str, lease_s: float) -> Position:
        return _position(self._subscription("OPEN", {"mode": mode, "start": start, "lease_s": lease_s}))

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
        limit_s = max(MANAGE_LIMIT_S, self._retry_s)
        try:
            connection = self._connected()
            return self._loop().run(connection.manage(operation, type, name, arguments, limit_s=limit_s))
        except (ManagementError, ConnectionFailed) as error:
            raise self._told(error) from error

    # ------------------------------------------------------------------------------------------------ reading

    def entries(self, start: int, end: int, lease: Lease | None) -> Iterator[Entry]:
        held = None if lease is None else RangeLease(*lease)
        try:
            connection = self._connected()
            receiver = self._loop().run(
                connection.receiver(
                    self._options.address,
                    credit=CREDIT,
                    start_sequence=start,
                    end_sequence=end,
                    lease=held,
                )
            )
            yield from self._received(receiver)
        except (LinkError, ConnectionFailed) as error:
            raise self._told(error) from error

    def _received(self, receiver: Receiver) -> Iterator[Entry]:
        """All deliveries of a range. After a break the client goes on behind the last that came."""
        run = self._loop().run
        before = 0
        while True:
            deliveries: list[Delivery] = run(receiver.batch(count_max=CREDIT // 2))
            if not deliveries:
                return
            for delivery in deliveries:
                assert delivery.sequence > before, "a range came out of order"
                before = delivery.sequence
                yield Entry(delivery.sequence, delivery.enqueued_ms, delivery.message)

    # --------------------------------------------------------------------------------------------- connection

    def close(self) -> None:
        connection, self._connection = self._connection, None
        running, self._running = self._running, None
        if running is not None:
            try:
                if connection is not None:
                    running.run(connection.close())
            except HoldfastError:
                pass  # the node sees the connection end, that is all that is wanted
            finally:
                running.stop()

    def _loop(self) -> _Loop:
        if self._running is None:
            self._running = _Loop()
        return self._running

    def _connected(self) -> Connection:
        """The connection; one that has given up is replaced, so that a query may be patient and still end."""
        if self._connection is not None and self._connection.failure is not None:
            self.close()
        if self._connection is None:
            self._connection = self._loop().run(connect(self._options.url, retry_s=self._retry_s))
        return self._connection

    # -------------------------------------------------------------------------------------------------- errors

    def _told(self, error: HoldfastError) -> HoldfastError:
        """What the client met, as one line about the queue and the subscription."""
        options = self._options
        where = f"queue {options.address!r} at {hidden(options.url)}"
        if isinstance(error, ConnectionFailed):
            return NodeUnreachable(f"{where}: {error}")
        if isinstance(error, LinkStolen) or _NEWER_HOLDER in str(error):
            return ReaderFenced(
                f"subscription {options.subscription!r} of {where}: taken over by another reader, "
                "which goes on from here; one query for each subscription"
            )
        if isinstance(error, ManagementError):
            if error.code == 412:
                return QueueMadeAnew(f"{where}: {error.description}; accepted is a new checkpoint")
            if error.code < 500:
                return ConfigError(f"{where}: {error.description}")
        if isinstance(error, LinkError):
            if error.condition == _ILLEGAL_STATE:
                return QueueMadeAnew(f"{where}: {error}; accepted is a new checkpoint")
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
