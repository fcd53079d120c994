"""A delivery that is sent in parts, as its bytes become known. AMQP 1.0 §2.6.14, §2.7.5.

Rules of this file: a frame is written only into an open session window, and never before the backlog of another
delivery. So it only keeps bytes that were fed and not sent yet. Frames of other links may come between its own.
"""

from typing import Final, Protocol

from holdfast.amqp.links.pending import DeliveryPort
from holdfast.amqp.links.ports import OutgoingPort
from holdfast.amqp.wire import encoding
from holdfast.amqp.wire.performatives import Transfer
from holdfast.errors import LocalProtocolError

UNKNOWN_BYTES: Final = 1 << 63
"""The length of a delivery whose length is unknown until its end: greater than any real length."""


class OutgoingOwner(DeliveryPort, Protocol):
    """What it needs of the link that sends it; implemented by Sender."""

    @property
    def session(self) -> OutgoingPort: ...

    def forget_delivery(self, delivery_id: int) -> None:
        """Forgets the delivery: it is settled, so no outcome will arrive."""

    def finished(self, outgoing: "Outgoing") -> None:
        """The delivery's last frame was written: the link may send the next delivery."""


class Outgoing:
    """Made by `Sender.begin`. `feed` what comes next while `hungry`, `flush` as often as there may be room; `end` where
    the length was not known.

    `over`: its last frame was written, or the link is gone; the link is free for the next delivery.
    """

    __slots__ = ("_aborted", "_ahead", "_end", "_length_known", "_middle", "delivery_id", "left", "over", "sender")

    def __init__(
        self, sender: OutgoingOwner, delivery_id: int, head: bytes, length: int, settled: bool, message_format: int
    ) -> None:
        """`length` UNKNOWN_BYTES: `end`: where it ends."""
        self.sender = sender
        self.delivery_id = delivery_id
        self._length_known = length < UNKNOWN_BYTES
        self.left = length
        """Bytes of the delivery that have not been fed yet."""
        self.over = False
        self._aborted = False
        self._ahead = bytearray()
        self._middle = encoding.encode(Transfer(sender.handle, more=True))
        self._end = encoding.encode(Transfer(sender.handle))
        self.feed(head)
        first = Transfer(sender.handle, delivery_id, sender.tag_of(delivery_id), message_format, settled)
        last = encoding.encode(first)
        first.more = True
        # At once, however little it holds: ids go out in their order (§2.6.12).
        self._write(encoding.encode(first), last)

    @property
    def blocked(self) -> bool:
        """Whether no frame may be written now: the peer's window is closed, or other deliveries wait for it."""
        session = self.sender.session
        return session.outgoing.window <= 0 or bool(session.backlog) or not session.usable

    @property
    def hungry(self) -> bool:
        """Whether it has less than a frame to write, and the delivery has more bytes."""
        return self.left > 0 and not self._aborted and len(self._ahead) < self.sender.session.connection.frame_size_out

    def feed(self, data: bytes) -> None:
        """The next bytes of the delivery. LocalProtocolError past the length that it began with."""
        if len(data) > self.left:
            raise LocalProtocolError(f"a delivery of the length given has {self.left} bytes left, not {len(data)}")
        self.left -= len(data)
        self._ahead += data

    def end(self) -> None:
        """The delivery is complete. LocalProtocolError if it is shorter than the length that it began with, if it had
        one."""
        if self._length_known and self.left:
            raise LocalProtocolError(f"a delivery of the length given has {self.left} bytes left, not 0")
        self.left = 0

    def flush(self, bytes_max: int) -> int:
        """Writes full frames, and the last, while the window is open; returns the bytes of payload written.

        Ends at or above `bytes_max`, at the last frame at the latest.
        """
        connection = self.sender.session.connection
        written = 0
        while not self.over and not self.blocked and written < bytes_max:
            if self._aborted:
                self.sender.session.write_transfer(encoding.encode(Transfer(self.sender.handle, aborted=True)), b"")
                self._finish()
            elif self.left and len(self._ahead) < connection.frame_size_out:
                break
            else:
                written += self._write(self._middle, self._end)
        return written

    def abort(self) -> None:
        """Aborts the delivery (§2.6.14); the next `flush` with an open window sends this to the peer. On our side the
        delivery is settled, so no outcome will arrive.
        """
        if self.over or self._aborted:
            return
        self.sender.forget_delivery(self.delivery_id)
        self._aborted = True
        self._ahead.clear()
        self.flush(1)

    def _write(self, middle: bytes, end: bytes) -> int:
        """One frame, the last where all that is left fits into it; returns the bytes of payload in it."""
        session = self.sender.session
        size_max = session.connection.frame_size_out - 8
        ended = self.left == 0 and len(end) + len(self._ahead) <= size_max
        body = end if ended else middle
        part = bytes(self._ahead[: size_max - len(body)])
        del self._ahead[: len(part)]
        session.write_transfer(body, part)
        if ended:
            self._finish()
        return len(part)

    def _finish(self) -> None:
        self.over = True
        self.sender.finished(self)
