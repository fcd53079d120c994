"""`addressed`: a program with one link for all addresses: each message's `to` says where it goes (the anonymous
terminus), and what cannot go there costs that message alone.

Rules of this file: each number is sent once, so whatever had no outcome when a connection broke is not known for good.
What was refused is stored nowhere, and what is stored lies where its own `to` said.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any, ClassVar, Final

from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.performatives import Accepted, Properties, Rejected, Released, Target
from holdfast_lab.base.client_history import Violation, make_key
from holdfast_lab.base.contents import content_of, message_of
from holdfast_lab.workloads.bare import Bare, Broken, Refused, connected
from holdfast_lab.workloads.bed import Bed
from holdfast_lab.workloads.common import NOT_LOOKED_AT, RETRY_S, full_address

BAD: Final[tuple[tuple[str | None, str], ...]] = (
    (None, conditions.PRECONDITION_FAILED),
    ("queue@no-such-node", conditions.NOT_FOUND),
    ("$temporary/00000000000000000000000000000000", conditions.NOT_FOUND),
    ("$waiting", conditions.INVALID_FIELD),
    ("/queues/%zz", conditions.INVALID_FIELD),
    ("$dead-letters", conditions.NOT_ALLOWED),
)
"""A `to` that leads nowhere, and the condition that its message is rejected with (docs/amqp.md)."""


@dataclass(kw_only=True)
class Addressed:
    """`messages` sent from `node` on links without an address, each to one of `addresses` or, the share `bad`, to none
    that there is; the share `settled` of them settled. At `rate` a second (0: as fast as taken), in lives of `life_s`
    on average; somebody consumes at each address."""

    kind: ClassVar[str] = "addressed"

    node: str
    addresses: list[str]
    messages: int = 200
    size: int = 200
    rate: float = 0.0
    life_s: float = 1.0
    bad: float = 0.2
    settled: float = 0.1
    name: str = "addressed"
    outcomes: Counter[str] = field(default_factory=Counter, init=False)
    given_out: int = field(default=0, init=False)
    open: set[int] = field(default_factory=set, init=False)
    """Numbers whose outcome is to come on the connection that there is."""
    lives: int = field(default=0, init=False)
    me: int = field(default=0, init=False)

    async def setup(self, bed: Bed) -> None:
        return

    def start(self, bed: Bed) -> None:
        name = f"{self.name}-{self.node}"
        self.me = bed.history.new_producer(name)
        bed.spawn(self._produce(bed, name), name)

    async def _produce(self, bed: Bed, name: str) -> None:
        random = bed.stream(name)
        while self.given_out < self.messages:
            bare = await connected(bed, self.node, name)
            self.open.clear()
            try:
                await self._live(bed, bare, random)
            except (Broken, Refused):
                pass
            bare.end(abort=random.random() < 0.3)
            await asyncio.sleep(random.uniform(0.0, RETRY_S))

    async def _live(self, bed: Bed, bare: Bare, random: Random) -> None:
        """One connection, until it has lived long enough or all is sent; then all outcomes are waited for."""
        link = await bare.sender(Target())
        self.lives += 1
        ends_at = bed.now() + random.expovariate(1.0 / self.life_s)
        while self.given_out < self.messages and bed.now() < ends_at:
            self.given_out += 1
            key = make_key(self.me, self.given_out)
            to, condition = self._to(random)
            message = message_of(key, self.size, None)
            if to is not None:
                message.properties = replace(message.properties or Properties(), to=to)
            if not condition:
                assert to is not None
                bed.history.offer(key, full_address(to, self.node))
            bed.history.sent[key] = content_of(message)
            settled = random.random() < self.settled
            if not settled:
                self.open.add(self.given_out)
            decided = None if settled else partial(self._decided, bed, self.given_out, condition)
            await bare.send(link, message.encode(), decided, settled=settled)
            await asyncio.sleep(random.expovariate(self.rate) if self.rate else 0.0)
        await bare.until(lambda: not self.open or link.detached)

    def _to(self, random: Random) -> tuple[str | None, str]:
        """Where the next message goes, and the condition that it is rejected with, empty where it need not be."""
        return random.choice(BAD) if random.random() < self.bad else (random.choice(self.addresses), "")

    def _decided(self, bed: Bed, number: int, condition: str, outcome: Any) -> None:
        key = make_key(self.me, number)
        self.open.discard(number)
        told = str(outcome.error.condition) if isinstance(outcome, Rejected) and outcome.error is not None else ""
        self.outcomes[told or type(outcome).__name__.lower()] += 1
        # Nobody has looked where it goes while too many large messages are under way, there is no place to wait, or the
        # node is drained.
        unseen = told in NOT_LOOKED_AT or isinstance(outcome, Released)
        if condition and told != condition and not unseen:
            raise Violation(f"{key.decode()} goes nowhere: it ended as {outcome}, not rejected with {condition}")
        if isinstance(outcome, Accepted):
            bed.history.accept(key)
            return
        if not condition and not unseen:
            raise Violation(f"{key.decode()} goes to {bed.history.offered[key]}, and is answered {outcome}")
        bed.history.refuse(key, repr(outcome))

    def check(self, bed: Bed) -> None:
        history = bed.history
        for number in range(1, self.given_out + 1):
            key = make_key(self.me, number)
            if key in history.refused and key in history.received:
                raise Violation(f"{key.decode()} was refused ({history.refused[key]}), and a consumer was shown it")
            place, _ = history.places.get(key, ("", 0))
            wanted = history.offered.get(key, "nowhere").replace("@", " at ")
            if place and place != wanted:
                raise Violation(f"{key.decode()} went to {wanted}, and was shown by {place}")

    def metrics(self) -> dict[str, float]:
        return {"lives": self.lives, **{f"outcome {name}": count for name, count in sorted(self.outcomes.items())}}
