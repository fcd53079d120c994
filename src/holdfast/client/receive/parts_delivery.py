"""A message whose body is read while it arrives, as a program sees it. AMQP 1.0 §3.2.

Rules of this file: it knows its receiver only as a `HoldsParts`, which counts the bytes that nobody has read yet. It
can be accepted once its last part has arrived; with any other outcome the rest of the body is dropped as it arrives.
"""

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO, Any, Final, Protocol

from holdfast.amqp.message.body import BodyReader
from holdfast.amqp.message.message import Message
from holdfast.amqp.session import events
from holdfast.amqp.wire import conditions
from holdfast.client.errors import UndecodableMessage
from holdfast.client.receive.delivery import Delivery, Settles
from holdfast.errors import HoldfastError, LocalProtocolError, RemoteProtocolError
from holdfast.units import KIB

WHOLE_HEAD_BYTES: Final = 4 * KIB
"""Of a message that is read as it came: with so many its sequence is known."""


class HoldsParts(Settles, Protocol):
    """What a DeliveryInParts needs of its receiver."""

    def hold(self, more_bytes: int) -> None:
        """So many more bytes of bodies are in memory unread; negative: fewer."""


class WholeReader:
    """In the place of a `BodyReader`: what is read is the whole message, and its head is known by its first bytes."""

    def __init__(self) -> None:
        self.head: Message | None = None
        self.head_bytes = b""

    def feed(self, data: bytes) -> list[bytes]:
        if self.head is None:
            self.head_bytes += data
            if len(self.head_bytes) >= WHOLE_HEAD_BYTES:
                self.head = Message()
        return [data] if data else []

    def end(self) -> None:
        self.head = self.head or Message()


class DeliveryInParts(Delivery):
    """A message whose body is read while it arrives, with `parts` or `save`; `message` is the rest of it.

    It can be accepted once all of it has arrived. Any other outcome can be given at any time, and discards the rest of
    the body.
    """

    HIDDEN = Delivery.HIDDEN | {"arrived", "body", "broke", "head_bytes", "known", "outcome", "unread"}

    __slots__ = ("_arrived", "_discarded", "_end", "_parts", "_reader", "_reading", "_unread_bytes", "outcome")

    _receiver: HoldsParts

    def __init__(self, receiver: HoldsParts, event: events.Delivery, reader: "BodyReader | WholeReader") -> None:
        super().__init__(receiver, event, 0, 0)
        self._reader = reader
        self._parts: deque[bytes] = deque()
        self._unread_bytes = 0
        self._arrived = asyncio.Event()
        self._end: HoldfastError | bool = False
        """True once all of it has arrived; an error where the rest does not arrive."""
        self._reading = False
        self._discarded = False
        self.outcome: Any = None
        """Given before all of it had arrived: sent when it has."""

    def __repr__(self) -> str:
        return f"<DeliveryInParts sequence {self.sequence}>"

    @property
    def whole(self) -> bool:
        return self._end is True

    @property
    def message(self) -> Message:
        """The message without body and footer.

        Raises UndecodableMessage if the bytes are no message, and RemoteProtocolError (`amqp:not-implemented`) if its
        kind of body cannot be read in parts."""
        if self._reader.head is None:
            assert isinstance(self._end, HoldfastError), "it is handed out once its head has arrived, or never will"
            raise self._end
        return self._reader.head

    @property
    def body(self) -> bytes:
        raise LocalProtocolError(f"{self!r}: its body comes in parts; read it with parts() or save()")

    async def parts(self) -> AsyncIterator[bytes]:
        """Yields the body as it arrives, once: the bytes of data sections, or of one binary or text (UTF-8) value.

        Raises as `message` does, and DeliveryBroken if the connection breaks (then the message arrives again as another
        delivery) or the node closes the link (then this receiver gets it no more).
        """
        if self._reading or (self._discarded and not isinstance(self._end, HoldfastError)):
            raise LocalProtocolError(f"{self!r}: its body has been read or discarded already")
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
            if self._discarded:
                raise LocalProtocolError(f"{self!r}: its body was discarded")
            self._arrived.clear()
            await self._arrived.wait()

    async def save(self, path: Path) -> int:
        """Writes the body to a new file at `path`, in threads, and syncs it to disk. Returns how many bytes it has.

        Raises as `parts` does, and OSError.
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
        """Drops what has arrived of the body, and the rest as it arrives."""
        self._discarded = True
        self._parts.clear()
        self._hold(-self._unread_bytes)
        self._arrived.set()

    # ------------------------------------------------------------------------------------ for the receiver

    @property
    def known(self) -> bool:
        """It can be handed out: its head has arrived, or never will."""
        return self._reader.head is not None or self._end is not False

    @property
    def unread(self) -> bool:
        """Its body is neither read to the end nor discarded: the next message waits for it."""
        return self._end is False and not self._discarded

    @property
    def head_bytes(self) -> bytes:
        """The sections before the body, encoded."""
        return self._reader.head_bytes

    def arrived(self, data: bytes, *, last: bool) -> None:
        """Takes the next bytes of the message in."""
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
        if not self._discarded:
            self._parts += pieces
            self._hold(sum(map(len, pieces)))
        self._end = last
        self._arrived.set()

    def broke(self, error: HoldfastError) -> None:
        """The rest does not arrive, or cannot be decoded."""
        self._end = error
        self.discard()

    def _hold(self, more_bytes: int) -> None:
        self._unread_bytes += more_bytes
        self._receiver.hold(more_bytes)


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())
