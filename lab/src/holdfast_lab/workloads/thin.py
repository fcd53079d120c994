"""`thin`: several receivers of one session with frames of 512 bytes and a window of a few transfers.

Rules of this file: as of `bare.py`. One disposition speaks of several links' deliveries (AMQP 1.0 §2.7.6), and where
the receiver settles second, its first says the outcome alone and the node's answer settles (§2.6.12).
"""

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import ClassVar, Final

from holdfast.amqp.message.message import Message
from holdfast.amqp.session.events import Delivery
from holdfast.amqp.wire.performatives import Accepted, Source
from holdfast.client.receive.settlements import ranges
from holdfast_lab.workloads.bare import Bare, Broken, Refused, connected
from holdfast_lab.workloads.bed import Bed
from holdfast_lab.workloads.common import RETRY_S, is_marked, key_of, place_of

FRAME_BYTES: Final = 512
"""The least that a peer may allow (§2.3.2)."""
SECOND: Final = 1
LOOK_S: Final = 0.5


@dataclass(kw_only=True)
class Thin:
    """`links` receivers at a time from `queue` at `node`, in lives of `life_s` on average; the session's window is
    `window` transfers. With `second` the receiver settles second."""

    kind: ClassVar[str] = "thin"

    node: str
    queue: str
    links: int = 2
    window: int = 2
    credit: int = 5
    second: bool = False
    life_s: float = 2.0
    think_s: float = 0.0
    name: str = "thin"
    taken: int = field(default=0, init=False)
    lives: int = field(default=0, init=False)

    async def setup(self, bed: Bed) -> None:
        return

    def start(self, bed: Bed) -> None:
        name = f"{self.name}-{self.node}"
        bed.spawn(self._receive(bed, name), name, background=True)

    async def _receive(self, bed: Bed, name: str) -> None:
        random = bed.stream(name)
        while True:
            bare = await connected(
                bed, self.node, name, max_frame_size=FRAME_BYTES, incoming_window=self.window
            )  # fmt: skip
            self.lives += 1
            try:
                await self._live(bed, bare, random)
            except (Broken, Refused):
                pass
            bare.end(abort=random.random() < 0.5)
            await asyncio.sleep(random.uniform(0.0, RETRY_S))

    async def _live(self, bed: Bed, bare: Bare, random: Random) -> None:
        came: list[Delivery] = []
        disk, mode = bed.history.disks_changed[self.node], SECOND if self.second else 0
        for _ in range(self.links):
            link = await bare.receiver(Source(self.queue), came.append, self.credit, rcv_settle_mode=mode)
            link.grant(self.credit)
        ends_at = bed.now() + random.expovariate(1.0 / self.life_s)
        while bed.now() < ends_at:
            try:
                await asyncio.wait_for(bare.until(lambda: bool(came)), LOOK_S)
            except TimeoutError:
                continue
            if self.think_s:
                await asyncio.sleep(random.expovariate(1.0 / self.think_s))
            if bare.lost:
                raise Broken
            shown, came[:] = [*came], []
            for delivery in shown:
                self._show(bed, delivery, disk)
            self._settle(bare, shown)

    def _settle(self, bare: Bare, shown: list[Delivery]) -> None:
        """One disposition for each run of ids, whichever links they came on: between two that are whole there may be
        one whose end is still to come, and whoever accepts that is never shown it."""
        session = bare.session
        assert session is not None
        if not self.second:
            for delivery in shown:
                session.unsettled_in.pop(delivery.delivery_id, None)
        for first, last in ranges([delivery.delivery_id for delivery in shown]):
            session.write_disposition(True, first, last, not self.second, Accepted())
        for link in {delivery.link: None for delivery in shown}:
            if link.attached and link.credit <= self.credit // 2:
                link.grant(self.credit)
        bare.wire.schedule()

    def _show(self, bed: Bed, delivery: Delivery, disk: int) -> None:
        message, place = Message.decode(delivery.payload), place_of(self.queue, self.node)
        key = key_of(bed.history, delivery.payload, message, place)
        if key is not None:
            self.taken += 1
            bed.history.receive(key, place, marked=is_marked(message), disk=disk)

    def check(self, bed: Bed) -> None:
        return

    def metrics(self) -> dict[str, float]:
        return {"taken": self.taken, "lives": self.lives}
