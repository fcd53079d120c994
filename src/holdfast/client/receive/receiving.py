"""The link that messages are received on, over breaks of the connection: credit is topped up at half, outcomes are sent
as ranges once for a turn.

Rules of this file: deliveries that the program holds unsettled survive a break of the connection. When the node offers
such a message again, the same Delivery is bound to the new link and not handed out twice; a message that the program
has accepted is accepted again at once (`duplicates_suppressed` counts both). handed_out.py says how a message is
recognised. Sources: AMQP 1.0 §2.6.7, §2.6.12, §3.5.3.
"""

import asyncio
from collections import deque
from typing import Any

from holdfast.amqp.links.link import Link as EngineLink
from holdfast.amqp.links.receiver import Receiver as EngineReceiver
from holdfast.amqp.session import events
from holdfast.amqp.session.session import Session
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.extensions import TELLS_PATH
from holdfast.amqp.wire.performatives import Target, TransactionalState
from holdfast.client.errors import LinkError
from holdfast.client.link import ClientLink, LinkHost, shown
from holdfast.client.messages.payload import placed
from holdfast.client.receive.delivery import ACCEPTED, RELEASED, Delivery
from holdfast.client.receive.handed_out import HandedOut
from holdfast.client.receive.settlements import Settlements
from holdfast.client.receive.terms import Confirmation, Terms, confirmation_of, left_out
from holdfast.client.resume import ReceivingState
from holdfast.errors import LocalProtocolError


class ReceivingLink(ClientLink):
    """Base of the receivers: what the connection calls, and what becomes of deliveries that are not handed out."""

    def __init__(self, connection: LinkHost, address: str, terms: Terms) -> None:
        super().__init__(connection, f"receiver from {shown(address)}", terms.link_name)
        self.address = address
        """Where the messages come from."""
        self.received = 0
        """Messages that were handed out."""
        self.duplicates_suppressed = 0
        """Messages that the node offered again after a break and that were not handed out a second time."""
        self._credit = terms.credit
        self._left = terms.count_max
        """Messages that may still arrive; None: any number."""
        self._copy = terms.copy
        self._durable = terms.subscription is not None
        self._closes = not self._durable
        self._next_sequence = terms.start_sequence
        self._terms = terms
        self._message_bytes_max = terms.message_bytes_max
        """The max-message-size of the attach; None: the connection's."""
        self._link: EngineReceiver | None = None
        self._had_link = False
        """A link was lost: messages may arrive a second time."""
        self._buffer: deque[Delivery] = deque()
        """Arrived, and not handed out yet."""
        self._handed_out = HandedOut()
        self._settlements = Settlements()
        self._resume: ReceivingState[Delivery] | None = None
        if not self._copy and (terms.resume_s or self._durable) and connection.retry_s > 0:
            self._resume = ReceivingState()
        self._resumed_all = asyncio.Event()
        """Set while no delivery of an earlier link is still to be resumed."""
        self._resumed_all.set()
        self.confirmation: Confirmation | None = None
        """Of the last attach, where `confirm_s` asked for one."""
        self._ended = False
        self._closing = False
        self._drained: asyncio.Future[None] | None = None
        """Done when the node has answered a drain; None without one."""
        self._waiter: asyncio.Future[None] | None = None

    # ------------------------------------------------------------------------- what the connection calls

    def attach(self, session: Session) -> None:
        if self._ended:
            return
        end_sequence = self._terms.end_sequence
        if end_sequence is not None and (self._next_sequence or 0) >= end_sequence:
            self._end()  # the connection broke between the last message of the range and the node's detach
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
            properties=self._terms.properties,
        )
        link.context = self
        self._link = link
        if not source.filter:  # a peer that ignores the filter would send what was not asked for
            self._top_up()

    def attached(self, link: EngineLink) -> None:
        if not link.refused and (not_applied := left_out(link)):
            text = f"{self._what}: the peer does not apply {not_applied}: it is no Holdfast node, or too old"
            self.fail(LinkError(text, conditions.NOT_IMPLEMENTED))
            return
        if not link.refused and self._terms.confirm_s is not None:
            self.confirmation = confirmation_of(link)
            if self.confirmation is None:
                text = f"{self._what}: nothing is confirmed: it is no topic, or the peer no Holdfast node, or too old"
                self.fail(LinkError(text, conditions.NOT_IMPLEMENTED))
                return
        resume = self._resume
        if resume is not None and isinstance(link, EngineReceiver):
            resume.answered(link)
            if self._had_link:
                self._drop_not_resumed(resume)
        self._check_resumed()
        super().attached(link)
        self.touch()

    def _check_resumed(self) -> None:
        if self._resume is None or not self._resume.awaited:
            self._resumed_all.set()

    def lost(self) -> None:
        super().lost()
        self.drained()
        self._link = None
        self._had_link = True
        self._settlements.clear()
        if self._resume is not None:
            self._resume.suspend()
            self._resumed_all.clear()
        elif not self._copy:
            self._drop([*self._buffer])

    def _drop(self, deliveries: list[Delivery]) -> None:
        """Drops those of `deliveries` that are in the buffer and not settled: the node offers them again."""
        gone = set(map(id, deliveries))
        before = len(self._buffer)
        self._buffer = deque(item for item in self._buffer if item.settled or id(item) not in gone)
        if self._left is not None:
            self._left += before - len(self._buffer)

    def _drop_not_resumed(self, resume: "ReceivingState[Delivery]") -> None:
        self._drop([item for item in self._buffer if resume.open.get(item.tag) is not item])

    def detached(self, event: events.LinkDetached) -> None:
        if event.link is not self._link:
            return
        if self._gone is None and self._resume is not None and self._resume.begins_round():
            self.lost()
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
        if self._had_link and not event.settled and sequence and self._known(event, sequence, enqueued_ms):
            self.touch()  # it used credit, and is not handed out
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
        """The node resumed a delivery of an earlier link; False where it is not known here, and thus new."""
        held, outcome = resume.resumed(event.tag, settled=event.settled)
        self._check_resumed()
        if held is not None:
            held.bind(event)
        elif outcome is not None:
            self._settle_later(event.delivery_id, outcome)
        elif not event.settled:
            return False
        self.touch()
        return True

    def resume_aborted(self, event: events.ResumeAborted) -> None:
        if self._resume is not None:
            self._resume.aborted(event.tag)
            self._drop_not_resumed(self._resume)
            self._check_resumed()
            self.touch()

    def turn_ended(self, *, paused: bool) -> None:
        link = self._link
        if link is None:
            return
        if self._settlements:
            unsent = self._settlements.write(link)
            if unsent is not None:
                self.fail(LinkError(f"{self._what}: an outcome cannot be sent: {unsent}", None))
                return
        self._top_up()
        resume = self._resume
        if resume is not None and resume.round_over(link):
            resume.next_round()
            link.detach(closed=False)

    def fail(self, error: Exception) -> None:
        if self.failure is None:
            self._closing = True
            self._release_buffer()
        super().fail(error)
        self._resumed_all.set()
        self._wake()

    # ---------------------------------------------------------------------------------- for deliveries

    def holds(self, delivery: Delivery) -> bool:
        """As `Settles.holds`. The link of a connection that broke says that it is attached for ever."""
        link = self._link
        return link is not None and link.attached and delivery.link is link

    def settle(self, delivery: Delivery, outcome: Any) -> None:
        """Gives a delivery its outcome, which is sent when the turn ends."""
        if delivery.settled:
            raise LocalProtocolError(f"{delivery!r} is settled already")
        delivery.settled = True
        if delivery.sequence:
            if outcome is ACCEPTED:
                self._handed_out.accept(delivery)
            else:
                self._handed_out.drop(delivery)
        if self._resume is not None:  # a transaction ends with its connection: then the message was not taken
            told = RELEASED if isinstance(outcome, TransactionalState) else outcome
            self._resume.settled(delivery.tag, told)
            if self._link is not None and self._link.resumes_only:
                self.touch()  # another round may tell it
        # A delivery of an earlier link is back at the node, which offers it again.
        if delivery.link is self._link and self._settlements.add(delivery.delivery_id, outcome):
            self.touch()

    def ask_for(self, credit: int) -> None:
        """Sets how many messages may arrive ahead of the program."""
        self._credit = credit

    # ---------------------------------------------------------------------------------------- internals

    def _engine_links(self) -> list[EngineLink]:
        return [] if self._link is None else [self._link]

    def _top_up(self) -> None:
        link = self._link
        if link is None or link.detached or self._closing:
            return
        again = 0 if self._resume is None else len(self._resume.awaited)  # they use credit, and no room
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
        """Deliveries whose first frame has used credit, and that are not counted in `_left` yet."""
        return 0 if link.partial is None else 1

    def _known(self, event: "events.Delivery | Delivery", sequence: int, enqueued_ms: int) -> bool:
        """Whether the program has had this message over an earlier link; if so, it is bound or accepted again here."""
        held = self._handed_out.held(sequence, enqueued_ms)
        if held is not None:
            held.bind(event)
            if self._resume is not None:
                self._resume.took(event.tag, held)
            self.duplicates_suppressed += 1
            return True
        if self._handed_out.is_accepted(sequence, enqueued_ms):
            self._suppress(event.delivery_id)
            return True
        return False

    def _suppress(self, delivery_id: int) -> None:
        self.duplicates_suppressed += 1
        self._settle_later(delivery_id, ACCEPTED)

    def _settle_later(self, delivery_id: int, outcome: Any) -> None:
        if self._settlements.add(delivery_id, outcome):
            self.touch()

    def _release_buffer(self) -> None:
        """Releases messages that were not handed out, and sends all outcomes."""
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

    def _end(self) -> None:
        self._ended = True
        self._connection.forget(self)
        if not self._ready.done():
            self._ready.set_result(None)
        self._wake()

    def _wake(self) -> None:
        """Wakes all that wait. `delivery` does the same without a call: it runs for every message."""
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


def _payload_of(delivery: Delivery) -> bytes:
    return delivery.payload
