"""`copied`: links that copy from a given place of a queue on, which an operator stops, starts and deletes.

Rules of this file: what has to be copied is told from what was stored in the source, and what was copied from what was
stored in the target. What was accepted before a link was asked for lies before its `next`; what was sent after the
answer lies behind any start. Between the two nothing is known.
"""

import asyncio
from collections.abc import Container
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar, Final, NamedTuple

from holdfast.client import Connection, Delivery, ManagementError
from holdfast_lab.base.client_history import KEY_BYTES, Violation
from holdfast_lab.workloads.bed import Bed
from holdfast_lab.workloads.common import asked, closed, full_address, key_shown, marked, receive_each

LOOK_S: Final = 0.5
FIRST: Final = "first"
NEXT: Final = "next"


class Copies(NamedTuple):
    """A link's target; what may not be there, since it was accepted before or has a sequence below `first`; how many
    were there when the link was deleted."""

    target: str
    never: Container[bytes]
    first: int
    copies: int


@dataclass(kw_only=True)
class Copied:
    """`rounds` times at `node`: a link copies from `queue` to a queue of its own, is stopped and started, has copied
    everything that it should, and is deleted. Consumers of `queue` begin after the first round. Somebody else sends to
    `queue`."""

    kind: ClassVar[str] = "copied"

    node: str
    queue: str
    rounds: int = 3
    stops: float = 0.7
    pause_s: float = 0.5
    credit: int = 20
    name: str = "copied"
    found: list[Copies] = field(default_factory=list, init=False)
    stopped: int = field(default=0, init=False)

    @property
    def source(self) -> str:
        return full_address(self.queue, self.node)

    def _target(self, number: int) -> str:
        return f"{self.name}-{number}"

    async def setup(self, bed: Bed) -> None:
        for queue in (self.queue, *map(self._target, range(self.rounds))):
            bed.history.kept[f"{queue}@{self.node}"] = {}

    def start(self, bed: Bed) -> None:
        bed.spawn(self._operate(bed, f"{self.name}-{self.node}"), f"{self.name}-{self.node}")

    # ------------------------------------------------------------------------------------------------ the operator

    async def _operate(self, bed: Bed, name: str) -> None:
        random = bed.stream(name)
        connection = await bed.connect(self.node, name)
        for number in range(self.rounds):
            await asyncio.sleep(random.expovariate(1.0 / self.pause_s))
            await self._round(bed, connection, random, number)
            if not number:
                bed.spawn(self._take(bed, f"{name}-out"), f"{name}-out", background=True)
        is_owed = True
        while is_owed:
            await asyncio.sleep(LOOK_S)
            offered = bed.history.offered
            is_owed = any(offered.get(key) == self.source for key in bed.history.outstanding)
            is_owed = is_owed or await self._holds(connection)
        await closed(connection)

    async def _holds(self, connection: Connection) -> bool:
        """Whether the source has messages; once all were taken and no link reads it, it has none."""
        told = await asked(connection, "STATUS", "node", "")
        return any(row["messages"] for row in told["queues"] if row["name"] == self.queue)

    async def _round(self, bed: Bed, connection: Connection, random: Random, number: int) -> None:
        target, before = self._target(number), set(bed.history.accepted)
        stored = bed.history.kept[self.source]
        start: str | int = random.choice((FIRST, NEXT, NEXT, random.randint(1, 1 + max(stored, default=0))))
        told: dict[str, Any] = {"from": self.queue, "to": target, "mode": "copy", "start": start}
        await asked(connection, "CREATE", "link", target, told)
        sent = set(bed.history.offered)
        never = before if start == NEXT else ()
        first = start if isinstance(start, int) else 0
        if random.random() < self.stops:
            await asyncio.sleep(random.expovariate(1.0 / self.pause_s))
            await self._stop(bed, connection, random, target)
        wanted = self._wanted(bed, sent)
        if start == FIRST and not number:  # nobody has taken anything yet
            wanted |= self._wanted(bed, set(bed.history.offered) - before)
        while left := wanted - self._keys(bed, f"{target}@{self.node}"):
            if bed.history.disks_changed[self.node]:
                break
            await self._runs(connection, target, len(left))
            await asyncio.sleep(LOOK_S)
        await self._delete(connection, target)
        self.found.append(Copies(target, never, first, len(bed.history.kept[f"{target}@{self.node}"])))

    async def _stop(self, bed: Bed, connection: Connection, random: Random, target: str) -> None:
        """Stops the link for a while, in which it copies nothing."""
        await asked(connection, "STOP", "link", target)
        copies = bed.history.kept[f"{target}@{self.node}"]
        count, disks = len(copies), bed.history.disks_changed[self.node]
        await asyncio.sleep(random.expovariate(1.0 / self.pause_s))
        await self._runs(connection, target, 0, state="stopped")
        if len(copies) > count and disks == bed.history.disks_changed[self.node]:
            raise Violation(f"link {target} at {self.node} is stopped, and has copied {len(copies) - count} messages")
        self.stopped += 1
        await asked(connection, "START", "link", target)

    async def _runs(self, connection: Connection, target: str, left: int, *, state: str = "") -> None:
        """Whether it is there, and in that state: "" for any but stopped."""
        told = await asked(connection, "QUERY", "link", "")
        found = next((str(row["state"]) for row in told["links"] if row["name"] == target), "gone")
        if (found != state) if state else found in ("stopped", "gone"):
            raise Violation(f"link {target} at {self.node} is {found}, and has {left} messages to copy")

    async def _delete(self, connection: Connection, target: str) -> None:
        try:
            await asked(connection, "DELETE", "link", target)
        except ManagementError as error:
            if error.code != 404:  # it was asked twice
                raise

    # ------------------------------------------------------------------------------------------------ judged

    def _keys(self, bed: Bed, place: str) -> set[bytes]:
        """Of all that was stored there."""
        return {value[-KEY_BYTES:] for value in bed.history.kept[place].values()}

    def _wanted(self, bed: Bed, known: Container[bytes]) -> set[bytes]:
        """What was accepted for the source, but for what is known."""
        history = bed.history
        return {key for key in history.accepted if key not in known and history.offered.get(key) == self.source}

    async def _take(self, bed: Bed, name: str) -> None:
        connection = await bed.connect(self.node, name)
        place = f"{self.queue} at {self.node}"

        async def take(delivery: Delivery) -> None:
            key = key_shown(bed.history, delivery, place)
            if key is not None:
                disk = bed.disk_of(self.node, delivery)
                bed.history.receive(key, place, marked=marked(delivery), sequence=delivery.sequence, disk=disk)
            delivery.accept()

        await receive_each(lambda: connection.receiver(self.queue, credit=self.credit, name=name), take)

    def check(self, bed: Bed) -> None:
        if bed.history.disks_changed[self.node]:
            return
        places = {value[-KEY_BYTES:]: at for at, value in bed.history.kept[self.source].items()}
        for target, never, first, copies in self.found:
            keys = self._keys(bed, f"{target}@{self.node}")
            early = sorted(key for key in keys if key in never or places.get(key, first) < first)
            if early:
                text = f"{len(early)} messages from before its start, {early[0].decode()} first"
                raise Violation(f"link {target} at {self.node} has copied {text}")
            more = len(bed.history.kept[f"{target}@{self.node}"]) - copies
            if more:
                raise Violation(f"link {target} at {self.node} was deleted, and has copied {more} messages since")

    def metrics(self) -> dict[str, float]:
        return {"links": len(self.found), "stopped": self.stopped, "copies": sum(item.copies for item in self.found)}
