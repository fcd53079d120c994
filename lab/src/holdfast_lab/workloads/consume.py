"""`consume`: ordinary consumers that compete for a queue; they are quick or slow, and accept, release, modify or
reject.

Rules of this file: a consumer goes on over every break; it says of each message what the plan's shares say.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from random import Random
from typing import ClassVar, Final

from holdfast.client import Delivery, Receiver
from holdfast_lab.base.client_history import Violation
from holdfast_lab.base.contents import EVERYTHING, SELECTORS
from holdfast_lab.workloads.bed import Bed
from holdfast_lab.workloads.common import BREAKS, RETRY_S, attached, ended, key_shown, marked, place_of

STAYS_S: Final = 5.0
"""How long a consumer that leaves waits for a message before it does."""
LEAST_S: Final = 0.1
"""What it is away for at least."""


@dataclass(kw_only=True)
class Consume:
    """Consumers that share `queue` at `node` and accept what they are shown, `think_s` after it came.

    Of what is shown, the shares `release` and `modify` go back, `reject` goes to the dead letters; of what is modified,
    the share `notes` with an annotation, `elsewhere` as undeliverable here. `resume_s`: so long after a break the node
    keeps for them what they hold; 0: they begin anew. `stays`: after so many messages, or where none comes, a consumer
    detaches and comes again; 0: it stays. `selectors`, of contents.SELECTORS or EVERYTHING: the consumers have them in
    turn; empty: that one has none. `sorts`: the queue hands out the highest priority first, so that nothing is known of
    the place of what was given back.
    `vhost`: the virtual host of the queue.
    """

    kind: ClassVar[str] = "consume"

    node: str
    queue: str
    consumers: int = 1
    credit: int = 100
    think_s: float = 0.0
    release: float = 0.0
    modify: float = 0.0
    reject: float = 0.0
    notes: float = 0.0
    elsewhere: float = 0.0
    resume_s: float = 0.0
    stays: int = 0
    selectors: tuple[str, ...] = ()
    sorts: bool = False
    vhost: str = ""
    name: str = "consumer"
    taken_by: dict[str, int] = field(default_factory=dict, init=False)
    given_back: dict[int, int] = field(default_factory=dict, init=False)
    """By sequence, where one consumer is alone: what it gave back, and how many later ones came since."""
    link: object = field(default=None, init=False)
    """The one on which these came and went back; the client attaches another after a break."""
    breaks: int = field(default=0, init=False)

    async def setup(self, bed: Bed) -> None:
        return

    def start(self, bed: Bed) -> None:
        for number in range(self.consumers):
            name = f"{self.name}-{self.queue}-{number}"
            self.taken_by[name] = 0
            selector = self.selectors[number % len(self.selectors)] if self.selectors else ""
            bed.spawn(self._consume(bed, name, selector or None), name, background=True)

    async def _consume(self, bed: Bed, name: str, selector: str | None) -> None:
        connection = await bed.connect(self.node, name, vhost=self.vhost)
        random = bed.stream(name)
        place = place_of(self.queue, self.node, self.vhost)

        def shown(delivery: Delivery) -> None:
            key = key_shown(bed.history, delivery, place)
            disk = bed.disk_of(self.node, delivery)
            if key is not None:
                if selector not in (None, EVERYTHING) and not SELECTORS[selector](key):
                    raise Violation(f"{name} was shown {key.decode()}, which {selector!r} does not select")
                bed.history.receive(key, place, marked=marked(delivery), sequence=delivery.sequence, disk=disk)

        while True:
            receiver: Receiver = await attached(
                lambda: connection.receiver(
                    self.queue, credit=self.credit, name=name, resume_s=self.resume_s, selector=selector
                )
            )
            try:
                async for delivery in self._given(receiver, shown):
                    self.taken_by[name] += 1
                    self._in_place(delivery.sequence, delivery.link)
                    if self.think_s:
                        await asyncio.sleep(random.expovariate(1.0 / self.think_s))
                    draw = random.random() if self.release or self.modify or self.reject else 1.0
                    if draw < self.release + self.modify:
                        if draw < self.release:
                            delivery.release()
                        else:
                            self._modify(delivery, random, name)
                        header = delivery.message.header
                        alone = self.consumers == 1 and not (
                            self.sorts or self.elsewhere or self.notes
                        )  # these wait for the disk
                        if alone and (header is None or header.ttl is None):  # it may expire there
                            self.given_back[delivery.sequence] = 0
                    elif draw < self.release + self.modify + self.reject:
                        delivery.reject()
                    else:
                        delivery.accept()
            except BREAKS:
                pass
            await ended(receiver)
            self.given_back.clear()
            self.breaks += 1
            await asyncio.sleep(random.uniform(LEAST_S, RETRY_S) if self.stays else RETRY_S)

    async def _given(self, receiver: Receiver, shown: Callable[[Delivery], None]) -> AsyncIterator[Delivery]:
        """What it takes before it leaves. `shown`: called for each when it is taken, as the connection may end before
        it is looked at, and another be shown it."""
        if not self.stays:
            async for delivery in receiver:
                shown(delivery)
                yield delivery
            return
        left = self.stays
        while left > 0 and (batch := await receiver.batch(count_max=left, timeout_s=STAYS_S)):
            left -= len(batch)
            for delivery in batch:
                shown(delivery)
            for delivery in batch:
                yield delivery

    def _modify(self, delivery: Delivery, random: Random, name: str) -> None:
        annotations = {f"x-opt-{name}": delivery.sequence} if self.notes and random.random() < self.notes else None
        elsewhere = bool(self.elsewhere) and random.random() < self.elsewhere
        delivery.modify(delivery_failed=True, undeliverable_here=elsewhere, annotations=annotations)

    def _in_place(self, sequence: int, link: object) -> None:
        """What was given back comes before what the node had not sent by then: what lies here, is under way, or may
        be sent for credit that is. That is known of one link alone: what had gone out on it again, and was under way
        when it broke, is held by it until its turn among all that ended links held has come (custody/returns.py). Nor
        does the node hear what is given back after the break."""
        if link is not self.link:
            self.link = link
            self.given_back.clear()
        self.given_back.pop(sequence, None)
        for place in self.given_back:
            if place < sequence:
                self.given_back[place] += 1
                if self.given_back[place] > 3 * self.credit:
                    raise Violation(
                        f"{self.queue} at {self.node}: sequence {place} was given back, and {self.given_back[place]} "
                        f"later ones came before it, {sequence} the last"
                    )

    def check(self, bed: Bed) -> None:
        return

    @property
    def taken(self) -> int:
        return sum(self.taken_by.values())

    def metrics(self) -> dict[str, float]:
        return {"taken": self.taken}
