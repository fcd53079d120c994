"""`leaving`: durable subscriptions that are made and deleted while messages flow.

Rules of this file: as of `durable.py`. A subscription that was deleted is owed nothing, so what it was shown is held
against what the queue stored: from the first to the last of it nothing is left out. Once all are deleted the queue
keeps what no consumer has had, and nothing else.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any, ClassVar

from holdfast.client import Connection, ManagementError
from holdfast_lab.base.client_history import Violation
from holdfast_lab.workloads.bed import Bed
from holdfast_lab.workloads.common import (
    BREAKS,
    RETRY_S,
    asked,
    attached,
    closed,
    ended,
    full_address,
    key_shown,
    marked,
)

WAITS_S = 2.0
"""How long a subscription waits for its next message before it is deleted."""


@dataclass(kw_only=True)
class Leaving:
    """`subscriptions` at a time on `queue` at `node`, each deleted after `stays` messages and made anew under another
    name, `rounds` times.

    `messages` are sent to the queue in all, and somebody consumes them.
    """

    kind: ClassVar[str] = "leaving"

    node: str
    queue: str
    messages: int = 100
    subscriptions: int = 2
    rounds: int = 3
    stays: int = 20
    credit: int = 10
    name: str = "leaving"
    left: int = field(default=0, init=False)
    shown: int = field(default=0, init=False)

    @property
    def place(self) -> str:
        return full_address(self.queue, self.node)

    async def setup(self, bed: Bed) -> None:
        bed.history.kept.setdefault(self.place, {})

    def start(self, bed: Bed) -> None:
        for number in range(self.subscriptions):
            name = f"{self.name}-{self.node}-{number}"
            bed.spawn(self._come_and_go(bed, name), name)

    async def _come_and_go(self, bed: Bed, name: str) -> None:
        connection = await bed.connect(self.node, name)
        for number in range(self.rounds):
            await self._subscribe(bed, connection, f"{name}-{number}")
            await self._delete(connection, f"{name}-{number}")
            self.left += 1
        while True:
            if await self._is_empty(bed, connection):
                break
            await asyncio.sleep(RETRY_S)
        await closed(connection)

    async def _subscribe(self, bed: Bed, connection: Connection, name: str) -> None:
        """Takes some messages through a new durable subscription."""
        places: dict[int, bytes] = {}
        left = self.stays
        while left > 0:
            receiver = await attached(
                lambda: connection.receiver(self.queue, credit=self.credit, subscription=name)  # awaited at once
            )
            try:
                while left > 0 and (batch := await receiver.batch(count_max=left, timeout_s=WAITS_S)):
                    for delivery in batch:
                        key = key_shown(bed.history, delivery, name)
                        if key is not None:
                            self._show(places, delivery.sequence, key, name, again=marked(delivery))
                        delivery.accept()
                        left -= 1
                left = 0  # all of it came, or nothing comes any more
            except BREAKS:
                pass
            await ended(receiver)
        self._check_whole(bed, name, places)

    def _show(self, places: dict[int, bytes], sequence: int, key: bytes, name: str, *, again: bool) -> None:
        before = places.get(sequence)
        if before is None and places and sequence < max(places):
            raise Violation(f"{name} was shown {key.decode()}, sequence {sequence}, after sequence {max(places)}")
        if before is not None and not again:
            raise Violation(f"{name} was shown {key.decode()} twice, the second time not as a redelivery")
        places[sequence] = key
        self.shown += 1

    def _check_whole(self, bed: Bed, name: str, places: dict[int, bytes]) -> None:
        """Raises Violation where the subscription was not shown something between the first and the last of its
        messages."""
        stored = bed.history.kept[self.place]
        for sequence in range(min(places, default=0), max(places, default=0)):
            if sequence in stored and sequence not in places:
                raise Violation(
                    f"{name} was shown what is around sequence {sequence} of {self.place}, and not that one"
                )

    async def _delete(self, connection: Connection, name: str) -> None:
        while True:
            try:
                await asked(connection, "DELETE", "subscription", name, {"queue": self.queue})
                return
            except ManagementError as error:
                if error.code == 404:  # deleted already, and the answer was lost; or a crash came before it was stored
                    return
                if error.code != 409:  # its link has not ended there
                    raise
            await asyncio.sleep(RETRY_S)

    async def _is_empty(self, bed: Bed, connection: Connection) -> bool:
        """Whether all was sent, and the queue holds nothing of it."""
        history = bed.history
        accepted = sum(history.offered.get(key) == self.place for key in history.accepted)
        if accepted < self.messages:
            return False
        told: dict[str, Any] = await asked(connection, "READ", "queue", self.queue)
        return not int(told["messages"])

    def check(self, bed: Bed) -> None:
        return

    def metrics(self) -> dict[str, float]:
        return {"left": self.left, "shown": self.shown}
