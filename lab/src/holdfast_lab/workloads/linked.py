"""`linked`: links between queues, created before the first message, and consumers at their ends.

Rules of this file: a link passes a message on under its own key. That nothing is lost, and that each queue is given a
message as often as its links lead there, is judged on the disks (judge/checkers.py).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from holdfast.client import Delivery
from holdfast_lab.base.client_history import Violation
from holdfast_lab.workloads.bed import Bed
from holdfast_lab.workloads.common import asked, closed, key_shown, marked, receive_each


@dataclass(kw_only=True)
class Linked:
    """Begins at `node`, after which its clients are called. `links`: (node, from, to, mode) of each; `ends`: (node,
    queue) where messages are taken; `copies`: (node, queue, `queue@node` of the first) where each message is copied to;
    `rounds`: by `queue@node`, how often a message comes there, if not once."""

    kind: ClassVar[str] = "linked"

    node: str
    links: Sequence[Sequence[str]] = ()
    ends: Sequence[Sequence[str]] = ()
    copies: Sequence[Sequence[str]] = ()
    rounds: dict[str, int] = field(default_factory=dict)
    credit: int = 20
    think_s: float = 0.0
    name: str = "linked"
    taken: int = field(default=0, init=False)
    copied: dict[str, set[bytes]] = field(default_factory=dict, init=False)

    async def setup(self, bed: Bed) -> None:
        bed.history.rounds |= self.rounds
        for number, (node, source, target, mode) in enumerate(self.links):
            connection = await bed.connect(node, f"{self.name}-{self.node}-{number}-setup")
            told = {"from": source, "to": target, "mode": mode}
            await asked(connection, "CREATE", "link", f"{self.name}-{number}", told)
            await closed(connection)
        for node, queue, first in self.copies:
            self.copied[f"{queue}@{node}"] = set()
            bed.history.add_reader(f"{self.name} {queue}@{node}", first)

    def start(self, bed: Bed) -> None:
        for node, queue in self.ends:
            name = f"{self.name}-{node}-{queue}-end"
            bed.spawn(self._take(bed, node, queue, name), name, background=True)
        for node, queue, _ in self.copies:
            name = f"{self.name}-{node}-{queue}-copy"
            bed.spawn(self._take(bed, node, queue, name), name, background=True)

    async def _take(self, bed: Bed, node: str, queue: str, name: str) -> None:
        connection = await bed.connect(node, name)
        random = bed.stream(name)
        place = f"{queue} at {node}"
        copied = self.copied.get(f"{queue}@{node}")

        async def take(delivery: Delivery) -> None:
            key = key_shown(bed.history, delivery, place)
            if key is not None and copied is None:  # it may have gone round since it was shown before
                bed.history.receive(key, place, marked=True, disk=bed.disk_of(node, delivery))
                self.taken += 1
            elif key is not None and copied is not None:
                if key in copied and not marked(delivery):
                    raise Violation(f"{key.decode()} was copied twice to {place}")
                copied.add(key)
                bed.history.paid(f"{self.name} {queue}@{node}", key)
            if self.think_s:
                await asyncio.sleep(random.expovariate(1.0 / self.think_s))
            delivery.accept()

        await receive_each(lambda: connection.receiver(queue, credit=self.credit, name=name), take)

    def check(self, bed: Bed) -> None:
        for name in self.copied:
            owed = bed.history.owed.get(f"{self.name} {name}")
            if owed:
                raise Violation(f"{len(owed)} messages were never copied to {name}, {next(iter(owed)).decode()} first")

    def metrics(self) -> dict[str, Any]:
        return {"taken": self.taken, "copied": sum(map(len, self.copied.values()))}
