"""Links and transactions of the client without an event loop: the library's objects, each call in the loop's thread.

Rules of this file: nothing is decided here. What a program may touch of an object of the loop is wrapped, with the same
names; what is asked after the connection was closed is ConnectionEnded.
"""

import asyncio
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from holdfast.amqp.message.message import Message
from holdfast.broker.stored.ranges import RangeSet
from holdfast.client.connection import Connection
from holdfast.client.listing import Listed
from holdfast.client.outcomes import Outcome
from holdfast.client.receive.delivery import Delivery
from holdfast.client.receive.processing import BlockingProcessing, OnError
from holdfast.client.receive.receiver import Receiver
from holdfast.client.send.sender import Sender
from holdfast.client.transactions import Transaction

T = TypeVar("T")


class Runs(Protocol):
    """The owner of the loop's thread."""

    def run_on(self, connection: Connection, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns, which runs in that thread. ConnectionEnded once `connection` is closed."""


class _Bound(Listed):
    """To one connection, over all its breaks."""

    def __init__(self, owner: Runs, connection: Connection) -> None:
        self._owner = owner
        self._connection = connection

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._owner.run_on(self._connection, work)


class BlockingSender(_Bound):
    """Sends messages to one address; made by `BlockingConnection.sender`."""

    def __init__(self, owner: Runs, connection: Connection, sender: Sender) -> None:
        super().__init__(owner, connection)
        self.wrapped = sender
        """The sender of the event loop, which only the loop's thread may call."""

    def __repr__(self) -> str:
        return f"<BlockingSender to {self.wrapped.address}>"

    @property
    def last_number(self) -> int:
        """As `Sender.last_number`."""
        return self.wrapped.last_number

    @property
    def missing(self) -> RangeSet:
        """As `Sender.missing`."""
        return self.wrapped.missing

    @property
    def next_number(self) -> int:
        """As `Sender.next_number`."""
        return self.wrapped.next_number

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self.wrapped.close(drain=kind is None))

    def send(self, message: Message | object, *, number: int | None = None, check: bool = True) -> Outcome:
        """Sends one message and waits for its outcome. Arguments and errors as `Sender.send`."""
        return self._run(self.wrapped.send(message, number=number, check=check))

    def close(self) -> None:
        """Waits for all outcomes, then detaches."""
        self._run(self.wrapped.close())


class BlockingDelivery(_Bound):
    """A message that arrived, and the way to settle it; names and errors as of `Delivery`."""

    def __init__(self, owner: Runs, connection: Connection, delivery: Delivery) -> None:
        super().__init__(owner, connection)
        self.wrapped = delivery
        """The delivery of the event loop, which only the loop's thread may settle."""

    def __repr__(self) -> str:
        return repr(self.wrapped)

    @property
    def message(self) -> Message:
        """The message, decoded on first use. Raises UndecodableMessage."""
        return self.wrapped.message

    @property
    def body(self) -> Any:
        """As `Delivery.body`."""
        return self.wrapped.body

    @property
    def properties(self) -> dict[str, Any]:
        """As `Delivery.properties`."""
        return self.wrapped.properties

    @property
    def subject(self) -> str | None:
        """As `Delivery.subject`."""
        return self.wrapped.subject

    @property
    def message_id(self) -> Any:
        """As `Delivery.message_id`."""
        return self.wrapped.message_id

    @property
    def correlation_id(self) -> Any:
        """As `Delivery.correlation_id`."""
        return self.wrapped.correlation_id

    @property
    def reply_to(self) -> str | None:
        """As `Delivery.reply_to`."""
        return self.wrapped.reply_to

    @property
    def delivery_count(self) -> int:
        """As `Delivery.delivery_count`."""
        return self.wrapped.delivery_count

    def process(self, *, on_error: OnError = "retry") -> BlockingProcessing[Self]:
        """Settles the message at the end of a `with` block, as `Delivery.process` does."""
        return BlockingProcessing(self, on_error)

    @property
    def payload(self) -> bytes:
        """The message's bytes as they arrived."""
        return self.wrapped.payload

    @property
    def sequence(self) -> int:
        """Its place in the queue, from 1; 0 where the peer does not say."""
        return self.wrapped.sequence

    @property
    def enqueued_ms(self) -> int:
        """When the node stored it, in milliseconds since the epoch; 0 where the peer does not say."""
        return self.wrapped.enqueued_ms

    @property
    def settled(self) -> bool:
        """Whether it has its outcome."""
        return self.wrapped.settled

    def accept(self) -> None:
        """Settles it as processed: the message leaves the queue."""

        async def accept() -> None:
            self.wrapped.accept()

        self._run(accept())

    def reject(self, condition: str | None = None, description: str | None = None) -> None:
        """Settles it as invalid for every consumer: the message becomes a dead letter."""

        async def reject() -> None:
            self.wrapped.reject(condition, description)

        self._run(reject())

    def release(self) -> None:
        """Puts it back to its place in the queue, as if it had not been delivered."""

        async def release() -> None:
            self.wrapped.release()

        self._run(release())

    def modify(
        self,
        *,
        delivery_failed: bool = True,
        undeliverable_here: bool = False,
        annotations: dict[str, Any] | None = None,
    ) -> None:
        """Puts it back to its place in the queue, with `annotations` merged in."""

        async def modify() -> None:
            self.wrapped.modify(
                delivery_failed=delivery_failed, undeliverable_here=undeliverable_here, annotations=annotations
            )

        self._run(modify())


class BlockingReceiver(_Bound):
    """Receives messages; made by `BlockingConnection.receiver`. Iterate over it, or ask for a `batch`."""

    def __init__(self, owner: Runs, connection: Connection, receiver: Receiver) -> None:
        super().__init__(owner, connection)
        self._receiver = receiver

    def __repr__(self) -> str:
        return f"<BlockingReceiver of {self._receiver.address}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[BlockingDelivery]:
        return self

    def __next__(self) -> BlockingDelivery:
        async def following() -> Delivery | None:
            try:
                return await anext(self._receiver)
            except StopAsyncIteration:
                return None

        delivery = self._run(following())
        if delivery is None:
            raise StopIteration
        return BlockingDelivery(self._owner, self._connection, delivery)

    @property
    def ended(self) -> bool:
        """Whether the node has closed the link after its last message, and all messages were handed out."""
        return self._receiver.ended

    def batch(self, *, count_max: int | None = None, timeout_s: float | None = None) -> list[BlockingDelivery]:
        """Returns all messages that have arrived, as `Receiver.batch` does."""
        batch = self._run(self._receiver.batch(count_max=count_max, timeout_s=timeout_s))
        return [BlockingDelivery(self._owner, self._connection, delivery) for delivery in batch]

    def close(self) -> None:
        """Releases messages that were not handed out, sends all outcomes, and detaches."""
        self._run(self._receiver.close())


class BlockingTransaction(_Bound):
    """What a program sends and settles together; made by `BlockingConnection.transaction`, and used as `with`.

    Names, arguments and errors are those of `Transaction`.
    """

    def __init__(self, owner: Runs, connection: Connection, transaction: Transaction) -> None:
        super().__init__(owner, connection)
        self._transaction = transaction

    def __enter__(self) -> Self:
        self._run(self._transaction.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._transaction.__aexit__(kind, error, trace))

    def send(
        self, sender: BlockingSender, message: Message | object, *, number: int | None = None, check: bool = True
    ) -> Outcome:
        """Sends a message in the transaction, and waits until the node has taken it in."""
        return self._run(self._transaction.send(sender.wrapped, message, number=number, check=check))

    def submit(
        self, sender: BlockingSender, message: Message | object, *, number: int | None = None
    ) -> "Future[Outcome]":
        """As `send`, but returns the future of the outcome, so that the next message need not wait for it."""
        told: Future[Outcome] = Future()

        def tell(outcome: "asyncio.Future[Outcome]") -> None:
            if outcome.cancelled():
                told.cancel()
            elif (error := outcome.exception()) is not None:
                told.set_exception(error)
            else:
                told.set_result(outcome.result())

        async def submit() -> None:
            (await self._transaction.submit(sender.wrapped, message, number=number)).add_done_callback(tell)

        self._run(submit())
        return told

    def accept(self, delivery: BlockingDelivery) -> None:
        """Settles the delivery as processed: it leaves its queue at the commit."""

        async def accept() -> None:
            self._transaction.accept(delivery.wrapped)

        self._run(accept())

    def reject(self, delivery: BlockingDelivery, condition: str | None = None, description: str | None = None) -> None:
        """Settles it as invalid for every consumer: it is a dead letter at the commit."""

        async def reject() -> None:
            self._transaction.reject(delivery.wrapped, condition, description)

        self._run(reject())

    def release(self, delivery: BlockingDelivery) -> None:
        """Puts it back to its place in the queue at the commit, as if it had not been delivered."""

        async def release() -> None:
            self._transaction.release(delivery.wrapped)

        self._run(release())

    def commit(self) -> None:
        """Waits until the node has stored all of it."""
        self._run(self._transaction.commit())

    def rollback(self) -> None:
        """Gives up all of it."""
        self._run(self._transaction.rollback())
