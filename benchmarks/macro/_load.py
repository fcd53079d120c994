"""The raw load: one sender or one receiver, a process of its own, on a plain socket.

`python _load.py send|receive amqp|native HOST PORT ADDRESS BODY_BYTES CREDIT [USER PASSWORD]`. Attaches,
prints `{"attached": true}`, then takes one JSON object a line on standard input and answers each with one
line: `{"messages": N, "rate": R or null}` sends (or awaits) N messages. End of input closes the connection
and ends the process. Between two phases it answers the peer's frames and keeps the connection alive.
"""

import json
import os
import resource
import select
import socket
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

import _wire as wire
from _wire import Performative, WireError

WINDOW = 0x7FFFFFFF
BATCH_FRAMES_MAX = 256
BUFFER_BYTES = 1 << 20
Login = tuple[str, str] | None
"""User and password; None: ANONYMOUS."""
SILENCE_S_MAX = 60.0
"""A phase in which nothing at all moves for this long has failed."""


class Wire(ABC):
    """A connection's socket and buffers; subclasses read frames. Not a thread's or a loop's: it blocks."""

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port), timeout=10.0)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = bytearray(BUFFER_BYTES)
        self.view = memoryview(self.buffer)
        self.filled = self.read_bytes = 0
        self.keepalive_s: float | None = None
        self.keepalive_bytes = wire.EMPTY_FRAME
        self.keepalive_at = 0.0

    def send_all(self, data: bytes) -> None:
        """Write control frames: small, so that waiting for room is short."""
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

    def wait(self, timeout_s: float, *, write: bool = False) -> tuple[bool, bool]:
        """(readable, writable), after at most timeout_s."""
        read, written, _ = select.select([self.socket], [self.socket] if write else [], [], timeout_s)
        return bool(read), bool(written)

    def keep_alive(self) -> None:
        now = time.monotonic()
        if self.keepalive_s is not None and now >= self.keepalive_at:
            self.send_all(self.keepalive_bytes)
            self.keepalive_at = now + self.keepalive_s

    def idle_until_input(self) -> None:
        """Serve the connection until standard input has a line."""
        while True:
            self.keep_alive()
            timeout = None if self.keepalive_s is None else self.keepalive_s
            read, _, _ = select.select([self.socket, sys.stdin], [], [], timeout)
            if self.socket in read:
                self.take()
            if sys.stdin in read:
                return

    @abstractmethod
    def take(self) -> int:
        """Read once, act on what came; bytes read."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection and await the peer's answer."""


class SendingWire(Wire):
    """The sending half's phase; the protocol says how much may be sent and how a batch is encoded."""

    sent = 0
    settled = 0

    @abstractmethod
    def allowance(self) -> int:
        """Messages that may be sent now."""

    @abstractmethod
    def batch(self, count: int) -> memoryview:
        """`count` messages, encoded; the next call ends the view's life."""

    def run(self, messages: int, rate: float | None) -> dict[str, float]:
        """Send `messages` and wait until all are settled; seconds of the first write and last settlement."""
        target_sent, target_settled = self.sent + messages, self.settled + messages
        start_wall, start = time.time(), time.monotonic()
        first_sent = self.sent
        pending = memoryview(b"")
        moved = start
        while self.settled < target_settled:
            if not pending:
                count = min(target_sent - self.sent, self.allowance(), BATCH_FRAMES_MAX)
                if rate is not None and count > 0:
                    due = int((time.monotonic() - start) * rate) + 1 - (self.sent - first_sent)
                    count = min(count, due)
                if count > 0:
                    pending = self.batch(count)
                    self.sent += count
            if pending:
                try:
                    pending = pending[self.socket.send(pending, socket.MSG_DONTWAIT) :]
                except BlockingIOError:
                    self.wait(1.0, write=True)
            else:
                timeout = 1.0
                if rate is not None and self.sent < target_sent:
                    timeout = max(0.0, start + (self.sent - first_sent) / rate - time.monotonic())
                self.wait(timeout)
            if self.take() or pending:
                moved = time.monotonic()
            elif time.monotonic() - moved > max(SILENCE_S_MAX, 2 / rate if rate else 0):
                raise WireError(f"nothing settled for 60 s: {target_settled - self.settled} missing")
            self.keep_alive()
        return {"first": start, "last": time.monotonic(), "wall_first": start_wall, "wall_last": time.time()}


class ReceivingWire(Wire):
    """The receiving half's phase: counts, checks order by the number in each burst's last body, settles."""

    received = 0
    expected = 0

    def run(self, messages: int, rate: float | None) -> dict[str, float]:
        """Await `messages` in all; seconds of the first and last arrival."""
        target = self.expected + messages
        self.expected = target
        first = 0.0
        moved = time.monotonic()
        while self.received < target:
            readable, _ = self.wait(1.0)
            now = time.monotonic()
            if readable:
                before = self.received
                self.take()
                if self.received > before:
                    first, moved = first or now, now
            elif now - moved > SILENCE_S_MAX:
                raise WireError(f"nothing arrived for 60 s: {target - self.received} missing")
            self.keep_alive()
        return {"first": first, "last": time.monotonic(), "wall_last": time.time()}

    def check(self, number: int) -> None:
        """The last message of a burst carries the count of those before it: none lost, doubled, reordered."""
        if number != self.received - 1:
            raise WireError(f"message {number} came as the {self.received}th: lost, doubled or reordered")


class _Amqp(Wire):
    """SASL, open, begin and one link; the parts that both halves share."""

    def __init__(self, host: str, port: int, login: Login) -> None:
        super().__init__(host, port)
        self.remote_window = 0
        self.next_outgoing_id = 0
        self.first_outgoing_id = 0
        self.next_incoming_id = 0
        self.waiting: list[Performative] = []
        response = b"" if login is None else f"\0{login[0]}\0{login[1]}".encode()
        self.send_all(wire.SASL_HEADER)
        self._expect_header(wire.SASL_HEADER)
        self._await(wire.SASL_MECHANISMS)
        self.send_all(wire.sasl_init_frame("ANONYMOUS" if login is None else "PLAIN", response))
        outcome = self._await(wire.SASL_OUTCOME)
        if outcome.number(0, 1) != 0:
            raise WireError(f"SASL outcome {outcome.field(0)}")
        self.send_all(wire.AMQP_HEADER)
        self._expect_header(wire.AMQP_HEADER)
        self.send_all(wire.open_frame(f"raw-load-{os.getpid()}", host))
        idle_ms = self._await(wire.OPEN).number(4, 0)
        if idle_ms:
            self.keepalive_s = idle_ms / 2000
        self.send_all(wire.begin_frame(self.next_outgoing_id, WINDOW, WINDOW))
        begin = self._await(wire.BEGIN)
        self.next_incoming_id = begin.number(1, 0)
        self.remote_window = begin.number(2, 0)

    def _until(self, ready: Callable[[], bool]) -> None:
        """Read until `ready()`; ten seconds at most."""
        deadline = time.monotonic() + 10.0
        while not ready():
            if time.monotonic() > deadline:
                raise WireError("no answer within 10 s")
            if self.wait(1.0)[0]:
                self.take()

    def _expect_header(self, header: bytes) -> None:
        self.socket.settimeout(10.0)
        got = b""
        while len(got) < 8:
            part = self.socket.recv(8 - len(got))
            if not part:
                break
            got += part
        if got != header:
            raise WireError(f"the peer answers {got!r}, {header!r} is accepted")

    def _await(self, code: int) -> Performative:
        self._until(lambda: any(each.code == code for each in self.waiting))
        found = next(each for each in self.waiting if each.code == code)
        self.waiting.remove(found)
        return found

    def take(self) -> int:
        count = self.fill()
        if not count:
            return 0
        found = wire.scan(self.buffer, self.filled)
        if found.transfers:
            self.on_transfers(found.transfers, found.last_at, found.last_end)
        for body in found.others:
            self.on_frame(wire.performative(body))
        self.keep(found.end)
        return count

    def on_transfers(self, count: int, last_at: int, last_end: int) -> None:
        raise WireError("a transfer on a sending link")

    def on_frame(self, frame: Performative) -> None:
        if frame.code == wire.FLOW:
            outgoing = self.next_outgoing_id
            incoming = frame.number(0, self.first_outgoing_id)
            self.remote_window = wire.serial_distance(incoming + frame.number(1, 0), outgoing)
            self.on_flow(frame)
            if frame.field(9) is True:
                self.send_all(self.flow())
        elif frame.code in (wire.DETACH, wire.END):
            raise WireError(f"the peer ended the link or session: {frame.fields}")
        elif frame.code == wire.CLOSE and frame.field(0) is not None:
            raise WireError(f"the peer closed the connection: {frame.field(0)}")
        elif frame.code != wire.DISPOSITION or not self.on_disposition(frame):
            self.waiting.append(frame)

    def on_flow(self, frame: Performative) -> None:
        """A flow of the peer's; the session window is already set."""

    def on_disposition(self, frame: Performative) -> bool:
        return True

    @abstractmethod
    def flow(self) -> bytes:
        """A flow that tells where the session and the link stand."""

    def attach(self, name: str, role: bool, address: str) -> Performative:
        self.send_all(wire.attach_frame(name, role, address))
        answer = self._await(wire.ATTACH)
        if not isinstance(answer.field(6 if role is wire.SENDER else 5), wire.Described):
            raise WireError(f"the peer refuses the link to {address!r}: {answer.fields}")
        return answer

    def close(self) -> None:
        self.send_all(wire.CLOSE_FRAME)
        self._await(wire.CLOSE)
        self.socket.close()


class AmqpSender(_Amqp, SendingWire):
    def __init__(self, host: str, port: int, address: str, size: int, credit: int, login: Login = None) -> None:
        super().__init__(host, port, login)
        self.frames = wire.transfer_batch(size, BATCH_FRAMES_MAX)
        self.credit = 0
        self.attach(f"raw-sender-{address}", wire.SENDER, address)
        self._until(lambda: self.allowance() > 0)

    def allowance(self) -> int:
        return min(self.credit, self.remote_window)

    def batch(self, count: int) -> memoryview:
        self.credit -= count
        self.remote_window -= count
        self.next_outgoing_id = (self.next_outgoing_id + count) & 0xFFFFFFFF
        return self.frames.patch(self.sent & 0xFFFFFFFF, self.sent, count)

    def on_flow(self, frame: Performative) -> None:
        if frame.field(4) is not None:
            granted = frame.number(5, 0) + frame.number(6, 0)
            self.credit = wire.serial_distance(granted, self.sent & 0xFFFFFFFF)

    def on_disposition(self, frame: Performative) -> bool:
        first = frame.number(1, 0)
        state = frame.field(4)
        accepted = isinstance(state, wire.Described) and state.descriptor == 0x24
        if frame.field(0) is not True or frame.field(3) is not True or not accepted:
            raise WireError(f"a message was not accepted: {frame.fields}")
        self.settled += wire.serial_distance(frame.number(2, first), first) + 1
        return True

    def flow(self) -> bytes:
        return wire.flow_frame(
            next_incoming_id=self.next_incoming_id, incoming_window=WINDOW,
            next_outgoing_id=self.next_outgoing_id, outgoing_window=WINDOW,
            delivery_count=self.sent, link_credit=self.credit,
        )  # fmt: skip


class AmqpReceiver(_Amqp, ReceivingWire):
    def __init__(self, host: str, port: int, address: str, size: int, credit: int, login: Login = None) -> None:
        super().__init__(host, port, login)
        self.size, self.credit_max, self.credit = size, credit, credit
        answer = self.attach(f"raw-receiver-{address}", wire.RECEIVER, address)
        self.initial_count = answer.number(9, 0)
        self.last_id: int | None = None
        self.send_all(self.flow())

    def flow(self) -> bytes:
        return wire.flow_frame(
            next_incoming_id=self.next_incoming_id, incoming_window=WINDOW,
            next_outgoing_id=self.next_outgoing_id, outgoing_window=WINDOW,
            delivery_count=self.initial_count + self.received, link_credit=self.credit,
        )  # fmt: skip

    def on_transfers(self, count: int, last_at: int, last_end: int) -> None:
        """Settle the burst with one range; top the credit up at half."""
        last = wire.transfer_delivery_id(self.buffer, last_at)
        first = (last - count + 1) & 0xFFFFFFFF
        if self.last_id is not None and wire.serial_distance(first, self.last_id) != 1:
            raise WireError(f"delivery-ids jump from {self.last_id} to {first}")
        self.last_id = last
        self.received += count
        self.credit -= count
        self.next_incoming_id = (self.next_incoming_id + count) & 0xFFFFFFFF
        self.check(wire.body_number(self.buffer, last_end, self.size))
        answer = wire.disposition_frame(wire.RECEIVER, first, last)
        if self.credit <= self.credit_max // 2:
            self.credit = self.credit_max
            answer += self.flow()
        self.send_all(answer)


def main(arguments: list[str]) -> int:
    role, protocol, host, port, address, size, credit, *words = arguments
    login = (words[0], words[1]) if words else None
    made: SendingWire | ReceivingWire
    numbers = (int(port), address, int(size), int(credit))
    if protocol == "native":
        from _native import NativeReceiver, NativeSender

        made = (NativeSender if role == "send" else NativeReceiver)(host, *numbers, login)
    else:
        made = (AmqpSender if role == "send" else AmqpReceiver)(host, *numbers, login)
    print(json.dumps({"attached": True}), flush=True)
    while True:
        made.idle_until_input()
        line = sys.stdin.readline()
        if not line.strip():
            break
        order = json.loads(line)
        before, read_before = resource.getrusage(resource.RUSAGE_SELF), made.read_bytes
        result = made.run(order["messages"], order.get("rate"))
        after = resource.getrusage(resource.RUSAGE_SELF)
        result["cpu_s"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        result["read_bytes"] = made.read_bytes - read_before
        print(json.dumps(result), flush=True)
    made.close()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (WireError, OSError) as failure:
        print(f"raw load {sys.argv[1]}: {failure}", file=sys.stderr)
        sys.exit(1)
