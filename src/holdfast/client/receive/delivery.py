"""A message that arrived, and how the program settles it. AMQP 1.0 §3.4.

Rules of this file: no loop. A delivery knows its receiver only as a `Settles`, which sends outcomes when the turn ends.
"""

from collections.abc import Awaitable, Generator
from typing import Any, Final, Protocol, Self

from holdfast.amqp.message.message import Message
from holdfast.amqp.session import events
from holdfast.amqp.wire import encoding, performatives
from holdfast.amqp.wire.performatives import Error, Properties
from holdfast.amqp.wire.types import MISSING, Symbol
from holdfast.client.errors import UndecodableMessage
from holdfast.client.listing import Listed, hidden
from holdfast.client.messages.reading import read_message
from holdfast.client.receive.processing import OnError, Processing
from holdfast.errors import ConfigError, LocalProtocolError, RemoteProtocolError

Outcome = performatives.Rejected | performatives.Modified

ACCEPTED: Final = performatives.Accepted()
RELEASED: Final = performatives.Released()
NO_PROPERTIES: Final = Properties()


class Settles(Protocol):
    """What a delivery needs of its receiver."""

    def settle(self, delivery: "Delivery", outcome: Any) -> None:
        """Marks the delivery as settled with that outcome, which is sent when the turn ends."""

    def holds(self, delivery: "Delivery") -> bool:
        """Whether it came, or was offered again, over the link that the receiver has now."""


class _Done:
    """What accept, reject, release and modify return: awaiting it returns at once."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


_DONE: Final = _Done()


class Delivery(Listed):
    """A message that arrived, and the way to settle it.

    It is settled once, by `accept`, `reject`, `release` or `modify`; a second call does nothing. They return at once,
    and the outcome is sent at the end of the event loop's turn: there is no need to await them.
    """

    HIDDEN = hidden("bind", "delivery_id", "link", "settle_within", "tag", "whole")

    __slots__ = (
        "_message", "_receiver", "delivery_id", "enqueued_ms", "link", "payload", "sequence", "settled", "tag",
    )  # fmt: skip

    def __init__(self, receiver: Settles, event: events.Delivery, sequence: int, enqueued_ms: int) -> None:
        self._receiver = receiver
        self.link = event.link
        self.delivery_id = event.delivery_id
        self.tag = event.tag
        self.payload = event.payload
        """The message's bytes as they arrived; empty of one that is received in parts."""
        self.sequence = sequence
        """Its place in the queue, from 1; 0 where the peer does not say."""
        self.enqueued_ms = enqueued_ms
        """When the node stored it, in milliseconds since the epoch; 0 where the peer does not say."""
        self.settled = event.settled
        """Whether it has its outcome."""
        self._message: Message | None = None

    @property
    def whole(self) -> bool:
        """Whether all of it has arrived."""
        return True

    def __repr__(self) -> str:
        return f"<Delivery sequence {self.sequence}, {len(self.payload)} bytes>"

    def bind(self, event: "events.Delivery | Delivery") -> None:
        """The node offered the message again, or resumed it, as `event`: an outcome goes to that link from now on."""
        self.link, self.delivery_id, self.tag = event.link, event.delivery_id, event.tag

    @property
    def message(self) -> Message:
        """The message, decoded on first use. Raises UndecodableMessage if it cannot be decoded; `payload` is there all
        the same, and the delivery can be settled."""
        message = self._message
        if message is None:
            try:
                message = self._message = read_message(self.payload)
            except RemoteProtocolError as error:
                raise UndecodableMessage(
                    error.condition, error.description,
                    sequence=self.sequence, enqueued_ms=self.enqueued_ms, payload=self.payload,
                ) from None  # fmt: skip
        return message

    @property
    def body(self) -> Any:
        """The body as a value: the bytes of data sections, an AMQP value as it is, of sequences the elements of all;
        None where there is no body. Raises as `message`."""
        message = self.message
        if message.data is not None:
            return b"".join(message.data)
        if message.sequences is not None:
            return [item for part in message.sequences for item in part]
        return None if message.value is MISSING else message.value

    @property
    def properties(self) -> dict[str, Any]:
        """The application properties; empty where there are none. Raises as `message`."""
        return self.message.application_properties or {}

    @property
    def subject(self) -> str | None:
        """What the message is about. Raises as `message`."""
        subject: str | None = self._standard.subject
        return subject

    @property
    def message_id(self) -> Any:
        """The id that its sender gave it: text, a whole number, a UUID or bytes. Raises as `message`."""
        return self._standard.message_id

    @property
    def correlation_id(self) -> Any:
        """Of a reply: the id of its request. Raises as `message`."""
        return self._standard.correlation_id

    @property
    def reply_to(self) -> str | None:
        """Where a reply is to go. Raises as `message`."""
        reply_to: str | None = self._standard.reply_to
        return reply_to

    @property
    def delivery_count(self) -> int:
        """How many deliveries of the message have failed before this one. Raises as `message`."""
        header = self.message.header
        return 0 if header is None else header.delivery_count

    @property
    def _standard(self) -> Properties:
        return self.message.properties or NO_PROPERTIES

    def process(self, *, on_error: OnError = "retry") -> Processing[Self]:
        """Settles the message at the end of an `async with` block: accepted, or, if the block raises an exception,

        - `"retry"`: as a failed delivery. The message comes again, and becomes a dead letter once its queue's
          `deliveries_max` is reached;
        - `"reject"`: as a dead letter, whose reason is the exception;
        - `"release"`: put back, as if it had not been delivered.

        A cancelled block releases it. What the block settles itself stays so.
        """
        return Processing(self, on_error)

    def accept(self) -> Awaitable[None]:
        """Settles it as processed: the message leaves the queue."""
        if not self.settled:
            self._receiver.settle(self, ACCEPTED)
        return _DONE

    def reject(self, condition: str | None = None, description: str | None = None) -> Awaitable[None]:
        """Settles it as invalid for every consumer: the message becomes a dead letter.

        `condition` is an AMQP error condition, such as `amqp:decode-error`. Raises ConfigError, and settles nothing,
        for text that AMQP cannot carry: a condition is ASCII.
        """
        error = None if condition is None else Error(Symbol(condition), description)
        if not self.settled:
            self._receiver.settle(self, _encodable(performatives.Rejected(error)))
        return _DONE

    def release(self) -> Awaitable[None]:
        """Puts it back to its place in the queue, as if it had not been delivered."""
        if not self.settled:
            self._receiver.settle(self, RELEASED)
        return _DONE

    def modify(
        self,
        *,
        delivery_failed: bool = True,
        undeliverable_here: bool = False,
        annotations: dict[str, Any] | None = None,
    ) -> Awaitable[None]:
        """Puts it back to its place in the queue, with `annotations` merged in.

        `delivery_failed` counts it as a failed delivery, and `undeliverable_here` asks that it is not delivered to this
        receiver again. Raises ConfigError, and settles nothing, for annotations that AMQP cannot carry.
        """
        if not self.settled:
            told = None if annotations is None else {Symbol(key): value for key, value in annotations.items()}
            self._receiver.settle(self, _encodable(performatives.Modified(delivery_failed, undeliverable_here, told)))
        return _DONE

    def settle_within(self, state: performatives.TransactionalState) -> Settles | None:
        """Settles it in a transaction, whose methods call this; returns its receiver. None if its link is gone, and
        nothing is settled: the node offers it again, and would never hear of an outcome."""
        if not self._receiver.holds(self):
            return None
        self._receiver.settle(self, state)
        return self._receiver


def _encodable(outcome: Outcome) -> Outcome:
    try:
        encoding.encode(outcome)
    except LocalProtocolError as error:
        raise ConfigError(f"invalid outcome ({error}); expected what AMQP can encode") from None
    return outcome
