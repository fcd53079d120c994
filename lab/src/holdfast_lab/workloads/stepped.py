"""`stepped`: readings of tags through a link whose steps have windows, and consumers of the results.

Rules of this file: what has to come out is told from what was stored in the link's source, by a plain model that shares
nothing with `holdfast.steps`. Readings have no keys: it is right that most of them end on the way.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple

from holdfast.broker.entries import entry, packed
from holdfast.client import Accepted, Delivery, Message, Outcome
from holdfast_lab.base.client_history import Violation
from holdfast_lab.workloads.bed import Bed
from holdfast_lab.workloads.common import BREAKS, RETRY_S, asked, attached, closed, ended, receive_each

LOOK_S: Final = 2.0


class Reading(NamedTuple):
    """As its queue stored it."""

    time_ms: int
    tag: str
    number: int


@dataclass(kw_only=True)
class Stepped:
    """`messages` readings of `tags` tags from `node` to its queue `source`, at `rate` a second; a link brings them to
    `target`, where they are taken. `of`: "" drops repeats within `within_s`, else what is made of their numbers."""

    kind: ClassVar[str] = "stepped"

    node: str
    source: str = "raw"
    target: str = "clean"
    messages: int = 200
    tags: int = 10
    rate: float = 20.0
    within_s: float = 2.0
    of: str = ""
    credit: int = 20
    name: str = "stepped"
    taken: set[tuple[Any, ...]] = field(default_factory=set, init=False)
    sent: int = field(default=0, init=False)
    judged: int = field(default=0, init=False)

    @property
    def _link(self) -> str:
        return f"{self.name}-link"

    async def setup(self, bed: Bed) -> None:
        for queue in (self.source, self.target):
            bed.history.kept[f"{queue}@{self.node}"] = {}
        step: dict[str, Any] = {"key": "tag", "within_s": self.within_s}
        kind = "drop_repeats"
        if self.of:
            kind, step = "aggregate", {**step, "of": self.of, **({} if self.of == "count" else {"field": "number"})}
        connection = await bed.connect(self.node, f"{self.name}-{self.node}-setup")
        told = {"from": self.source, "to": self.target, "steps": [{kind: step}]}
        await asked(connection, "CREATE", "link", self._link, told)
        await closed(connection)

    def start(self, bed: Bed) -> None:
        bed.spawn(self._send(bed, f"{self.name}-{self.node}-in"), f"{self.name}-{self.node}-in")
        name = f"{self.name}-{self.node}-out"
        bed.spawn(self._take(bed, name), name, background=True)

    # ------------------------------------------------------------------------------------------------ sending

    async def _send(self, bed: Bed, name: str) -> None:
        random = bed.stream(name)
        connection = await bed.connect(self.node, name)
        readings = {number: f"tag-{random.randrange(self.tags)}" for number in range(1, self.messages + 1)}
        stored: set[int] = set()
        while len(stored) < self.messages:
            sender = await attached(lambda: connection.sender(self.source, producer=name, name=name))
            try:
                for number, tag in readings.items():
                    if number in stored:
                        continue
                    message = Message(application_properties={"tag": tag, "number": number}, data=[b"reading"])
                    future = await sender.submit(message, number=number)
                    future.add_done_callback(partial(_note, stored, number))
                    if self.rate:
                        await asyncio.sleep(random.expovariate(self.rate))
                await sender.drain()
            except BREAKS:
                pass
            await ended(sender)
            await asyncio.sleep(RETRY_S)
        self.sent = len(stored)
        goes_on = True
        while goes_on:
            await asyncio.sleep(LOOK_S)
            goes_on = await self._goes_on(connection)
        await closed(connection)

    async def _goes_on(self, connection: Any) -> bool:
        """Whether the link has something to take, or windows that are not over."""
        told = await asked(connection, "STATUS", "node", "")
        left = [row["messages"] for row in told["queues"] if row["name"] == self.source]
        windows = [row["windows"] for row in told["links"] if row["name"] == self._link]
        return any(left) or any(windows)

    # ------------------------------------------------------------------------------------------------ taking

    async def _take(self, bed: Bed, name: str) -> None:
        connection = await bed.connect(self.node, name)

        async def take(delivery: Delivery) -> None:
            self.taken.add(tuple(sorted(_told(delivery).items())))
            delivery.accept()

        await receive_each(lambda: connection.receiver(self.target, credit=self.credit, name=name), take)

    # ------------------------------------------------------------------------------------------------ judged

    def check(self, bed: Bed) -> None:
        came = bed.history.kept[f"{self.source}@{self.node}"]
        readings = [_reading(came[sequence]) for sequence in sorted(came)]
        went = bed.history.kept[f"{self.target}@{self.node}"]
        found = [_properties(went[sequence]) for sequence in sorted(went)]
        if not came or bed.history.clock_ahead_s or bed.history.disks_changed[self.node]:
            return  # no disk was watched, it was put back, or windows go by a clock that somebody has set
        self.judged = len(readings)
        if len(readings) != self.messages:
            raise Violation(f"{len(readings)} readings were stored, and {self.messages} were sent")
        if self.of:
            self._check_windows(readings, found)
            return
        wanted = kept_of(readings, round(self.within_s * 1_000))
        got = [int(item["number"]) for item in found]
        if got != wanted:
            raise Violation(_difference(self._link, got, wanted))

    def _check_windows(self, readings: Sequence[Reading], found: Sequence[dict[str, Any]]) -> None:
        within_ms = round(self.within_s * 1_000)
        wanted = sorted(
            (tag, begins, len(numbers), _made(self.of, numbers))
            for tag, begins, numbers in windows_of(readings, within_ms)
        )
        got = sorted(
            (str(item["tag"]), int(item["begins"]), int(item["count"]), float(item.get("number", 0))) for item in found
        )
        if sum(item[2] for item in got) != len(readings):
            raise Violation(
                f"{self._link} counted {sum(item[2] for item in got)} readings, and {len(readings)} were stored"
            )
        if got != wanted:
            raise Violation(_difference(self._link, got, wanted))

    def metrics(self) -> dict[str, Any]:
        return {"sent": self.sent, "made": len(self.taken), "judged": self.judged}


def _note(stored: set[int], number: int, future: "asyncio.Future[Outcome]") -> None:
    if future.cancelled() or future.exception() is not None:
        return
    if isinstance(future.result(), Accepted):
        stored.add(number)


def _told(delivery: Delivery) -> dict[str, Any]:
    return dict(delivery.message.application_properties or {})


def _properties(value: bytes) -> dict[str, Any]:
    return dict(Message.decode(bytes(entry.unpack(value).bare)).application_properties or {})


def _reading(value: bytes) -> Reading:
    told = _properties(value)
    return Reading(packed.enqueued_ms_of(value), told["tag"], int(told["number"]))


def kept_of(readings: Sequence[Reading], within_ms: int) -> list[int]:
    """The numbers of those that are no repeats."""
    last: dict[str, int] = {}
    kept = []
    for reading in readings:
        before = last.get(reading.tag)
        if before is None or abs(reading.time_ms - before) >= within_ms:
            last[reading.tag] = reading.time_ms
            kept.append(reading.number)
    return kept


def windows_of(readings: Sequence[Reading], within_ms: int) -> list[tuple[str, int, list[int]]]:
    """(tag, begin, numbers) of each window."""
    found: list[tuple[str, int, list[int]]] = []
    open_: dict[str, int] = {}
    for reading in readings:
        at = open_.get(reading.tag)
        if at is None or abs(reading.time_ms - found[at][1]) >= within_ms:
            at = open_[reading.tag] = len(found)
            found.append((reading.tag, reading.time_ms, []))
        found[at][2].append(reading.number)
    return found


def _made(of: str, numbers: Sequence[int]) -> float:
    if of == "count":
        return 0.0
    if of == "mean":
        return sum(float(number) for number in numbers) / len(numbers)
    return float({"least": min(numbers), "most": max(numbers), "last": numbers[-1]}[of])


def _difference(name: str, got: Sequence[Any], wanted: Sequence[Any]) -> str:
    more = [item for item in got if item not in wanted or got.count(item) > wanted.count(item)]
    less = [item for item in wanted if item not in got]
    told = f"{name} made {len(got)} messages, and should have made {len(wanted)}"
    return f"{told}; too much: {more[:3] or 'nothing'}, missing: {less[:3] or 'nothing'}"
