"""`bounded`: a durable subscription of a topic that drops its oldest beyond a bound, has dead letters, or ends at it.

Rules of this file: each round is published while the subscription has no link, by one program in one order, and ends
with a message that was accepted. Then the subscription has at most its bound, and each accepted one of the last so
many. A message whose outcome was lost may be there or not, and takes a place in any case. What is read is read until
nothing comes any more; what was shown and is not on disk as finished comes again, and takes a place too.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import ClassVar, Final

from holdfast.client import Accepted, Connection, ManagementError, Sender
from holdfast.names import DEAD_LETTERS
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
    key_shown,
    offered,
    own_key_of,
)

QUIET_S: Final = 5.0
"""Without a message for so long everything was shown, once the round's last message was."""
AT_ONCE: Final = 8
"""Messages that are published beside each other, at most."""
DROP_OLDEST: Final = "drop-oldest"
BESIDE_BODY: Final = 400
"""Bytes that one of these messages has beside its body, at most."""


@dataclass(kw_only=True)
class Bounded:
    """`rounds` times at `node`: up to `messages` to the topic `queue`, then a subscription with the bound `bound` reads
    what it has. With `ends` the bound ends it, and the next round makes it anew; with `dies` its oldest become dead
    letters. `bytes_max`: a bound of bytes beside it; 0 for none."""

    kind: ClassVar[str] = "bounded"

    node: str
    queue: str
    bound: int = 5
    messages: int = 20
    rounds: int = 5
    ends: bool = False
    dies: bool = False
    bytes_max: int = 0
    size: int = 100
    credit: int = 10
    name: str = "bounded"
    sent: int = field(default=0, init=False)
    shown: int = field(default=0, init=False)
    dropped: int = field(default=0, init=False)
    dead: int = field(default=0, init=False)
    over: int = field(default=0, init=False)

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
        await self._make(reading, name)
        for _ in range(self.rounds):
            first = self.sent + 1
            accepted = await self._publish(bed, me, publishing, name, random)
            if self.ends:
                await self._judge_end(reading, name, first, accepted)
                continue
            if self.dies:  # they stay while a disk takes none
                await self._until_within(reading, name)
            shown = await self._read(bed, me, reading, name, self.sent)
            self._judge(name, accepted, shown)
            if self.dies:
                await self._judge_dead(bed, me, reading, name, accepted.difference(shown))
        for connection in (reading, publishing):
            await closed(connection)

    async def _make(self, connection: Connection, name: str) -> None:
        answer = "end" if self.ends else "dead-letter" if self.dies else DROP_OLDEST
        bounds = {"messages_max": self.bound, "bytes_max": self.bytes_max or None, "when_full": answer}
        while True:
            if await is_bounded(connection, self.queue, name, bounds):
                return
            await asyncio.sleep(RETRY_S)

    async def _sender(self, connection: Connection, name: str) -> Sender:
        """One whose messages have an outcome whatever breaks. What is refused leaves a gap in a producer's numbers, of
        which it may have few: so there is a new producer after it."""
        return await attached(lambda: connection.sender(self.queue, producer=f"{name}-{self.sent}"))

    async def _publish(self, bed: Bed, me: int, connection: Connection, name: str, random: Random) -> set[int]:
        """The numbers that were accepted, of some and as many more as it takes until one was accepted last."""
        count = random.randint(1, self.messages)
        accepted: set[int] = set()
        sender = await self._sender(connection, name)
        while count > 0 or self.sent not in accepted:
            some = random.randint(1, AT_ONCE) if count > 0 else 1
            count -= some
            numbers = range(self.sent + 1, self.sent + some + 1)
            self.sent += some
            try:
                waiting = []
                for number in numbers:
                    message = offered(bed.history, make_key(me, number), self.place, self.size)
                    waiting.append(await sender.submit(message))
                outcomes = await asyncio.gather(*waiting)
            except BREAKS:
                outcomes = []
            accepted |= {number for number, outcome in zip(numbers, outcomes, strict=False) if outcome == Accepted()}
            if not accepted.issuperset(numbers):
                await ended(sender)
                await asyncio.sleep(RETRY_S)
                sender = await self._sender(connection, name)
        await ended(sender)
        return accepted

    async def _read(self, bed: Bed, me: int, connection: Connection, name: str, last: int) -> list[int]:
        """What the subscription is shown, each number once, until nothing comes after `last`."""
        shown: dict[int, None] = {}
        while True:
            receiver = await attached(lambda: connection.receiver(self.queue, credit=self.credit, subscription=name))
            try:
                while batch := await receiver.batch(timeout_s=QUIET_S):
                    for delivery in batch:
                        key = own_key_of(bed.history, me, delivery.payload, delivery.message, name)
                        shown[int(key[4:])] = None
                        delivery.accept()
            except BREAKS:
                pass
            await ended(receiver)
            if last in shown:
                self.shown += len(shown)
                return [*shown]
            await asyncio.sleep(RETRY_S)

    @property
    def _sure(self) -> int:
        """So many of the latest fit both bounds whatever they have beside their bodies."""
        return min(self.bound, max(1, self.bytes_max // (self.size + BESIDE_BODY))) if self.bytes_max else self.bound

    async def _until_within(self, connection: Connection, name: str) -> None:
        """Until the subscription is within its bounds."""
        while True:
            told = await asked(connection, "READ", "subscription", name, {"queue": self.queue})
            size = told.get("bytes") or 0
            if told["messages"] <= self.bound and (size <= self.bytes_max or told["messages"] <= 1):
                return
            await asyncio.sleep(RETRY_S)

    def _judge(self, name: str, accepted: set[int], shown: list[int]) -> None:
        where = f"subscription {name} of {self.queue} at {self.node}"
        if len(shown) > self.bound:
            raise Violation(f"{where} has a bound of {self.bound}, and was shown {shown[:50]}")
        if self.bytes_max and len(shown) > max(1, self.bytes_max // self.size):
            raise Violation(f"{where} has a bound of {self.bytes_max} bytes, and was shown {shown[:50]}")
        if shown != sorted(shown):
            raise Violation(f"{where} was shown {shown[:50]}, not in the order in which they were published")
        latest = range(self.sent - self._sure + 1, self.sent + 1)
        lost = [number for number in latest if number in accepted and number not in shown]
        if lost:
            raise Violation(f"{where} was not shown {lost[:50]}, which are within its bound of {self._sure}")
        self.dropped += sum(number not in shown for number in accepted)

    async def _judge_dead(self, bed: Bed, me: int, connection: Connection, name: str, left: set[int]) -> None:
        """What it was to have and was not shown are dead letters, each once."""
        where = f"subscription {name} of {self.queue} at {self.node}"
        found = await self._dead_letters(bed, me, connection, name)
        twice = [number for number, count in found.items() if count > 1]
        if twice:
            raise Violation(f"{where}: {twice[:50]} are dead letters twice")
        lost = sorted(left.difference(found))
        if lost:
            raise Violation(f"{where}: {lost[:50]} were accepted, and are neither shown nor dead letters")
        self.dead = len(found)

    async def _dead_letters(self, bed: Bed, me: int, connection: Connection, name: str) -> Counter[int]:
        """The numbers of its messages among the dead letters, as one look sees them that nothing breaks."""
        link = f"{name}-dead-{self.sent}"
        while True:
            found: Counter[int] = Counter()
            receiver = await attached(lambda: connection.receiver(DEAD_LETTERS, credit=100, browse=True, name=link))
            try:
                while batch := await receiver.batch(count_max=100, timeout_s=QUIET_S):
                    for delivery in batch:
                        key = key_shown(bed.history, delivery, f"{DEAD_LETTERS} at {self.node}")
                        if key is not None and int(key[:3]) == me:
                            found[int(key[4:])] += 1
            except BREAKS:
                await ended(receiver)
                await asyncio.sleep(RETRY_S)
                continue
            await ended(receiver)
            return found

    async def _judge_end(self, connection: Connection, name: str, first: int, accepted: set[int]) -> None:
        """It has ended exactly if there were more than its bound; then, or when it was read by its deletion, it is made
        anew."""
        try:
            told = await asked(connection, "READ", "subscription", name, {"queue": self.queue})
        except ManagementError as error:
            if error.code != 404:
                raise
            told = None
        where = f"subscription {name} of {self.queue} at {self.node}"
        if told is None and self.sent - first + 1 <= self.bound:
            raise Violation(f"{where} has ended at no more than {self.sent - first + 1}, with a bound of {self.bound}")
        if told is not None and len(accepted) > self.bound:
            raise Violation(f"{where} has not ended at {len(accepted)}, with a bound of {self.bound}")
        self.over += told is None
        while told is not None:
            try:
                await asked(connection, "DELETE", "subscription", name, {"queue": self.queue})
                break
            except ManagementError as error:
                if error.code == 404:
                    break
                if error.code != 409:
                    raise
            await asyncio.sleep(RETRY_S)
        await self._make(connection, name)

    def check(self, bed: Bed) -> None:
        return

    def metrics(self) -> dict[str, float]:
        return {"sent": self.sent, "shown": self.shown, "dropped": self.dropped, "over": self.over, "dead": self.dead}
