"""`guarded`: clients of a queue that they may use only at times: the fault `forbid` revokes their permission, and its
end restores it.

Rules of this file: an answer is judged where the rights did not change between question and answer: who may not is
refused with the condition of that, and who may is not. Each number is sent once, and what was refused is never shown.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any, ClassVar, Final

from holdfast.amqp.message.message import Message
from holdfast.amqp.session.events import Delivery
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.performatives import Accepted, Properties, Rejected, Released, Source, Target
from holdfast.client import Connection, ManagementError
from holdfast_lab.base.client_history import Violation, make_key
from holdfast_lab.base.contents import content_of, message_of
from holdfast_lab.base.rights import GUARDED
from holdfast_lab.workloads.bare import Bare, Broken, Refused, connected
from holdfast_lab.workloads.bed import Bed
from holdfast_lab.workloads.common import (
    NOT_LOOKED_AT,
    RETRY_S,
    asked,
    check_not_refused,
    check_refused_stay_unseen,
    closed,
    full_address,
    is_marked,
    own_key_of,
)

UNAUTHORIZED: Final = conditions.UNAUTHORIZED_ACCESS
FORBIDDEN_CODE: Final = 403
CREDIT: Final = 20
ASK_S: Final = 0.3
LOOK_S: Final = 0.2


@dataclass(kw_only=True)
class Guarded:
    """`messages` sent from `node` to its own `queue`, whose name begins with GUARDED, on links without an address, at
    `rate` a second (0: as fast as taken), in lives of `life_s` on average; a consumer there, which comes anew after
    `stays` messages, and an operator who reads the queue."""

    kind: ClassVar[str] = "guarded"

    node: str
    queue: str = GUARDED
    messages: int = 200
    size: int = 200
    rate: float = 0.0
    life_s: float = 1.0
    stays: int = 10
    name: str = "guarded"
    outcomes: Counter[str] = field(default_factory=Counter, init=False)
    given_out: int = field(default=0, init=False)
    open: set[int] = field(default_factory=set, init=False)
    me: int = field(default=0, init=False)

    async def setup(self, bed: Bed) -> None:
        return

    def start(self, bed: Bed) -> None:
        name = f"{self.name}-{self.node}"
        self.me = bed.history.new_producer(name)
        bed.spawn(self._produce(bed, name), name)
        bed.spawn(self._take(bed, f"{name}-out"), f"{name}-out", background=True)
        bed.spawn(self._ask(bed, f"{name}-asks"), f"{name}-asks", background=True)

    def _judge(self, bed: Bed, before: int, refused: bool, what: str) -> None:
        """`before`: the rights' changes when it was asked."""
        rights = bed.history.rights
        self.outcomes[f"{what} {'refused' if refused else 'allowed'}"] += 1
        if rights.changes[self.node] == before and refused is not rights.forbids(self.node):
            may = "may not" if rights.forbids(self.node) else "may"
            raise Violation(f"{what} of {self.queue} at {self.node}: who {may} was {'' if refused else 'not '}refused")

    async def _attached(self, bed: Bed, what: str, attach: Callable[[], Awaitable[Any]]) -> Any:
        """The link, None where it was refused. Raises Broken."""
        before = bed.history.rights.changes[self.node]
        try:
            link = await attach()
        except Refused as refused:
            if refused.condition in (UNAUTHORIZED, ""):
                self._judge(bed, before, refused.condition == UNAUTHORIZED, what)
            return None
        self._judge(bed, before, False, what)
        return link

    # ------------------------------------------------------------------------------------------------ sending

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
        direct = await self._attached(bed, "a sender", lambda: bare.sender(Target(self.queue)))
        if direct is not None:
            await bare.detach(direct)
        link = await bare.sender(Target())
        ends_at = bed.now() + random.expovariate(1.0 / self.life_s)
        while self.given_out < self.messages and bed.now() < ends_at:
            self.given_out += 1
            key = make_key(self.me, self.given_out)
            message = message_of(key, self.size, None)
            message.properties = replace(message.properties or Properties(), to=self.queue)
            bed.history.offer(key, full_address(self.queue, self.node))
            bed.history.sent[key] = content_of(message)
            self.open.add(self.given_out)
            before = bed.history.rights.changes[self.node]
            await bare.send(link, message.encode(), partial(self._decided, bed, self.given_out, before))
            await asyncio.sleep(random.expovariate(self.rate) if self.rate else 0.0)
        await bare.until(lambda: not self.open or link.detached)

    def _decided(self, bed: Bed, number: int, before: int, outcome: Any) -> None:
        key = make_key(self.me, number)
        self.open.discard(number)
        told = str(outcome.error.condition) if isinstance(outcome, Rejected) and outcome.error is not None else ""
        # Nobody has looked where it goes while there is no place to wait, the node is drained, or its turn was taken
        # back.
        if told not in NOT_LOOKED_AT and not isinstance(outcome, Released):
            self._judge(bed, before, told == UNAUTHORIZED, "a message")
        if isinstance(outcome, Accepted):
            bed.history.accept(key)
        elif isinstance(outcome, Released) or told in (UNAUTHORIZED, *NOT_LOOKED_AT):
            bed.history.refuse(key, repr(outcome))
        else:
            raise Violation(f"{key.decode()} goes to {self.queue} at {self.node}, and is answered {outcome}")

    # ------------------------------------------------------------------------------------------------ taking

    async def _take(self, bed: Bed, name: str) -> None:
        random = bed.stream(name)
        while True:
            disk = bed.history.disks_changed[self.node]
            bare = await connected(bed, self.node, name)
            try:
                await self._stay(bed, bare, disk)
            except Broken:
                pass
            bare.end(abort=random.random() < 0.5)
            await asyncio.sleep(random.uniform(0.0, LOOK_S))

    async def _stay(self, bed: Bed, bare: Bare, disk: int) -> None:
        """One link, for `stays` messages or until none comes for a while."""
        shown = 0

        def taken(delivery: Delivery) -> None:
            nonlocal shown
            shown += 1
            if disk == bed.history.disks_changed[self.node]:
                self._shown(bed, delivery)
                delivery.link.settle(delivery.delivery_id, delivery.delivery_id, Accepted())
            bare.wire.schedule()

        link = await self._attached(bed, "a receiver", lambda: bare.receiver(Source(self.queue), taken, CREDIT))
        if link is not None:
            before = -1
            while shown < self.stays and shown != before and not link.detached:
                before = shown
                await asyncio.sleep(LOOK_S)
            await bare.detach(link)

    def _shown(self, bed: Bed, delivery: Delivery) -> None:
        place = f"{self.queue} at {self.node}"
        message = Message.decode(delivery.payload)
        key = own_key_of(bed.history, self.me, delivery.payload, message, place)
        check_not_refused(bed.history, key, place)
        bed.history.receive(key, place, marked=is_marked(message))

    # ------------------------------------------------------------------------------------------------ managing

    async def _ask(self, bed: Bed, name: str) -> None:
        random = bed.stream(name)
        connection: Connection = await bed.connect(self.node, name)
        while self.given_out < self.messages:
            before, refused = bed.history.rights.changes[self.node], False
            try:
                await asked(connection, "READ", "queue", self.queue)
            except ManagementError as error:
                if error.code not in (FORBIDDEN_CODE, 404):  # nobody has sent there yet
                    raise
                refused = error.code == FORBIDDEN_CODE
            self._judge(bed, before, refused, "a question")
            await asyncio.sleep(random.expovariate(1.0 / ASK_S))
        await closed(connection)

    def check(self, bed: Bed) -> None:
        check_refused_stay_unseen(bed.history, self.me)

    def metrics(self) -> dict[str, float]:
        return dict(sorted(self.outcomes.items()))
