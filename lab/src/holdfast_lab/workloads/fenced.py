"""`fenced`: users who may do different things with the same queues, by rules that are drawn.

Rules of this file: who may not is refused with the condition of that, at each attach and for each message on a link
without an address; who may is not. What was refused is never shown, and each message is shown only to who may have it.
Each number is sent once.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from random import Random
from typing import Any, ClassVar, Final

from holdfast.access.actions import CREATE, RELAY
from holdfast.amqp.message.message import Message
from holdfast.amqp.session.events import Delivery
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.performatives import Accepted, Properties, Rejected, Released, Source, Target
from holdfast.amqp.wire.types import Symbol
from holdfast.client import Delivery as ClientDelivery
from holdfast_lab.base.client_history import Violation, key_in, make_key
from holdfast_lab.base.contents import content_of, message_of
from holdfast_lab.base.fences import AWAY, FENCED, MADE, QUEUES, ROOT, USERS, Fences
from holdfast_lab.workloads.bare import Bare, Broken, Refused, connected
from holdfast_lab.workloads.bed import Bed
from holdfast_lab.workloads.common import (
    NOT_LOOKED_AT,
    RETRY_S,
    check_not_refused,
    check_refused_stay_unseen,
    full_address,
    is_marked,
    marked,
    own_key_of,
    receive_each,
)

UNAUTHORIZED: Final = conditions.UNAUTHORIZED_ACCESS
CREDIT: Final = 5
LOOK_S: Final = 0.1
ON_THE_WAY_S: Final = 1.0
"""So long what was sent to a user may be under way, whose connection ends because the rules have changed."""
COPY: Final = Symbol("copy")


@dataclass(kw_only=True)
class Fenced:
    """`messages` tried at `node` by three users, on links without an address, to the queues of the rules; between them
    each user attaches senders, receivers and browsers. Users live for `life_s` on average. A user who may do everything
    takes what is there. Where the node has the rules itself, they try to make a queue too, and to have messages relayed
    to `away`, a neighbour."""

    kind: ClassVar[str] = "fenced"

    node: str
    messages: int = 150
    size: int = 200
    rate: float = 0.0
    life_s: float = 1.0
    away: str = ""
    name: str = FENCED
    tried: bool = field(default=False, init=False)
    """Whether somebody who may make MADE has used it: it may be there."""
    made: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    """MADE is there for good: a message was accepted for it."""
    sent_s: dict[int, float] = field(default_factory=dict, init=False)
    """When each number was sent."""
    unjudged: int = field(default=0, init=False)
    """Answers that came when the rules had changed since the question."""
    sent_when_made: set[int] = field(default_factory=set, init=False)
    """Numbers of messages for MADE that were sent when it was."""
    outcomes: Counter[str] = field(default_factory=Counter, init=False)
    given_out: int = field(default=0, init=False)
    me: int = field(default=0, init=False)
    fences: Fences = field(init=False)

    async def setup(self, bed: Bed) -> None:
        fences = bed.history.rights.fences
        if self.node not in fences:
            fences[self.node] = Fences.drawn(bed.stream(f"{self.name}-{self.node}-rules"))
        self.fences = fences[self.node]

    def start(self, bed: Bed) -> None:
        name = f"{self.name}-{self.node}"
        self.me = bed.history.new_producer(name)
        for user in USERS:
            bed.spawn(self._lives(bed, f"{name}-{user}", user), f"{name}-{user}")
        if self.fences.is_own:
            bed.spawn(self._take_away(bed, f"{name}-away"), f"{name}-away", background=True)
        for queue in (*QUEUES, MADE) if self.fences.is_own else QUEUES:
            bed.spawn(self._take_all(bed, f"{name}-root-{queue}", queue), f"{name}-root-{queue}", background=True)

    @property
    def _relayed(self) -> str:
        return f"{AWAY}@{self.away}"

    def _queue(self, random: Random) -> str:
        """One that somebody uses next."""
        if self.fences.is_own and random.random() < 0.4:
            return MADE if random.random() < 0.6 else self._relayed
        return random.choice(QUEUES)

    def _tries(self, user: str, action: str, queue: str) -> bool:
        """Somebody uses that queue now; whether it is there for good."""
        if queue != MADE:
            return True
        self.tried |= self.fences.may(user, action, MADE) and self.fences.may(user, CREATE, MADE)
        return self.made.is_set()

    def _judge(
        self, user: str, action: str, queue: str, what: str, *, refused: bool, is_there: bool, asked_s: float
    ) -> None:
        """`is_there`: the queue was there for good when it was asked for, at `asked_s`. Where the rules have changed
        since then, either answer is right."""
        if self.fences.changed_since(asked_s):
            self.unjudged += 1
            return
        if queue == self._relayed:
            action = RELAY
        self.outcomes[f"{what} {'refused' if refused else 'allowed'}"] += 1
        may = self.fences.may(user, action, queue)
        if may and queue == MADE and not self.fences.may(user, CREATE, MADE):
            if not refused and not self.tried and not self.fences.changed_since(-inf):
                raise Violation(f"{what} of {user}, who may not create {queue} at {self.node}, was not refused")
            may = not refused or is_there
        if may is refused:
            text, was = ("may", "was refused") if refused else ("may not", "was not refused")
            raise Violation(f"{what} of {user}, who {text} {action} at {queue} at {self.node}, {was}")

    # ------------------------------------------------------------------------------------------------ the users

    async def _lives(self, bed: Bed, name: str, user: str) -> None:
        random = bed.stream(name)
        while self.given_out < self.messages:
            bare = await connected(bed, self.node, name, user=user)
            try:
                await self._live(bed, bare, random, user)
            except (Broken, Refused):
                pass
            bare.end(abort=random.random() < 0.3)
            await asyncio.sleep(random.uniform(0.0, RETRY_S))

    async def _live(self, bed: Bed, bare: Bare, random: Random, user: str) -> None:
        link = await bare.sender(Target())
        open_ones: set[int] = set()
        ends_at = bed.now() + random.expovariate(1.0 / self.life_s)
        while self.given_out < self.messages and bed.now() < ends_at and not link.detached:
            queue = self._queue(random)
            if random.random() < 0.15:
                await self._attach(bed, bare, random, user, queue)
                continue
            self.given_out += 1
            number = self.given_out
            key = make_key(self.me, number)
            message = message_of(key, self.size, None)
            message.properties = replace(message.properties or Properties(), to=queue)
            bed.history.offer(key, full_address(queue, self.node))
            bed.history.sent[key] = content_of(message)
            open_ones.add(number)
            if self._tries(user, "send", queue):
                self.sent_when_made.add(number)
            self.sent_s[number] = bed.now()
            await bare.send(link, message.encode(), partial(self._decided, bed, open_ones, number, user, queue))
            await asyncio.sleep(random.expovariate(self.rate) if self.rate else 0.0)
        await bare.until(lambda: not open_ones or link.detached)

    def _decided(self, bed: Bed, open_ones: set[int], number: int, user: str, queue: str, outcome: Any) -> None:
        key = make_key(self.me, number)
        open_ones.discard(number)
        told = str(outcome.error.condition) if isinstance(outcome, Rejected) and outcome.error is not None else ""
        # Nobody has looked where it goes while there is no place to wait, the node is drained, or its turn was taken
        # back.
        if told not in NOT_LOOKED_AT and not isinstance(outcome, Released):
            was_there = number in self.sent_when_made
            refused, asked_s = told == UNAUTHORIZED, self.sent_s[number]
            self._judge(user, "send", queue, "a message", refused=refused, is_there=was_there, asked_s=asked_s)
        if isinstance(outcome, Accepted):
            if queue == MADE:
                self.made.set()
            bed.history.accept(key)
        elif isinstance(outcome, Released) or told in (UNAUTHORIZED, *NOT_LOOKED_AT):
            bed.history.refuse(key, repr(outcome))
        else:
            raise Violation(f"{key.decode()} goes to {queue} at {self.node}, and is answered {outcome}")

    async def _attach(self, bed: Bed, bare: Bare, random: Random, user: str, queue: str) -> None:
        """One link of its own to a queue, for a moment."""
        action = random.choice(("send", "receive", "browse")) if queue != self._relayed else "send"
        disk = bed.history.disks_changed[self.node]

        def taken(delivery: Delivery) -> None:
            if disk == bed.history.disks_changed[self.node]:
                self._shown(bed, delivery, user, action, queue)
                if not delivery.settled:
                    delivery.link.settle(delivery.delivery_id, delivery.delivery_id, Accepted())
            bare.wire.schedule()

        is_there, asked_s = self._tries(user, action, queue), bed.now()
        what = {"send": "a sender", "receive": "a receiver", "browse": "a browser"}[action]
        try:
            if action == "send":
                link: Any = await bare.sender(Target(queue))
            else:
                source = Source(queue, distribution_mode=COPY if action == "browse" else None)
                link = await bare.receiver(source, taken, CREDIT)
        except Refused as refused:
            if refused.condition in (UNAUTHORIZED, ""):
                was_refused = refused.condition == UNAUTHORIZED
                self._judge(user, action, queue, what, refused=was_refused, is_there=is_there, asked_s=asked_s)
            return
        self._judge(user, action, queue, what, refused=False, is_there=is_there, asked_s=asked_s)
        await asyncio.sleep(random.uniform(0.0, LOOK_S))
        await bare.detach(link)

    # ------------------------------------------------------------------------------------------------ what is shown

    async def _take_all(self, bed: Bed, name: str, queue: str) -> None:
        random = bed.stream(name)
        if queue == MADE:
            await self.made.wait()
        while True:
            disk = bed.history.disks_changed[self.node]
            bare = await connected(bed, self.node, name, user=ROOT)

            def taken(delivery: Delivery, disk: int = disk, bare: Bare = bare) -> None:
                if disk == bed.history.disks_changed[self.node]:
                    self._shown(bed, delivery, ROOT, "receive", queue)
                    delivery.link.settle(delivery.delivery_id, delivery.delivery_id, Accepted())
                bare.wire.schedule()

            asked_s = bed.now()
            try:
                link = await bare.receiver(Source(queue), taken, 1_000)
                await asyncio.sleep(random.expovariate(1.0 / self.life_s))
                await bare.detach(link)
            except Refused as refused:
                if refused.condition == UNAUTHORIZED:
                    self._judge(ROOT, "receive", queue, "a receiver", refused=True, is_there=True, asked_s=asked_s)
            except Broken:
                pass
            bare.end(abort=random.random() < 0.5)
            await asyncio.sleep(random.uniform(0.0, LOOK_S))

    async def _take_away(self, bed: Bed, name: str) -> None:
        connection = await bed.connect(self.away, name)
        place = f"{AWAY} at {self.away}"

        async def take(delivery: ClientDelivery) -> None:
            key = own_key_of(bed.history, self.me, delivery.payload, delivery.message, place)
            check_not_refused(bed.history, key, place)
            disk = bed.disk_of(self.away, delivery)
            bed.history.receive(key, place, marked=marked(delivery), sequence=delivery.sequence, disk=disk)
            delivery.accept()

        await receive_each(lambda: connection.receiver(AWAY, name=name), take)

    def _shown(self, bed: Bed, delivery: Delivery, user: str, action: str, queue: str) -> None:
        place = f"{queue} at {self.node}"
        message, key = Message.decode(delivery.payload), key_in(delivery.payload)
        if not self.fences.may(user, action, queue) and not self.fences.changed_since(bed.now() - ON_THE_WAY_S):
            raise Violation(f"{place}: {user} was shown {key!r}, and may not {action} there")
        key = own_key_of(bed.history, self.me, delivery.payload, message, place)
        check_not_refused(bed.history, key, place)
        self.outcomes[f"shown to {user}"] += 1
        if action == "receive":
            bed.history.receive(key, place, marked=is_marked(message))

    def check(self, bed: Bed) -> None:
        check_refused_stay_unseen(bed.history, self.me)

    def metrics(self) -> dict[str, float]:
        return {**dict(sorted(self.outcomes.items())), "rules changed meanwhile": self.unjudged}
