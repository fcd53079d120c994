"""Messages of any size from one address: handed out when their body begins, read in parts as they come.

Rules of this file: memory holds HELD_BYTES_MAX of bodies that nobody read yet, and a window of WINDOW_FRAMES on top of
it. The link has a session of its own: where its window stands still, nothing else of the connection waits. A message is
settled once its last part is here; who decides earlier is done with it, and the rest is thrown away as it comes.
"""

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO, Any, Final

from holdfast.amqp import conditions, events
from holdfast.amqp.body import BodyReader
from holdfast.amqp.message import Message
from holdfast.amqp.receiver import Receiver as EngineReceiver
from holdfast.amqp.session import Session
from holdfast.client.delivery import ACCEPTED, RELEASED, Delivery
from holdfast.client.errors import DeliveryBroken, UndecodableMessage
from holdfast.client.link import ENDED_HERE, LinkHost
from holdfast.client.payload import placed
from holdfast.client.receiver import Receiver
from holdfast.client.terms import Terms
from holdfast.errors import HoldfastError, LocalProtocolError, RemoteProtocolError
from holdfast.units import KIB, MIB

HELD_BYTES_MAX: Final = MIB
WINDOW_FRAMES: Final = 16
"""Frames of at most 64 KB that may come while nobody reads."""

STREAM_BYTES: Final = 64 * KIB
"""A message that grows past so many bytes comes in parts."""

MESSAGE_BYTES_MAX: Final = 1 << 62
"""What we tell the node that we take: any."""


class DeliveryInParts(Delivery):
    """A message whose body comes in parts. `message` is all of it but body and footer.

    It can be accepted once all of it is here (`whole`); everything else can be said at any time, and ends its body.
    """

    __slots__ = ("_came", "_end", "_held_bytes", "_parts", "_reader", "_reading", "_thrown", "outcome")

    _receiver: "PartsReceiver"

    def __init__(self, receiver: "PartsReceiver", event: events.Delivery) -> None:
        super().__init__(receiver, event, 0, 0)
        self._reader = BodyReader()
        self._parts: deque[bytes] = deque()
        self._held_bytes = 0
        self._came = asyncio.Event()
        self._end: HoldfastError | bool = False
        """True once all of it came; an error where the rest does not come."""
        self._reading = False
        self._thrown = False
        self.outcome: Any = None
        """Said before its end: written with it."""

    def __repr__(self) -> str:
        return f"<DeliveryInParts sequence {self.sequence}>"

    @property
    def whole(self) -> bool:
        return self._end is True

    @property
    def message(self) -> Message:
        """Header, annotations, properties. UndecodableMessage where it is none; RemoteProtocolError (not-implemented)
        where it cannot be read in parts."""
        if self._reader.head is None:
            assert isinstance(self._end, HoldfastError), "it is handed out once its head is here, or never will be"
            raise self._end
        return self._reader.head

    async def parts(self) -> AsyncIterator[bytes]:
        """The body as it comes, once: bytes of data sections, or of the one binary or text (UTF-8) that it is.

        Raises as `message`, and DeliveryBroken where the connection broke: then the message comes anew, as another
        delivery; or where the node closed the link: then it does not, from this receiver.
        """
        if self._reading or (self._thrown and not isinstance(self._end, HoldfastError)):
            raise LocalProtocolError(f"{self!r}: its body was read or thrown away already")
        self._reading = True
        while True:
            while self._parts:
                part = self._parts.popleft()
                self._hold(-len(part))
                yield part
            if self._end is True:
                return
            if self._end:
                raise self._end
            if self._thrown:
                raise LocalProtocolError(f"{self!r}: its body was thrown away")
            self._came.clear()
            await self._came.wait()

    async def save(self, path: Path) -> int:
        """Writes the body to a new file at `path`, in threads; returns its bytes. Raises as `parts`, and OSError.

        The file is on its disk when this returns.
        """
        written = 0
        file = await asyncio.to_thread(path.open, "wb")
        try:
            async for part in self.parts():
                await asyncio.to_thread(file.write, part)
                written += len(part)
            await asyncio.to_thread(_sync, file)
        finally:
            await asyncio.to_thread(file.close)
        return written

    def discard(self) -> None:
        """The rest of its body is not wanted: it is thrown away as it comes."""
        self._thrown = True
        self._parts.clear()
        self._hold(-self._held_bytes)
        self._came.set()

    # ------------------------------------------------------------------------------------ for the receiver

    @property
    def known(self) -> bool:
        """It can be handed out: its head is here, or never will be."""
        return self._reader.head is not None or self._end is not False

    @property
    def unread(self) -> bool:
        """It stands in the way of the next."""
        return self._end is False and not self._thrown

    @property
    def head_bytes(self) -> bytes:
        """The sections before the body, as they came."""
        return self._reader.head_bytes

    def came(self, data: bytes, *, last: bool) -> None:
        """The next bytes of the message."""
        if self._end is not False:
            return
        try:
            pieces = self._reader.feed(data)
            if last:
                self._reader.end()
        except RemoteProtocolError as error:
            if error.condition != conditions.NOT_IMPLEMENTED:
                error = UndecodableMessage(error.condition, error.description)
            self.broke(error)
            return
        if not self._thrown:
            self._parts += pieces
            self._hold(sum(map(len, pieces)))
        self._end = last
        self._came.set()

    def broke(self, error: HoldfastError) -> None:
        """The rest does not come, or makes no sense."""
        self._end = error
        self.discard()

    def _hold(self, more_bytes: int) -> None:
        self._held_bytes += more_bytes
        self._receiver.hold(more_bytes)


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


class PartsReceiver(Receiver):
    """Made by `Connection.parts_receiver`; iterate over it. A message comes behind the body of the one before."""

    def __init__(self, connection: LinkHost, address: str, terms: Terms) -> None:
        super().__init__(connection, address, terms)
        self._resume = None  # of a delivery in parts nothing is kept that could go on
        self._message_bytes_max = MESSAGE_BYTES_MAX
        self._session: Session | None = None
        self._incoming: DeliveryInParts | None = None
        """Whose last part is still to come."""
        self._shown = False
        """It was put where the user finds it."""
        self._skipped = False
        """The user had it over an earlier connection: it is not shown again."""
        self._held_bytes = 0
        self._holds = False

    async def __anext__(self) -> DeliveryInParts:
        self._look_if_read()
        delivery = await super().__anext__()
        assert isinstance(delivery, DeliveryInParts)
        return delivery

    async def batch(self, *, count_max: int | None = None, timeout_s: float | None = None) -> list[Delivery]:
        """The next one, as of the iteration; empty as `Receiver.batch`."""
        self._look_if_read()
        return await super().batch(count_max=1, timeout_s=timeout_s)

    def _look_if_read(self) -> None:
        incoming = self._incoming
        if incoming is not None and self._shown and incoming.unread and incoming not in self._buffer:
            raise LocalProtocolError(f"{incoming!r}: its body is still coming; read or discard it before the next")

    # ------------------------------------------------------------------------- what the connection calls

    def attach(self, session: Session) -> None:
        own = self._session
        if own is None or own.connection is not session.connection or not own.usable:
            own = self._session = session.connection.begin(incoming_window=WINDOW_FRAMES)
            own.hold_window(self._holds)
        super().attach(own)
        if self._link is not None:
            self._link.stream_bytes = STREAM_BYTES

    def lost(self) -> None:
        self._break(f"{self._what}: the connection broke in the middle of a message")
        super().lost()

    def _begun(self, link: EngineReceiver) -> int:
        is_counted = self._incoming is not None and self._shown
        return 0 if is_counted else super()._begun(link)

    def _drop(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            if isinstance(delivery, DeliveryInParts) and not delivery.settled:
                delivery.discard()
        super()._drop(deliveries)

    def _break(self, text: str) -> None:
        """The rest of what is coming does not come. It comes anew: whoever has it, has it no more."""
        incoming, self._incoming = self._incoming, None
        if incoming is None:
            return
        incoming.broke(DeliveryBroken(text))
        if not self._shown:
            return
        if self._left is not None:
            self._left += 1
        if incoming in self._buffer:
            self._buffer.remove(incoming)
            return
        self.received -= 1
        if self._held.get(incoming.sequence) is incoming:
            del self._held[incoming.sequence]
        incoming.settled = True

    def fail(self, error: Exception) -> None:
        super().fail(error)
        self._end_session()

    def _end(self) -> None:
        self._break(f"{self._what}: the node closed the link in the middle of a message")
        super()._end()
        self._end_session()

    def _end_session(self) -> None:
        """The channel is free for another link."""
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
        self._break(f"{self._what}: the node gave the message up in its middle")

    def _begin(self, event: events.Delivery) -> None:
        self._incoming = DeliveryInParts(self, event)
        self._shown = self._skipped = False

    def _go_on(self, data: bytes, *, last: bool) -> None:
        incoming = self._incoming
        if incoming is None:
            return
        incoming.came(data, last=last)
        if incoming.known and not self._shown and not self._skipped:
            self._show(incoming)
        if last:
            self._incoming = None
            self._finish(incoming)

    def _show(self, incoming: DeliveryInParts) -> None:
        incoming.sequence, incoming.enqueued_ms = placed(incoming.head_bytes)
        if self._again and not incoming.settled and incoming.sequence:
            held = self._held.get(incoming.sequence)
            had_ms = self._accepted.get(incoming.sequence) if held is None else held.enqueued_ms
            if had_ms == incoming.enqueued_ms:
                self._skipped = True
                incoming.discard()
                return
        self._shown = True
        if self._left is not None:
            self._left -= 1
        self._buffer.append(incoming)
        self._wake()

    def _finish(self, incoming: DeliveryInParts) -> None:
        """All of it is here, and can be settled."""
        if self._skipped:
            if not self._known(incoming, incoming.sequence, incoming.enqueued_ms):  # given back since it began
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
            raise LocalProtocolError(f"{delivery!r}: found accepted before its end, accepted is after it")
        delivery.settled = True
        delivery.outcome = outcome
        delivery.discard()
        if self._held.get(delivery.sequence) is delivery:
            del self._held[delivery.sequence]

    def hold(self, more_bytes: int) -> None:
        """So much more of bodies lies here unread."""
        self._held_bytes += more_bytes
        holds = self._held_bytes >= (HELD_BYTES_MAX // 2 if self._holds else HELD_BYTES_MAX)
        if holds != self._holds:
            self._holds = holds
            if self._session is not None:
                self._session.hold_window(holds)
                self._connection.schedule()
