"""The raw load in AMQP 1.0: one connection, one session, one link; frames are encoded ahead (_wire.py)."""

import os
import time
from abc import abstractmethod
from collections.abc import Callable

import _wire as wire
from _connection import ReceivingWire, SendingWire, Side, Wire
from _marked import MarkedBatch, marked_batch
from _parts import Parts
from _wire import Performative, Scan, WireError

WINDOW = 0x7FFFFFFF


class Amqp(Wire):
    """SASL, open, begin and one link; the parts that both halves share."""

    def __init__(self, side: Side) -> None:
        super().__init__(side)
        self.remote_window = 0
        self.next_outgoing_id = 0
        self.first_outgoing_id = 0
        self.next_incoming_id = 0
        self.waiting: list[Performative] = []
        response = b"" if side.user is None else f"\0{side.user}\0{side.password}".encode()
        self.send_all(wire.SASL_HEADER)
        self._expect_header(wire.SASL_HEADER)
        self._await(wire.SASL_MECHANISMS)
        self.send_all(wire.sasl_init_frame("ANONYMOUS" if side.user is None else "PLAIN", response))
        outcome = self._await(wire.SASL_OUTCOME)
        if outcome.number(0, 1) != 0:
            raise WireError(f"SASL outcome {outcome.field(0)}")
        self.send_all(wire.AMQP_HEADER)
        self._expect_header(wire.AMQP_HEADER)
        self.send_all(wire.open_frame(f"raw-load-{os.getpid()}-{self.fileno()}", side.host))
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
            if self.wait(1.0):
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
            raise WireError(f"the peer answers {got!r}; expected {header!r}")

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
            self.on_transfers(found)
        for body in found.others:
            self.on_frame(wire.performative(body))
        self.keep(found.end)
        return count

    def on_transfers(self, found: Scan) -> None:
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
        side = self.side
        filters = wire.NULL if side.selector is None else wire.selector_filter(side.selector)
        expiry = "never" if side.subscribes and side.durable else None
        self.send_all(wire.attach_frame(name, role, address, durable=side.durable, expiry=expiry, filters=filters))
        answer = self._await(wire.ATTACH)
        terminus = answer.field(6 if role is wire.SENDER else 5)
        if not isinstance(terminus, wire.Described):
            raise WireError(f"the peer refuses the link to {address!r}: {answer.fields}")
        if side.selector is not None and not (
            isinstance(terminus.value, list) and len(terminus.value) > 7 and terminus.value[7]
        ):
            raise WireError(f"the peer does not apply the selector of the link to {address!r}")
        return answer

    def close(self) -> None:
        self.send_all(wire.CLOSE_FRAME)
        self._await(wire.CLOSE)
        self.socket.close()


class AmqpSender(Amqp, SendingWire):
    """Counts each settled delivery once: RabbitMQ's ranges overlap at times, and come out of order."""

    def __init__(self, side: Side) -> None:
        self.below = 0
        self.apart: set[int] = set()
        super().__init__(side)
        self.frames: wire.Batch | MarkedBatch = (
            marked_batch(side.size, self.batch_max, side.kinds, side.words)
            if side.kinds
            else wire.priority_batch(side.size, self.batch_max, side.first_number)
            if side.priorities
            else wire.transfer_batch(side.size, self.batch_max)
        )
        self.frames_each = wire.frames_for(side.size)
        self.credit = 0
        self.attach(f"raw-sender-{side.address}-{os.getpid()}-{self.fileno()}", wire.SENDER, side.address)
        self._until(lambda: self.allowance() > 0)

    def allowance(self) -> int:
        return min(self.credit, self.remote_window // self.frames_each)

    def batch(self, count: int) -> memoryview:
        self.credit -= count
        self.remote_window -= count * self.frames_each
        self.next_outgoing_id = (self.next_outgoing_id + count * self.frames_each) & 0xFFFFFFFF
        return self.frames.patch(self.sent & 0xFFFFFFFF, self.side.first_number + self.sent, count)

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
        first = self.below + wire.serial_distance(first, self.below & 0xFFFFFFFF)
        last = first + wire.serial_distance(frame.number(2, first), first & 0xFFFFFFFF)
        if first <= self.below <= last:
            self.below = last + 1
            while self.below in self.apart:
                self.below += 1
            self.apart = {one for one in self.apart if one > self.below} if self.apart else self.apart
        else:
            self.apart.update(range(max(first, self.below), last + 1))
        self.settled = self.below + len(self.apart)
        return True

    def flow(self) -> bytes:
        return wire.flow_frame(
            next_incoming_id=self.next_incoming_id, incoming_window=WINDOW,
            next_outgoing_id=self.next_outgoing_id, outgoing_window=WINDOW,
            delivery_count=self.sent, link_credit=self.credit,
        )  # fmt: skip


class AmqpReceiver(Amqp, ReceivingWire):
    parts: Parts | None = None
    """Where a message takes several frames."""

    def __init__(self, side: Side) -> None:
        super().__init__(side)
        self.credit = 0
        if wire.frames_for(side.size) > 1:
            self.parts = Parts()
        name = f"raw-receiver-{side.address}-{os.getpid()}-{self.fileno()}"
        self.initial_count = self.attach(name, wire.RECEIVER, side.address).number(9, 0)
        self.last_id: int | None = None
        self.send_all(self.top_up())

    def expect(self, messages: int) -> None:
        super().expect(messages)
        if self.side.exact:
            self.send_all(self.top_up())

    def top_up(self) -> bytes:
        """A flow that grants the whole credit, or what is still to come; nothing above half of it."""
        window = min(self.side.credit, self.remaining) if self.side.exact else self.side.credit
        if self.credit > self.side.credit // 2 or window <= self.credit:
            return b""
        self.credit = window
        return self.flow()

    def flow(self) -> bytes:
        return wire.flow_frame(
            next_incoming_id=self.next_incoming_id, incoming_window=WINDOW,
            next_outgoing_id=self.next_outgoing_id, outgoing_window=WINDOW,
            delivery_count=self.initial_count + self.received, link_credit=self.credit,
        )  # fmt: skip

    def take(self) -> int:
        if self.parts is None:
            return super().take()
        count = self.fill()
        if not count:
            return 0
        found = self.parts.scan(self.buffer, self.filled)
        self.next_incoming_id = (self.next_incoming_id + found.frames) & 0xFFFFFFFF
        if found.numbers:
            self.arrived(len(found.numbers), found.first_id, found.last_id, found.numbers[-1])
        for body in found.others:
            self.on_frame(wire.performative(body))
        self.keep(found.end)
        return count

    def on_transfers(self, found: Scan) -> None:
        last = wire.transfer_delivery_id(self.buffer, found.last_at)
        first = (last - found.transfers + 1) & 0xFFFFFFFF
        self.next_incoming_id = (self.next_incoming_id + found.transfers) & 0xFFFFFFFF
        self.arrived(found.transfers, first, last, wire.body_number(self.buffer, found.last_end, self.side.size))

    def arrived(self, count: int, first: int, last: int, number: int) -> None:
        """`count` whole deliveries, the last with `number`: settle the burst with one range, top the credit up at
        half."""
        if self.last_id is not None and wire.serial_distance(first, self.last_id) != 1:
            raise WireError(f"delivery-ids jump from {self.last_id} to {first}")
        self.last_id = last
        self.received += count
        self.credit -= count
        self.check(number)
        self.remaining -= count
        self.send_all(wire.disposition_frame(wire.RECEIVER, first, last) + self.top_up())
