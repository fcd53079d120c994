"""The raw load in AMQP 0-9-1 with publisher confirms: the same two halves, for RabbitMQ's own protocol.

A publish is three frames (method, content header, body) with nothing to patch but the number in the body;
delivery tags count from 1 on a channel. Frames: type, channel, size, payload, 0xCE (0-9-1 §2.3.5).
"""

import struct
import time
from typing import Final

import _wire as wire
from _connection import ReceivingWire, SendingWire, Side, Wire
from _wire import WireError

UNCONFIRMED_MAX: Final = 10_000
"""0-9-1 has no credit for senders: how many messages may be in doubt."""

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
FRAME_END: Final = b"\xce"
START, START_OK, TUNE, TUNE_OK = (10, 10), (10, 11), (10, 30), (10, 31)
OPEN, OPEN_OK, CLOSE, CLOSE_OK = (10, 40), (10, 41), (10, 50), (10, 51)
CHANNEL_OPEN, CHANNEL_OPEN_OK, CHANNEL_CLOSE = (20, 10), (20, 11), (20, 40)
DECLARE, DECLARE_OK = (50, 10), (50, 11)
QOS, QOS_OK, CONSUME, CONSUME_OK, PUBLISH, DELIVER, ACK = (
    (60, 10), (60, 11), (60, 20), (60, 21), (60, 40), (60, 60), (60, 80))  # fmt: skip
CONFIRM, CONFIRM_OK = (85, 10), (85, 11)
_FRAME = struct.Struct(">BHI")


def native_frame(kind: int, channel: int, payload: bytes) -> bytes:
    return _FRAME.pack(kind, channel, len(payload)) + payload + FRAME_END


def method(channel: int, name: tuple[int, int], arguments: bytes = b"") -> bytes:
    return native_frame(METHOD, channel, struct.pack(">HH", *name) + arguments)


def short_string(text: str) -> bytes:
    data = text.encode()
    return bytes((len(data),)) + data


def long_string(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def publish_batch(queue: str, size: int, count_max: int) -> wire.Batch:
    """Persistent messages (delivery-mode 2) of `size` bytes to the default exchange, for `queue`."""
    publish = method(1, PUBLISH, b"\0\0" + short_string("") + short_string(queue) + b"\0")
    header = native_frame(HEADER, 1, struct.pack(">HHQHB", 60, 0, size, 0x1000, 2))
    body = native_frame(BODY, 1, bytes(8) + wire.body_after_number(size))
    one = publish + header + body
    return wire.Batch(one, count_max, len(one) - size - 1)


class _Native(Wire):
    """Connection, one channel, the durable queue."""

    def __init__(self, side: Side) -> None:
        super().__init__(side)
        self.waiting: list[tuple[tuple[int, int], bytes]] = []
        self.keepalive_bytes = native_frame(HEARTBEAT, 0, b"")
        self.send_all(b"AMQP\0\0\x09\x01")
        self._await(START)
        response = short_string("PLAIN") + long_string(f"\0{side.user}\0{side.password}".encode())
        self.send_all(method(0, START_OK, long_string(b"") + response + short_string("en_US")))
        tune = self._await(TUNE)
        self.send_all(method(0, TUNE_OK, tune[:6] + b"\0\0"))
        self.send_all(method(0, OPEN, short_string("/") + b"\0\0"))
        self._await(OPEN_OK)
        self.ask(CHANNEL_OPEN, CHANNEL_OPEN_OK, b"\0")
        self.ask(DECLARE, DECLARE_OK, b"\0\0" + short_string(side.address) + b"\x02" + long_string(b""))

    def ask(self, question: tuple[int, int], answer: tuple[int, int], arguments: bytes) -> None:
        self.send_all(method(1, question, arguments))
        self._await(answer)

    def _await(self, name: tuple[int, int]) -> bytes:
        deadline = time.monotonic() + 10.0
        while True:
            for place, (found, arguments) in enumerate(self.waiting):
                if found == name:
                    del self.waiting[place]
                    return arguments
            if time.monotonic() > deadline:
                raise WireError(f"no method {name} within 10 s")
            if self.wait(1.0):
                self.take()

    def take(self) -> int:
        count = self.fill()
        buffer, end, at = self.buffer, self.filled, 0
        bodies = last_body_at = 0
        unpack = _FRAME.unpack_from
        while count and end - at >= 8:
            kind, _, size = unpack(buffer, at)
            stop = at + size + 8
            if stop > end:
                break
            if kind == BODY:
                bodies += 1
                last_body_at = at + 7
            elif kind == METHOD and (buffer[at + 8] != 60 or buffer[at + 10] != 60):
                self.on_method(bytes(buffer[at + 7 : stop - 1]))
            at = stop
        if bodies:
            self.on_deliveries(bodies, last_body_at)
        self.keep(at)
        return count

    def on_method(self, payload: bytes) -> None:
        major, minor = struct.unpack_from(">HH", payload)
        if (major, minor) in (CLOSE, CHANNEL_CLOSE):
            raise WireError(f"the peer closed: {payload[4:]!r}")
        self.waiting.append(((major, minor), payload[4:]))

    def on_deliveries(self, bodies: int, last_body_at: int) -> None:
        raise WireError("a delivery at a sender")

    def close(self) -> None:
        self.send_all(method(0, CLOSE, struct.pack(">H", 200) + b"\0" + bytes(4)))
        self._await(CLOSE_OK)
        self.socket.close()


class NativeSender(_Native, SendingWire):
    def __init__(self, side: Side) -> None:
        super().__init__(side)
        self.messages = publish_batch(side.address, side.size, self.batch_max)
        self.below = 0
        self.apart: set[int] = set()
        self.ask(CONFIRM, CONFIRM_OK, b"\0")

    def allowance(self) -> int:
        return UNCONFIRMED_MAX - (self.sent - self.settled)

    def batch(self, count: int) -> memoryview:
        return self.messages.patch(0, self.side.first_number + self.sent, count)

    def on_method(self, payload: bytes) -> None:
        """Confirms: a tag alone, out of order at times, or all up to it."""
        if payload[:4] != b"\x00\x3c\x00\x50":
            if payload[:4] == b"\x00\x3c\x00\x78":
                raise WireError("a message was not accepted")
            super().on_method(payload)
            return
        tag, multiple = struct.unpack_from(">QB", payload, 4)
        if multiple:
            self.apart = {one for one in self.apart if one > tag}
            self.below = max(self.below, tag)
        else:
            self.apart.add(tag)
        while self.below + 1 in self.apart:
            self.below += 1
            self.apart.remove(self.below)
        self.settled = self.below + len(self.apart)


class NativeReceiver(_Native, ReceivingWire):
    def __init__(self, side: Side) -> None:
        super().__init__(side)
        self.ask(QOS, QOS_OK, struct.pack(">IHB", 0, side.credit, 0))
        arguments = b"\0\0" + short_string(side.address) + short_string("raw") + b"\0" + long_string(b"")
        self.ask(CONSUME, CONSUME_OK, arguments)

    def on_deliveries(self, bodies: int, last_body_at: int) -> None:
        """Acknowledge the burst's whole messages with one method."""
        self.received += bodies
        self.check(int.from_bytes(self.buffer[last_body_at : last_body_at + 8], "big"))
        self.send_all(method(1, ACK, struct.pack(">QB", self.received, 1)))
