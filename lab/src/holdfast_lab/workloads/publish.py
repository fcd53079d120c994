"""`publish`: producers, named (with numbers of their own) or unnamed, and the log of what each has sent.

Rules of this file: a number stands for one body for ever, whoever sends it and how often. What is refused, or was in
doubt when a link ended, goes again under its number; where a producer without a name has to make a new link, or its
node had forgotten the last one, that may double it.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, ClassVar

from holdfast.amqp.wire.types import Timestamp
from holdfast.client import Accepted, Header, Outcome, Properties, Rejected, Sender
from holdfast_lab.base.client_history import History, make_key
from holdfast_lab.base.contents import content_of, message_of
from holdfast_lab.workloads.bed import Bed
from holdfast_lab.workloads.common import BREAKS, RETRY_S, attached, closed, ended, full_address, spawn_each


class ProducerLog:
    """The application's own log of one producer: numbers given out, and which of them it knows to be stored.

    It outlives links, connections and the program's lives. `header` makes the header of a number's message; the node is
    told the number where the producer is `named`.
    """

    def __init__(
        self,
        history: History,
        name: str,
        address: str,
        size: int,
        *,
        named: bool = True,
    ) -> None:
        self.history = history
        self.name = name
        self.me = history.new_producer(name)
        self.address = address
        self.size = size
        self.header: Callable[[int], Header | None] = lambda number: None
        self.expires_at: Callable[[int], int] = lambda number: 0
        """When a number's message expires by its properties, in ms since the epoch; 0 for never."""
        self.annotations: Callable[[int], dict[Any, Any] | None] = lambda number: None
        """A number's message annotations."""
        self.named = named
        self.given_out = 0
        self.open: dict[int, None] = {}
        """Numbers whose outcome is not known, or was a refusal."""
        self.accepted = 0
        self.refused = 0
        self.reasons: Counter[str] = Counter()
        """Why messages were rejected, the first word of the node's line."""

    def key(self, number: int) -> bytes:
        return make_key(self.me, number)

    def take(self) -> int:
        """The next number, written down before it is sent."""
        self.given_out += 1
        self.open[self.given_out] = None
        self.history.offer(self.key(self.given_out), self.address)
        return self.given_out

    async def send(self, sender: Sender, number: int) -> "asyncio.Future[Outcome]":
        """Sends that number's message; its outcome is noted when it comes."""
        key = self.key(number)
        message = message_of(key, self.size, self.header(number))
        if at_ms := self.expires_at(number):
            message.properties = replace(message.properties or Properties(), absolute_expiry_time=Timestamp(at_ms))
        self.history.sent[key] = content_of(message)
        if told := self.annotations(number):
            message.message_annotations = (message.message_annotations or {}) | told
        future = await sender.submit(message, number=number if self.named else None)
        future.add_done_callback(lambda done: self._decided(number, done))
        return future

    def _decided(self, number: int, future: "asyncio.Future[Outcome]") -> None:
        if future.cancelled() or future.exception() is not None:
            return
        outcome = future.result()
        if isinstance(outcome, Accepted):
            if number in self.open:
                del self.open[number]
                self.accepted += 1
                self.history.accept(self.key(number))
            return
        self.refused += 1
        if isinstance(outcome, Rejected):
            self.reasons[outcome.description.partition(" ")[0]] += 1
        self.history.refuse(self.key(number), repr(outcome))

    async def send_open(self, sender: Sender) -> None:
        """What is open goes again, lowest number first."""
        for number in sorted(self.open):
            if number in self.open:
                await self.send(sender, number)

    async def send_all(self, sender: Sender, messages: int, rate: float, random: Random) -> None:
        """What is open, then new ones up to number `messages`, until all are stored. Raises one of BREAKS."""
        await self.send_open(sender)
        while self.given_out < messages:
            await self.send(sender, self.take())
            if rate:
                await asyncio.sleep(random.expovariate(rate))
        await sender.drain()
        while self.open:
            await asyncio.sleep(RETRY_S)
            await self.send_open(sender)
            await sender.drain()


@dataclass(kw_only=True)
class Publish:
    """Producers that each send `messages` to `address` from `node`, at `rate` a second (0: as fast as taken).

    What is refused goes again under its number; `in_doubt` bounds what is under way. Those that are not `named` resume
    their links. `vhost`: the virtual host in which they are. `priorities`: of its messages, in turn.
    """

    kind: ClassVar[str] = "publish"

    node: str
    address: str
    messages: int = 100
    producers: int = 1
    size: int = 200
    rate: float = 0.0
    in_doubt: int = 200
    named: bool = True
    vhost: str = ""
    priorities: list[int] = field(default_factory=list)
    name: str = "producer"
    logs: list[ProducerLog] = field(default_factory=list, init=False)

    async def setup(self, bed: Bed) -> None:
        return

    def start(self, bed: Bed) -> None:
        spawn_each(bed, self.producers, f"{self.name}-{self.node}", self._produce)

    async def _produce(self, bed: Bed, name: str) -> None:
        log = self.new_log(bed, name)
        self.logs.append(log)
        random = bed.stream(name)
        producer = name if self.named else None
        connection = await bed.connect(self.node, name, vhost=self.vhost)
        while True:
            sender = await attached(
                lambda: connection.sender(self.address, producer=producer, in_doubt_max=self.in_doubt, name=name)
            )
            try:
                await log.send_all(sender, self.messages, self.rate, random)
                break
            except BREAKS:
                if not self.named:
                    bed.history.may_repeat.update(map(log.key, log.open))
                await ended(sender)
                await asyncio.sleep(RETRY_S)
        await closed(connection)

    def new_log(self, bed: Bed, name: str) -> ProducerLog:
        address = full_address(self.address, self.node, self.vhost)
        log = ProducerLog(bed.history, name, address, self.size, named=self.named)
        if self.priorities:
            told = self.priorities
            log.header = lambda number: Header(durable=True, priority=told[number % len(told)])
        return log

    def check(self, bed: Bed) -> None:
        return

    @property
    def accepted(self) -> int:
        return sum(log.accepted for log in self.logs)

    @property
    def refused(self) -> int:
        return sum(log.refused for log in self.logs)

    def metrics(self) -> dict[str, float]:
        return {"accepted": self.accepted, "refused": self.refused}
