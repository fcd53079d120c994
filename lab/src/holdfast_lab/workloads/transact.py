"""`transact`: a program that takes messages and sends one for each of them, both in one transaction of its node.

Rules of this file: what it sends for a message has a number of its own for ever, so what a rollback gave back is done
again under the same number, and nothing may come of it twice. After a commit in doubt the producer's numbers at the
node say what became of it: all of the transaction, or nothing. What it takes is owed to it until then, so that a run
waits for it.
"""

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar, Final

from holdfast.client import (
    Connection,
    Delivery,
    Receiver,
    Sender,
    Transaction,
    TransactionError,
    TransactionInDoubt,
    TransactionRolledBack,
)
from holdfast_lab.base.client_history import Violation
from holdfast_lab.base.contents import content_of, message_of
from holdfast_lab.workloads.bed import Bed
from holdfast_lab.workloads.common import BREAKS, RETRY_S, attached, closed, ended, full_address, key_shown, marked
from holdfast_lab.workloads.publish import ProducerLog

PATIENCE_S: Final = 5.0
"""How long it waits for a message before it looks again."""


class _Aborted(Exception):
    """The program changed its mind."""


@dataclass(kw_only=True)
class Transact:
    """Takes up to `most` messages at a time from `queue` at `node`, and sends on to `address` from there; somebody
    consumes at `address`. The share `aborts` of transactions is rolled back by the program itself. `subscription`: it
    reads by a durable one of that name, beside whoever consumes from the queue."""

    kind: ClassVar[str] = "transact"

    node: str
    queue: str
    address: str
    most: int = 5
    aborts: float = 0.2
    credit: int = 20
    size: int = 200
    think_s: float = 0.0
    subscription: str = ""
    name: str = "transact"
    log: ProducerLog | None = field(default=None, init=False)
    number_of: dict[bytes, int] = field(default_factory=dict, init=False)
    """Key taken to the number that is sent for it."""
    done: dict[bytes, None] = field(default_factory=dict, init=False)
    """Keys taken, and sent on for, in a transaction that was committed."""
    in_doubt: list[list[bytes]] = field(default_factory=list, init=False)
    """The keys of transactions of which it is not known whether they were committed."""
    seen: dict[bytes, None] = field(default_factory=dict, init=False)
    """What it was shown."""
    disk: int = field(default=0, init=False)
    """The one of which these are true."""
    fates: dict[str, int] = field(default_factory=dict, init=False)

    @property
    def full_name(self) -> str:
        return f"{self.name}-{self.node}-{self.queue}"

    async def setup(self, bed: Bed) -> None:
        if self.subscription:  # it begins before the first message is sent
            connection = await bed.connect(self.node, f"{self.full_name}-setup")
            await (await attached(lambda: self._receiver(connection, credit=1))).close()
            await closed(connection)
        bed.history.add_reader(self.full_name, full_address(self.queue, self.node))

    def start(self, bed: Bed) -> None:
        self.log = ProducerLog(bed.history, self.full_name, full_address(self.address, self.node), self.size)
        bed.spawn(self._transact(bed, self.log), self.full_name, background=True)

    async def _transact(self, bed: Bed, log: ProducerLog) -> None:
        name = self.full_name
        random = bed.stream(name)
        connection = await bed.connect(self.node, name)
        while True:
            sender = await attached(lambda: connection.sender(self.address, producer=name, name=f"{name}-out"))
            self._resolve(bed, log, sender)
            receiver = await attached(lambda: self._receiver(connection, credit=self.credit))
            try:
                while True:
                    await self._one(bed, log, connection, sender, receiver, random)
            except (*BREAKS, TransactionError):
                pass
            await ended(receiver)
            await ended(sender)
            await asyncio.sleep(random.uniform(0.0, RETRY_S))

    async def _receiver(self, connection: Connection, *, credit: int) -> Receiver:
        if self.subscription:
            return await connection.receiver(self.queue, credit=credit, subscription=self.subscription)
        return await connection.receiver(self.queue, credit=credit, name=f"{self.full_name}-in")

    async def _one(
        self, bed: Bed, log: ProducerLog, connection: Connection, sender: Sender, receiver: Receiver, random: Random
    ) -> None:
        """One transaction, if something comes. Raises one of BREAKS, or TransactionError."""
        batch = await receiver.batch(count_max=random.randint(1, self.most), timeout_s=PATIENCE_S)
        taken = {}
        for delivery in batch:
            key = self._shown(bed, delivery)
            if key is None:
                delivery.accept()
            else:
                taken[key] = delivery
        if not taken:
            return
        fate = "committed"
        try:
            async with connection.transaction() as transaction:
                await self._fill(bed, log, transaction, sender, taken, random)
        except _Aborted:
            fate = "aborted"
        except TransactionInDoubt:
            self.in_doubt.append([*taken])
            self._count("in doubt")
            raise
        except TransactionRolledBack:
            fate = "rolled back"
        finally:
            for delivery in taken.values():
                if not delivery.settled:
                    delivery.release()
        self._count(fate)
        if fate == "committed":
            self._committed(bed, log, [*taken])
        elif fate == "rolled back":  # for want of room, say: not at once again
            await asyncio.sleep(random.uniform(0.0, RETRY_S))

    async def _fill(
        self,
        bed: Bed,
        log: ProducerLog,
        transaction: Transaction,
        sender: Sender,
        taken: dict[bytes, Delivery],
        random: Random,
    ) -> None:
        for key, delivery in taken.items():
            number = self.number_of.get(key)
            if number is None:
                number = self.number_of[key] = log.take()
            own = log.key(number)
            message = message_of(own, self.size, None)
            bed.history.sent[own] = content_of(message)
            await transaction.submit(sender, message, number=number)
            transaction.accept(delivery)
            if self.think_s:
                await asyncio.sleep(random.expovariate(1.0 / self.think_s))
        if random.random() < self.aborts:
            raise _Aborted

    def _shown(self, bed: Bed, delivery: Delivery) -> bytes | None:
        place = f"{self.queue} at {self.node}"
        key = key_shown(bed.history, delivery, place)
        if key is None:
            return None
        disk = bed.disk_of(self.node, delivery)
        if disk != self.disk:  # what an older state of its store knows nobody can say
            self.disk = disk
            self.done.clear()
            self.in_doubt.clear()
            self.seen.clear()
        if not self.subscription:
            bed.history.receive(key, place, marked=marked(delivery), sequence=delivery.sequence, disk=disk)
        elif key in self.seen and not marked(delivery):
            raise Violation(f"{key.decode()} was shown to {self.subscription} twice, then not as a redelivery")
        self.seen[key] = None
        if key in self.done:
            raise Violation(f"{key.decode()} came again at {place}, though a transaction that took it was committed")
        return key

    def _committed(self, bed: Bed, log: ProducerLog, keys: list[bytes]) -> None:
        for key in keys:
            self.done[key] = None
            bed.history.paid(self.full_name, key)
            number = self.number_of[key]
            if number in log.open:
                del log.open[number]
                log.accepted += 1
                bed.history.accept(log.key(number))

    def _resolve(self, bed: Bed, log: ProducerLog, sender: Sender) -> None:
        """The node told which of the producer's numbers it has. Raises Violation where that is a part of a
        transaction."""
        in_doubt, self.in_doubt = self.in_doubt, []
        for keys in in_doubt:
            numbers = [self.number_of[key] for key in keys]
            stored = [number for number in numbers if number <= sender.last_number and number not in sender.missing]
            if stored and len(stored) < len(numbers):
                some, count = log.key(stored[0]).decode(), len(numbers)
                raise Violation(f"of a transaction of {count} messages {len(stored)} are stored, {some} the first")
            if stored:
                self._count("committed in doubt")
                self._committed(bed, log, keys)

    def _count(self, fate: str) -> None:
        self.fates[fate] = self.fates.get(fate, 0) + 1

    def check(self, bed: Bed) -> None:
        """What it sent is awaited as what any producer sent: it was accepted with its transaction."""
        owed = bed.history.owed.get(self.full_name)
        if owed:
            raise Violation(f"{self.full_name} was never shown {len(owed)} messages, {next(iter(owed)).decode()} first")

    def metrics(self) -> dict[str, Any]:
        known = ("committed", "aborted", "rolled back", "in doubt", "committed in doubt")
        return {"passed on": len(self.done), **{fate: self.fates.get(fate, 0) for fate in known}}
