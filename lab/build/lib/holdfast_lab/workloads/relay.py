"""`relay`: a program that takes from a queue of one node and sends on to another's, at least once.

Rules of this file: what it sends on is a message of its own, with a key of its own; it accepts what it took only
once its own is stored. What it takes is owed to it until then, so that a run waits for it.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any, ClassVar

from holdfast.client import Accepted, Connection, Delivery, Outcome, Receiver, Sender
from holdfast_lab.base.client_history import Violation
from holdfast_lab.workloads.bed import Bed
from holdfast_lab.workloads.common import BREAKS, RETRY_S, attached, ended, full_address, key_shown, marked
from holdfast_lab.workloads.publish import ProducerLog


@dataclass(kw_only=True)
class Relay:
    """Takes from `queue` at `node` and sends to `address` from there; somebody consumes at `address`."""

    kind: ClassVar[str] = "relay"

    node: str
    queue: str
    address: str
    credit: int = 50
    size: int = 200
    in_doubt: int = 50
    name: str = "relay"
    logs: list[ProducerLog] = field(default_factory=list, init=False)
    sent_for: dict[bytes, list[bytes]] = field(default_factory=dict, init=False)
    """Key taken to the keys sent on for it."""
    done: dict[bytes, None] = field(default_factory=dict, init=False)
    taken: int = field(default=0, init=False)
    again: int = field(default=0, init=False)

    @property
    def full_name(self) -> str:
        return f"{self.name}-{self.node}-{self.queue}"

    async def setup(self, bed: Bed) -> None:
        bed.history.add_reader(self.full_name, full_address(self.queue, self.node))

    def start(self, bed: Bed) -> None:
        bed.spawn(self._relay(bed), self.full_name, background=True)

    async def _relay(self, bed: Bed) -> None:
        name = self.full_name
        log = ProducerLog(bed.history, name, full_address(self.address, self.node), self.size)
        self.logs.append(log)
        connection = await bed.connect(self.node, name)
        while True:
            sender, receiver = await self._links(connection, name)
            try:
                await log.send_open(sender)
                async for delivery in receiver:
                    await self._pass_on(bed, log, sender, delivery)
            except BREAKS:
                pass
            await ended(receiver)
            await ended(sender)
            await asyncio.sleep(RETRY_S)

    async def _links(self, connection: Connection, name: str) -> tuple[Sender, Receiver]:
        sender = await attached(
            lambda: connection.sender(self.address, producer=name, in_doubt_max=self.in_doubt, name=f"{name}-out")
        )
        receiver = await attached(lambda: connection.receiver(self.queue, credit=self.credit, name=f"{name}-in"))
        return sender, receiver

    async def _pass_on(self, bed: Bed, log: ProducerLog, sender: Sender, delivery: Delivery) -> None:
        place = f"{self.queue} at {self.node}"
        key = key_shown(bed.history, delivery, place)
        if key is None:
            delivery.accept()
            return
        bed.history.receive(
            key,
            place,
            marked=marked(delivery),
            sequence=delivery.sequence,
            disk=bed.disk_of(self.node, delivery),
        )
        number = log.take()
        sent = self.sent_for.setdefault(key, [])
        sent.append(log.key(number))
        self.taken += 1
        self.again += len(sent) > 1

        def decided(future: "asyncio.Future[Outcome]") -> None:
            if future.cancelled() or future.exception() is not None:
                return  # the delivery is offered again: to this program's next link
            if isinstance(future.result(), Accepted):
                self.done[key] = None
                bed.history.paid(self.full_name, key)
                delivery.accept()
            else:  # not now: back to its place, and once more after a while
                log.open.pop(number, None)
                asyncio.get_running_loop().call_later(RETRY_S, _release, delivery)

        future = await log.send(sender, number)
        future.add_done_callback(decided)

    def check(self, bed: Bed) -> None:
        history = bed.history
        for key, sent in self.sent_for.items():
            if key in history.excused or key not in history.accepted:
                continue
            if not any(other in history.accepted for other in sent):
                raise Violation(f"{self.full_name} took {key.decode()}, and nothing that it sent on was stored")

    def metrics(self) -> dict[str, Any]:
        return {"taken": self.taken, "sent again": self.again, "passed on": len(self.done)}


def _release(delivery: Delivery) -> None:
    delivery.release()
