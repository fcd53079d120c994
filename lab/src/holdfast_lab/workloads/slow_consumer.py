"""`slow-consumer`: more messages come than are consumed; the queue stays within its limit, producers wait, and nothing
is refused or lost.

Rules of this file: the bound is looked at with STATUS all the while, from outside the programs that send and take.
"""

import asyncio
from dataclasses import dataclass, field
from typing import ClassVar

from holdfast.client import ManagementError
from holdfast_lab.base.client_history import Violation
from holdfast_lab.workloads.bed import Bed
from holdfast_lab.workloads.common import RETRY_S, asked
from holdfast_lab.workloads.consume import Consume
from holdfast_lab.workloads.publish import Publish


@dataclass(kw_only=True)
class SlowConsumer:
    """Producers at `node` fill its own `queue`, bounded by `messages_max`, faster than `consumers` empty it.

    A queue that the node's configuration makes keeps its own bound. `look_s`: from one STATUS to the next.
    """

    kind: ClassVar[str] = "slow-consumer"

    node: str
    queue: str
    messages: int = 200
    producers: int = 2
    consumers: int = 2
    messages_max: int = 20
    credit: int = 4
    think_s: float = 0.02
    size: int = 200
    look_s: float = 0.1
    name: str = "slow"
    publish: Publish = field(init=False)
    consume: Consume = field(init=False)
    looks: int = field(default=0, init=False)
    most: int = field(default=0, init=False)
    at_bound: int = field(default=0, init=False)
    reconnects: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.publish = Publish(
            node=self.node,
            address=self.queue,
            messages=self.messages,
            producers=self.producers,
            size=self.size,
            name=f"{self.name}-{self.queue}-producer",
        )
        self.consume = Consume(
            node=self.node,
            queue=self.queue,
            consumers=self.consumers,
            credit=self.credit,
            think_s=self.think_s,
            name=f"{self.name}-consumer",
        )

    async def setup(self, bed: Bed) -> None:
        connection = await bed.connect(self.node, f"{self.name}-{self.queue}-setup")
        try:
            await asked(connection, "CREATE", "queue", self.queue, {"messages_max": self.messages_max})
        except ManagementError as error:
            if error.code != 409:  # it is there, with a bound of its own
                raise
        await connection.abort()

    def start(self, bed: Bed) -> None:
        self.publish.start(bed)
        self.consume.start(bed)
        bed.spawn(self._look(bed), f"{self.name}-{self.queue}-look", background=True)

    async def _look(self, bed: Bed) -> None:
        connection = await bed.connect(self.node, f"{self.name}-{self.queue}-look")
        while True:
            try:
                told = await asked(connection, "READ", "queue", self.queue)
            except ManagementError:  # another disk, and nobody has asked for the queue yet
                await asyncio.sleep(RETRY_S)
                continue
            messages, bound = int(told["messages"]), told["messages_max"]
            self.looks += 1
            self.most = max(self.most, messages)
            self.reconnects = connection.reconnects
            if bound is not None:
                self.at_bound += messages >= bound
                if messages > bound:
                    raise Violation(f"{self.queue} at {self.node} holds {messages} messages, its bound is {bound}")
            await asyncio.sleep(self.look_s)

    def check(self, bed: Bed) -> None:
        for log in self.publish.logs:
            if log.reasons["queue"]:
                raise Violation(
                    f"{self.queue} at {self.node} blocks when full, and {log.reasons['queue']} were refused"
                )
        shares = list(self.consume.taken_by.values())
        disturbed = self.reconnects or self.consume.breaks or bed.history.disks_changed[self.node]
        if not disturbed and sum(shares) >= 20 * len(shares) and min(shares) * 4 * len(shares) < sum(shares):
            raise Violation(f"consumers of {self.queue} at {self.node} took {shares}: one of them starved")

    def metrics(self) -> dict[str, float]:
        return {
            **self.publish.metrics(),
            **self.consume.metrics(),
            "looks": self.looks,
            "most": self.most,
            "at bound": self.at_bound,
        }
