"""`poisoned`: messages that no consumer can process, in a queue with `deliveries_max`.

Rules of this file: what the consumers say is in doubt when their link breaks, and then it counts as failed; so a
message that is never given back for nothing is shown no more often than the queue's bound says, whatever dies. Every
one of these messages that was accepted must become a dead letter.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import ClassVar, Final

from holdfast.client import Connection, Delivery
from holdfast.names import DEAD_LETTERS
from holdfast_lab.base.client_history import Violation
from holdfast_lab.workloads.bed import Bed
from holdfast_lab.workloads.common import BREAKS, RETRY_S, attached, ended, failed_deliveries, key_shown, marked

LOOK_S: Final = 2.0
"""How long a look at the dead letters lasts in which nothing comes."""


def is_poison(key: bytes) -> bool:
    """Whether the message with that key cannot be processed."""
    return int(key[4:]) % 3 == 0


@dataclass(kw_only=True)
class Poisoned:
    """Consumers that share `queue` at `node`, whose `deliveries_max` the configuration sets to `most`. Each third of
    the `messages` in all that are sent there is poison: a consumer says that its delivery failed, or ends its link
    without a word (the share `leave`). All others are accepted. `selectors`: as those of `consume`."""

    kind: ClassVar[str] = "poisoned"

    node: str
    queue: str
    most: int = 3
    messages: int = 30
    consumers: int = 1
    credit: int = 10
    think_s: float = 0.0
    leave: float = 0.3
    selectors: tuple[str, ...] = ()
    name: str = "poisoned"
    shown: Counter[bytes] = field(default_factory=Counter, init=False)
    """How often each poisonous message was shown by the disk that is there."""
    dead: dict[bytes, int] = field(default_factory=dict, init=False)
    """The dead letters, and the failed deliveries that they tell of."""

    async def setup(self, bed: Bed) -> None:
        return

    def start(self, bed: Bed) -> None:
        for number in range(self.consumers):
            name = f"{self.name}-{self.queue}-{number}"
            selector = self.selectors[number % len(self.selectors)] if self.selectors else ""
            bed.spawn(self._consume(bed, name, selector or None), name, background=True)
        bed.spawn(self._watch(bed, f"{self.name}-{self.queue}-dead"), f"{self.name}-dead")

    async def _consume(self, bed: Bed, name: str, selector: str | None) -> None:
        connection = await bed.connect(self.node, name)
        random = bed.stream(name)
        while True:
            receiver = await attached(
                lambda: connection.receiver(self.queue, credit=self.credit, name=name, selector=selector)
            )
            try:
                async for delivery in receiver:
                    if not await self._take(bed, delivery, random):
                        break
            except BREAKS:
                pass
            await ended(receiver)
            await asyncio.sleep(RETRY_S)

    async def _take(self, bed: Bed, delivery: Delivery, random: Random) -> bool:
        """Decides on one message; False where its consumer ends by it."""
        place = f"{self.queue} at {self.node}"
        key = key_shown(bed.history, delivery, place)
        disk = bed.disk_of(self.node, delivery)
        if key is not None:
            bed.history.receive(key, place, marked=marked(delivery), sequence=delivery.sequence, disk=disk)
        if self.think_s:
            await asyncio.sleep(random.expovariate(1.0 / self.think_s))
        if key is None or not is_poison(key):
            delivery.accept()
            return True
        header = delivery.message.header
        count = 0 if header is None else header.delivery_count
        if not bed.history.disks_changed[self.node]:
            self.shown[key] += 1
            if max(self.shown[key], count + 1) > self.most:
                raise Violation(
                    f"{key.decode()} was given to consumers of {place} {self.shown[key]} times, with delivery-count "
                    f"{count}; deliveries_max is {self.most}"
                )
        if random.random() < self.leave:
            return False
        delivery.modify(delivery_failed=True)
        return True

    # ------------------------------------------------------------------------------------------------ the end

    async def _watch(self, bed: Bed, name: str) -> None:
        """Looks at the dead letters until all that belong there are."""
        connection = await bed.connect(self.node, name)
        address = f"{self.queue}@{self.node}"
        looks = 0
        while True:
            if bed.history.disks_changed[self.node]:
                return  # what its old disk held is nobody's fault
            mine = [key for key in bed.history.accepted if bed.history.offered[key] == address]
            if len(mine) >= self.messages and all(key in self.dead for key in mine if is_poison(key)):
                return
            looks += 1
            await self._look(bed, connection, f"{name}-{looks}")
            await asyncio.sleep(RETRY_S)

    async def _look(self, bed: Bed, connection: Connection, name: str) -> None:
        receiver = await attached(lambda: connection.receiver(DEAD_LETTERS, credit=100, browse=True, name=name))
        try:
            while found := await receiver.batch(count_max=100, timeout_s=LOOK_S):
                for delivery in found:
                    key = key_shown(bed.history, delivery, f"{DEAD_LETTERS} at {self.node}")
                    told = failed_deliveries(delivery)
                    if key is not None and told is not None:
                        self.dead[key] = told
                        self._check_mark(key, delivery, told)
        except BREAKS:
            pass
        await ended(receiver)

    def _check_mark(self, key: bytes, delivery: Delivery, told: int) -> None:
        """Raises Violation where a dead letter does not say of earlier deliveries what its queue would have said."""
        header = delivery.message.header
        count = 0 if header is None else header.delivery_count
        if not marked(delivery) or count < told:
            raise Violation(f"{key.decode()} is a dead letter of {told} deliveries, and says that {count} have failed")

    def check(self, bed: Bed) -> None:
        for key, told in self.dead.items():
            if told < self.most and not bed.history.disks_changed[self.node]:
                raise Violation(f"{key.decode()} is a dead letter of {told} deliveries, the bound is {self.most}")

    def metrics(self) -> dict[str, float]:
        return {"shown": self.shown.total(), "dead": len(self.dead)}
