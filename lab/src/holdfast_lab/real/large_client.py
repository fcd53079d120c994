"""A client for messages larger than memory: sends block by block and receives in parts, with the node's own engine.

Rules of this file: at most a few frames are held; every wait has a limit. What a large body holds follows from its
position, so that a sum tells whether it is the same.
"""

import asyncio
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, Self

from holdfast.amqp.connection import (
    Connection,
    ConnectionClosed,
    CreditChanged,
    Delivery,
    DeliveryPart,
    LinkAttached,
    LinkDetached,
    Outcomes,
    Receiver,
    Sender,
    Settings,
)
from holdfast.amqp.wire.performatives import Accepted, Source, Target

LIMIT_S = 60.0
BLOCK = 256 * 1024
SAMPLE_S = 0.25
"""How often memory is looked at: the kernel walks all that a process has mapped, which may be gigabytes."""


def blocks(size: int) -> Iterator[bytes]:
    """A body of `size` bytes, block by block, each unlike the others."""
    at = 0
    filler = bytes(range(256)) * (BLOCK // 256)
    while at < size:
        head = at.to_bytes(8, "big")
        yield (head + filler[8:])[: size - at]
        at += BLOCK


def sections(size: int) -> bytes:
    """The encoded sections before the body: one data section."""
    return b"\x00\x53\x75\xb0" + size.to_bytes(4, "big")


def sum_of(size: int) -> str:
    """The sum of a whole bare message."""
    found = blake2b(sections(size))
    for block in blocks(size):
        found.update(block)
    return found.hexdigest()


class LargeClient:
    """One connection. `async with await LargeClient.connect(port) as client:`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, **settings: Any) -> None:
        self._reader, self._writer = reader, writer
        loop = asyncio.get_running_loop()
        self._now = loop.time
        told: dict[str, Any] = {"container_id": "large", "incoming_window": 64, "max_message_size": 2**40} | settings
        self.amqp = Connection(Settings(**told), server=False, now=self._now())
        self.session = self.amqp.begin()
        self.outcomes: list[tuple[Any, object]] = []
        self.received = 0
        """Bytes of deliveries that came in parts."""
        self.sums: list[str] = []
        """Of bare messages that came whole, in parts or not."""
        self.whole: list[bytes] = []
        self.detached: list[LinkDetached] = []
        self._sum = blake2b()
        self._moved = asyncio.Condition()
        self.over = False
        self._task = loop.create_task(self._read())

    @classmethod
    async def connect(cls, port: int, **settings: Any) -> Self:
        return cls(*await asyncio.open_connection("127.0.0.1", port), **settings)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        self._writer.transport.abort()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _read(self) -> None:
        try:
            await self.flush()
            while data := await self._reader.read(BLOCK):
                for event in self.amqp.receive(data, self._now()):
                    self._told(event)
                await self.flush()
                async with self._moved:
                    self._moved.notify_all()
        except ConnectionError:
            pass
        finally:
            self.over = True
            async with self._moved:
                self._moved.notify_all()

    def _told(self, event: object) -> None:
        if isinstance(event, DeliveryPart):
            payload = event.payload
            if event.first:
                self._sum = blake2b()
                payload = payload[payload.index(b"\x00\x53\x75") :]
            self._sum.update(payload)
            self.received += len(event.payload)
            if event.last:
                self.sums.append(self._sum.hexdigest())
                event.link.settle(event.delivery_id, event.delivery_id, Accepted())
        elif isinstance(event, Delivery):
            self.whole.append(event.payload)
            event.link.settle(event.delivery_id, event.delivery_id, Accepted())
        elif isinstance(event, Outcomes):
            self.outcomes += [(context, event.state) for context in event.contexts]
        elif isinstance(event, LinkDetached):
            self.detached.append(event)
        else:
            assert isinstance(event, (CreditChanged, LinkAttached, ConnectionClosed)) or event is not None

    async def flush(self) -> None:
        for chunk in self.amqp.take_output(self._now()):
            self._writer.write(chunk)
        await self._writer.drain()

    async def until(self, condition: Any, limit_s: float = LIMIT_S) -> None:
        """Waits until `condition()` holds; AssertionError after the limit, or where the connection is lost."""
        async with asyncio.timeout(limit_s), self._moved:
            await self._moved.wait_for(lambda: condition() or self.over or self.detached)
        assert condition(), f"the connection was lost, or its links: {self.detached}"

    async def sender(self, address: str) -> Sender:
        link = self.session.attach_sender(f"s-{address}", Source(), Target(address=address))
        await self.flush()
        await self.until(lambda: link.credit > 0)
        return link

    async def receiver(self, address: str, credit: int = 10) -> Receiver:
        link = self.session.attach_receiver(f"r-{address}", Source(address=address), Target())
        link.stream_bytes = 1024 * 1024
        link.grant(credit)
        await self.flush()
        return link

    async def send(self, link: Sender, size: int, *, upto: int | None = None) -> None:
        """A message with a body of `size` bytes, or its first `upto` only; returns when they are written."""
        await self.until(lambda: link.sendable)
        head = sections(size)
        outgoing = link.begin(head, len(head) + size, context=size)
        sent = 0
        for block in blocks(size):
            outgoing.feed(block)
            while not outgoing.over and not (outgoing.hungry and outgoing.flush(BLOCK) == 0):
                outgoing.flush(BLOCK)
                await self.flush()
                if outgoing.blocked:
                    await self.until(lambda: not outgoing.blocked)
                await asyncio.sleep(0)
            sent += len(block)
            if upto is not None and sent >= upto:
                return
        await self.flush()


def anonymous_bytes(pid: int) -> int:
    """Memory of the process that no file backs: a store's mapped pages do not count."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} tells nothing of its memory")


class Highest:
    """The most anonymous memory that a process was seen with, asked again and again."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.bytes = self.before = anonymous_bytes(pid)
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            self.bytes = max(self.bytes, anonymous_bytes(self.pid))
            await asyncio.sleep(SAMPLE_S)

    async def growth(self) -> int:
        """Bytes by which it grew beyond what it was at first; ends the watching."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        return self.bytes - self.before
