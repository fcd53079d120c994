"""Receives messages of any size from one address: each is handed out when its body begins, and read in parts.

Rules of this file: at most HELD_BYTES_MAX of unread bodies are in memory, and a window of WINDOW_FRAMES on top of that.
The link has a session of its own, so that a closed window delays no other link of the connection. A message is settled
once its last part has arrived; an outcome that the program gives earlier is kept until then.
"""

from typing import Any, ClassVar, Final

from holdfast.amqp.links.receiver import Receiver as EngineReceiver
from holdfast.amqp.message.body import BodyReader
from holdfast.amqp.session import events
from holdfast.amqp.session.session import Session
from holdfast.client.errors import DeliveryBroken
from holdfast.client.link import ENDED_HERE, LinkHost
from holdfast.client.messages.payload import placed
from holdfast.client.receive.delivery import ACCEPTED, RELEASED, Delivery
from holdfast.client.receive.parts_delivery import DeliveryInParts, WholeReader
from holdfast.client.receive.receiver import Receiver
from holdfast.client.receive.terms import Terms
from holdfast.errors import LocalProtocolError
from holdfast.units import KIB, MIB

HELD_BYTES_MAX: Final = MIB
"""Most bytes of unread bodies."""
WINDOW_FRAMES: Final = 16
"""Frames of at most 64 KB that may arrive before the program reads."""

STREAM_BYTES: Final = 64 * KIB
"""A message that grows past so many bytes arrives in parts."""

MESSAGE_BYTES_MAX: Final = 1 << 62
"""The max-message-size of our attach: any size."""


class PartsReceiver(Receiver):
    """Receives messages of any size from one address, made by `Connection.parts_receiver`.

    `async for` yields a DeliveryInParts each, when its body begins. The next one comes after the end of that body.
    """

    HIDDEN = Receiver.HIDDEN | {"READER", "confirmation"}

    READER: ClassVar[type[BodyReader | WholeReader]] = BodyReader

    def __init__(self, connection: LinkHost, address: str, terms: Terms) -> None:
        super().__init__(connection, address, terms)
        self._resume = None  # nothing is kept of a delivery in parts that could be resumed
        self._message_bytes_max = MESSAGE_BYTES_MAX
        self._session: Session | None = None
        self._incoming: DeliveryInParts | None = None
        """Its last part has yet to arrive."""
        self._is_offered = False
        """The program can get it: it is in the buffer, or was handed out."""
        self._is_duplicate = False
        """The program had it over an earlier connection: it is not handed out again."""
        self._unread_bytes = 0
        self._is_held = False
        """The session's window is closed."""

    async def __anext__(self) -> DeliveryInParts:
        self._check_read()
        delivery = await super().__anext__()
        assert isinstance(delivery, DeliveryInParts)
        return delivery

    async def batch(self, *, count_max: int | None = None, timeout_s: float | None = None) -> list[Delivery]:
        """Returns the next message alone, as iteration does; empty when `Receiver.batch` is."""
        self._check_read()
        return await super().batch(count_max=1, timeout_s=timeout_s)

    def _check_read(self) -> None:
        incoming = self._incoming
        if incoming is not None and self._is_offered and incoming.unread and incoming not in self._buffer:
            raise LocalProtocolError(f"{incoming!r}: its body is still coming; read or discard it before the next")

    # ------------------------------------------------------------------------- what the connection calls

    def attach(self, session: Session) -> None:
        own = self._session
        if own is None or own.connection is not session.connection or not own.usable:
            own = self._session = session.connection.begin(incoming_window=WINDOW_FRAMES)
            own.hold_window(self._is_held)
        super().attach(own)
        if self._link is not None:
            self._link.stream_bytes = STREAM_BYTES

    def lost(self) -> None:
        self._break(f"{self._what}: the connection broke in the middle of a message")
        super().lost()

    def _begun(self, link: EngineReceiver) -> int:
        is_counted = self._incoming is not None and self._is_offered
        return 0 if is_counted else super()._begun(link)

    def _drop(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            if isinstance(delivery, DeliveryInParts) and not delivery.settled:
                delivery.discard()
        super()._drop(deliveries)

    def _break(self, text: str) -> None:
        """The rest of the message does not arrive. It arrives again as a new delivery; this one is over."""
        incoming, self._incoming = self._incoming, None
        if incoming is None:
            return
        incoming.broke(DeliveryBroken(text))
        if not self._is_offered:
            return
        if self._left is not None:
            self._left += 1
        if incoming in self._buffer:
            self._buffer.remove(incoming)
            return
        self.received -= 1
        self._handed_out.drop(incoming)
        incoming.settled = True

    def fail(self, error: Exception) -> None:
        super().fail(error)
        self._end_session()

    def _end(self) -> None:
        self._break(f"{self._what}: the node closed the link in the middle of a message")
        super()._end()
        self._end_session()

    def _end_session(self) -> None:
        """Ends the link's own session: its channel is free for another link."""
        session = self._session
        if session is not None and session.usable:
            session.context = ENDED_HERE
            session.end()
            self._connection.schedule()

    def delivery(self, event: events.Delivery) -> None:
        self._begin(event)
        self._go_on(event.payload, last=True)

    def delivery_part(self, event: events.DeliveryPart) -> None:
        if event.first:
            self._begin(
                events.Delivery(
                    event.link, event.delivery_id, event.tag, event.message_format, event.settled, b"", None, None
                )
            )
        elif event.last and event.settled and self._incoming is not None:
            self._incoming.settled = True
        self._go_on(event.payload, last=event.last)

    def delivery_aborted(self, event: events.DeliveryAborted) -> None:
        self._break(f"{self._what}: the node aborted the message before its end")

    def _begin(self, event: events.Delivery) -> None:
        self._incoming = DeliveryInParts(self, event, self.READER())
        self._is_offered = self._is_duplicate = False

    def _go_on(self, data: bytes, *, last: bool) -> None:
        incoming = self._incoming
        if incoming is None:
            return
        incoming.arrived(data, last=last)
        if incoming.known and not self._is_offered and not self._is_duplicate:
            self._offer(incoming)
        if last:
            self._incoming = None
            self._finish(incoming)

    def _offer(self, incoming: DeliveryInParts) -> None:
        """Puts a message whose head has arrived where the program gets it, unless the program has had it."""
        incoming.sequence, incoming.enqueued_ms = sequence, enqueued_ms = placed(incoming.head_bytes)
        if self._had_link and not incoming.settled and sequence and self._handed_out.has(sequence, enqueued_ms):
            self._is_duplicate = True
            incoming.discard()
            return
        self._is_offered = True
        if self._left is not None:
            self._left -= 1
        self._buffer.append(incoming)
        self._wake()

    def _finish(self, incoming: DeliveryInParts) -> None:
        """All of it has arrived, and it can be settled."""
        if self._is_duplicate:
            if not self._known(incoming, incoming.sequence, incoming.enqueued_ms):  # released since it began
                self._settle_later(incoming.delivery_id, RELEASED)
            self.touch()
        else:
            self.outage.gained = True
            if incoming.outcome is not None:
                self._settle_later(incoming.delivery_id, incoming.outcome)
        if self._copy and incoming.sequence:
            self._next_sequence = incoming.sequence + 1

    # ---------------------------------------------------------------------------------- for deliveries

    def settle(self, delivery: Delivery, outcome: Any) -> None:
        if delivery is not self._incoming or not isinstance(delivery, DeliveryInParts):
            super().settle(delivery, outcome)
            return
        if outcome is ACCEPTED:
            raise LocalProtocolError(f"{delivery!r} cannot be accepted before its end; read it to the end first")
        delivery.settled = True
        delivery.outcome = outcome
        delivery.discard()
        self._handed_out.drop(delivery)

    def hold(self, more_bytes: int) -> None:
        """So many more bytes of bodies are in memory unread; negative: fewer."""
        self._unread_bytes += more_bytes
        holds = self._unread_bytes >= (HELD_BYTES_MAX // 2 if self._is_held else HELD_BYTES_MAX)
        if holds != self._is_held:
            self._is_held = holds
            if self._session is not None:
                self._session.hold_window(holds)
                self._connection.schedule()


class WholeReceiver(PartsReceiver):
    """Hands out each message as its bytes: the parts are those of all of it, whatever kind of body it has."""

    READER = WholeReader
