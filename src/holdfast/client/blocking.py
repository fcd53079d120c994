"""The client for programs without an event loop: its own loop in a thread, calls that wait.

Rules of this file: the thread keeps the connection alive between calls; what is read comes over in batches, so
that a message costs no switch between threads. One thread at a time may call, never the loop's own, which would wait
for itself; nothing starts before the first call, so an object may be made before a fork and used after it.
"""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Coroutine, Generator, Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar

from holdfast.amqp.message.message import Message
from holdfast.client.administration import MANAGE_LIMIT_S
from holdfast.client.blocking_administration import BlockingAdministration
from holdfast.client.blocking_links import BlockingDelivery, BlockingReceiver, BlockingSender, BlockingTransaction
from holdfast.client.connection import Connection
from holdfast.client.conversation import REQUEST_LIMIT_S
from holdfast.client.errors import ConnectionEnded, UndecodableMessage
from holdfast.client.listing import Listed, hidden
from holdfast.client.messages.reading import read_message
from holdfast.client.network.url import Url, parse_url
from holdfast.client.opening import RETRY_S, connect
from holdfast.client.outcomes import Outcome
from holdfast.client.receive.delivery import Delivery
from holdfast.client.receive.parts_delivery import DeliveryInParts
from holdfast.client.receive.receiver import Receiver
from holdfast.client.receive.terms import Lease
from holdfast.client.send.sender import Sender
from holdfast.errors import LocalProtocolError, RemoteProtocolError
from holdfast.units import MIB

__all__ = [
    "BlockingAdministration",
    "BlockingConnection",
    "BlockingDelivery",
    "BlockingReceiver",
    "BlockingSender",
    "BlockingTransaction",
    "EncodedEntry",
    "Entry",
    "LargeEntry",
]

T = TypeVar("T")

CREDIT: Final = 4_000
FIRST_CREDIT: Final = 16
"""What a range is asked for before anything is known of the size of its messages."""
READ_BYTES_MAX: Final = 64 * MIB
"""About what a range has in memory ahead of its reader, by the sizes of the messages that came last."""
BATCH_MAX: Final = 2_000
JOIN_LIMIT_S: Final = 5.0


class Entry(NamedTuple):
    """An entry of a queue: its sequence, when it was enqueued (in milliseconds since the epoch), and the message."""

    sequence: int
    enqueued_ms: int
    message: Message


class EncodedEntry(NamedTuple):
    """An entry whose message is not decoded: its bytes, with the annotations of a delivery."""

    sequence: int
    enqueued_ms: int
    payload: bytes


class LargeEntry(NamedTuple):
    """An entry that is read while it arrives: `parts` are the bytes of its message, undecoded."""

    sequence: int
    enqueued_ms: int
    parts: Iterator[bytes]


def _decoded(queue: str, entry: EncodedEntry) -> Entry:
    sequence, enqueued_ms, payload = entry
    try:
        return Entry(sequence, enqueued_ms, read_message(payload))
    except RemoteProtocolError as error:
        raise UndecodableMessage(
            error.condition, f"queue {queue!r}, sequence {sequence}: {error.description}",
            sequence=sequence, enqueued_ms=enqueued_ms, payload=payload,
        ) from None  # fmt: skip


def _lease(subscription: str | None, queue_uuid: str | None, lease_epoch: int | None) -> Lease | None:
    if subscription is None or queue_uuid is None or lease_epoch is None:
        return None
    return Lease(subscription, queue_uuid, lease_epoch)


async def _next(parts: AsyncIterator[bytes]) -> bytes:
    """Empty at the end."""
    return await anext(parts, b"")


async def _batch(receiver: Receiver, credit: int) -> list[Delivery]:
    receiver.ask_for(credit)
    return await receiver.batch(count_max=BATCH_MAX)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    """The thread: runs `loop` until it is stopped, and ends what is still under way on it."""
    loop.run_forever()
    try:
        loop.run_until_complete(_cancelled(asyncio.all_tasks(loop)))
    finally:
        loop.close()


async def _cancelled(tasks: set["asyncio.Task[Any]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class BlockingConnection(Listed):
    """A connection for programs without an event loop: each call waits until it is done.

    It takes the arguments of `holdfast.client.connect`, and raises its errors. Close it, or use `with`. One thread at a
    time may call; a call in the thread that serves it (from a callback, say) raises LocalProtocolError.
    """

    HIDDEN = hidden("run_on")

    def __init__(self, url: str | Url, *, retry_s: float = RETRY_S, **options: Any) -> None:
        self._url = parse_url(url) if isinstance(url, str) else url
        self._options = {"retry_s": retry_s, **options}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._connection: Connection | None = None
        self._senders: dict[tuple[str, str | None], Sender] = {}
        self._ending: set[Future[None]] = set()
        """Receivers that are closing in the background."""

    def __repr__(self) -> str:
        return f"<BlockingConnection to {self._url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Connects now; otherwise the first call of another kind does."""
        self._connected()

    def node(self) -> str:
        """The container-id of the other side, which of a Holdfast node is its name. Connects where there is none."""
        return self._connected().node

    def manage(
        self,
        operation: str,
        type: str,
        name: str | None = None,
        arguments: dict[str, Any] | None = None,
        *,
        limit_s: float = MANAGE_LIMIT_S,
    ) -> dict[str, Any]:
        """Sends a request to `$management`, as `holdfast.client.Connection.manage` does."""
        connection = self._connected()
        return self._run(connection.manage(operation, type, name, arguments, limit_s=limit_s))

    @property
    def admin(self) -> BlockingAdministration:
        """Requests to the node: its status, queues, links and subscriptions."""
        return BlockingAdministration(self.manage)

    def request(self, address: str, message: Message | object, *, limit_s: float = REQUEST_LIMIT_S) -> BlockingDelivery:
        """Sends a request and returns its reply, as `holdfast.client.Connection.request` does."""
        connection = self._connected()
        return BlockingDelivery(self, connection, self._run(connection.request(address, message, limit_s=limit_s)))

    def reply(self, request: BlockingDelivery, message: Message | object) -> None:
        """Sends a reply to a request that was received, as `holdfast.client.Connection.reply` does."""
        self._run(self._connected().reply(request.wrapped, message))

    def send(
        self, address: str, message: Message | object, *, producer: str | None = None, check: bool = True
    ) -> Outcome:
        """Sends one message and waits for its outcome, as `Sender.send` does. The sender is kept for the next one to
        that address."""
        key = (address, producer)
        sender = self._senders.get(key)
        if sender is None or sender.is_over():
            sender = self._senders[key] = self._run(self._connected().sender(address, producer=producer))
        return self._run(sender.send(message, check=check))

    def sender(self, address: str, **options: Any) -> BlockingSender:
        """Attaches a sender, with the arguments and errors of `holdfast.client.Connection.sender`."""
        connection = self._connected()
        return BlockingSender(self, connection, self._run(connection.sender(address, **options)))

    def receiver(self, address: str, **options: Any) -> BlockingReceiver:
        """Attaches a receiver, with the arguments and errors of `holdfast.client.Connection.receiver`."""
        connection = self._connected()
        return BlockingReceiver(self, connection, self._run(connection.receiver(address, **options)))

    def transaction(self) -> BlockingTransaction:
        """A transaction, to be used as `with`: what is sent and settled within it is done together at the end of the
        block, or not at all if the block raises. Errors as of `holdfast.client.Connection.transaction`."""
        connection = self._connected()
        return BlockingTransaction(self, connection, connection.transaction())

    def read_range(
        self,
        queue: str,
        start: int,
        end: int,
        subscription: str | None = None,
        queue_uuid: str | None = None,
        lease_epoch: int | None = None,
        *,
        message_bytes_max: int | None = None,
    ) -> Iterator[list[Entry]]:
        """Yields the entries of `queue` with `start <= sequence < end`, in order, as lists; they stay in the queue.

        It ends when `end` is reached: past the queue's last entry it waits for the next one, without a time limit.
        After a break it continues after the last entry that was received. With `subscription`, `queue_uuid` and
        `lease_epoch`, as the request OPEN answered them, the node refuses a reader that was fenced: LinkError. An entry
        that cannot be decoded raises UndecodableMessage, after all entries before it; its `sequence` says where to go
        on. Before an entry of more than `message_bytes_max` bytes, 64 MiB if None, it ends with a LinkError
        (`amqp:link:message-size-exceeded`). Once `close` was called, ConnectionEnded is raised.
        """
        held = (subscription, queue_uuid, lease_epoch)
        for batch in self.read_range_encoded(queue, start, end, *held, message_bytes_max=message_bytes_max):
            entries = []
            try:
                for entry in batch:
                    entries.append(_decoded(queue, entry))
            except UndecodableMessage:
                if entries:
                    yield entries
                raise
            yield entries

    def read_range_encoded(
        self,
        queue: str,
        start: int,
        end: int,
        subscription: str | None = None,
        queue_uuid: str | None = None,
        lease_epoch: int | None = None,
        *,
        message_bytes_max: int | None = None,
    ) -> Generator[list[EncodedEntry], None, None]:
        """As `read_range`, with messages as they arrive; none is undecodable."""
        lease = _lease(subscription, queue_uuid, lease_epoch)
        connection = self._connected()
        credit = FIRST_CREDIT
        receiver = self._run(
            connection.receiver(
                queue,
                credit=credit,
                start_sequence=start,
                end_sequence=end,
                lease=lease,
                message_bytes_max=message_bytes_max,
            )
        )
        try:
            while batch := self._run(_batch(receiver, credit)):
                size = sum(len(item.payload) for item in batch)
                credit = max(1, min(CREDIT, READ_BYTES_MAX * len(batch) // max(1, size)))
                yield [EncodedEntry(item.sequence, item.enqueued_ms, item.payload) for item in batch]
                if self._connection is not connection:  # closed meanwhile, its links and its loop with it
                    raise ConnectionEnded(f"{self._url}: closed")
        finally:
            if self._connection is connection:
                self._close_link(receiver.close())

    def read_first(
        self,
        queue: str,
        start: int,
        end: int,
        subscription: str | None = None,
        queue_uuid: str | None = None,
        lease_epoch: int | None = None,
    ) -> Generator[LargeEntry, None, None]:
        """Yields the first entry of that range of `queue`, of any size, with its bytes as they arrive: read them before
        the iterator ends. Nothing if the range has none. Arguments are those of `read_range`; DeliveryBroken if the
        connection breaks while the bytes are read.
        """
        connection = self._connected()
        receiver = self._run(
            connection.parts_receiver(
                queue,
                credit=1,
                count_max=1,
                start_sequence=start,
                end_sequence=end,
                lease=_lease(subscription, queue_uuid, lease_epoch),
                whole=True,
            )
        )
        try:
            for item in self._run(receiver.batch()):
                assert isinstance(item, DeliveryInParts)
                yield LargeEntry(item.sequence, item.enqueued_ms, self._parts(connection, item))
        finally:
            if self._connection is connection:
                self._close_link(receiver.close())

    def _parts(self, connection: Connection, item: DeliveryInParts) -> Iterator[bytes]:
        parts = item.parts()
        while part := self.run_on(connection, _next(parts)):
            yield part

    def close(self) -> None:
        """Closes the connection as `holdfast.client.Connection.close` does, then ends its thread."""
        self._refuse_own_thread()
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        if sys.is_finalizing():  # the thread has ended with the program, and the system closes the socket
            self._loop = self._thread = self._connection = None
            return
        try:
            if self._connection is not None:
                self._run(self._connection.close())
        finally:
            self._loop = self._thread = self._connection = None
            self._senders.clear()
            loop.call_soon_threadsafe(loop.stop)
            thread.join(JOIN_LIMIT_S)

    def run_on(self, connection: Connection, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns; it runs in the connection's thread. ConnectionEnded once `connection` is closed: the
        links that this object has made call it."""
        if self._connection is not connection and not self._is_own_thread():
            work.close()
            raise ConnectionEnded(f"{self._url}: closed")
        return self._run(work)

    def _connected(self) -> Connection:
        self._refuse_own_thread()
        if self._connection is None:
            self._connection = self._run(connect(self._url, **self._options))
        return self._connection

    def _is_own_thread(self) -> bool:
        return threading.current_thread() is self._thread

    def _refuse_own_thread(self) -> None:
        if self._is_own_thread():
            text = "called in its own thread, which would wait for itself; call it in any other thread"
            raise LocalProtocolError(f"{self._url}: {text}")

    def _close_link(self, closing: Coroutine[Any, Any, None]) -> None:
        """Waits for it, where that can end: the garbage collector may end an iterator in the loop's own thread, or when
        the program has ended and that thread with it."""
        if sys.is_finalizing():
            closing.close()
            return
        if not self._is_own_thread():
            self._run(closing)
            return
        assert self._loop is not None
        doing = asyncio.run_coroutine_threadsafe(closing, self._loop)
        self._ending.add(doing)
        doing.add_done_callback(self._ending.discard)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._is_own_thread():
            work.close()
            self._refuse_own_thread()
        if sys.is_finalizing():
            work.close()
            raise ConnectionEnded(f"{self._url}: the program has ended, and its connection with it")
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=_serve, args=(loop,), name="holdfast-client", daemon=True)
            self._thread.start()
        doing = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return doing.result()
        except BaseException:
            doing.cancel()  # where the caller was interrupted: nobody waits for it any more
            raise
