"""`apart`: programs of one virtual host that read everything that they may see there, and ask for what belongs to
another host.

Rules of this file: whatever they are shown was sent in their host; what is another's they cannot even name.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from holdfast.broker.entries.host_names import hosted
from holdfast.client import Connection, ManagementError
from holdfast_lab.base.client_history import Violation, key_in
from holdfast_lab.workloads.bed import Bed
from holdfast_lab.workloads.common import asked, closed, place_of

ROWS: Final = 20
"""Messages of one queue of which each look reads the first ones."""


@dataclass(kw_only=True)
class Apart:
    """`looks` at the node, `pause_s` apart, by a program of the host `vhost`; `others`: hosts that it asks for."""

    kind: ClassVar[str] = "apart"

    node: str
    vhost: str = ""
    others: tuple[str, ...] = ()
    queue: str = "shared"
    looks: int = 10
    pause_s: float = 0.5
    name: str = "apart"
    seen: int = field(default=0, init=False)
    refused: int = field(default=0, init=False)

    async def setup(self, bed: Bed) -> None:
        return

    def start(self, bed: Bed) -> None:
        bed.spawn(self._look(bed), self.name, background=True)

    async def _look(self, bed: Bed) -> None:
        random = bed.stream(self.name)
        connection = await bed.connect(self.node, self.name, vhost=self.vhost)
        for _ in range(self.looks):
            for queue in await self._queues(connection):
                await self._messages(bed, connection, queue)
            for other in self.others:
                await self._foreign(connection, other)
            await asyncio.sleep(random.expovariate(1.0 / self.pause_s))
        await closed(connection)

    async def _queues(self, connection: Connection) -> list[str]:
        found = (await asked(connection, "QUERY", "queue", ""))["queues"]
        return [str(row["name"]) for row in found if int(row["messages"]) and not str(row["name"]).startswith("@")]

    async def _messages(self, bed: Bed, connection: Connection, queue: str) -> None:
        """What the first messages of that queue are, unless its rights come and go (`guarded`); those that leave
        meanwhile are none any more."""
        try:
            found = await asked(connection, "QUERY", "entry", queue, {"count": ROWS})
            for row in found["entries"]:
                told = {"queue_uuid": found["queue_uuid"], "sequence": row["sequence"]}
                message = (await asked(connection, "READ", "entry", queue, told))["message"]
                key = key_in(bytes(message))
                if key is not None and key in bed.history.offered:
                    self.seen += 1
                    bed.history.stays(key, place_of(queue, self.node, self.vhost), "was read in")
        except ManagementError as error:
            if error.code not in (403, 404, 412):
                raise

    async def _foreign(self, connection: Connection, other: str) -> None:
        """A queue of another host is none, however it is written."""
        for name in (hosted(other, self.queue), f"{other}\0{self.queue}"):
            if name == self.queue:
                continue
            try:
                told: dict[str, Any] = await asked(connection, "READ", "queue", name)
            except ManagementError as error:
                if error.code != 404:
                    raise
                self.refused += 1
            else:
                raise Violation(f"{self.name} was told of queue {name!r} at {self.node}: {told}")

    def check(self, bed: Bed) -> None:
        return

    def metrics(self) -> dict[str, float]:
        return {"seen": self.seen, "refused": self.refused}
