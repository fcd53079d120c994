"""`federated`: a topic that nodes forward to each other; who published, who subscribed, and what was confirmed to them.

Rules of this file: a message is due to a subscription if it was first sent after the answer to an attach of that
subscription that names the publisher's node, and it must come once. Everything else that comes must be wanted.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from holdfast.broker.entries.address import TOPIC_PREFIX
from holdfast.client import Connection, Delivery, ManagementError, Message, Outcome, Properties, Sender
from holdfast_lab.base.client_history import Violation
from holdfast_lab.base.contents import body_of, content_of
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
from holdfast_lab.workloads.publish import ProducerLog

SUBJECTS: Final = 4


def _number(key: bytes) -> int:
    return int(key[4:])


PATTERNS: Final[dict[str, Callable[[bytes], bool]]] = {
    "": lambda key: True,
    "#": lambda key: True,
    "s.*": lambda key: True,
    "s.0": lambda key: _number(key) % SUBJECTS == 0,
    "*.1": lambda key: _number(key) % SUBJECTS == 1,
    "no.such": lambda key: False,
}
SELECTORS: Final[dict[str, Callable[[bytes], bool]]] = {
    "": lambda key: True,
    "even = TRUE": lambda key: _number(key) % 2 == 0,
    "number > 10": lambda key: _number(key) > 10,
}
"""Patterns and selectors of subscriptions, and whether the message of a key is wanted."""


@dataclass(slots=True)
class Subscribed:
    """A subscription. `confirmed`: nodes that send it what they accept; `due`: what they must have sent; `places`: the
    sequence of each message that it was shown."""

    node: str
    pattern: str
    selector: str
    confirmed: set[str] = field(default_factory=set)
    due: dict[bytes, None] = field(default_factory=dict)
    places: dict[bytes, int] = field(default_factory=dict)
    has_ended: bool = False

    def wants(self, key: bytes) -> bool:
        return PATTERNS[self.pattern](key) and SELECTORS[self.selector](key)


class _Log(ProducerLog):
    """Of a publisher at a node: what it sends first now is due to whoever that node was confirmed to."""

    node: str
    subscriptions: "dict[str, Subscribed]"

    def take(self) -> int:
        number = super().take()
        key = self.key(number)
        for subscribed in self.subscriptions.values():
            if self.node in subscribed.confirmed and not subscribed.has_ended and subscribed.wants(key):
                subscribed.due[key] = None
        return number

    async def send(self, sender: Sender, number: int) -> "asyncio.Future[Outcome]":
        key = self.key(number)
        message = Message(
            properties=Properties(subject=f"s.{number % SUBJECTS}"),
            application_properties={"number": number, "even": number % 2 == 0},
            data=[body_of(key, self.size)],
        )
        self.history.sent[key] = content_of(message)
        future = await sender.submit(message, number=number)
        future.add_done_callback(lambda done: self._decided(number, done))
        return future


@dataclass(kw_only=True)
class Federated:
    """The topic `topic`, forwarded from the first node of each of `entries` to the second. One producer at each of
    `publishers` sends `messages` at `rate` a second. `subscriptions`: tables of `node`, `pattern`, `selector`, when it
    comes, `from_s`, and how long it stays, `for_s`; 0: to the end; `then`: the pattern of the one that takes its place
    under its name, if one does. Each waits `confirm_s` for its confirmation.
    Producers begin after `after_s`. `mode`: of the entries; where it is not `dynamic` nothing is confirmed, and a
    message is due to each subscription that is there when it is first sent, and to which entries lead. `pushed`: those
    of `entries` that have mode `push` instead; `asked`: those that stand at the second node, which asks the first."""

    kind: ClassVar[str] = "federated"

    topic: str
    entries: list[list[str]]
    publishers: list[str]
    subscriptions: list[dict[str, Any]]
    messages: int = 40
    rate: float = 5.0
    size: int = 200
    confirm_s: float = 5.0
    after_s: float = 0.0
    credit: int = 50
    mode: str = "dynamic"
    pushed: list[list[str]] = field(default_factory=list)
    asked: list[list[str]] = field(default_factory=list)
    name: str = "federated"
    subscribed: dict[str, Subscribed] = field(default_factory=dict, init=False)
    logs: list[ProducerLog] = field(default_factory=list, init=False)
    confirmations: int = field(default=0, init=False)
    shown: int = field(default=0, init=False)
    _changed: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    @property
    def address(self) -> str:
        return TOPIC_PREFIX + self.topic

    @property
    def published_to(self) -> str:
        """To which producers send."""
        return self.address

    async def setup(self, bed: Bed) -> None:
        """The entries are there before anything is sent."""
        for node in dict.fromkeys([*self.publishers, *(each["node"] for each in self.subscriptions)]):
            bed.history.topics.add(full_address(self.address, node))
        by_node: dict[str, dict[str, dict[str, str]]] = {}
        for here, there in self.entries:
            mode = "push" if [here, there] in self.pushed else self.mode
            if [here, there] not in self.asked:
                by_node.setdefault(here, {})[there] = {"mode": mode}
        for here, there in self.asked:  # an entry of its own in the other direction becomes one in both
            made = by_node.setdefault(there, {})
            made[here] = {"mode": self.mode, "direction": "both" if here in made else "from"}
        for here, neighbours in by_node.items():
            connection = await bed.connect(here, f"{self.name}-{here}-setup")
            for there, told in neighbours.items():
                await asked(connection, "CREATE", "federation", f"{self.topic}@{there}", told)
            await closed(connection)

    def start(self, bed: Bed) -> None:
        for number, told in enumerate(self.subscriptions):
            name = f"{self.name}-{told['node']}-{number}"
            bed.spawn(self._subscribe(bed, name, told), name, background=True)
        producers = [self._publish(bed, f"{self.name}-in-{node}", node) for node in self.publishers]
        bed.spawn(self._whole(producers), f"{self.name}-whole")

    # ------------------------------------------------------------------------------------------------ programs

    async def _whole(self, producers: list[Any]) -> None:
        """Until all is sent, and all that is due has come."""
        await asyncio.gather(*producers)
        while self._missing():
            self._changed.clear()
            await self._changed.wait()

    def _missing(self) -> list[tuple[str, bytes]]:
        return [
            (name, key)
            for name, subscribed in self.subscribed.items()
            if not subscribed.has_ended
            for key in subscribed.due
            if key not in subscribed.places
        ]

    async def _publish(self, bed: Bed, name: str, node: str) -> None:
        log = _Log(bed.history, name, full_address(self.published_to, node), self.size)
        log.node, log.subscriptions = node, self.subscribed
        self.logs.append(log)
        await asyncio.sleep(self.after_s)
        random = bed.stream(name)
        connection = await bed.connect(node, name)
        while True:
            sender = await attached(
                lambda: connection.sender(self.published_to, producer=name, in_doubt_max=50, name=name)
            )
            try:
                await log.send_all(sender, self.messages, self.rate, random)
                break
            except BREAKS:
                await ended(sender)
                await asyncio.sleep(RETRY_S)
        await closed(connection)

    async def _subscribe(self, bed: Bed, name: str, told: dict[str, Any]) -> None:
        await asyncio.sleep(told["from_s"])
        subscribed = Subscribed(told["node"], told["pattern"], told["selector"])
        connection = await bed.connect(subscribed.node, name)
        reading = asyncio.create_task(self._read(bed, name, subscribed, connection))
        if not told["for_s"]:
            await reading
        await asyncio.wait([reading], timeout=told["for_s"])
        if reading.done():
            await reading  # it failed
        subscribed.has_ended = True
        self._changed.set()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await closed(connection)  # with what it holds
        connection = await bed.connect(subscribed.node, f"{name}-ends")
        if told.get("then"):
            await self._read(bed, name, Subscribed(told["node"], told["then"], ""), connection)
        while True:
            try:
                await asked(connection, "DELETE", "subscription", name, {"queue": self.address})
                break
            except ManagementError as error:
                if error.code == 404:
                    break
            await asyncio.sleep(RETRY_S)
        await closed(connection)

    async def _read(self, bed: Bed, name: str, subscribed: Subscribed, connection: Connection) -> None:
        address = f"{self.address}/{subscribed.pattern}" if subscribed.pattern else self.address
        while True:
            receiver = await attached(
                lambda: connection.receiver(
                    address, credit=self.credit, subscription=name, selector=subscribed.selector or None,
                    confirm_s=self.confirm_s,
                )
            )  # fmt: skip
            self.subscribed[name] = subscribed
            if receiver.confirmation is not None:
                subscribed.confirmed |= {*receiver.confirmation.confirmed, subscribed.node}
                self.confirmations += 1
            try:
                if self.mode != "dynamic":
                    subscribed.confirmed |= self._leading_to(subscribed.node)
                async for delivery in receiver:
                    self._show(bed, name, subscribed, delivery)
                    delivery.accept()
            except BREAKS:
                pass
            await ended(receiver)
            await asyncio.sleep(RETRY_S)

    def _leading_to(self, node: str) -> set[str]:
        """The nodes from which entries lead there, that node too."""
        found, todo = {node}, [node]
        while todo:
            end = todo.pop()
            new = {here for here, there in self.entries if there == end} - found
            found |= new
            todo += new
        return found

    # ------------------------------------------------------------------------------------------------ what comes

    def _show(self, bed: Bed, name: str, subscribed: Subscribed, delivery: Delivery) -> None:
        key = key_shown(bed.history, delivery, name)
        if key is None:
            return
        shown = f"{name} was shown {key.decode()}"
        if not subscribed.wants(key):
            raise Violation(f"{shown}, which {subscribed.pattern!r} with {subscribed.selector!r} does not select")
        self.shown += 1
        self._changed.set()
        before = subscribed.places.get(key)
        if before is None:
            subscribed.places[key] = delivery.sequence
        elif before != delivery.sequence:
            raise Violation(f"{shown} as sequence {delivery.sequence}, and as {before} before")
        elif not marked(delivery):
            raise Violation(f"{shown} twice, the second time not as a redelivery")

    def check(self, bed: Bed) -> None:
        missing = self._missing()
        if missing:
            name, key = missing[0]
            raise Violation(f"{len(missing)} messages never came that were due; {key.decode()} to {name} the first")

    def metrics(self) -> dict[str, float]:
        due = sum(len(subscribed.due) for subscribed in self.subscribed.values())
        accepted = sum(log.accepted for log in self.logs)
        return {"accepted": accepted, "confirmations": self.confirmations, "due": due, "shown": self.shown}
