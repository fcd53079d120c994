"""`dynamic`: programs that create dynamic nodes, use them and leave, and a check that these nodes end when they must.

Rules of this file: a dynamic node is there while the link that made it is, and then for as long as its lifetime policy
says (docs/amqp.md). While its node lives, what was accepted for it is shown, in order, and not twice unmarked; a
node's end is its end. One connection of a round does nothing but last: while it does, the node has not ended.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar, Final

from holdfast.amqp.links.link import Link
from holdfast.amqp.links.receiver import Receiver
from holdfast.amqp.links.sender import Sender
from holdfast.amqp.message.message import Message
from holdfast.amqp.session.events import Delivery
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.performatives import Accepted, Released, Source, Target
from holdfast.amqp.wire.types import Described, Symbol, Ulong
from holdfast.state.turns import runs
from holdfast_lab.base.client_history import Violation, make_key
from holdfast_lab.base.contents import content_of, message_of
from holdfast_lab.workloads.bare import IDLE_TIME_OUT_S, Bare, Broken, Refused, connected
from holdfast_lab.workloads.bed import Bed
from holdfast_lab.workloads.common import is_marked, own_key_of

LIFETIME_POLICY: Final = Symbol("lifetime-policy")
ON_CLOSE, ON_NO_LINKS, ON_NO_MESSAGES, ON_NO_LINKS_OR_MESSAGES = range(0x2B, 0x2F)
"""§3.5.10 to §3.5.13."""
LASTS: Final = frozenset({ON_NO_MESSAGES, ON_NO_LINKS_OR_MESSAGES})
"""Policies by which it outlives its links while it holds messages."""
LOOK_S: Final = 0.5
LOOKS_MAX: Final = 200
"""So often a look may find a dynamic node that is to end; a connection that is gone may not have been missed yet."""


class _Place:
    """A dynamic node, as its users know it. `owed`: accepted, and not shown yet."""

    def __init__(self, me: int, policy: int) -> None:
        self.me = me
        self.policy = policy
        self.address = ""
        self.owed: dict[bytes, None] = {}
        self.shown: set[bytes] = set()
        self.last = 0
        """The highest number that was shown."""
        self.undecided = 0


@dataclass(kw_only=True)
class Dynamic:
    """`rounds` times at `node`: a dynamic node is made, by a receiver or a sender, with a lifetime policy that is
    drawn, takes `messages` in the mean over two connections, and the link that made it ends, in half of the rounds
    before anything was taken from it; the share `release` of what is shown goes back. Between two rounds `pause_s` in
    the mean."""

    kind: ClassVar[str] = "dynamic"

    node: str
    rounds: int = 10
    messages: int = 10
    size: int = 200
    credit: int = 10
    release: float = 0.1
    pause_s: float = 0.2
    name: str = "dynamic"
    ends: Counter[str] = field(default_factory=Counter, init=False)
    """How often one ended: by its policy, or not known since a connection was lost."""
    sent: int = field(default=0, init=False)

    async def setup(self, bed: Bed) -> None:
        return

    def start(self, bed: Bed) -> None:
        name = f"{self.name}-{self.node}"
        bed.spawn(self._work(bed, name), name)

    async def _work(self, bed: Bed, name: str) -> None:
        random = bed.stream(name)
        me = bed.history.new_producer(name)
        for _ in range(self.rounds):
            await self._round(bed, name, random, _Place(me, random.randrange(ON_CLOSE, 0x2F)))
            await asyncio.sleep(random.expovariate(1.0 / self.pause_s))

    async def _round(self, bed: Bed, name: str, random: Random, place: _Place) -> None:
        lasting, owner, other = [
            await connected(bed, self.node, f"{name}-{role}", honest=False) for role in ("lasting", "owner", "other")
        ]
        ended = False
        try:
            await lasting.opened()
            ended = await self._live(bed, owner, other, random, place)
        except (Broken, Refused):
            pass
        owner.end(abort=random.random() < 0.5)
        other.end(abort=random.random() < 0.5)
        if place.address:
            await self._end(bed, lasting, random, place, at_once=ended)
        lasting.end(abort=False)

    # ------------------------------------------------------------------------------------------------ its life

    async def _live(self, bed: Bed, owner: Bare, other: Bare, random: Random, place: _Place) -> bool:
        """Its use, up to the end of the link that made it; True where both links are known to have ended."""
        by_target, credit = random.random() < 0.3, random.choice((0, self.credit))
        wanted: dict[str, Any] = {
            "dynamic": True,
            "dynamic_node_properties": {LIFETIME_POLICY: Described(Ulong(place.policy), [])},
        }
        made: Link
        used: Link
        if by_target:
            made = sender = await owner.sender(Target(**wanted))
            place.address = str(made.target.address)
            used = await self._receiver(bed, other, random, place, credit)
        else:
            made = await self._receiver(bed, owner, random, place, credit, Source(**wanted))
            place.address = str(made.source.address)
            used = sender = await other.sender(Target(place.address))
        sending, taking = (owner, other) if by_target else (other, owner)
        try:
            for _ in range(int(random.expovariate(1.0 / self.messages))):
                await self._send(bed, sending, sender, place)
            if random.random() < 0.5:
                await sending.until(lambda: not place.undecided or sender.detached)
                await taking.until(lambda: not (place.owed and credit) or made.detached or used.detached)
        except Broken:
            pass
        if used.detached and not other.lost:
            await asyncio.sleep(2 * IDLE_TIME_OUT_S)  # longer than it takes to miss the node
            if made.attached and not owner.lost:
                raise Violation(f"{place.address} at {self.node} ended ({used.error}) before the link that made it")
        await owner.detach(made)
        if place.policy == ON_CLOSE:
            await other.until(lambda: used.detached)
            if used.error is None or str(used.error.condition) != conditions.RESOURCE_DELETED:
                raise Violation(f"{place.address} at {self.node} ended, and a link to it was told {used.error}")
        else:
            await other.detach(used)
        return True

    async def _receiver(
        self, bed: Bed, bare: Bare, random: Random, place: _Place, credit: int, source: Source | None = None
    ) -> Receiver:
        """From the dynamic node, or with `source` from a new one."""

        accepted: list[int] = []

        def settle(link: Receiver) -> None:
            for first, last in runs(accepted) if not link.detached else ():
                link.settle(first, last, Accepted())
            accepted.clear()

        def taken(delivery: Delivery) -> None:
            self._shown(bed, place, delivery)
            link = delivery.link
            if random.random() < self.release:
                link.settle(delivery.delivery_id, delivery.delivery_id, Released())
            else:
                if not accepted:  # what comes in one read is accepted at once
                    asyncio.get_running_loop().call_soon(settle, link)
                accepted.append(delivery.delivery_id)
            if link.credit <= self.credit // 2 and link.attached:
                link.grant(self.credit)

        return await bare.receiver(source or Source(place.address), taken, credit)

    async def _send(self, bed: Bed, bare: Bare, link: Sender, place: _Place) -> None:
        self.sent += 1
        key = make_key(place.me, self.sent)
        message = message_of(key, self.size, None)
        bed.history.sent[key] = content_of(message)

        def decided(outcome: Any) -> None:
            place.undecided -= 1
            if isinstance(outcome, Accepted) and key not in place.shown:
                place.owed[key] = None

        await bare.send(link, message.encode(), decided)
        place.undecided += 1

    def _shown(self, bed: Bed, place: _Place, delivery: Delivery) -> None:
        where = f"{place.address} at {self.node}"
        message = Message.decode(delivery.payload)
        key = own_key_of(bed.history, place.me, delivery.payload, message, where)
        number = int(key[4:])
        if key in place.shown and not is_marked(message):
            raise Violation(f"{key.decode()} was shown twice at {where}, the second time not as a redelivery")
        if key not in place.shown and number < place.last:
            raise Violation(f"{key.decode()} was first shown at {where} behind number {place.last}")
        place.last = max(place.last, number)
        place.shown.add(key)
        place.owed.pop(key, None)

    # ------------------------------------------------------------------------------------------------ its end

    async def _end(self, bed: Bed, lasting: Bare, random: Random, place: _Place, *, at_once: bool) -> None:
        """Looks until it is gone. `at_once`: no link has it any more, so by its policy it may be there for its
        messages alone."""
        looks = 0
        while True:
            try:
                while await self._is_there(bed, lasting, random, place, unmade=at_once):
                    looks += 1
                    if looks > LOOKS_MAX or (at_once and place.policy not in LASTS):
                        raise Violation(f"{place.address} at {self.node} is still there, policy {place.policy:#x}")
                    await asyncio.sleep(LOOK_S)
                break
            except Broken:  # its node may have ended, and with it all that was there
                place.owed.clear()
                at_once = False
                lasting = await connected(bed, self.node, lasting.name, honest=False)
        if place.policy in LASTS and place.owed:
            some = ", ".join(key.decode() for key in list(place.owed)[:5])
            raise Violation(f"{place.address} at {self.node} ended with {len(place.owed)} messages: {some}")
        self.ends[f"{place.policy:#x}" if at_once else "unknown"] += 1

    async def _is_there(self, bed: Bed, lasting: Bare, random: Random, place: _Place, *, unmade: bool) -> bool:
        """Takes what it holds, where it is there. `unmade`: the link that made it is known to be gone, so that by one
        policy it ends with its last message. Raises Broken."""
        while True:
            try:
                link = await self._receiver(bed, lasting, random, place, self.credit)
                break
            except Refused as refused:
                if refused.condition == conditions.NOT_FOUND:
                    return False
                await asyncio.sleep(LOOK_S)  # for another reason: a link too many
        for _ in range(LOOKS_MAX if unmade and place.policy == ON_NO_MESSAGES else int(place.policy in LASTS)):
            await asyncio.sleep(LOOK_S)
            if link.detached:
                return True
        if unmade and place.policy == ON_NO_MESSAGES and not lasting.lost:
            raise Violation(f"{place.address} at {self.node} is empty and still there")
        await lasting.detach(link)
        return True

    def check(self, bed: Bed) -> None:
        return

    def metrics(self) -> dict[str, float]:
        return {"sent": self.sent, **{f"ended by {name}": count for name, count in sorted(self.ends.items())}}
