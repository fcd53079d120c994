"""`presettled`: producers that send settled messages: they get no outcome, and send nothing twice.

Rules of this file: of such messages any may be lost, none is there twice, and those that are there are in the order in
which they were sent. Each life has keys of its own: what an earlier connection still brings is no later one's.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import ClassVar, Final

from holdfast.amqp.links.sender import Sender
from holdfast.amqp.wire.performatives import Target
from holdfast_lab.base.client_history import make_key
from holdfast_lab.workloads.bare import SETTLED, Bare, Broken, Refused, connected
from holdfast_lab.workloads.bed import Bed
from holdfast_lab.workloads.common import RETRY_S, full_address, offered, spawn_each

SEEN_S: Final = 0.5
"""How often a producer that has sent everything looks whether its last message was shown."""


@dataclass(kw_only=True)
class Presettled:
    """`producers` that each send `messages` to `address` from `node`, all settled, at `rate` a second (0: as fast as
    taken), in lives of `life_s` on average; somebody consumes there. At last each sends on until one that it sent then
    is shown."""

    kind: ClassVar[str] = "presettled"

    node: str
    address: str
    messages: int = 200
    producers: int = 1
    size: int = 200
    rate: float = 0.0
    life_s: float = 1.0
    name: str = "presettled"
    sent: int = field(default=0, init=False)
    lives: int = field(default=0, init=False)

    async def setup(self, bed: Bed) -> None:
        return

    def start(self, bed: Bed) -> None:
        spawn_each(bed, self.producers, f"{self.name}-{self.node}", self._produce)

    async def _produce(self, bed: Bed, name: str) -> None:
        random = bed.stream(name)
        left = self.messages
        last: set[bytes] = set()
        while left or not self._seen(bed, last):
            bare = await connected(bed, self.node, name)
            try:
                link = await bare.sender(Target(self.address), snd_settle_mode=SETTLED)
                keys = self._new_keys(bed, name)
                ends_at = bed.now() + random.expovariate(1.0 / self.life_s)
                while left and bed.now() < ends_at:
                    left -= 1
                    await self._send(bed, bare, link, next(keys))
                    await asyncio.sleep(random.expovariate(self.rate) if self.rate else 0.0)
                while not (left or self._seen(bed, last)):
                    last.add(key := next(keys))
                    await self._send(bed, bare, link, key)
                    await asyncio.sleep(SEEN_S)
            except (Broken, Refused):
                pass
            bare.end(abort=random.random() < 0.3)
            await asyncio.sleep(random.uniform(0.0, RETRY_S))

    def _seen(self, bed: Bed, last: set[bytes]) -> bool:
        return any(key in bed.history.received for key in last)

    def _new_keys(self, bed: Bed, name: str) -> Iterator[bytes]:
        """Draws the keys of a new life."""
        self.lives += 1
        me = bed.history.new_producer(f"{name}-{self.lives}")
        bed.history.sent_once[me] = self.node
        return (make_key(me, number) for number in count(1))

    async def _send(self, bed: Bed, bare: Bare, link: Sender, key: bytes) -> None:
        message = offered(bed.history, key, full_address(self.address, self.node), self.size)
        self.sent += 1
        await bare.send(link, message.encode(), None, settled=True)

    def check(self, bed: Bed) -> None:
        return

    def metrics(self) -> dict[str, float]:
        return {"sent": self.sent, "lives": self.lives}
