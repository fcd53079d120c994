"""`together`: transactions for a queue of another node, whose messages become available there together.

Rules of this file: they come into their queue in one batch, so that their sequences are consecutive; somebody who sends
to that queue at its own node all the while has messages between two that do not come together. A transaction in doubt
is done again under the same numbers: its node knows those that it has.
"""

import asyncio
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import ClassVar

from holdfast.client import Connection, Delivery, Sender, TransactionError
from holdfast_lab.base.client_history import Violation
from holdfast_lab.base.contents import content_of, message_of
from holdfast_lab.workloads.bed import Bed
from holdfast_lab.workloads.common import (
    BREAKS,
    RETRY_S,
    attached,
    ended,
    full_address,
    key_shown,
    marked,
    queue_and_node,
    receive_each,
)
from holdfast_lab.workloads.publish import ProducerLog


@dataclass(kw_only=True)
class Together:
    """`transactions` from `node` to `address`, each of 2 to `most` messages, at `rate` a second (0: as fast as taken);
    `between` messages come from the queue's own node at `between_rate`. It consumes what comes with `credit`,
    and thinks `think_s` about each."""

    kind: ClassVar[str] = "together"

    node: str
    address: str
    transactions: int = 20
    most: int = 12
    rate: float = 0.0
    size: int = 200
    between: int = 100
    between_rate: float = 20.0
    credit: int = 100
    think_s: float = 0.0
    name: str = "together"
    groups: dict[bytes, int] = field(default_factory=dict, init=False)
    """By key: its transaction."""
    shown: dict[int, dict[bytes, int]] = field(default_factory=dict, init=False)
    """By transaction: the first sequence of each key in its queue."""
    committed: int = field(default=0, init=False)

    @property
    def queue(self) -> str:
        return queue_and_node(self.address, self.node)[0]

    @property
    def at(self) -> str:
        """The node of the queue."""
        return queue_and_node(self.address, self.node)[1]

    async def setup(self, bed: Bed) -> None:
        return

    def start(self, bed: Bed) -> None:
        bed.spawn(self._send(bed, f"{self.name}-in"), f"{self.name}-in")
        bed.spawn(self._send_between(bed, f"{self.name}-between"), f"{self.name}-between")
        bed.spawn(self._consume(bed, f"{self.name}-out"), f"{self.name}-out", background=True)

    async def _send(self, bed: Bed, name: str) -> None:
        log = ProducerLog(bed.history, name, full_address(self.address, self.node), self.size)
        random = bed.stream(name)
        connection = await bed.connect(self.node, name)
        numbers: list[int] = []
        while True:
            sender = await attached(lambda: connection.sender(self.address, producer=name, name=name))
            try:
                while numbers or self.committed < self.transactions:
                    numbers = numbers or [log.take() for _ in range(random.randint(2, self.most))]
                    await self._commit(bed, log, connection, sender, numbers)
                    numbers = []
                    if self.rate:
                        await asyncio.sleep(random.expovariate(self.rate))
                return
            except (*BREAKS, TransactionError):
                pass
            await ended(sender)
            await asyncio.sleep(random.uniform(0.0, RETRY_S))

    async def _commit(
        self, bed: Bed, log: ProducerLog, connection: Connection, sender: Sender, numbers: list[int]
    ) -> None:
        """One transaction. Raises one of BREAKS, or TransactionError."""
        async with connection.transaction() as transaction:
            for number in numbers:
                key = log.key(number)
                self.groups[key] = self.committed
                message = message_of(key, self.size, None)
                bed.history.sent[key] = content_of(message)
                await transaction.submit(sender, message, number=number)
        self.committed += 1
        for number in numbers:
            del log.open[number]
            log.accepted += 1
            bed.history.accept(log.key(number))

    async def _send_between(self, bed: Bed, name: str) -> None:
        log = ProducerLog(bed.history, name, f"{self.queue}@{self.at}", self.size)
        random = Random(bed.stream(name).random())
        connection = await bed.connect(self.at, name)
        while True:
            sender = await attached(lambda: connection.sender(self.queue, producer=name, name=name))
            try:
                await log.send_all(sender, self.between, self.between_rate, random)
                return
            except BREAKS:
                pass
            await ended(sender)
            await asyncio.sleep(RETRY_S)

    async def _consume(self, bed: Bed, name: str) -> None:
        connection = await bed.connect(self.at, name)
        place = f"{self.queue} at {self.at}"
        random = bed.stream(name)

        async def take(delivery: Delivery) -> None:
            key = key_shown(bed.history, delivery, place)
            if key is not None:
                disk = bed.disk_of(self.at, delivery)
                bed.history.receive(key, place, marked=marked(delivery), sequence=delivery.sequence, disk=disk)
                if key in self.groups:
                    self.shown.setdefault(self.groups[key], {}).setdefault(key, delivery.sequence or 0)
            if self.think_s:
                await asyncio.sleep(random.expovariate(1.0 / self.think_s))
            delivery.accept()

        await receive_each(lambda: connection.receiver(self.queue, credit=self.credit, name=name), take)

    def check(self, bed: Bed) -> None:
        if any(bed.history.disks_changed.values()):
            return  # what a lost disk had, nobody waits for
        for shown in self.shown.values():
            places = sorted(shown.values())
            if any(later != before + 1 for before, later in pairwise(places)):
                first = min(shown, key=lambda key: shown[key]).decode()
                raise Violation(f"messages of one transaction, {first} first, were shown in {self.queue} at {places}")

    def metrics(self) -> dict[str, float]:
        return {"committed": self.committed, "shown together": len(self.shown)}
