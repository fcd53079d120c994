"""A healthy client in a process of its own: sends a message and takes it back, over and over, and measures its waits.

    python tests/fuzz/healthy.py HOST PORT PID

Speaks AMQP by hand over a blocking socket, so that nothing but the node (PID) can make it wait. Ends when its standard
input does, with one line of JSON on standard output: {"rounds", "longest_s", "longest_by_clock_s", "slow_rounds"}. The
first of the two leaves out the time for which the machine had given the cores to others while the node, or this
process, was ready to run (proc(5), schedstat).
"""

import json
import os
import select
import socket
import struct
import sys
import time

from holdfast.amqp.wire import encoding
from holdfast.amqp.wire.composites import decode_composite
from holdfast.amqp.wire.frames import AMQP_HEADER, frame
from holdfast.amqp.wire.performatives import (
    Accepted,
    Attach,
    Begin,
    Disposition,
    Flow,
    Open,
    Source,
    Target,
    Transfer,
)

CREDIT = 1_000
LIMIT_S = 60.0
SLOW_S = 0.5


def kept_waiting_s(pid: int) -> float:
    """Seconds that the process's first thread has been ready to run and did not."""
    with open(f"/proc/{pid}/task/{pid}/schedstat") as file:
        return int(file.read().split()[1]) / 1e9


class Healthy:
    """One connection with a link each way."""

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port), LIMIT_S)
        self.socket.settimeout(LIMIT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.unread = b""
        self.sent = self.received = 0
        self.accepted = -1
        self.socket.sendall(
            AMQP_HEADER
            + self._frames(
                Open("healthy"), Begin(None, 0, 2**31 - 1, 2**31 - 1),
                Attach("to", 0, False, source=Source(), target=Target("healthy"), initial_delivery_count=0),
                Attach("from", 1, True, source=Source("healthy"), target=Target("here")),
                Flow(0, 2**31 - 1, 0, 2**31 - 1, 1, 0, CREDIT),
            )
        )  # fmt: skip
        assert self._read(8) == AMQP_HEADER
        self.credit = 0
        while self.credit == 0:
            self._take()

    def _frames(self, *values: object) -> bytes:
        return b"".join(frame(0, encoding.encode(value)) for value in values)

    def _read(self, size: int) -> bytes:
        while len(self.unread) < size:
            data = self.socket.recv(65_536)
            if not data:
                raise ConnectionError("the node ended the connection")
            self.unread += data
        taken, self.unread = self.unread[:size], self.unread[size:]
        return taken

    def _take(self) -> None:
        (size,) = struct.unpack(">I", self._read(4))
        rest = self._read(size - 4)
        if size == 8:
            return
        value, _ = decode_composite(rest[4:])
        if isinstance(value, Flow) and value.handle == 0:
            self.credit = (value.delivery_count or 0) + (value.link_credit or 0) - self.sent
        elif isinstance(value, Disposition) and value.role:
            self.accepted = value.first if value.last is None else value.last
        elif isinstance(value, Transfer):
            self.received += 1
            answer = Disposition(True, value.delivery_id or 0, settled=True, state=Accepted())
            more = [Flow(0, 2**31 - 1, 0, 2**31 - 1, 1, self.received, CREDIT)] if self.received % 100 == 0 else []
            self.socket.sendall(self._frames(answer, *more))

    def round(self) -> float:
        """Seconds until a message was accepted and came back."""
        started = time.monotonic()
        number = self.sent
        self.sent += 1
        transfer = encoding.encode(Transfer(0, number, struct.pack(">I", number)))
        self.socket.sendall(frame(0, transfer + b"\x00\x53\x75\xa0\x07healthy"))
        while self.accepted < number or self.received <= number:
            self._take()
        return time.monotonic() - started


def main() -> int:
    healthy = Healthy(sys.argv[1], int(sys.argv[2]))
    pids = int(sys.argv[3]), os.getpid()
    print("up", flush=True)
    rounds, slow = 0, 0
    longest_s = by_clock_s = 0.0
    while not select.select([sys.stdin], [], [], 0.002)[0]:
        before_s = sum(map(kept_waiting_s, pids))
        took_s = healthy.round()
        others_s = sum(map(kept_waiting_s, pids)) - before_s
        rounds += 1
        slow += took_s > SLOW_S
        by_clock_s = max(by_clock_s, took_s)
        longest_s = max(longest_s, took_s - others_s)
    told = {"longest_s": round(longest_s, 4), "longest_by_clock_s": round(by_clock_s, 4)}
    print(json.dumps({"rounds": rounds, **told, "slow_rounds": slow}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
