"""What a sender puts on its link: first the deliveries that resume, then new messages, as far as there is credit.

Rules of this file: one link at a time, and which messages there are is the outbox's (outbox.py). It knows its sender
only as a `TransmissionOwner`, which gets each outcome. Hot path: `pump`. Sources: AMQP 1.0 §2.6.7, §2.6.13, §2.7.3.
"""

from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final, Protocol

from holdfast.amqp.links.sender import Sender as EngineSender
from holdfast.amqp.session.session import Session
from holdfast.amqp.wire.extensions import PRODUCER, TAG_OFFSET
from holdfast.amqp.wire.performatives import Source, Target
from holdfast.amqp.wire.types import Uint
from holdfast.client.messages.bodies import Body
from holdfast.client.outcomes import Outcome, from_state, too_large
from holdfast.client.resume import SendingState, timeout_s
from holdfast.client.send.outbox import Outbox
from holdfast.client.send.outflow import Outflow
from holdfast.client.send.pending import PendingMessage

RUN_MAX: Final = 64
"""Messages that are sent at once: those behind one that must be sent alone were put together in vain."""


class TransmissionOwner(Protocol):
    """What a Transmission needs of its sender."""

    def touch(self) -> None:
        """Has `pump` called before this turn's write."""

    def decided(self, messages: Iterable[PendingMessage], outcome: Outcome) -> None:
        """These messages have their outcome."""


class Transmission:
    """Of one sender. `link`: attached, or waiting for the node's answer; None between two links."""

    def __init__(self, owner: TransmissionOwner, outbox: Outbox, *, producer: str | None, retry_s: float) -> None:
        """Without a producer name links are resumed, within `retry_s` seconds."""
        self.link: EngineSender | None = None
        self.outflow: Outflow | None = None
        """The body that is being sent in parts."""
        self.message_bytes_max: int | None = None
        """The largest message that the node takes; None: any."""
        self._owner = owner
        self._outbox = outbox
        self._producer = producer
        self._retry_s = retry_s
        self._resume: SendingState[PendingMessage] | None = None
        if producer is None and retry_s > 0:
            self._resume = SendingState()

    # ------------------------------------------------------------------------------------------- the link's life

    def attach(self, session: Session, name: str, address: str) -> EngineSender:
        """Attaches a link, with the unsettled map of the one before where links are resumed."""
        source, target, resume = Source(address=name), Target(address=address), self._resume
        properties: dict[Any, Any] | None = None if self._producer is None else {PRODUCER: self._producer}
        unsettled: dict[bytes, Any] | None = None
        tag_offset = 0
        if resume is not None:
            tag_offset = session.tag_offset(resume.next_tag)
            properties = {TAG_OFFSET: Uint(tag_offset)}
            unsettled = resume.map(self._outbox.pending)
            target.durable, target.timeout = 2, timeout_s(self._retry_s)
        self.link = session.attach_sender(name, source, target, properties=properties, unsettled=unsettled)
        if resume is not None:
            self.link.use_tags(tag_offset)
        return self.link

    def attached(self) -> None:
        """The node answered the attach: what its unsettled map decides has its outcome, the rest is sent again."""
        link, resume = self.link, self._resume
        assert link is not None and link.remote_attach is not None
        self.message_bytes_max = link.remote_attach.max_message_size or None  # 0 is no limit too
        if resume is not None:
            for message, state in resume.answered(link):
                self._owner.decided([message], from_state(state))
        self._outbox.linked(() if resume is None else resume.kept())

    def lost(self) -> None:
        """The link is over, or its connection is."""
        if self.link is not None and self._resume is not None:
            self._resume.suspend(self.link)
        self._unlink()

    def detached(self) -> None:
        """The link was detached, by either side. The next one resumes it also if the node closed it or refused its
        attach: a node that keeps the map says what it had stored and not told yet, and any other answers without a
        map."""
        self.lost()

    def begins_round(self) -> bool:
        """The link was detached to be attached again with the rest of its unsettled map. True once for each detach."""
        return self._resume is not None and self._resume.begins_round()

    def _unlink(self) -> None:
        self.link = None
        self._outbox.unlinked()
        if self.outflow is not None:
            self.outflow.stop()
            self.outflow = None

    # ---------------------------------------------------------------------------------------------- messages

    def pump(self) -> None:
        """Sends what credit and window allow."""
        link, outbox = self.link, self._outbox
        if link is None or not outbox.has_link:
            return
        if self._resume is not None and (self._resume.steps or link.resumes_only):
            self._go_on(link, self._resume)
        unsent, retries, bytes_max = outbox.unsent, outbox.retries, self.message_bytes_max
        if self.outflow is not None and self.outflow.went_on():
            self.outflow = None
        while unsent and link.sendable and not retries.messages:
            if self._send_run(link, unsent):
                continue
            message = unsent.popleft()
            if message.body is not None:
                if message.future is not None and message.future.cancelled():
                    outbox.give_up(message)
                    continue
                self._begin(link, message, message.body)
                continue
            parts = message.cut.parts(message.number)
            if bytes_max is not None and sum(map(len, parts)) > bytes_max:
                self._owner.decided([message], too_large(bytes_max))
                continue
            link.send(parts, context=message, state=message.state)
        if link.drain and (not unsent or retries.messages or link.resumes_only):
            link.drained()

    def _send_run(self, link: EngineSender, unsent: deque[PendingMessage]) -> bool:
        """Sends the next whole messages of no transaction at once; False if the next message is to be sent alone."""
        heads, bodies, messages, bytes_max = [], [], [], self.message_bytes_max
        for message in islice(unsent, min(link.credit, RUN_MAX)):
            if message.body is not None or message.state is not None:
                break
            parts = message.cut.parts(message.number)
            head, body = parts[0] if len(parts) == 2 else b"".join(parts[:-1]), parts[-1]
            if bytes_max is not None and len(head) + len(body) > bytes_max:
                break
            heads.append(head)
            bodies.append(body)
            messages.append(message)
        count = link.send_run(heads, bodies, messages, settled=False)
        for _ in range(count):
            unsent.popleft()
        return count > 0

    def is_sending(self, message: PendingMessage) -> bool:
        """Some of the message's body is not written yet."""
        return self.outflow is not None and self.outflow.is_sending(message)

    def _go_on(self, link: EngineSender, resume: SendingState[PendingMessage]) -> None:
        """Deliveries that resume go before anything new; another round where a map was incomplete."""
        again = resume.go_on(link)
        if again:
            self._outbox.send_again(again)
        if resume.round_over(link):
            resume.next_round()
            link.detach(closed=False)

    def _begin(self, link: EngineSender, message: PendingMessage, body: Body) -> None:
        head, bytes_max = b"".join(message.cut.parts(message.number)), self.message_bytes_max
        length = body.length(len(head))
        if bytes_max is not None and length is not None and length > bytes_max:
            self._owner.decided([message], too_large(bytes_max))
            return
        outgoing = link.begin(head, length, context=message)
        self.outflow = Outflow(self, message, body, outgoing, len(head), bytes_max)

    # ------------------------------------------------------------------------------------------ for an Outflow

    def touch(self) -> None:
        """Has `pump` called before this turn's write."""
        self._owner.touch()

    def is_in_doubt(self, message: PendingMessage) -> bool:
        """The message has no outcome yet."""
        return message.key in self._outbox.pending

    def body_ended(self, message: PendingMessage, end: Exception | Outcome) -> None:
        """The message is not sent to its end: what reading its body raised, or its outcome."""
        if isinstance(end, Exception):
            self._outbox.drop(message, end)
        else:
            self._owner.decided([message], end)
