"""`copy`: durable subscriptions beside ordinary consumers; each has every message, in order.

Rules of this file: what a subscription is owed stands in the history, so that a run waits for it.
"""

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from holdfast.client import Delivery
from holdfast_lab.base.client_history import Violation
from holdfast_lab.base.contents import SELECTORS
from holdfast_lab.workloads.bed import Bed
from holdfast_lab.workloads.common import BREAKS, RETRY_S, attached, closed, ended, full_address, key_shown, marked
from holdfast_lab.workloads.consume import Consume


class _Seen:
    """What one subscription was shown: key to sequence, on the disk of that number."""

    def __init__(self, disk: int) -> None:
        self.disk = disk
        self.places: dict[bytes, int] = {}
        self.last = 0


@dataclass(kw_only=True)
class Copy:
    """`subscriptions` durable ones on `queue` at `node`, and `consumers` ordinary ones, 0 where others take. The first
    has the `selector`, one of contents.SELECTORS; empty: none.

    The queue's entries leave when all have had them, so somebody must consume.
    """

    kind: ClassVar[str] = "copy"

    node: str
    queue: str
    subscriptions: int = 2
    consumers: int = 1
    credit: int = 50
    think_s: float = 0.0
    selector: str = ""
    name: str = "copy"
    consume: Consume = field(init=False)
    seen: dict[str, _Seen] = field(default_factory=dict, init=False)
    shown: int = field(default=0, init=False)
    again: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.consume = Consume(
            node=self.node, queue=self.queue, consumers=self.consumers, name=f"{self.name}-{self.node}-consumer"
        )

    @property
    def names(self) -> list[str]:
        return [f"{self.name}-{self.node}-{self.queue}-{number}" for number in range(self.subscriptions)]

    def selector_of(self, name: str) -> str | None:
        """The selector of that subscription."""
        return self.selector or None if name == self.names[0] else None

    def address_of(self, name: str) -> str:
        """What that subscription's links attach to."""
        return self.queue

    def selects(self, name: str, key: bytes) -> bool:
        """Whether that subscription is owed the message."""
        selector = self.selector_of(name)
        return selector is None or SELECTORS[selector](key)

    async def setup(self, bed: Bed) -> None:
        """Each subscription begins before the first message is sent."""
        for name in self.names:
            connection = await bed.connect(self.node, f"{name}-setup")
            receiver = await attached(
                lambda connection=connection, name=name: connection.receiver(  # type: ignore[misc]  # bound now
                    self.address_of(name), credit=1, subscription=name, selector=self.selector_of(name)
                )
            )
            await receiver.close()
            await closed(connection)
            bed.history.add_reader(name, full_address(self.queue, self.node), partial(self.selects, name))

    def start(self, bed: Bed) -> None:
        self.consume.start(bed)
        for name in self.names:
            bed.spawn(self._read(bed, name), name, background=True)

    async def _read(self, bed: Bed, name: str) -> None:
        random = bed.stream(name)
        connection = await bed.connect(self.node, name)
        while True:
            receiver = await attached(
                lambda: connection.receiver(
                    self.address_of(name), credit=self.credit, subscription=name, selector=self.selector_of(name)
                )
            )
            try:
                async for delivery in receiver:
                    self.show(bed, name, delivery)
                    if self.think_s:
                        await asyncio.sleep(random.expovariate(1.0 / self.think_s))
                    delivery.accept()
            except BREAKS:
                pass
            await ended(receiver)
            await asyncio.sleep(RETRY_S)

    def show(self, bed: Bed, name: str, delivery: Delivery) -> None:
        """That subscription was shown it. Raises Violation where it should not have been, now or in this way."""
        key = key_shown(bed.history, delivery, name)
        if key is None:
            return
        self.check_wanted(name, key)
        seen, sequence, disk = self.seen.get(name), delivery.sequence, bed.disk_of(self.node, delivery)
        if seen is None or disk > seen.disk:  # another queue, or an older state of it
            seen = self.seen[name] = _Seen(disk)
        elif disk < seen.disk:
            raise Violation(
                f"{name} was shown {key.decode()} from disk {disk} of {self.node}, after one from disk {seen.disk}"
            )
        self.shown += 1
        before = seen.places.get(key)
        if before is None:
            if sequence <= seen.last:
                raise Violation(f"{name} was shown {key.decode()}, sequence {sequence}, after sequence {seen.last}")
            seen.places[key] = seen.last = sequence
        elif before != sequence and key in bed.history.may_repeat:  # and is another message there
            if sequence > seen.last:
                seen.places[key] = seen.last = sequence
        elif before != sequence:
            raise Violation(f"{name} was shown {key.decode()} as sequence {sequence}, and as {before} before")
        else:
            self.again += 1
            if not marked(delivery):
                raise Violation(f"{name} was shown {key.decode()} twice, the second time not as a redelivery")
        bed.history.paid(name, key)

    def check_wanted(self, name: str, key: bytes) -> None:
        """Raises Violation for a message that the subscription is not to be shown."""
        if not self.selects(name, key):
            wanted = f"{self.address_of(name)} with {self.selector_of(name)!r}"
            raise Violation(f"{name} was shown {key.decode()}, which {wanted} does not select")

    def check(self, bed: Bed) -> None:
        for name in self.names:
            owed = bed.history.owed.get(name)
            if owed:
                raise Violation(f"{name} was never shown {len(owed)} messages, {next(iter(owed)).decode()} the first")

    def metrics(self) -> dict[str, float]:
        return {**self.consume.metrics(), "shown": self.shown, "again": self.again}
