"""A bare Python loop: what a broker in Python on uvloop could do if it did nothing but frames.

Takes transfers, appends each batch to a file with one write and one sync in a thread, then settles them
with one range and forwards them. No addresses, no selectors, no retiring, one queue in memory for each
pair of links; it answers the raw load and no other client. `python _bare.py FILE` prints
`ready amqp=HOST:PORT`; SIGTERM ends it.
"""

import asyncio
import os
import signal
import struct
import sys
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import _wire as wire
import uvloop

CREDIT = 8192
WINDOW = 0x7FFFFFFF
HEAD = struct.Struct(">I12sI2sI2s")
HEAD_FIXED = b"\x02\x00\x00\x00\x00\x53\x14\xc0\x0f\x05\x43\x70"
_U32 = struct.Struct(">I")


class Disk:
    """One append-only file, one commit in flight: write, fdatasync, then settle and forward."""

    def __init__(self, path: str) -> None:
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.thread = ThreadPoolExecutor(1)
        self.gathered: list[tuple[Peer, list[bytes]]] = []
        self.busy = False

    def add(self, peer: "Peer", payloads: list[bytes]) -> None:
        self.gathered.append((peer, payloads))
        if not self.busy:
            self.busy = True
            asyncio.get_running_loop().call_soon(self._start)

    def _start(self) -> None:
        batch, self.gathered = self.gathered, []
        loop = asyncio.get_running_loop()
        self.thread.submit(self._commit, batch, loop)

    def _commit(self, batch: list[tuple["Peer", list[bytes]]], loop: asyncio.AbstractEventLoop) -> None:
        data = b"".join([payload for _, payloads in batch for payload in payloads])
        os.write(self.file, data)
        os.fdatasync(self.file)
        loop.call_soon_threadsafe(self._committed, batch)

    def _committed(self, batch: list[tuple["Peer", list[bytes]]]) -> None:
        if self.gathered:
            self._start()
        else:
            self.busy = False
        for peer, payloads in batch:
            peer.committed(payloads)


class Queue:
    def __init__(self) -> None:
        self.waiting: deque[bytes] = deque()
        self.reader: Peer | None = None


class Peer(asyncio.Protocol):
    """One connection with one session and one link."""

    def __init__(self, disk: Disk, queues: dict[str, Queue]) -> None:
        self.disk, self.queues = disk, queues
        self.queue = Queue()
        self.tail = b""
        self.headers = 2
        self.received = self.settled = self.sent = self.credit = self.delivery_id = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self.tail:
            data = self.tail + data
        at, end = 0, len(data)
        payloads: list[bytes] = []
        unpack = _U32.unpack_from
        while end - at >= 8:
            if self.headers and data[at : at + 4] == b"AMQP":
                at = self._header(data, at)
                continue
            stop = at + unpack(data, at)[0]
            if stop > end:
                break
            if stop - at > 11 and data[at + 10] == 0x14:
                payloads.append(data[at + 13 + data[at + 12] : stop])
            elif stop - at > 8:
                self._frame(wire.performative(data[at + 8 : stop]))
            at = stop
        self.tail = data[at:]
        if payloads:
            self.received += len(payloads)
            self.disk.add(self, payloads)

    def committed(self, payloads: list[bytes]) -> None:
        """The batch is on disk: settle it, hand it on."""
        first, self.settled = self.settled, self.settled + len(payloads)
        answer = wire.disposition_frame(wire.RECEIVER, first, self.settled - 1)
        self.credit -= len(payloads)
        if self.credit <= CREDIT // 2:
            answer += self._flow()
        self.transport.write(answer)
        self.queue.waiting.extend(payloads)
        if self.queue.reader is not None:
            self.queue.reader.deliver()

    def deliver(self) -> None:
        waiting = self.queue.waiting
        count = min(len(waiting), self.credit)
        if count <= 0:
            return
        out: list[bytes] = []
        pack, identity = HEAD.pack, self.delivery_id
        for _ in range(count):
            payload = waiting.popleft()
            out.append(pack(28 + len(payload), HEAD_FIXED, identity, b"\xa0\x04", identity, b"\x43\x42"))
            out.append(payload)
            identity = (identity + 1) & 0xFFFFFFFF
        self.delivery_id = identity
        self.credit -= count
        self.sent += count
        self.transport.write(b"".join(out))

    def _flow(self) -> bytes:
        self.credit = CREDIT - (self.received - self.settled)
        return wire.flow_frame(
            next_incoming_id=self.received, incoming_window=WINDOW, next_outgoing_id=self.sent,
            outgoing_window=WINDOW, delivery_count=self.received, link_credit=self.credit,
        )  # fmt: skip

    def _header(self, data: bytes, at: int) -> int:
        self.headers -= 1
        self.transport.write(data[at : at + 8])
        if self.headers:
            mechanisms = wire.described_list(wire.SASL_MECHANISMS, (wire.symbol("ANONYMOUS"),))
            self.transport.write(wire.frame(mechanisms, sasl=True))
        return at + 8

    def _frame(self, frame: wire.Performative) -> None:
        write = self.transport.write
        if frame.code == wire.SASL_INIT:
            write(wire.frame(wire.described_list(wire.SASL_OUTCOME, (wire.ubyte(0),)), sasl=True))
        elif frame.code == wire.OPEN:
            write(wire.open_frame("bare", ""))
        elif frame.code == wire.BEGIN:
            write(wire.begin_frame(0, WINDOW, WINDOW, remote_channel=0))
        elif frame.code == wire.ATTACH:
            self._attach(frame)
        elif frame.code == wire.FLOW and frame.field(4) is not None:
            granted = frame.number(5, 0) + frame.number(6, 0)
            self.credit = wire.serial_distance(granted, self.sent & 0xFFFFFFFF)
            self.deliver()
        elif frame.code == wire.CLOSE:
            write(wire.CLOSE_FRAME)
            self.transport.close()

    def _attach(self, frame: wire.Performative) -> None:
        reads = frame.field(2) is wire.RECEIVER
        terminus = frame.field(5 if reads else 6)
        assert isinstance(terminus, wire.Described) and isinstance(terminus.value, list)
        address = str(terminus.value[0])
        self.queue = self.queues.setdefault(address, Queue())
        role = wire.SENDER if reads else wire.RECEIVER
        own = wire.described_list(0x28 if reads else 0x29, (wire.string(address),))
        other = wire.described_list(0x29 if reads else 0x28, ())
        ends = (own, other) if reads else (other, own)
        modes = (wire.ubyte(0), wire.ubyte(0))
        fields = (wire.string(str(frame.field(0))), wire.uint(0), wire.boolean(role), *modes)
        answer = (*fields, *ends, wire.NULL, wire.NULL, wire.uint(0) if reads else wire.NULL)
        self.transport.write(wire.frame(wire.described_list(wire.ATTACH, answer)))
        if reads:
            self.queue.reader = self
        else:
            self.transport.write(self._flow())


async def serve(path: str) -> None:
    disk, queues = Disk(path), dict[str, Queue]()
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    server = await loop.create_server(lambda: Peer(disk, queues), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    print(f"ready amqp={host}:{port}", flush=True)
    await ended.wait()
    server.close()


if __name__ == "__main__":
    sys.setswitchinterval(0.0001)
    uvloop.run(serve(sys.argv[1]))
