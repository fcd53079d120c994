"""`idle`: a durable subscription of a topic that ends a time after its last link.

Rules of this file: how long it had no link is counted from a moment at which it surely had one, the attach or a later
question that was answered on the same connection, so that it is never judged to be too early what was in time: a line
may be lost in silence, and the client library attaches again by itself. Whoever comes back in time is shown each
message that was accepted meanwhile. Whoever does not finds that it has ended; that comes late where its node was down.
"""

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import ClassVar, Final

from holdfast.amqp.wire.conditions import RESOURCE_DELETED
from holdfast.client import Accepted, Connection, LinkError, ManagementError
from holdfast_lab.base.client_history import Violation, make_key
from holdfast_lab.workloads.bed import Bed
from holdfast_lab.workloads.common import (
    BREAKS,
    RETRY_S,
    asked,
    attached,
    closed,
    ended,
    full_address,
    is_bounded,
    offered,
    own_key_of,
)

SURE: Final = 0.95
"""Of the time, as this run's clock has it: a node's may run faster."""
SHOWN_S: Final = 60.0
"""Who is back in time is shown within this what it is to be shown. It may take long: before it is shown something, the
node stores that it may have been, and disks stall for some seconds, or refuse what is stored."""


@dataclass(kw_only=True)
class Idle:
    """`rounds` times at `node`: makes a subscription of the topic `queue` that ends after `idle_s` without a link. It
    comes back up to `visits` times, each time for what was published while it was away, up to `messages`; then it stays
    away until it has ended."""

    kind: ClassVar[str] = "idle"

    node: str
    queue: str
    idle_s: int = 2
    rounds: int = 3
    visits: int = 3
    messages: int = 5
    size: int = 100
    credit: int = 10
    name: str = "idle"
    sent: int = field(default=0, init=False)
    shown: int = field(default=0, init=False)
    in_time: int = field(default=0, init=False)
    ends: int = field(default=0, init=False)

    @property
    def place(self) -> str:
        return full_address(self.queue, self.node)

    async def setup(self, bed: Bed) -> None:
        bed.history.topics.add(self.place)  # what it owes is judged here

    def start(self, bed: Bed) -> None:
        name = f"{self.name}-{self.node}"
        bed.spawn(self._work(bed, name), name)

    async def _work(self, bed: Bed, name: str) -> None:
        random = bed.stream(name)
        me = bed.history.new_producer(name)
        reading, publishing = [await bed.connect(self.node, f"{name}-{role}") for role in ("reads", "publishes")]
        for _ in range(self.rounds):
            had_link = await self._make(bed, reading, name)
            for _ in range(random.randint(0, self.visits)):
                accepted = await self._publish(bed, me, publishing, random)
                left_s = had_link + self.idle_s - bed.now()
                await asyncio.sleep(random.uniform(0.3, 0.9) * max(0.0, left_s))
                came = await self._visit(bed, me, reading, name, had_link, accepted)
                if came is None:
                    break  # it may have ended before it was back, and be another one now, without a bound
                had_link = came
            else:
                await self._publish(bed, me, publishing, random)
                await self._until_ended(bed, reading, name, had_link)
        for connection in (reading, publishing):
            await closed(connection)

    async def _make(self, bed: Bed, connection: Connection, name: str) -> float:
        """It is there, and has its bound; a moment at which it had a link."""
        while True:
            began = bed.now()
            if await is_bounded(connection, self.queue, name, {"idle_s": self.idle_s}):
                return began
            await asyncio.sleep(RETRY_S)

    async def _publish(self, bed: Bed, me: int, connection: Connection, random: Random) -> list[int]:
        """The numbers that were accepted, one after the other; the last one is."""
        left, accepted = random.randint(1, self.messages), list[int]()
        while left > 0:
            sender = await attached(lambda: connection.sender(self.queue, producer=f"{self.name}-{self.sent}"))
            try:
                while left > 0:
                    self.sent += 1
                    message = offered(bed.history, make_key(me, self.sent), self.place, self.size)
                    if await (await sender.submit(message)) != Accepted():
                        break
                    accepted.append(self.sent)
                    left -= 1
            except BREAKS:
                pass
            await ended(sender)
            if left > 0:
                await asyncio.sleep(RETRY_S)
        return accepted

    async def _visit(
        self, bed: Bed, me: int, connection: Connection, name: str, had_link: float, accepted: list[int]
    ) -> float | None:
        """Is shown what was accepted; a moment at which it had a link. None where it was not back in time."""
        missing = dict.fromkeys(accepted)
        where = f"subscription {name} of {self.queue} at {self.node}"
        while missing:
            began = bed.now()
            receiver = await attached(lambda: connection.receiver(self.queue, credit=self.credit, subscription=name))
            if bed.now() - had_link >= SURE * self.idle_s:
                await ended(receiver)
                return None
            had_link, reconnects = began, connection.reconnects
            try:
                while missing and connection.reconnects == reconnects and not receiver.ended:
                    if bed.now() - began > SHOWN_S:
                        raise Violation(f"{where} was back in time, and is not shown {[*missing][:50]}")
                    batch = await receiver.batch(timeout_s=self.idle_s / 4)
                    for delivery in batch:
                        key = own_key_of(bed.history, me, delivery.payload, delivery.message, name)
                        missing.pop(int(key[4:]), None)
                        self.shown += 1
                        delivery.accept()
                    looked = bed.now()
                    is_there = bool(batch) or await self._is_there(connection, name)
                    if connection.reconnects == reconnects:
                        if not is_there:
                            raise Violation(f"{where} is gone while it has a link")
                        had_link = looked if not batch else had_link
            except LinkError as error:
                if error.condition == RESOURCE_DELETED:
                    raise Violation(f"{where} has ended while it had a link: {error}") from None
            except BREAKS:
                pass
            await ended(receiver)
        self.in_time += 1
        return had_link

    async def _is_there(self, connection: Connection, name: str) -> bool:
        """Whether the node has it; the answer says that the connection was alive when this was asked."""
        try:
            await asked(connection, "READ", "subscription", name, {"queue": self.queue})
        except ManagementError as error:
            if error.code != 404:
                raise
            return False
        return True

    async def _until_ended(self, bed: Bed, connection: Connection, name: str, had_link: float) -> None:
        """Looks until it is not there any more, and its topic has nothing of it either."""
        while True:
            try:
                await asked(connection, "READ", "subscription", name, {"queue": self.queue})
            except ManagementError as error:
                if error.code != 404:
                    raise
                break
            await asyncio.sleep(RETRY_S)
        if bed.now() - had_link < SURE * self.idle_s:
            away_s = bed.now() - had_link
            raise Violation(
                f"subscription {name} at {self.node} ended within {away_s:g} s, and its time is {self.idle_s}"
            )
        self.ends += 1
        while True:
            told = await asked(connection, "READ", "queue", self.queue)
            if not told["messages"]:
                break
            await asyncio.sleep(RETRY_S)

    def check(self, bed: Bed) -> None:
        return

    def metrics(self) -> dict[str, float]:
        return {"sent": self.sent, "shown": self.shown, "in_time": self.in_time, "ends": self.ends}
