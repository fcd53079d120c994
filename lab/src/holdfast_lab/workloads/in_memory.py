"""`in-memory`: a producer without a name and a consumer of a queue that is not durable: accepted messages stay until
the node ends. They are sent there, or to another such queue from which a link moves them.

Rules of this file: nothing of it is on a disk, so the record of messages that must survive knows none of it; it keeps
its own. What was sent and accepted on one connection of its producer is owed for as long as that connection lasts.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import ClassVar, Final

from holdfast.client import Accepted, Connection, Delivery, Outcome, Sender
from holdfast_lab.base.client_history import Violation, make_key
from holdfast_lab.base.contents import content_of, message_of
from holdfast_lab.workloads.bed import Bed
from holdfast_lab.workloads.common import (
    BREAKS,
    RETRY_S,
    asked,
    attached,
    closed,
    ended,
    key_shown,
    marked,
    receive_each,
)

LOOK_S: Final = 0.5


@dataclass(kw_only=True)
class InMemory:
    """`messages` sent to `queue` of `node` at `rate` a second (0: as fast as taken), and taken there; the share
    `release` of what is shown goes back. `through`: the queue to which they are sent, whose messages a link moves."""

    kind: ClassVar[str] = "in-memory"

    node: str
    queue: str
    messages: int = 200
    size: int = 200
    rate: float = 0.0
    in_doubt: int = 50
    credit: int = 20
    release: float = 0.1
    through: str = ""
    name: str = "in-memory"
    open: dict[int, None] = field(default_factory=dict, init=False)
    """Numbers whose outcome is not known, or was a refusal."""
    again: set[bytes] = field(default_factory=set, init=False)
    """Keys in doubt when a connection broke: what they name may be there, or be lost."""
    owed: set[bytes] = field(default_factory=set, init=False)
    life: int = field(default=0, init=False)
    """The connection of its producer on which these were accepted, by its `reconnects`."""
    shown: set[bytes] = field(default_factory=set, init=False)
    refused: int = field(default=0, init=False)

    async def setup(self, bed: Bed) -> None:
        if self.through:
            connection = await bed.connect(self.node, f"{self.name}-{self.node}-setup")
            await asked(connection, "CREATE", "link", self.name, {"from": self.through, "to": self.queue})
            await closed(connection)

    def start(self, bed: Bed) -> None:
        me = bed.history.new_producer(f"{self.name}-{self.node}")
        bed.spawn(self._send(bed, me, f"{self.name}-in"), f"{self.name}-{self.node}-in")
        bed.spawn(self._take(bed, f"{self.name}-out"), f"{self.name}-{self.node}-out", background=True)

    # ------------------------------------------------------------------------------------------------ sending

    async def _send(self, bed: Bed, me: int, name: str) -> None:
        random = bed.stream(f"{name}-{self.node}")
        connection = await bed.connect(self.node, name)
        target = self.through or self.queue
        for number in range(1, self.messages + 1):
            self.open[number] = None
        while self.open or self.owed:
            sender = await attached(lambda: connection.sender(target, in_doubt_max=self.in_doubt, name=name))
            life = self._lives(connection)
            try:
                while (self.open or self.owed) and connection.reconnects == life:
                    await self._send_open(bed, sender, connection, me, random)
                    await asyncio.sleep(LOOK_S)
            except BREAKS:
                pass
            self.again.update(key for number in self.open if (key := make_key(me, number)) in bed.history.sent)
            self._lives(connection)
            await ended(sender)
            if self.open:
                await asyncio.sleep(RETRY_S)
        await closed(connection)

    def _lives(self, connection: Connection) -> int:
        """The life of the connection; with a new one its node may have ended, and with it all that was there."""
        if connection.reconnects != self.life:
            self.life = connection.reconnects
            self.owed.clear()
        return self.life

    async def _send_open(self, bed: Bed, sender: Sender, connection: Connection, me: int, random: Random) -> None:
        """Each number whose message is not known to be there, the lowest first; until all outcomes are here."""
        for number in sorted(self.open):
            key, life = make_key(me, number), self._lives(connection)
            message = message_of(key, self.size, None)
            bed.history.sent[key] = content_of(message)
            future = await sender.submit(message)
            future.add_done_callback(
                partial(self._decided, number, key, lambda life=life: connection.reconnects == life)  # type: ignore[misc]
            )
            if self.rate:
                await asyncio.sleep(random.expovariate(self.rate))
        await sender.drain()

    def _decided(
        self, number: int, key: bytes, connected: Callable[[], bool], future: "asyncio.Future[Outcome]"
    ) -> None:
        """`connected`: whether the connection still is the one on which it was sent."""
        if future.cancelled() or future.exception() is not None:
            return
        if not isinstance(future.result(), Accepted):
            self.refused += 1
            return
        self.open.pop(number, None)
        if not connected():
            self.again.add(key)
        elif key not in self.again and key not in self.shown:
            self.owed.add(key)

    # ------------------------------------------------------------------------------------------------ taking

    async def _take(self, bed: Bed, name: str) -> None:
        random = bed.stream(f"{name}-{self.node}")
        connection = await bed.connect(self.node, name)

        async def take(delivery: Delivery) -> None:
            self._shown(bed, delivery)
            if random.random() < self.release:
                delivery.release()
            else:
                delivery.accept()

        await receive_each(lambda: connection.receiver(self.queue, credit=self.credit, name=name), take)

    def _shown(self, bed: Bed, delivery: Delivery) -> None:
        place = f"{self.queue} at {self.node}"
        key = key_shown(bed.history, delivery, place)
        if key is None:
            return
        if key in self.shown and not marked(delivery) and key not in self.again:
            raise Violation(f"{key.decode()} was shown twice at {place}, the second time not as a redelivery")
        self.shown.add(key)
        self.owed.discard(key)

    def check(self, bed: Bed) -> None:
        return

    def metrics(self) -> dict[str, float]:
        return {"shown": len(self.shown), "again": len(self.again), "refused": self.refused}
