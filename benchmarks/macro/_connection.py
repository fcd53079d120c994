"""One connection of the raw load, whatever the protocol: a plain socket, its buffers, and what a phase does with it.

Rules of this file: blocking sockets, no thread, no event loop; a subclass reads and writes its protocol's frames.
Nothing is taken on trust: a receiver checks by the numbers in the bodies what came (ReceivingWire.check).
"""

import select
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import _wire as wire
from _tls import TlsSocket
from _wire import WireError

BATCH_FRAMES_MAX = 256
BATCH_BYTES_MAX = 1 << 20
BUFFER_BYTES = 1 << 20
CONNECTIONS_MAX = 200
"""Of one process of the unpaced load; select() ends at descriptor 1,023. The paced load takes more (_paced.py)."""
SENDER_SPAN = 1 << 40
"""On a queue that several senders share, a message's number is its sender's index times this, plus its count."""
SILENCE_S_MAX = 60.0
"""A phase in which nothing at all moves for this long has failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What one connection is to do. `credit` is a receiver's. `user` None: ANONYMOUS. `ca_file`: TLS is spoken, and it
    signed the peer's certificate.

    `first_number` is that of the first message sent or awaited; `shared`: other connections use the address too.
    `exact`: the receiver grants only what a phase is to receive, so that the rest stays in the queue; AMQP 1.0 alone.

    The others are of AMQP 1.0 alone, too. `kinds`: what is sent has properties, and a kind from 0 to `kinds` - 1
    (_marked.py); 0: no properties. `words` stand before the kind in its subject. `priorities`: of what is sent are
    drawn. `unordered`: the queue sorts, so that a receiver checks counts alone. `stride`: between the numbers of two
    messages that a receiver is given. `subscribes`: to a topic; where not `durable`, while the link is there.
    """

    host: str
    port: int
    address: str
    size: int
    credit: int
    user: str | None = None
    password: str | None = None
    ca_file: str | None = None
    first_number: int = 0
    shared: bool = False
    exact: bool = False
    kinds: int = 0
    words: str = ""
    priorities: bool = False
    unordered: bool = False
    stride: int = 1
    selector: str | None = None
    subscribes: bool = False
    durable: bool = True
    batch_max: int = BATCH_FRAMES_MAX
    buffer_bytes: int = BUFFER_BYTES


class Wire(ABC):
    """A connection's socket and buffers; subclasses read frames. Not a thread's or a loop's: it blocks."""

    def __init__(self, side: Side) -> None:
        self.side = side
        plain = socket.create_connection((side.host, side.port), timeout=10.0)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket: Any = plain if side.ca_file is None else TlsSocket(plain, side.ca_file)
        self.buffer = bytearray(side.buffer_bytes)
        self.view = memoryview(self.buffer)
        self.filled = self.read_bytes = 0
        self.keepalive_s: float | None = None
        self.keepalive_bytes = wire.EMPTY_FRAME
        self.keepalive_at = 0.0

    def fileno(self) -> int:
        return self.socket.fileno()

    def send_all(self, data: bytes | memoryview) -> None:
        """Write what is small, so that waiting for room is short."""
        self.socket.setblocking(True)
        self.socket.sendall(data)

    def fill(self) -> int:
        """Read once what is there, without waiting; bytes read (0: nothing there). Raises at the end."""
        try:
            count = self.socket.recv_into(self.view[self.filled :], 0, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0
        if count == 0:
            raise WireError("the peer closed the connection")
        self.filled += count
        self.read_bytes += count
        return count

    def keep(self, end: int) -> None:
        """Keep buffer[end:filled], an incomplete frame, for the next read."""
        rest = self.filled - end
        if rest and end:
            self.buffer[:rest] = self.buffer[end : self.filled]
        self.filled = rest

    def wait(self, timeout_s: float) -> bool:
        """Whether something can be read, after at most timeout_s."""
        if isinstance(self.socket, TlsSocket) and self.socket.pending:
            return True
        poller = select.poll()
        poller.register(self.socket, select.POLLIN)
        return bool(poller.poll(timeout_s * 1000))

    def keep_alive(self, now: float) -> None:
        if self.keepalive_s is not None and now >= self.keepalive_at:
            self.send_all(self.keepalive_bytes)
            self.keepalive_at = now + self.keepalive_s

    @abstractmethod
    def take(self) -> int:
        """Read once, act on what came; bytes read."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection and await the peer's answer."""


class SendingWire(Wire):
    """The sending half; the protocol says how much may be sent and how a batch is encoded."""

    sent = 0
    settled = 0
    target = 0
    pending = memoryview(b"")
    _rate: float | None = None
    _start = 0.0
    _sent_before = 0

    @property
    def batch_max(self) -> int:
        """Messages of one write."""
        return max(1, min(self.side.batch_max, BATCH_BYTES_MAX // self.side.size))

    @abstractmethod
    def allowance(self) -> int:
        """Messages that may be sent now."""

    @abstractmethod
    def batch(self, count: int) -> memoryview:
        """The next `count` messages, encoded; the next call ends the view's life."""

    def begin(self, messages: int, rate: float | None, start: float) -> None:
        self.target = self.sent + messages
        self._rate, self._start, self._sent_before = rate, start, self.sent

    def push(self, now: float) -> bool:
        """Encode and write, once, what may go and is due; whether anything was written."""
        if not self.pending:
            count = min(self.target - self.sent, self.allowance(), self.batch_max)
            if self._rate is not None and count > 0:
                count = min(count, int((now - self._start) * self._rate) + 1 - (self.sent - self._sent_before))
            if count <= 0:
                return False
            self.pending = self.batch(count)
            self.sent += count
        try:
            self.pending = self.pending[self.socket.send(self.pending, socket.MSG_DONTWAIT) :]
        except BlockingIOError:
            return False
        return True

    def due_in(self, now: float) -> float:
        """Seconds until the next message is due; 1 where none is, or where it waits for the peer."""
        if self._rate is None or self.sent >= self.target:
            return 1.0
        return max(0.0, self._start + (self.sent - self._sent_before) / self._rate - now)


class ReceivingWire(Wire):
    """The receiving half: counts, checks order by the number in each burst's last body, settles."""

    received = 0
    remaining = 0
    """Of an exact side: what it is still to receive."""

    def __init__(self, side: Side) -> None:
        self.last_of: dict[int, int] = {}
        super().__init__(side)

    def expect(self, messages: int) -> None:
        """A phase begins in which so many are to come."""
        self.remaining += messages

    def check(self, number: int) -> None:
        """The last message of a burst: none lost, doubled, reordered before it.

        A queue of its own: it carries the count of those before it, times the stride. A shared one: each sender's
        numbers ascend, and the phase's sum says the rest.
        """
        if self.side.unordered:
            return
        if self.side.shared:
            sender, count = divmod(number, SENDER_SPAN)
            if count <= self.last_of.get(sender, -1):
                raise WireError(f"message {count} of sender {sender} came after {self.last_of[sender]}")
            self.last_of[sender] = count
        elif number != self.side.first_number + (self.received - 1) * self.side.stride:
            raise WireError(f"message {number} came as the {self.received}th: lost, doubled or reordered")


def send_phase(wires: Sequence[SendingWire], messages: int, rate: float | None) -> dict[str, float]:
    """Send `messages` over all wires, the same count each, and wait until all are settled.

    Seconds, monotonic and wall, of the first write and the last settlement.
    """
    start_wall, start = time.time(), time.monotonic()
    each = messages // len(wires)
    for one in wires:
        one.begin(each, None if rate is None else rate / len(wires), start)
    silence_s = max(SILENCE_S_MAX, 2 * len(wires) / rate if rate else 0.0)
    moved = start
    while missing := sum(one.target - one.settled for one in wires):
        now = time.monotonic()
        progress = False
        for one in wires:
            progress = one.push(now) or progress
            progress = bool(one.take()) or progress
            one.keep_alive(now)
        if progress:
            moved = now
            continue
        if now - moved > silence_s:
            raise WireError(f"nothing settled for {silence_s:g} s: {missing} missing")
        timeout = min(one.due_in(now) for one in wires)
        blocked = [one for one in wires if one.pending]
        select.select(wires, blocked, [], timeout)
    return {"first": start, "last": time.monotonic(), "wall_first": start_wall, "wall_last": time.time()}


def receive_phase(wires: Sequence[ReceivingWire], messages: int, target: int) -> dict[str, float]:
    """Await `messages` more over all wires, `target` with those of earlier phases: some may be here already.

    Seconds of the first and last arrival.
    """
    for one in wires:
        one.expect(messages // len(wires))
    first = 0.0
    moved = time.monotonic()
    while (received := sum(one.received for one in wires)) < target:
        readable, _, _ = select.select(wires, [], [], 1.0)
        now = time.monotonic()
        for one in readable:
            if one.take():
                first, moved = first or now, now
        if now - moved > SILENCE_S_MAX:
            raise WireError(f"nothing arrived for {SILENCE_S_MAX:g} s: {target - received} missing")
        for one in wires:
            one.keep_alive(now)
    if received > target:
        raise WireError(f"{received - target} messages more than were sent")
    return {"first": first, "last": time.monotonic(), "wall_first": time.time(), "wall_last": time.time()}
