"""`manage`: an operator who makes, fills, purges and deletes a queue of his own and asks STATUS, while others work.

Rules of this file: every answer is held against what the operator did himself. A question whose answer was lost was
perhaps asked twice; then less is known, and less is demanded.
"""

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar

from holdfast.client import Connection, ManagementError
from holdfast_lab.base.client_history import Violation
from holdfast_lab.workloads.bed import Bed
from holdfast_lab.workloads.common import BREAKS, RETRY_S, asked, attached, closed, ended, full_address
from holdfast_lab.workloads.publish import ProducerLog

PURGED = "its queue was purged"


@dataclass(kw_only=True)
class Manage:
    """`rounds` times at `node`: CREATE, `messages` sent, STATUS, in the share `purge` of rounds PURGE and READ, DELETE,
    a pause of `pause_s`.
    """

    kind: ClassVar[str] = "manage"

    node: str
    rounds: int = 3
    messages: int = 20
    size: int = 200
    pause_s: float = 0.5
    purge: float = 1.0
    name: str = "scratch"
    asked: int = field(default=0, init=False)
    purged: int = field(default=0, init=False)
    uuids: dict[str, None] = field(default_factory=dict, init=False)

    async def setup(self, bed: Bed) -> None:
        return

    def start(self, bed: Bed) -> None:
        name = f"{self.name}-{self.node}"
        bed.spawn(self._manage(bed, name), name)

    async def _manage(self, bed: Bed, name: str) -> None:
        random = bed.stream(name)
        connection = await bed.connect(self.node, name)
        for number in range(1, self.rounds + 1):
            while True:
                before = (connection.reconnects, bed.history.disks_changed[self.node])
                try:
                    await self._round(bed, connection, name, f"{name}-{number}", random)
                    break
                except ManagementError as error:
                    # A question that was asked twice, or a disk that knows nothing of the queue.
                    if before == (connection.reconnects, bed.history.disks_changed[self.node]):
                        raise Violation(f"{name}: {error}") from error
                await asyncio.sleep(RETRY_S)
            await asyncio.sleep(random.expovariate(1.0 / self.pause_s))
        await closed(connection)

    async def _round(self, bed: Bed, connection: Connection, queue: str, producer: str, random: Random) -> None:
        made = await self._ask(connection, "CREATE", "queue", queue, {"order": "none"})
        if int(made["messages"]) or made["name"] != queue:
            # An earlier try of this round left something: begin with an empty one.
            await self._ask(connection, "PURGE", "queue", queue)
        self.uuids[str(made["uuid"])] = None
        log = await self._fill(bed, connection, queue, producer)
        await self._look(bed, connection, queue, log, str(made["uuid"]))
        if random.random() < self.purge:
            await self._empty(bed, connection, queue, log)
        await self._delete(connection, queue)

    async def _fill(self, bed: Bed, connection: Connection, queue: str, producer: str) -> ProducerLog:
        """`messages` of this round's own producer, excused from the start: a purge may take any of them."""
        producer = f"{producer}-{len(bed.history.producers)}"
        log = ProducerLog(bed.history, producer, full_address(queue, self.node), self.size)
        while True:
            sender = await attached(lambda: connection.sender(queue, producer=producer, name=producer))
            try:
                await log.send_open(sender)
                while log.given_out < self.messages:
                    number = log.take()
                    bed.history.excuse(log.key(number), PURGED)
                    await log.send(sender, number)
                await sender.drain()
            except BREAKS:
                pass
            await ended(sender)
            if not log.open:
                return log
            await asyncio.sleep(RETRY_S)

    async def _look(self, bed: Bed, connection: Connection, queue: str, log: ProducerLog, uuid: str) -> None:
        told = await self._ask(connection, "STATUS", "node", "")
        if told["node"] != self.node:
            raise Violation(f"STATUS of {self.node} tells of {told['node']!r}")
        queues = {str(item["name"]): item for item in told["queues"]}
        for name, item in queues.items():
            if int(item["messages"]) < 0 or int(item["bytes"]) < 0:
                raise Violation(f"STATUS of {self.node}: {name} has {item['messages']} messages, {item['bytes']} bytes")
            bound = item["messages_max"]
            if bound is not None and int(item["messages"]) > bound:
                raise Violation(f"STATUS of {self.node}: {name} has {item['messages']} messages, its bound is {bound}")
        found = queues.get(queue)
        if found is None or str(found["uuid"]) != uuid:
            if not bed.history.disks_changed[self.node]:
                raise Violation(f"STATUS of {self.node} does not tell of {queue}, which was made")
        elif int(found["messages"]) != log.accepted and not bed.history.disks_changed[self.node]:
            raise Violation(f"STATUS of {self.node}: {queue} has {found['messages']} messages, not {log.accepted}")

    async def _empty(self, bed: Bed, connection: Connection, queue: str, log: ProducerLog) -> None:
        reconnects, disks = connection.reconnects, bed.history.disks_changed[self.node]
        told = await self._ask(connection, "PURGE", "queue", queue)
        purged = int(told["purged"])
        self.purged += purged
        sure = (reconnects, disks) == (connection.reconnects, bed.history.disks_changed[self.node])
        if purged > log.accepted or (sure and not disks and purged < log.accepted):
            raise Violation(f"PURGE of {queue} at {self.node} tells of {purged} messages, there were {log.accepted}")
        told = await self._ask(connection, "READ", "queue", queue)
        if int(told["messages"]):
            raise Violation(f"{queue} at {self.node} was purged, and has {told['messages']} messages")

    async def _delete(self, connection: Connection, queue: str) -> None:
        await self._ask(connection, "DELETE", "queue", queue)
        try:
            await self._ask(connection, "READ", "queue", queue)
        except ManagementError as error:
            if error.code != 404:
                raise
        else:
            raise Violation(f"{queue} at {self.node} was deleted, and is there")

    async def _ask(
        self, connection: Connection, operation: str, kind: str, name: str, arguments: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        self.asked += 1
        return await asked(connection, operation, kind, name, arguments)

    def check(self, bed: Bed) -> None:
        if len(self.uuids) < self.rounds and not bed.history.disks_changed[self.node]:
            raise Violation(f"{self.rounds} queues were made at {self.node}, with {len(self.uuids)} UUIDs")

    def metrics(self) -> dict[str, float]:
        return {"asked": self.asked, "purged": self.purged}
