"""`by-hand`: an operator who moves the messages of a queue to another one, each by its name, while commits are refused.

Rules of this file: what is moved is no less accepted than before, and no key is excused: what a move loses is missed,
and what it doubles is found. A request whose answer was lost was perhaps carried out; then the next look shows it.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any, ClassVar

from holdfast.client import Connection, ManagementError
from holdfast_lab.base.client_history import Violation
from holdfast_lab.workloads.bed import Bed
from holdfast_lab.workloads.common import asked, attached

NOT_NOW = (404, 409, 412)
"""It left, or changed, since it was looked at; or the other queue is full."""


@dataclass(kw_only=True)
class ByHand:
    """QUERY of `queue` at `node`, then MOVE of its messages to `to`, in no order, `together` at once; a pause of
    `pause_s` in the mean, until the run is over."""

    kind: ClassVar[str] = "by-hand"

    node: str
    queue: str
    to: str
    together: int = 4
    pause_s: float = 0.2
    name: str = "by-hand"
    moved: int = field(default=0, init=False)
    refused: int = field(default=0, init=False)

    async def setup(self, bed: Bed) -> None:
        return

    def start(self, bed: Bed) -> None:
        name = f"{self.name}-{self.queue}-{self.node}"
        bed.spawn(self._work(bed, name), name, background=True)

    async def _work(self, bed: Bed, name: str) -> None:
        random = bed.stream(name)
        connection: Connection = await attached(lambda: bed.connect(self.node, name))
        while True:
            await asyncio.sleep(random.expovariate(1.0 / self.pause_s))
            try:
                answer = await asked(connection, "QUERY", "entry", self.queue)
            except ManagementError as error:
                if error.code != 404:  # nothing has come for the queue yet
                    raise
                continue
            rows = [dict(row) for row in answer["entries"]]
            sequences = [int(row["sequence"]) for row in rows]
            if sequences != sorted(set(sequences)):
                raise Violation(f"QUERY of {self.queue} at {self.node} tells of {sequences}, which are in no order")
            random.shuffle(rows)
            while rows:
                now, rows = rows[: self.together], rows[self.together :]
                await asyncio.gather(*(self._move(connection, str(answer["queue_uuid"]), row) for row in now))

    async def _move(self, connection: Connection, uuid: str, row: dict[str, Any]) -> None:
        told = {"queue_uuid": uuid, "sequence": row["sequence"], "delivery_count": row["delivery_count"], "to": self.to}
        try:
            answer = await asked(connection, "MOVE", "entry", self.queue, told)
        except ManagementError as error:
            if error.code not in NOT_NOW:
                raise
            self.refused += 1
            return
        if answer["to"] != self.to:
            raise Violation(f"MOVE to {self.to} at {self.node} says that it was to {answer['to']!r}")
        self.moved += 1

    def check(self, bed: Bed) -> None:
        return

    def metrics(self) -> dict[str, float]:
        return {"moved": self.moved, "refused": self.refused}
