"""`skip`: an operator who gives up missing messages while a queue in strict order fills.

Rules of this file: a message that was given up may still come, after those that are there and marked as late; nothing
is lost by it.
"""

import asyncio
from dataclasses import dataclass, field
from typing import ClassVar

from holdfast.broker.stored.ranges import RangeSet
from holdfast.client import Connection, ManagementError
from holdfast_lab.base.client_history import Violation
from holdfast_lab.workloads.bed import Bed
from holdfast_lab.workloads.common import asked, attached


@dataclass(kw_only=True)
class Skip:
    """SKIP of `queue` at `node`, again and again, `pause_s` between two in the mean, until the run is over."""

    kind: ClassVar[str] = "skip"

    node: str
    queue: str
    pause_s: float = 1.0
    name: str = "skip"
    asked: int = field(default=0, init=False)
    lost: dict[tuple[int, str], RangeSet] = field(default_factory=dict, init=False)
    """By the node's disk and the origin: numbers given up, each once."""

    async def setup(self, bed: Bed) -> None:
        return

    def start(self, bed: Bed) -> None:
        bed.history.nodes_that_skip.add(self.node)
        name = f"{self.name}-{self.queue}-{self.node}"
        bed.spawn(self._skip(bed, name), name, background=True)

    async def _skip(self, bed: Bed, name: str) -> None:
        random = bed.stream(name)
        connection: Connection = await attached(lambda: bed.connect(self.node, name))
        while True:
            await asyncio.sleep(random.expovariate(1.0 / self.pause_s))
            try:
                told = await asked(connection, "SKIP", "queue", self.queue)
            except ManagementError as error:
                if error.code != 404:  # nothing has come for the queue yet
                    raise
                continue
            self.asked += 1
            for item in told["lost"]:
                first, last = int(item["first"]), int(item["last"])
                origin = bed.history.disks_changed[self.node], str(item["origin"])
                lost = self.lost.setdefault(origin, RangeSet())
                if not 1 <= first <= last or lost.gaps(first, last) != [(first, last)]:
                    raise Violation(f"SKIP of {self.queue} at {self.node} gave up on {first} to {last}, after {lost}")
                lost.add(first, last)

    def check(self, bed: Bed) -> None:
        return

    def metrics(self) -> dict[str, float]:
        return {
            "asked": self.asked,
            "lost": sum(last - first + 1 for lost in self.lost.values() for first, last in lost),
        }
