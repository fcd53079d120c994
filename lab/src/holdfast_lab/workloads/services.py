"""`services`: names of services that an operator changes, while others send to them.

Rules of this file: between a request and its answer a name may mean what it meant before or what it is to mean, else
just what it was told last. A message is shown in a queue that its name meant while it was sent, and is refused only
where the name meant nothing. Each number is sent once.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any, ClassVar

from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.performatives import Accepted, Properties, Rejected, Released, Target
from holdfast.client import Connection, Delivery, ManagementError
from holdfast_lab.base.client_history import Violation, make_key
from holdfast_lab.base.contents import content_of, message_of
from holdfast_lab.workloads.bare import Bare, Broken, Refused, connected
from holdfast_lab.workloads.bed import Bed
from holdfast_lab.workloads.common import (
    NOT_LOOKED_AT,
    RETRY_S,
    asked,
    check_not_refused,
    closed,
    full_address,
    marked,
    own_key_of,
    place_of,
    queue_and_node,
    receive_each,
)

Meaning = str | None
"""An address; None: the name is not registered."""


@dataclass(kw_only=True)
class Services:
    """An operator at `node` gives a name other meanings, `changes` times, `pause_s` apart on average: one of
    `addresses`, or none. `messages` are sent to the name meanwhile, at `rate` a second, in lives of `life_s` on
    average: each on a link to the name, or on one without an address. Takes what arrives at the addresses. `called`:
    the name, else that of the workload; `vhost`: the virtual host of all of it."""

    kind: ClassVar[str] = "services"

    node: str
    addresses: Sequence[str]
    changes: int = 10
    pause_s: float = 0.5
    messages: int = 150
    size: int = 200
    rate: float = 20.0
    life_s: float = 1.0
    credit: int = 50
    called: str = ""
    vhost: str = ""
    name: str = "service"
    possible: set[Meaning] = field(default_factory=lambda: {None}, init=False)
    """What the name may mean now."""
    meant: dict[int, set[Meaning]] = field(default_factory=dict, init=False)
    """By number: what the name may have meant for that message."""
    asking: list[set[Meaning]] = field(default_factory=list, init=False)
    """Of what waits for an answer now: what the name may have meant meanwhile."""
    outcomes: Counter[str] = field(default_factory=Counter, init=False)
    given_out: int = field(default=0, init=False)
    me: int = field(default=0, init=False)

    @property
    def address(self) -> str:
        return f"$service/{self.service}"

    @property
    def service(self) -> str:
        return self.called or self.name

    async def setup(self, bed: Bed) -> None:
        return

    def start(self, bed: Bed) -> None:
        name = f"{self.name}-{self.node}"
        self.me = bed.history.new_producer(name)
        bed.spawn(self._operate(bed, f"{name}-operator"), f"{name}-operator")
        bed.spawn(self._produce(bed, f"{name}-in"), f"{name}-in")
        for address in self.addresses:
            queue, node = queue_and_node(address, self.node)
            out = f"{name}-{queue}-out"
            bed.spawn(self._take(bed, queue, node, out), out, background=True)

    # ------------------------------------------------------------------------------------------------ the operator

    async def _operate(self, bed: Bed, name: str) -> None:
        random = bed.stream(name)
        connection = await bed.connect(self.node, name, vhost=self.vhost)
        for _ in range(self.changes):
            await self._change(connection, random)
            await asyncio.sleep(random.expovariate(1.0 / self.pause_s))
            await self._read(connection)
        await closed(connection)

    async def _change(self, connection: Connection, random: Random) -> None:
        (before,) = self.possible
        after: Meaning = random.choice([item for item in (None, *self.addresses) if item != before])
        self.possible.add(after)
        for waiting in self.asking:
            waiting.add(after)
        operation = "DELETE" if after is None else "CREATE" if before is None else "UPDATE"
        told = {} if after is None else {"address": after}
        try:
            await asked(connection, operation, "service", self.service, told)
        except ManagementError as error:
            if operation != "DELETE" or error.code != 404:  # it was asked twice
                raise
        self.outcomes[operation] += 1
        self.possible.discard(before)

    async def _read(self, connection: Connection) -> None:
        try:
            found: Meaning = str((await asked(connection, "READ", "service", self.service))["address"])
        except ManagementError as error:
            if error.code != 404:
                raise
            found = None
        if found not in self.possible:
            (wanted,) = self.possible
            raise Violation(f"{self.address} at {self.node} means {found!r}, and was told to mean {wanted!r}")

    # ------------------------------------------------------------------------------------------------ who sends

    async def _produce(self, bed: Bed, name: str) -> None:
        random = bed.stream(name)
        while self.given_out < self.messages:
            bare = await connected(bed, self.node, name, vhost=self.vhost)
            try:
                await self._live(bed, bare, random)
            except (Broken, Refused):
                pass
            self.asking.clear()
            bare.end(abort=random.random() < 0.3)
            await asyncio.sleep(random.uniform(0.0, RETRY_S))

    async def _live(self, bed: Bed, bare: Bare, random: Random) -> None:
        is_attached = random.random() < 0.4
        meant = self._begin()
        try:
            link = await bare.sender(Target(self.address if is_attached else None))
        except Refused as refused:
            if is_attached and refused.condition == conditions.NOT_FOUND:
                self._judge("a link", meant, found=False)
            raise
        if is_attached:
            self._judge("a link", meant, found=True)
        self._end(meant)
        open_ones: dict[int, None] = {}
        ends_at = bed.now() + random.expovariate(1.0 / self.life_s)
        while self.given_out < self.messages and bed.now() < ends_at and not link.detached:
            self.given_out += 1
            number, key = self.given_out, make_key(self.me, self.given_out)
            message = message_of(key, self.size, None)
            if not is_attached:
                message.properties = replace(message.properties or Properties(), to=self.address)
            bed.history.offer(key, full_address(self.addresses[0], self.node, self.vhost))
            bed.history.sent[key] = content_of(message)
            self.meant[number] = meant if is_attached else self._begin()
            open_ones[number] = None
            await bare.send(link, message.encode(), partial(self._decided, bed, open_ones, number))
            await asyncio.sleep(random.expovariate(self.rate) if self.rate else 0.0)
        await bare.until(lambda: not open_ones or link.detached)

    def _begin(self) -> set[Meaning]:
        """What the name means from now on, until `_end`."""
        meant = set(self.possible)
        self.asking.append(meant)
        return meant

    def _end(self, meant: set[Meaning]) -> None:
        self.asking = [item for item in self.asking if item is not meant]

    def _judge(self, what: str, meant: set[Meaning], *, found: bool) -> None:
        self.outcomes[f"{what} {'allowed' if found else 'refused'}"] += 1
        if (meant == {None}) if found else (None not in meant):
            texts = sorted(map(repr, meant))
            was = "found a queue" if found else "found nothing"
            raise Violation(f"{what} to {self.address} at {self.node} {was}; the name meant {' or '.join(texts)}")

    def _decided(self, bed: Bed, open_ones: dict[int, None], number: int, outcome: Any) -> None:
        key = make_key(self.me, number)
        open_ones.pop(number, None)
        self._end(self.meant[number])
        told = str(outcome.error.condition) if isinstance(outcome, Rejected) and outcome.error is not None else ""
        if isinstance(outcome, Accepted):
            self._judge("a message", self.meant[number], found=True)
            bed.history.accept(key)
        elif told == conditions.NOT_FOUND:
            self._judge("a message", self.meant[number], found=False)
            bed.history.refuse(key, repr(outcome))
        elif isinstance(outcome, Released) or told in NOT_LOOKED_AT:
            bed.history.refuse(key, repr(outcome))
        else:
            raise Violation(f"{key.decode()} goes to {self.address} at {self.node}, and is answered {outcome}")

    # ------------------------------------------------------------------------------------------------ what is shown

    async def _take(self, bed: Bed, queue: str, node: str, name: str) -> None:
        connection = await bed.connect(node, name, vhost=self.vhost)
        place, address = place_of(queue, node, self.vhost), f"{queue}@{node}"

        async def take(delivery: Delivery) -> None:
            key = own_key_of(bed.history, self.me, delivery.payload, delivery.message, place)
            check_not_refused(bed.history, key, place)
            meant = self.meant[int(key[4:])]
            if address not in {full_address(item, self.node) for item in meant if item is not None}:
                texts = " or ".join(sorted(map(repr, meant)))
                raise Violation(f"{key.decode()} was sent to {self.address}, which meant {texts}; {place} has it")
            bed.history.receive(
                key, place, marked=marked(delivery), sequence=delivery.sequence, disk=bed.disk_of(node, delivery)
            )
            delivery.accept()

        await receive_each(lambda: connection.receiver(queue, credit=self.credit, name=name), take)

    def check(self, bed: Bed) -> None:
        return

    def metrics(self) -> dict[str, float]:
        return dict(sorted(self.outcomes.items()))
