"""The programs of a history: a producer that sends given messages at given times, and a consumer that reports what it
received.

Rules of this file: over the client library alone; the run's record gets what is sent, accepted and delivered.
"""

import asyncio
from functools import partial
from random import Random
from typing import NamedTuple

from holdfast.amqp.wire.extensions import LATE
from holdfast.client import Accepted, Connection, Delivery, Header, Message, Outcome, Sender
from holdfast.client.errors import ClientError
from holdfast.errors import HoldfastError
from holdfast_lab.base.client_history import key_in, make_key
from holdfast_lab.base.contents import body_of
from holdfast_lab.sim.sim_bed import SimBed
from holdfast_lab.workloads import attached, marked


class Producer:
    """A named producer; message `n` has the number n and a key that says so."""

    def __init__(self, bed: SimBed, node: str, address: str, name: str, random: Random) -> None:
        self.bed = bed
        self.node = node
        self.address = address
        self.name = name
        self.random = random
        self.me = bed.history.new_producer(name)
        self.number = 0
        self.connection: Connection | None = None
        self.sender: Sender | None = None
        self.answers: dict[bytes, asyncio.Future[Outcome]] = {}
        self.sent: list[bytes] = []
        """Keys of all that it was to send."""

    async def attach(self) -> None:
        """A connection and a link of this name; again after `crash`, as a program that was started anew."""
        connection = self.connection = await self.bed.connect(self.node, self.name)
        self.sender = await attached(lambda: connection.sender(self.address, producer=self.name))

    async def post(
        self, count: int = 1, *, size: int | None = None, ttl_s: float | None = None, first: int | None = None
    ) -> list[bytes]:
        """Hands over the next messages, or those from number `first` on again; answers are not waited for."""
        assert self.sender is not None
        keys = []
        header = None if ttl_s is None else Header(ttl=int(ttl_s * 1000))
        for number in range(first or self.number + 1, (first or self.number + 1) + count):
            key = make_key(self.me, number)
            self.bed.history.offer(key, self.address)
            self.sent.append(key)
            body = body_of(key, size if size is not None else self.random.randint(20, 400))
            future = await self.sender.submit(Message(data=[body], header=header), number=number)
            future.add_done_callback(partial(self._decided, key))
            self.answers[key] = future
            keys.append(key)
            self.number = max(self.number, number)
        return keys

    def _decided(self, key: bytes, future: "asyncio.Future[Outcome]") -> None:
        if not future.cancelled() and future.exception() is None and isinstance(future.result(), Accepted):
            self.bed.history.accept(key)

    async def outcome(self, key: bytes) -> Outcome:
        return await self.answers[key]

    async def settle(self) -> None:
        """Waits for all answers."""
        for future in list(self.answers.values()):
            await future
        await asyncio.sleep(0)  # what is told of the last is told behind it

    async def send(
        self, count: int = 1, *, size: int | None = None, ttl_s: float | None = None, first: int | None = None
    ) -> list[bytes]:
        """Hands over, and waits until all is answered."""
        keys = await self.post(count, size=size, ttl_s=ttl_s, first=first)
        await self.settle()
        return keys

    async def crash(self) -> None:
        """The program dies; what it had in doubt it knows no more."""
        assert self.connection is not None
        try:
            await self.connection.abort()
        except HoldfastError:
            pass
        self.answers.clear()

    async def close(self) -> None:
        assert self.connection is not None
        await self.connection.close()


def data_of(delivery: Delivery) -> bytes:
    """The body of a message that is passed on."""
    return b"".join(delivery.message.data or ())


class Seen(NamedTuple):
    """A message as a consumer was shown it."""

    key: bytes
    late: bool
    marked: bool
    annotations: dict[str, object]


class Consumer:
    """Takes and accepts what comes; `seen` in order, a redelivery twice. With `hold` it accepts nothing."""

    def __init__(self, bed: SimBed, node: str, queue: str, name: str, credit: int) -> None:
        self.bed = bed
        self.node = node
        self.queue = queue
        self.name = name
        self.credit = credit
        self.seen: list[Seen] = []
        self.reject: set[bytes] = set()
        """Keys that it rejects."""
        self.quota: int | None = None
        """It stops after so many; None: never."""
        self.connection: Connection | None = None
        self._task_done: asyncio.Future[None] = bed.loop.create_future()
        bed.spawn(self._take(), name, background=True)

    @property
    def keys(self) -> list[bytes]:
        """In the order in which they were first shown."""
        return list(dict.fromkeys(seen.key for seen in self.seen))

    @property
    def late(self) -> list[bytes]:
        """Those that came marked as late."""
        return [seen.key for seen in self.seen if seen.late]

    async def _take(self) -> None:
        connection = self.connection = await self.bed.connect(self.node, self.name)
        place = f"{self.queue} at {self.node}"
        receiver = await attached(lambda: connection.receiver(self.queue, credit=self.credit))
        try:
            async for delivery in receiver:
                notes = {str(key): value for key, value in (delivery.message.message_annotations or {}).items()}
                key = key_in(delivery.payload)
                if key is not None:
                    again = marked(delivery)
                    self.seen.append(Seen(key, LATE in notes, again, notes))
                    disk = self.bed.disk_of(self.node, delivery)
                    self.bed.history.receive(key, place, marked=again, disk=disk)
                if key in self.reject:
                    delivery.reject("amqp:decode-error", "not for this program")
                else:
                    delivery.accept()
                if self.quota is not None and len(self.seen) >= self.quota:
                    break
            await receiver.close()
        except ClientError:
            if not self._task_done.done():
                raise
        if not self._task_done.done():
            self._task_done.set_result(None)

    async def done(self) -> None:
        """Waits until the quota is taken and the link closed."""
        await self._task_done

    async def leave(self) -> None:
        """The program ends."""
        if not self._task_done.done():
            self._task_done.set_result(None)
        assert self.connection is not None
        await self.connection.close()
