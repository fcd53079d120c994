"""`browse`: readers that only look while others consume; they settle nothing and are nobody's competitor.

Rules of this file: what a browser sees is no delivery; that nothing is held up by it, the consumers' own workload
shows.
"""

import asyncio
from dataclasses import dataclass, field
from typing import ClassVar

from holdfast.client import Delivery
from holdfast_lab.base.client_history import Violation
from holdfast_lab.workloads.bed import Bed
from holdfast_lab.workloads.common import BREAKS, RETRY_S, attached, ended, key_shown


@dataclass(kw_only=True)
class Browse:
    """`browsers` of `queue` at `node` that look from its beginning, go on with what arrives, and begin anew.

    `look_s` is the mean time of one look; every `stall`-th share of looks takes no more than it was first sent.
    """

    kind: ClassVar[str] = "browse"

    node: str
    queue: str
    browsers: int = 1
    credit: int = 50
    look_s: float = 1.0
    stall: float = 0.2
    name: str = "browser"
    seen: int = field(default=0, init=False)
    looks: int = field(default=0, init=False)

    async def setup(self, bed: Bed) -> None:
        return

    def start(self, bed: Bed) -> None:
        for number in range(self.browsers):
            name = f"{self.name}-{self.node}-{self.queue}-{number}"
            bed.spawn(self._browse(bed, name), name, background=True)

    async def _browse(self, bed: Bed, name: str) -> None:
        random = bed.stream(name)
        connection = await bed.connect(self.node, name)
        while True:
            self.looks += 1
            look = f"{name}-{self.looks}"
            receiver = await attached(
                lambda look=look: connection.receiver(  # type: ignore[misc]  # bound now, not when it is called
                    self.queue, credit=self.credit, browse=True, name=look
                )
            )
            stalled = random.random() < self.stall
            disk, before = -1, 0
            try:
                async with asyncio.timeout(random.expovariate(1.0 / self.look_s)):
                    async for delivery in receiver:
                        came_from = bed.disk_of(self.node, delivery)
                        if disk not in (-1, came_from):
                            break
                        disk = came_from
                        if delivery.sequence <= before:
                            raise Violation(
                                f"{name} at {self.node} was shown sequence {delivery.sequence} after {before}"
                            )
                        before = delivery.sequence
                        self._saw(bed, delivery)
                        if stalled:
                            await asyncio.sleep(self.look_s)
            except TimeoutError:
                pass
            except BREAKS:
                await asyncio.sleep(RETRY_S)
            await ended(receiver)
            await asyncio.sleep(random.expovariate(1.0 / self.look_s))

    def _saw(self, bed: Bed, delivery: Delivery) -> None:
        place = f"{self.queue} at {self.node}"
        key = key_shown(bed.history, delivery, place)
        if key is not None and key not in bed.history.offered:
            raise Violation(f"a browser of {place} saw {key.decode()}, which nobody sent")
        self.seen += 1

    def check(self, bed: Bed) -> None:
        return

    def metrics(self) -> dict[str, float]:
        return {"seen": self.seen, "looks": self.looks}
