"""`lagging`: a listener of a topic that keeps what it holds while more is published than its queue in memory may have.

Rules of this file: in a round messages are published one after the other, while the listener has its link and settles
nothing. Then as many wait for it as its bound says: those that it was handed, and the latest. A round whose link or
connections break is not judged, for then the listener is another one, or its node has forgotten it.
"""

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import ClassVar, Final

from holdfast.broker import topic
from holdfast.client import Accepted, Connection, Receiver, Sender
from holdfast_lab.base.client_history import Violation, make_key
from holdfast_lab.workloads.bed import Bed
from holdfast_lab.workloads.common import BREAKS, RETRY_S, attached, closed, ended, full_address, offered, own_key_of

QUIET_S: Final = 5.0
"""Without a message for so long it was shown all that there is for it."""


@dataclass(kw_only=True)
class Lagging:
    """`rounds` times at `node`: a listener of the topic `queue` with `credit`, and up to `messages` for it."""

    kind: ClassVar[str] = "lagging"

    node: str
    queue: str
    messages: int = 30
    rounds: int = 3
    size: int = 100
    credit: int = 3
    name: str = "lagging"
    sent: int = field(default=0, init=False)
    shown: int = field(default=0, init=False)
    judged: int = field(default=0, init=False)
    dropped: int = field(default=0, init=False)

    @property
    def place(self) -> str:
        return full_address(self.queue, self.node)

    async def setup(self, bed: Bed) -> None:
        bed.history.topics.add(self.place)  # a listener is owed nothing

    def start(self, bed: Bed) -> None:
        name = f"{self.name}-{self.node}"
        bed.spawn(self._work(bed, name), name)

    async def _work(self, bed: Bed, name: str) -> None:
        random = bed.stream(name)
        me = bed.history.new_producer(name)
        both = [await bed.connect(self.node, f"{name}-{role}") for role in ("listens", "publishes")]
        for _ in range(self.rounds):
            await self._round(bed, me, random, *both)
        for connection in both:
            await closed(connection)

    async def _round(self, bed: Bed, me: int, random: Random, listens: Connection, publishes: Connection) -> None:
        receiver = await attached(lambda: listens.receiver(self.queue, credit=self.credit))
        sender = await attached(lambda: publishes.sender(self.queue, producer=f"{self.name}-{self.sent}"))
        lives = (listens.reconnects, publishes.reconnects)
        first = self.sent + 1
        try:
            is_whole = await self._publish(bed, me, sender, random.randint(1, self.messages))
            shown = await self._listen(bed, me, receiver)
        except BREAKS:
            is_whole, shown = False, []
        if is_whole and not receiver.ended and lives == (listens.reconnects, publishes.reconnects):
            self._judge(first, shown)
        await ended(receiver)
        await ended(sender)
        await asyncio.sleep(random.uniform(0.0, RETRY_S))

    async def _publish(self, bed: Bed, me: int, sender: Sender, count: int) -> bool:
        """One after the other; whether all were accepted."""
        for _ in range(count):
            self.sent += 1
            message = offered(bed.history, make_key(me, self.sent), self.place, self.size)
            if await (await sender.submit(message)) != Accepted():
                return False
        return True

    async def _listen(self, bed: Bed, me: int, receiver: Receiver) -> list[int]:
        """The numbers that it is shown, those that it was handed at first before all others."""
        shown: list[int] = []
        while batch := await receiver.batch(timeout_s=QUIET_S):
            for delivery in batch:
                key = own_key_of(bed.history, me, delivery.payload, delivery.message, self.place)
                shown.append(int(key[4:]))
                delivery.accept()
        self.shown += len(shown)
        return shown

    def _judge(self, first: int, shown: list[int]) -> None:
        where = f"a listener of {self.queue} at {self.node}"
        published, bound = range(first, self.sent + 1), topic.LISTENER_MESSAGES_MAX
        if shown != sorted(set(shown)):
            raise Violation(f"{where} was shown {shown[:50]}, not in the order in which they were published")
        if len(shown) != min(bound, len(published)):
            raise Violation(f"{where} with a bound of {bound} was shown {len(shown)} of {len(published)} messages")
        latest = published[-bound:][min(self.credit, bound) :] if len(published) > bound else published
        lost = [number for number in latest if number not in shown]
        if lost:
            raise Violation(f"{where} with a bound of {bound} was not shown {lost[:50]}, which were among the latest")
        self.judged += 1
        self.dropped += len(published) - len(shown)

    def check(self, bed: Bed) -> None:
        return

    def metrics(self) -> dict[str, float]:
        return {"sent": self.sent, "shown": self.shown, "judged": self.judged, "dropped": self.dropped}
