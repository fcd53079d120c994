"""The raw load in STOMP 1.1, for ActiveMQ: the two halves for topics.

The messages of one write are a transaction, whose commit asks for a receipt: for each message alone ActiveMQ syncs its
journal before it reads the next one of the connection. A subscriber acknowledges a burst with one frame, which stands
for all up to the message that it names (ack: client). Frames: a command, headers, an empty line, a body of
`content-length` bytes, a zero byte (STOMP 1.1, "STOMP Frames").
"""

import os
import time
from typing import Final

import _wire as wire
from _connection import ReceivingWire, SendingWire, Side, Wire
from _marked import digits, subject
from _wire import WireError

UNCONFIRMED_MAX: Final = 10_000
"""STOMP has no credit for senders: how many messages may be in doubt."""
BEGIN: Final = b"BEGIN\ntransaction:t\n\n\0"
_KIND: Final = "???"
_LENGTH: Final = b"\ncontent-length:"
_MESSAGE_ID: Final = b"\nmessage-id:"


def stomp_frame(command: str, headers: dict[str, str], body: bytes = b"") -> bytes:
    lines = [command, *(f"{key}:{value}" for key, value in headers.items())]
    return "\n".join([*lines, "", ""]).encode() + body + b"\0"


class SendBatch:
    """Persistent messages of `size` bytes to the topic of their kind, as `MarkedBatch`, in a transaction."""

    def __init__(self, size: int, count_max: int, kinds: int, words: str) -> None:
        headers = {
            "destination": f"/topic/{subject(words, _KIND)}", "persistent": "true", "transaction": "t", "a": "x",
            "b": "something that nobody asks for", "c": "true", "d": "2", "content-length": str(size),
        }  # fmt: skip
        one = stomp_frame("SEND", headers, bytes(8) + wire.body_after_number(size))
        self._plain = wire.Batch(one, count_max, len(one) - size - 1)
        self._kinds = kinds
        kind_at = one.index(_KIND.encode())
        texts = "".join(digits(number % kinds) for number in range(kinds + count_max)).encode()
        self._planes = [(kind_at + place, texts[place::3]) for place in range(3)]

    def patch(self, number: int, count: int) -> memoryview:
        """All of the transaction; its receipt names how many messages it has."""
        first = number % self._kinds
        for at, plane in self._planes:
            self._plain.put(at, plane[first : first + count])
        commit = stomp_frame("COMMIT", {"transaction": "t", "receipt": str(count)})
        return memoryview(b"".join((BEGIN, self._plain.patch(0, number, count), commit)))


class _Stomp(Wire):
    """A connection with a client-id of its own."""

    def __init__(self, side: Side) -> None:
        super().__init__(side)
        self.client = f"raw-{os.getpid()}-{self.fileno()}"
        self.answers: list[bytes] = []
        """Frames that are no messages."""
        headers = {"accept-version": "1.1", "host": side.host, "heart-beat": "0,0", "client-id": self.client}
        self.send_all(stomp_frame("CONNECT", headers))
        self._await(b"CONNECTED")

    def _await(self, command: bytes) -> None:
        deadline = time.monotonic() + 30.0
        while not any(answer.startswith(command) for answer in self.answers):
            if time.monotonic() > deadline:
                raise WireError(f"no {command.decode()} within 30 s")
            if self.wait(1.0):
                self.take()
        self.answers = [answer for answer in self.answers if not answer.startswith(command)]

    def take(self) -> int:
        count = self.fill()
        if not count:
            return 0
        buffer, end, at = self.buffer, self.filled, 0
        bodies = last_at = last_body_at = 0
        while True:
            while at < end and buffer[at] == 0x0A:  # between frames
                at += 1
            head = buffer.find(b"\n\n", at, end)
            if head < 0:
                break
            length_at = buffer.find(_LENGTH, at, head)
            if length_at >= 0:
                first = length_at + len(_LENGTH)
                last = buffer.find(b"\n", first, head)
                stop = head + 2 + int(buffer[first : head if last < 0 else last])
            else:
                stop = buffer.find(b"\0", head + 2, end)
            if stop < 0 or stop >= end:
                break
            if buffer.startswith(b"MESSAGE\n", at):
                bodies, last_at, last_body_at = bodies + 1, at, head + 2
            else:
                self.on_answer(bytes(buffer[at:head]))
            at = stop + 1
        if bodies:
            self.on_messages(bodies, last_at, last_body_at)
        self.keep(at)
        return count

    def on_answer(self, head: bytes) -> None:
        if head.startswith(b"ERROR"):
            raise WireError(f"the peer reports {head!r}")
        self.answers.append(head)

    def on_messages(self, count: int, last_at: int, last_body_at: int) -> None:
        raise WireError("a message at a sender")

    def close(self) -> None:
        self.send_all(stomp_frame("DISCONNECT", {"receipt": "bye"}))
        self._await(b"RECEIPT\nreceipt-id:bye")
        self.socket.close()


class StompSender(_Stomp, SendingWire):
    def __init__(self, side: Side) -> None:
        super().__init__(side)
        self.messages = SendBatch(side.size, self.batch_max, side.kinds, side.words)

    def allowance(self) -> int:
        return UNCONFIRMED_MAX - (self.sent - self.settled)

    def batch(self, count: int) -> memoryview:
        return self.messages.patch(self.side.first_number + self.sent, count)

    def on_answer(self, head: bytes) -> None:
        count = head.rpartition(b":")[2]
        if head.startswith(b"RECEIPT") and count.isdigit():
            self.settled += int(count)
        else:
            super().on_answer(head)


class StompReceiver(_Stomp, ReceivingWire):
    """Its prefetch is the credit; a durable one has the name of its connection."""

    def __init__(self, side: Side) -> None:
        super().__init__(side)
        headers = {
            "id": "0", "destination": side.address, "ack": "client", "activemq.prefetchSize": str(side.credit),
            "receipt": "subscribed",
        }  # fmt: skip
        if side.durable:
            headers["activemq.subscriptionName"] = self.client
        self.send_all(stomp_frame("SUBSCRIBE", headers))
        self._await(b"RECEIPT\nreceipt-id:subscribed")

    def on_messages(self, count: int, last_at: int, last_body_at: int) -> None:
        """Acknowledge the burst's whole messages with one frame."""
        self.received += count
        self.check(int.from_bytes(self.buffer[last_body_at : last_body_at + 8], "big"))
        first = self.buffer.find(_MESSAGE_ID, last_at, last_body_at) + len(_MESSAGE_ID)
        name = bytes(self.buffer[first : self.buffer.find(b"\n", first, last_body_at)])
        self.send_all(b"ACK\nsubscription:0\nmessage-id:" + name + b"\n\n\0")
