"""`narrow`: consumers that accept small messages only, of a queue to which large ones are sent too.

Rules of this file: as of `bare.py`. A large message ends links one after the other; what these got before counts as
their programs settled it. Where a disk was replaced nobody is judged by what it held.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import ClassVar, Final

from holdfast.amqp.links.link import Link
from holdfast.amqp.message.message import Message
from holdfast.amqp.session.events import Delivery
from holdfast.amqp.wire.conditions import MESSAGE_SIZE_EXCEEDED
from holdfast.amqp.wire.extensions import SELECTOR_CODE
from holdfast.amqp.wire.performatives import Accepted, Source
from holdfast.amqp.wire.types import Described, Symbol, Ulong
from holdfast.client import Connection
from holdfast.names import DEAD_LETTERS
from holdfast_lab.base.client_history import Violation
from holdfast_lab.workloads.bare import Bare, Broken, Refused, connected
from holdfast_lab.workloads.bed import Bed
from holdfast_lab.workloads.common import (
    BREAKS,
    RETRY_S,
    ended,
    failed_deliveries,
    is_marked,
    key_of,
    key_shown,
    place_of,
)  # fmt: skip

PAUSE_S: Final = 0.3
"""Between the end of a link and the next attach."""
LOOK_S: Final = 1.0
"""How long a look at the dead letters lasts in which nothing comes."""


@dataclass(kw_only=True)
class Narrow:
    """Consumers of `queue` at `node` whose links have a max-message-size of `bytes_max`, on connections of their own.
    They accept one delivery after the other, `think_s` after each began, and attach again. `selector`: theirs, which
    selects everything; empty for none.

    `messages`: how many are sent there in all. `wide`: another workload, whose link nothing ends, takes the large ones.
    `fails`: the queue has a `deliveries_max`, and links or the node end, so that any message may be a dead letter; but
    no large one may because its deliveries failed, if these consumers are `alone`: then nobody was shown it.
    """

    kind: ClassVar[str] = "narrow"

    node: str
    queue: str
    messages: int = 40
    bytes_max: int = 600
    consumers: int = 1
    credit: int = 10
    think_s: float = 0.0
    wide: bool = False
    selector: str = ""
    fails: bool = False
    alone: bool = False
    name: str = "narrow"
    taken: int = field(default=0, init=False)
    ends: int = field(default=0, init=False)
    """Of links, because of a large message."""
    dead: set[bytes] = field(default_factory=set, init=False)
    """The large messages that are dead letters."""

    async def setup(self, bed: Bed) -> None:
        return

    def start(self, bed: Bed) -> None:
        for number in range(self.consumers):
            name = f"{self.name}-{self.queue}-{number}"
            bed.spawn(self._consume(bed, name), name, background=True)
        bed.spawn(self._watch(bed, f"{self.name}-{self.queue}-dead"), f"{self.name}-dead")

    async def _consume(self, bed: Bed, name: str) -> None:
        random = bed.stream(name)
        while True:
            bare = await connected(bed, self.node, name)
            disk = bed.history.disks_changed[self.node]
            try:
                while True:
                    await self._take(bed, bare, random, disk)
                    await asyncio.sleep(PAUSE_S)
            except (Broken, Refused):
                pass
            bare.end(abort=False)
            await asyncio.sleep(random.uniform(0.0, RETRY_S))

    async def _take(self, bed: Bed, bare: Bare, random: Random, disk: int) -> None:
        """Takes what comes on one link until that ends. Raises Broken, Refused."""
        held: deque[Delivery] = deque()
        link: Link
        try:
            chosen = {Symbol("s"): Described(Ulong(SELECTOR_CODE), self.selector)} if self.selector else None
            link = receiver = await bare.receiver(
                Source(self.queue, filter=chosen), held.append, self.credit, max_message_size=self.bytes_max
            )
        except Refused as refusal:  # or attached and ended at once
            self._judge_end(bare.name, refusal.condition, held)
            raise
        while True:
            await bare.until(lambda: link.detached or bool(held))
            if not link.detached:
                self._show(bed, held[0], disk)
                if self.think_s:
                    await asyncio.sleep(random.expovariate(1.0 / self.think_s))
            if bare.lost:
                raise Broken
            if link.detached:
                break
            number = held.popleft().delivery_id
            receiver.settle(number, number, Accepted())
            if receiver.credit <= self.credit // 2:
                receiver.grant(self.credit)
            bare.wire.schedule()
        self._judge_end(bare.name, "" if link.error is None else str(link.error.condition), held)

    def _judge_end(self, name: str, condition: str, held: deque[Delivery]) -> None:
        """The node has ended the link."""
        if condition != MESSAGE_SIZE_EXCEEDED:
            return
        self.ends += 1
        if held:
            raise Violation(f"a link of {name} was ended by a large message while it held {len(held)} others")

    def _show(self, bed: Bed, delivery: Delivery, disk: int) -> None:
        message, place, size = Message.decode(delivery.payload), place_of(self.queue, self.node), len(delivery.payload)
        key = key_of(bed.history, delivery.payload, message, place)
        if size > self.bytes_max:
            raise Violation(f"{key!r} has {size} bytes, and a link of {place} that takes {self.bytes_max} was sent it")
        self.taken += 1
        if key is not None:
            bed.history.receive(key, place, marked=is_marked(message), disk=disk)

    # ------------------------------------------------------------------------------------------------ the end

    async def _watch(self, bed: Bed, name: str) -> None:
        """Looks at the dead letters until each message is there or was shown, and once more then."""
        connection = await bed.connect(self.node, name)
        address, history, looks, done = f"{self.queue}@{self.node}", bed.history, 0, False
        while not (done or history.disks_changed[self.node]):
            mine = [key for key in history.accepted if history.offered[key] == address]
            done = len(mine) >= self.messages and all(key in history.received or key in self.dead for key in mine)
            looks += 1
            await self._look(bed, connection, address, f"{name}-{looks}")
            await asyncio.sleep(RETRY_S)

    async def _look(self, bed: Bed, connection: Connection, address: str, name: str) -> None:
        """A look that breaks, or finds no `$dead-letters`, is skipped."""
        try:
            receiver = await connection.receiver(DEAD_LETTERS, credit=100, browse=True, name=name)
        except BREAKS:
            return
        try:
            while found := await receiver.batch(count_max=100, timeout_s=LOOK_S):
                for delivery in found:
                    key = key_shown(bed.history, delivery, f"{DEAD_LETTERS} at {self.node}")
                    if key is not None and bed.history.offered.get(key) == address:
                        self._judge_dead(bed, key, failed=failed_deliveries(delivery) is not None)
        except BREAKS:
            pass
        await ended(receiver)

    def _judge_dead(self, bed: Bed, key: bytes, *, failed: bool) -> None:
        """`failed`: because its deliveries failed."""
        large = len(bed.history.sent[key].bare) > self.bytes_max
        if failed and large and self.alone and not bed.history.disks_changed[self.node]:
            raise Violation(f"deliveries of {key.decode()} at {self.node} failed, which is too large for all consumers")
        judged = not (self.fails or bed.history.disks_changed[self.node])
        if judged and (self.wide or not large):
            what = "a consumer takes" if not large else "another consumer takes"
            raise Violation(f"{key.decode()}, which {what}, is a dead letter of {self.queue} at {self.node}")
        if key not in self.dead:
            self.dead.add(key)
            bed.history.excuse(key, "its deliveries failed" if self.fails else "it is larger than its consumers take")

    def check(self, bed: Bed) -> None:
        return

    def metrics(self) -> dict[str, float]:
        return {"taken": self.taken, "ends": self.ends, "dead": len(self.dead)}
