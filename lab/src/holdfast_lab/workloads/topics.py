"""`topic`: durable subscriptions of a topic, with patterns; each has every message that it wants, in order.

Rules of this file: as of `durable.py`. Nobody consumes from a topic otherwise, so what is accepted for it is owed to
its subscriptions alone.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from holdfast.client import Delivery
from holdfast_lab.base.contents import PATTERNS
from holdfast_lab.workloads.bed import Bed
from holdfast_lab.workloads.common import full_address, key_shown, receive_each
from holdfast_lab.workloads.durable import Copy


@dataclass(kw_only=True)
class Topic(Copy):
    """`subscriptions` durable ones on the topic `queue` at `node`, with `patterns` of contents.PATTERNS in turn, and
    `listeners` that are not durable, with the same."""

    kind: ClassVar[str] = "topic"

    consumers: int = 0
    patterns: tuple[str, ...] = ("#",)
    listeners: int = 0
    name: str = "topic"
    heard: int = field(default=0, init=False)

    def pattern_of(self, name: str) -> str:
        """The pattern of that subscription."""
        return self.patterns[int(name.rpartition("-")[2]) % len(self.patterns)]

    def address_of(self, name: str) -> str:
        pattern = self.pattern_of(name)
        return f"{self.queue}/{pattern}" if pattern else self.queue

    def selects(self, name: str, key: bytes) -> bool:
        return PATTERNS[self.pattern_of(name)](key) and super().selects(name, key)

    async def setup(self, bed: Bed) -> None:
        bed.history.topics.add(full_address(self.queue, self.node))
        await super().setup(bed)

    def start(self, bed: Bed) -> None:
        super().start(bed)
        for number in range(self.listeners):
            name = f"{self.name}-{self.node}-listener-{number}"
            bed.spawn(self._listen(bed, name), name, background=True)

    async def _listen(self, bed: Bed, name: str) -> None:
        """One that is not durable: it is owed nothing, and shown nothing that it does not want."""
        connection = await bed.connect(self.node, name)

        async def take(delivery: Delivery) -> None:
            key = key_shown(bed.history, delivery, name)
            if key is not None:
                self.check_wanted(name, key)
                self.heard += 1
            delivery.accept()

        await receive_each(lambda: connection.receiver(self.address_of(name), credit=self.credit, name=name), take)

    def metrics(self) -> dict[str, float]:
        return {**super().metrics(), "heard": self.heard}
