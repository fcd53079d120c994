"""Messages from one address: credit topped up at half, settlements written as ranges once for a turn.

Rules of this file: what the user holds unsettled survives a break of the connection: when the node offers it again,
the same Delivery is bound to the new link and not handed out twice; what the user had accepted is accepted again
without a word (`duplicates_suppressed` counts both). Who is the same is told by (sequence, enqueued time): a queue
never uses a sequence twice, and a queue made anew has other times. Sources: AMQP 1.0 §2.6.7, §2.6.12, §3.5.3.
"""

import asyncio
from collections import deque
from typing import Any, Final, Self

from holdfast.amqp import conditions, events
from holdfast.amqp.extensions import TELLS_PATH
from holdfast.amqp.link import Link as EngineLink
from holdfast.amqp.performatives import Target
from holdfast.amqp.receiver import Receiver as EngineReceiver
from holdfast.amqp.session import Session
from holdfast.client.delivery import ACCEPTED, RELEASED, Delivery
from holdfast.client.errors import ConnectionEnded, LinkError
from holdfast.client.link import CLOSE_LIMIT_S, ClientLink, LinkHost, shown
from holdfast.client.payload import placed
from holdfast.client.resume import ReceivingState
from holdfast.client.terms import Terms, left_out
from holdfast.errors import LocalProtocolError

ACCEPTED_MAX: Final = 65_536
"""Accepted sequences remembered, for the case that the node did not hear of it: far more than may be under way."""


class Receiver(ClientLink):
    """Made by `Connection.receiver`; iterate over it, or take what is there with `batch`.

    Counts: `received` (handed out), `duplicates_suppressed`.
    """

    def __init__(self, connection: LinkHost, address: str, terms: Terms) -> None:
        super().__init__(connection, f"receiver from {shown(address)}", terms.link_name)
        self.address = address
        self.received = 0
        self.duplicates_suppressed = 0
        self._credit = terms.credit
        self._left = terms.count_max
        self._copy = terms.copy
        self._durable = terms.subscription is not None
        self._closes = not self._durable
        self._next_sequence = terms.start_sequence
        self._terms = terms
        self._message_bytes_max: int | None = None
        """None: the connection's."""
        self._link: EngineReceiver | None = None
        self._again = False
        self._buffer: deque[Delivery] = deque()
        self._held: dict[int, Delivery] = {}
        self._accepted: dict[int, int] = {}
        self._accepted_order: deque[int] = deque()
        self._settlements: dict[int, tuple[Any, list[int]]] = {}
        self._resume: ReceivingState[Delivery] | None = None
        if not self._copy and (terms.resume_s or self._durable) and connection.retry_s > 0:
            self._resume = ReceivingState()
        self._bound = asyncio.Event()
        """Set while the node has nothing to resume that we know of."""
        self._bound.set()
        self._ended = False
        self._closing = False
        self._drained: asyncio.Future[None] | None = None
        """While it waits for the node's answer to a drain."""
        self._waiter: asyncio.Future[None] | None = None

    # ------------------------------------------------------------------------------------------ for users

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        while True:
            while not self._buffer:
                if not await self._wait(None):
                    raise StopAsyncIteration
            delivery = self._buffer.popleft()
            if self._hand_out(delivery):
                self._after_hand_out()
                return delivery

    async def batch(self, *, count_max: int | None = None, timeout_s: float | None = None) -> list[Delivery]:
        """All that is there, in order, at most `count_max`; waits for the first one.

        Empty when `timeout_s` has passed without one, or at the end: `ended` tells which.
        """
        while True:
            while not self._buffer:
                if not await self._wait(timeout_s):
                    return []
            if count_max is None or count_max >= len(self._buffer):
                taken, self._buffer = list(self._buffer), deque()
            else:
                taken = [self._buffer.popleft() for _ in range(count_max)]
            taken = [delivery for delivery in taken if self._hand_out(delivery)]
            self._after_hand_out()
            if taken:
                return taken

    @property
    def ended(self) -> bool:
        """The node closed the link after all that it had to give, and all of it was handed out."""
        return self._ended and not self._buffer

    async def close(self) -> None:
        """Gives back what was not handed out, settles what was decided, detaches; a subscription is kept.

        What was decided since a break is settled once the node has resumed it, which is waited for a limited time. If
        this is cancelled, the receiver has ended all the same.
        """
        try:
            if self._resume is not None and self._resume.said and not self.is_over():
                try:
                    async with asyncio.timeout(CLOSE_LIMIT_S):
                        await self._bound.wait()
                except TimeoutError:
                    pass
            self._closing = True
            await self._stop()
        except asyncio.CancelledError:
            self.fail(ConnectionEnded(f"{self._what}: closed"))
            raise
        self._give_back()
        self._buffer.clear()
        await self._detach()
        self._wake()

    async def _stop(self) -> None:
        """Takes the credit back, and waits a limited time for what is under way: what the node sent and nobody gave
        back would count as a failed delivery."""
        link = self._link
        if link is None or not link.attached or link.detached or self._copy or not link.credit:
            return
        self._drained = self._loop.create_future()
        link.grant(0, drain=True)
        self._connection.schedule()
        try:
            async with asyncio.timeout(CLOSE_LIMIT_S):
                await self._drained
        except TimeoutError:
            pass
        finally:
            self._drained = None

    # ------------------------------------------------------------------------- what the connection calls

    def attach(self, session: Session) -> None:
        if self._ended:
            return
        end_sequence = self._terms.end_sequence
        if end_sequence is not None and (self._next_sequence or 0) >= end_sequence:
            self._end()  # the break came after the last of the range, before the node's detach
            return
        source = self._terms.source(self.address, self._next_sequence)
        link = session.attach_receiver(
            self._name,
            source,
            Target(address=self._name),
            snd_settle_mode=1 if self._copy else 0,
            max_message_size=self._message_bytes_max,
            unsettled=None if self._resume is None else self._resume.map(_payload_of),
            desired_capabilities=(TELLS_PATH,) if self._copy else None,
        )
        link.context = self
        self._link = link
        if not source.filter:  # else a peer that applies none of it would send what was not asked for
            self._top_up()

    def attached(self, link: EngineLink) -> None:
        if not link.refused and (not_applied := left_out(link)):
            text = f"{self._what}: the peer does not apply {not_applied}: it is no Holdfast node, or too old"
            self.fail(LinkError(text, conditions.NOT_IMPLEMENTED))
            return
        resume = self._resume
        if resume is not None and isinstance(link, EngineReceiver):
            resume.answered(link)
            if self._again:
                self._drop_what_does_not_go_on(resume)
        self._look_if_bound()
        super().attached(link)
        self.touch()

    def _look_if_bound(self) -> None:
        if self._resume is None or not self._resume.awaited:
            self._bound.set()

    def lost(self) -> None:
        super().lost()
        self.drained()
        self._link = None
        self._again = True
        self._settlements.clear()
        if self._resume is not None:
            self._resume.suspend()
            self._bound.clear()
        elif not self._copy:
            self._drop([*self._buffer])

    def _drop(self, deliveries: list[Delivery]) -> None:
        """Those of these that were not handed out, and nobody has settled: the node offers them again."""
        gone = set(map(id, deliveries))
        before = len(self._buffer)
        self._buffer = deque(item for item in self._buffer if item.settled or id(item) not in gone)
        if self._left is not None:
            self._left += before - len(self._buffer)

    def _drop_what_does_not_go_on(self, resume: "ReceivingState[Delivery]") -> None:
        self._drop([item for item in self._buffer if resume.open.get(item.tag) is not item])

    def detached(self, event: events.LinkDetached) -> None:
        if event.link is not self._link:
            return
        resume = self._resume
        if resume is not None and resume.again and self._gone is None:
            self.lost()
            resume.again = False
            self._connection.attach_again(self)
            return
        self.drained()
        if self._gone is None and event.error is None:
            self._link = None
            self._end()
            return
        if self._gone is None:
            self.lost()
        super().detached(event)

    def drained(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def delivery(self, event: events.Delivery) -> None:
        if event.resume and self._resume is not None and self._resumed(event, self._resume):
            return
        sequence, enqueued_ms = placed(event.payload)
        if self._again and not event.settled and sequence and self._known(event, sequence, enqueued_ms):
            self.touch()  # it used credit, and nobody will take it
            return
        if self._left is not None:
            self._left -= 1
        if self._copy and sequence:
            self._next_sequence = sequence + 1
        delivery = Delivery(self, event, sequence, enqueued_ms)
        if self._resume is not None and not event.settled:
            self._resume.took(event.tag, delivery)
        self._buffer.append(delivery)
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _resumed(self, event: events.Delivery, resume: "ReceivingState[Delivery]") -> bool:
        """The node goes on with a delivery of an earlier link; False where it is new to us after all."""
        held, outcome = resume.resumed(event.tag, settled=event.settled)
        self._look_if_bound()
        if held is not None:
            held.link, held.delivery_id = event.link, event.delivery_id
        elif outcome is not None:
            self._settle_later(event.delivery_id, outcome)
        elif not event.settled:
            return False
        self.touch()
        return True

    def resume_aborted(self, event: events.ResumeAborted) -> None:
        if self._resume is not None:
            self._resume.aborted(event.tag)
            self._drop_what_does_not_go_on(self._resume)
            self._look_if_bound()
            self.touch()

    def turn_ended(self, *, paused: bool) -> None:
        link = self._link
        if link is None:
            return
        if self._settlements:
            settlements, self._settlements = self._settlements, {}
            unsent: LocalProtocolError | None = None
            for outcome, ids in settlements.values():
                try:
                    for first, last in _ranges(ids):
                        link.settle(first, last, outcome)
                except LocalProtocolError as error:  # the others go out all the same
                    unsent = error
            if unsent is not None:
                self.fail(LinkError(f"{self._what}: an outcome cannot be sent: {unsent}", None))
                return
        self._top_up()
        resume = self._resume
        if resume is not None and link.resumes_only and link.attached and not resume.again and not resume.awaited:
            resume.next_round()
            link.detach(closed=False)

    def fail(self, error: Exception) -> None:
        if self.failure is None:
            self._closing = True
            self._give_back()
        super().fail(error)
        self._bound.set()
        self._wake()

    # ---------------------------------------------------------------------------------- for deliveries

    def settle(self, delivery: Delivery, outcome: Any) -> None:
        """Notes the outcome of a delivery that was handed out; written when the turn ends."""
        if delivery.settled:
            raise LocalProtocolError(f"{delivery!r} is settled already")
        delivery.settled = True
        sequence = delivery.sequence
        if sequence:
            held = self._held.pop(sequence, None)
            if held is not None and held is not delivery:
                self._held[sequence] = held
            if outcome is ACCEPTED:
                self._remember(sequence, delivery.enqueued_ms)
        if self._resume is not None:
            self._resume.settled(delivery.tag, outcome)
        if delivery.link is self._link:  # else the node has it back, and offers it again
            self._settle_later(delivery.delivery_id, outcome)

    # ---------------------------------------------------------------------------------------- internals

    def _hand_out(self, delivery: Delivery) -> bool:
        """False for what the user turned out to have accepted while it lay here."""
        if not delivery.settled and delivery.sequence:
            if self._again and self._accepted.get(delivery.sequence) == delivery.enqueued_ms:
                self._suppress(delivery.delivery_id)
                if self._left is not None:
                    self._left += 1
                return False
            self._held[delivery.sequence] = delivery
        self.received += 1
        if delivery.whole:
            self.outage.gained = True
        return True

    def _engine_links(self) -> list[EngineLink]:
        return [] if self._link is None else [self._link]

    def _after_hand_out(self) -> None:
        link = self._link
        if link is not None and (link.credit + len(self._buffer)) * 2 <= self._credit:
            self.touch()

    def _top_up(self) -> None:
        link = self._link
        if link is None or link.detached or self._closing:
            return
        again = 0 if self._resume is None else len(self._resume.awaited)  # it uses credit, and no place
        ahead = link.credit + len(self._buffer) - again
        if ahead * 2 > self._credit:
            return
        credit = self._credit - len(self._buffer)
        if self._left is not None:
            credit = min(credit, self._left)
        credit += again - self._begun(link)
        if credit > link.credit:
            if self._resume is not None:
                self._resume.granting(link)
            link.grant(credit)

    def _begun(self, link: EngineReceiver) -> int:
        """Deliveries that used credit with their first frame, and are not counted in `_left` yet."""
        return 0 if link.partial is None else 1

    def _known(self, event: "events.Delivery | Delivery", sequence: int, enqueued_ms: int) -> bool:
        """Whether the user has seen this one over an earlier connection; deals with it if so."""
        held = self._held.get(sequence)
        if held is not None and held.enqueued_ms == enqueued_ms:
            held.link, held.delivery_id, held.tag = event.link, event.delivery_id, event.tag
            if self._resume is not None:
                self._resume.took(event.tag, held)
            self.duplicates_suppressed += 1
            return True
        if self._accepted.get(sequence) == enqueued_ms:
            self._suppress(event.delivery_id)
            return True
        return False

    def _suppress(self, delivery_id: int) -> None:
        self.duplicates_suppressed += 1
        self._settle_later(delivery_id, ACCEPTED)

    def _settle_later(self, delivery_id: int, outcome: Any) -> None:
        entry = self._settlements.get(id(outcome))
        if entry is None:
            if not self._settlements:
                self.touch()
            self._settlements[id(outcome)] = (outcome, [delivery_id])
        else:
            entry[1].append(delivery_id)

    def _give_back(self) -> None:
        """What was not handed out is free for others, and what was decided is told."""
        link = self._link
        if link is None or not link.attached:
            return
        kept: deque[Delivery] = deque()
        for delivery in self._buffer:
            if delivery.settled or delivery.link is not link or not delivery.whole:
                kept.append(delivery)
            else:
                self._settle_later(delivery.delivery_id, RELEASED)
        self._buffer = kept
        self.turn_ended(paused=False)

    def _remember(self, sequence: int, enqueued_ms: int) -> None:
        if sequence not in self._accepted:
            self._accepted_order.append(sequence)
            if len(self._accepted_order) > ACCEPTED_MAX:
                del self._accepted[self._accepted_order.popleft()]
        self._accepted[sequence] = enqueued_ms

    def _end(self) -> None:
        self._ended = True
        self._connection.forget(self)
        if not self._ready.done():
            self._ready.set_result(None)
        self._wake()

    def _wake(self) -> None:
        """Whoever waits looks again. `delivery` does the same without a call: it is on the way of every message."""
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def _wait(self, timeout_s: float | None) -> bool:
        """Waits for a delivery or the end; False at the end and when the time has passed."""
        if self._ended or self._left == 0:
            return False
        self.check()
        if self._waiter is not None:
            raise LocalProtocolError(f"{self._what}: two tasks wait for messages, accepted is one")
        self._waiter = self._loop.create_future()
        try:
            async with asyncio.timeout(timeout_s):
                await self._waiter
        except TimeoutError:
            return bool(self._buffer)
        finally:
            self._waiter = None
        if not self._buffer:
            self.check()
        return bool(self._buffer) or not self._ended


def _payload_of(delivery: Delivery) -> bytes:
    return delivery.payload


def _ranges(ids: list[int]) -> list[tuple[int, int]]:
    """Delivery ids as inclusive ranges, ascending; the wrap at 2**32 only splits one."""
    ids.sort()
    found: list[tuple[int, int]] = []
    first = last = ids[0]
    for number in ids[1:]:
        if number == last + 1:
            last = number
        elif number != last:
            found.append((first, last))
            first = last = number
    found.append((first, last))
    return found
