"""The paced load: senders and receivers in one process, at a rate, every message's time measured.

`python _paced.py` takes one line of JSON first, {"protocol": "amqp" or "native", "pairs": [Side's fields]}: a sender
and a receiver for each. Prints `{"attached": true, "seconds": S}`, then answers each line `{"messages": N, "rate": R}`
with one line of figures (see `Paced.run`). Messages go round the pairs, each due at its own moment whether those
before it were answered or not; one that had to wait for credit counts from when it was due. Both ends of a message
are read from one process's monotonic clock.
"""

import json
import resource
import select
import sys
import time
from collections import deque
from collections.abc import Sequence

import _wire as wire
from _amqp import AmqpReceiver, AmqpSender
from _connection import SILENCE_S_MAX, ReceivingWire, SendingWire, Side, Wire
from _figures import quantile
from _native import NativeReceiver, NativeSender
from _wire import Scan, WireError

QUANTILES = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999, "max_ms": 1.0}


class Times:
    """Of one pair: when each message that is under way was sent, and what its arrival and its answer took."""

    def __init__(self) -> None:
        self.sent: deque[float] = deque()
        self.unanswered: deque[float] = deque()
        self.arrivals: list[float] = []
        self.answers: list[float] = []

    def send(self, at: float) -> None:
        self.sent.append(at)
        self.unanswered.append(at)

    def arrived(self, count: int) -> None:
        now = time.monotonic()
        self.arrivals += [now - self.sent.popleft() for _ in range(count)]

    def answered(self, count: int) -> None:
        """So many more, taken as in order: a queue's messages are stored in order."""
        now = time.monotonic()
        self.answers += [now - self.unanswered.popleft() for _ in range(count)]


class PacedAmqpReceiver(AmqpReceiver):
    """Checks every body's number, not the last of a burst alone; so do its sisters."""

    times: Times

    def on_transfers(self, found: Scan) -> None:
        first = self.side.first_number + self.received
        for index, end in enumerate(wire.transfer_ends(self.buffer, self.filled)):
            number = wire.body_number(self.buffer, end, self.side.size)
            if number != first + index:
                raise WireError(f"message {number} came as number {first + index}")
        self.times.arrived(found.transfers)
        super().on_transfers(found)


class PacedNativeReceiver(NativeReceiver):
    times: Times

    def on_deliveries(self, bodies: int, last_body_at: int) -> None:
        self.times.arrived(bodies)
        super().on_deliveries(bodies, last_body_at)


class Pair:
    def __init__(self, protocol: str, side: Side) -> None:
        self.times = Times()
        self.receiver: ReceivingWire
        self.sender: SendingWire
        if protocol == "native":
            self.receiver, self.sender = PacedNativeReceiver(side), NativeSender(side)
        else:
            self.receiver, self.sender = PacedAmqpReceiver(side), AmqpSender(side)
        self.receiver.times = self.times
        self.held: deque[float] = deque()
        """Due moments of messages that wait for credit."""
        self.settled = 0

    def send(self, due: float, now: float) -> None:
        if self.held or self.sender.allowance() < 1:
            self.held.append(due)
        else:
            self._write(now)

    def _write(self, counts_from: float) -> None:
        self.times.send(counts_from)
        data = self.sender.batch(1)
        self.sender.sent += 1
        self.sender.send_all(data)

    def take(self, one: Wire) -> None:
        one.take()
        if one is self.sender:
            self.times.answered(self.sender.settled - self.settled)
            self.settled = self.sender.settled
            while self.held and self.sender.allowance() > 0:
                self._write(self.held.popleft())


class Paced:
    def __init__(self, protocol: str, sides: Sequence[Side]) -> None:
        self.pairs = [Pair(protocol, side) for side in sides]
        self.poll = select.epoll()
        self.owners: dict[int, tuple[Pair, Wire]] = {}
        for pair in self.pairs:
            for one in (pair.receiver, pair.sender):
                self.poll.register(one, select.EPOLLIN)
                self.owners[one.fileno()] = (pair, one)
        self.keep_alive_at = 0.0

    def serve(self, timeout_s: float, *more: object) -> bool:
        """Act on what comes within timeout_s (microseconds count, which epoll alone cannot); whether any came."""
        select.select([self.poll, *more], [], [], timeout_s)
        ready = self.poll.poll(0)
        for descriptor, _ in ready:
            pair, one = self.owners[descriptor]
            pair.take(one)
        now = time.monotonic()
        if now >= self.keep_alive_at:
            self.keep_alive_at = now + 1.0
            for _, one in self.owners.values():
                one.keep_alive(now)
        return bool(ready)

    def run(self, messages: int, rate: float) -> dict[str, object]:
        """Send `messages` at `rate` a second; what came of them.

        `receive` and `settle`: quantiles in ms from a message's write to its arrival, and to its acknowledgement;
        `late`: of the write behind its due moment, the load's own fault; `held`: messages that waited for credit.
        """
        for pair in self.pairs:
            pair.times.arrivals.clear()
            pair.times.answers.clear()
        late: list[float] = []
        held = sent = 0
        start = moved = time.monotonic()
        while True:
            now = time.monotonic()
            while sent < messages and start + sent / rate <= now:
                due = start + sent / rate
                pair = self.pairs[sent % len(self.pairs)]
                pair.send(due, now)
                held += bool(pair.held)
                late.append(now - due)
                sent += 1
                now = time.monotonic()
            if sent == messages and self._done(messages):
                break
            if self.serve(max(0.0, start + sent / rate - now) if sent < messages else 1.0) or sent < messages:
                moved = time.monotonic()
            elif time.monotonic() - moved > SILENCE_S_MAX:
                raise WireError(f"nothing came for {SILENCE_S_MAX:g} s, and not all is answered")
        seconds = time.monotonic() - start
        return {
            "messages": messages,
            "messages_per_s": messages / seconds,
            "receive": quantiles([time_s for pair in self.pairs for time_s in pair.times.arrivals]),
            "settle": quantiles([time_s for pair in self.pairs for time_s in pair.times.answers]),
            "late": quantiles(late),
            "held": held,
        }

    def _done(self, messages: int) -> bool:
        return messages == sum(len(pair.times.arrivals) for pair in self.pairs) and messages == sum(
            len(pair.times.answers) for pair in self.pairs
        )


def quantiles(seconds: Sequence[float]) -> dict[str, float]:
    """p50, p99, p99.9 and the most, in ms."""
    ordered = sorted(seconds)  # once: to sort what is sorted is one pass
    return {name: 1000 * quantile(ordered, share) for name, share in QUANTILES.items()}


def main() -> int:
    told = json.loads(sys.stdin.readline())
    began = time.monotonic()
    paced = Paced(told["protocol"], [Side(**fields) for fields in told["pairs"]])
    print(json.dumps({"attached": True, "seconds": time.monotonic() - began}), flush=True)
    while True:
        while not select.select([sys.stdin], [], [], 0)[0]:
            paced.serve(1.0, sys.stdin)
        line = sys.stdin.readline()
        if not line.strip():
            break
        order = json.loads(line)
        before = resource.getrusage(resource.RUSAGE_SELF)
        result = paced.run(order["messages"], order["rate"])
        after = resource.getrusage(resource.RUSAGE_SELF)
        result["cpu_s"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(json.dumps(result), flush=True)
    for pair in paced.pairs:
        pair.sender.close()
        pair.receiver.close()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (WireError, OSError, ValueError) as failure:
        print(f"raw load paced: {failure}", file=sys.stderr)
        sys.exit(1)
