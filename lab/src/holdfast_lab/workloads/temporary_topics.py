"""`temporary-topic`: programs that create temporary topics, subscribe to them, publish and leave.

Rules of this file: while its topic lives, a subscription is shown, in order and once, what was accepted after it came,
and, if it has the filter no-local, nothing that its own connection published. What was refused nobody is shown. With
the link that made it the topic ends, and so do all its subscriptions. A broken connection ends a round, of which
nothing is judged then.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar, Final

from holdfast.amqp.links.link import Link
from holdfast.amqp.links.receiver import Receiver
from holdfast.amqp.links.sender import Sender
from holdfast.amqp.session.events import Delivery
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.extensions import NO_LOCAL
from holdfast.amqp.wire.performatives import Accepted, Source, Target
from holdfast.amqp.wire.types import Described, Symbol
from holdfast.errors import LocalProtocolError
from holdfast_lab.base.client_history import Violation, key_in, make_key
from holdfast_lab.base.contents import content_of, message_of
from holdfast_lab.workloads.bare import Bare, Broken, Refused, connected
from holdfast_lab.workloads.bed import Bed

TOPIC: Final = (Symbol("temporary-topic"),)
OWN: Final = {Symbol("no-local"): Described(NO_LOCAL, [])}
END_S: Final = 60.0
"""So soon a subscription has heard of its topic's end, or its connection is lost."""
WAITING_MAX: Final = 500
"""Messages of a round: a subscription holds 1,000."""


@dataclass(eq=False, slots=True)
class _Subscription:
    """`shown`: numbers, as they came."""

    bare: Bare
    no_local: bool
    link: Receiver | None = None
    shown: list[int] = field(default_factory=list)


@dataclass(kw_only=True)
class TemporaryTopics:
    """`rounds` times at `node`: a temporary topic is made, gets `subscriptions` over two connections, a third of them
    with the filter no-local, and `messages` in the mean from both; then the link that made it ends."""

    kind: ClassVar[str] = "temporary-topic"

    node: str
    rounds: int = 10
    messages: int = 20
    subscriptions: int = 4
    size: int = 200
    credit: int = 20
    pause_s: float = 0.2
    name: str = "temporary-topic"
    sent: int = field(default=0, init=False)
    refused: int = field(default=0, init=False)
    ended: int = field(default=0, init=False)
    shown: int = field(default=0, init=False)
    left_out: int = field(default=0, init=False)

    async def setup(self, bed: Bed) -> None:
        return

    def start(self, bed: Bed) -> None:
        name = f"{self.name}-{self.node}"
        bed.spawn(self._work(bed, name), name)

    async def _work(self, bed: Bed, name: str) -> None:
        random = bed.stream(name)
        me = bed.history.new_producer(name)
        for _ in range(self.rounds):
            bares = [await connected(bed, self.node, f"{name}-{role}", honest=False) for role in ("maker", "other")]
            try:
                await self._round(bed, me, random, *bares)
            except (Broken, Refused, LocalProtocolError):  # a link too many, for the node or its session
                pass
            for bare in bares:
                bare.end(abort=random.random() < 0.5)
            await asyncio.sleep(random.expovariate(1.0 / self.pause_s))

    async def _round(self, bed: Bed, me: int, random: Random, maker: Bare, other: Bare) -> None:
        made = await maker.sender(Target(dynamic=True, capabilities=TOPIC))
        address = str(made.target.address)
        senders: list[tuple[Bare, Sender]] = [(maker, made), (other, await other.sender(Target(address)))]
        by: dict[int, Bare] = {}
        """Who published each number that was accepted."""
        there: list[_Subscription] = []
        for at in range(self.subscriptions):
            there.append(_Subscription(random.choice((maker, other)), at % 3 == 2))
            await self._subscribe(there[-1], address)
        for _ in range(min(WAITING_MAX, int(random.expovariate(1.0 / self.messages)))):
            bare, sender = random.choice(senders)
            number = await self._publish(bed, me, bare, sender)
            if number is not None:
                by[number] = bare
        for one in there:
            due = [number for number in by if not (one.no_local and by[number] is one.bare)]
            await one.bare.until(lambda one=one, due=due: len(one.shown) >= len(due) or one.link.detached)  # type: ignore[misc]
            self._judge(address, one, due, by)
            self.left_out += len(by) - len(due)
        await maker.detach(made)
        for one in there:
            assert one.link is not None
            try:
                await asyncio.wait_for(one.bare.until(lambda one=one: one.link.detached), END_S)  # type: ignore[misc]
            except TimeoutError:
                raise Violation(f"{address} at {self.node} ended, and has a subscription still") from None
        await self._ended(address, there, other)

    async def _subscribe(self, one: _Subscription, address: str) -> None:
        def taken(delivery: Delivery) -> None:
            key = key_in(delivery.payload)
            one.shown.append(int(key[4:]) if key is not None else 0)
            self.shown += 1
            link = delivery.link
            if not one.bare.engine.usable:  # it was closed here, and this was on its way
                return
            link.settle(delivery.delivery_id, delivery.delivery_id, Accepted())
            if link.credit <= self.credit // 2 and link.attached:
                link.grant(self.credit)

        source = Source(address, capabilities=TOPIC, filter=OWN if one.no_local else None)
        one.link = await one.bare.receiver(source, taken, self.credit)

    async def _publish(self, bed: Bed, me: int, bare: Bare, sender: Sender) -> int | None:
        """The number of what it published; None if the node refused it, for its disk may be full. Raises Broken."""
        self.sent += 1
        number = self.sent
        message = message_of(make_key(me, number), self.size, None)
        bed.history.sent[make_key(me, number)] = content_of(message)
        outcomes: list[Any] = []
        await bare.send(sender, message.encode(), outcomes.append)
        await bare.until(lambda: bool(outcomes) or sender.detached)  # in one order over both connections
        if not outcomes:
            raise Broken
        if isinstance(outcomes[0], Accepted):
            return number
        self.refused += 1
        return None

    def _judge(self, address: str, one: _Subscription, due: list[int], by: dict[int, Bare]) -> None:
        where = f"a subscription of {address} at {self.node}"
        own = [number for number in one.shown if one.no_local and by.get(number) is one.bare]
        if own:
            raise Violation(f"{where} with no-local was shown {own[:5]}, which its own connection published")
        if one.shown != due and one.link is not None and one.link.attached:
            raise Violation(f"{where} was shown {one.shown[:50]}; expected {due[:50]}")

    async def _ended(self, address: str, there: list[_Subscription], other: Bare) -> None:
        """The topic is gone, and whoever had a link to it was told."""
        for one in there:
            link: Link | None = one.link
            if link is not None and (link.error is None or str(link.error.condition) != conditions.RESOURCE_DELETED):
                raise Violation(f"{address} at {self.node} ended, and a subscription of it was told {link.error}")
        nothing: Callable[[Delivery], None] = lambda delivery: None  # noqa: E731
        try:
            await other.receiver(Source(address, capabilities=TOPIC), nothing, 0)
        except Refused as refused:
            if refused.condition == conditions.NOT_FOUND:
                self.ended += 1
                return
            raise
        raise Violation(f"{address} at {self.node} is still there, without the link that made it")

    def check(self, bed: Bed) -> None:
        return

    def metrics(self) -> dict[str, float]:
        told = {"sent": self.sent, "refused": self.refused, "shown": self.shown}
        return {**told, "left out": self.left_out, "ended": self.ended}
