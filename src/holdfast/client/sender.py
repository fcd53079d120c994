"""Messages to one address: what is in doubt is kept until the node has decided, over any number of connections.

Rules of this file: what is in doubt is the outbox's (outbox.py); here it goes out on whatever link there is. Without a
producer name the link is resumed after a break (resume.py): what the node does not know goes again, or all of it where
the peer keeps nothing: at least once. With a name each message has a number (producer.py); the node drops what it has,
so it is appended once (docs/client.md; CUSTODY: Producers). Hot path: `post`/`submit` → `_pump` → `outcomes`.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, Final, Literal

from holdfast.amqp import performatives
from holdfast.amqp.events import Outcomes
from holdfast.amqp.extensions import PRODUCER, TAG_OFFSET
from holdfast.amqp.link import Link as EngineLink
from holdfast.amqp.message import Message
from holdfast.amqp.performatives import Header, Source, Target
from holdfast.amqp.sender import Sender as EngineSender
from holdfast.amqp.session import Session
from holdfast.amqp.types import MISSING as NO_VALUE
from holdfast.amqp.types import Uint
from holdfast.broker.ranges import RangeSet
from holdfast.client import payload
from holdfast.client.bodies import Body, Parts
from holdfast.client.doubt import Doubt, OnOutcome
from holdfast.client.errors import ClientFull
from holdfast.client.link import ClientLink, LinkConnection, shown
from holdfast.client.outbox import Outbox
from holdfast.client.outcomes import ACCEPTED, Outcome, from_state, too_large
from holdfast.client.outflow import Outflow
from holdfast.client.producer import NUMBER_MAX, ProducerNumbers
from holdfast.client.resume import SendingState, timeout_s
from holdfast.client.spool import Spool, SpoolFile
from holdfast.client.syncing import Syncing
from holdfast.errors import ConfigError, HoldfastError

WhenFull = Literal["wait", "raise"] | Spool
WHEN_FULL: Final = ("wait", "raise")
Waits = Literal["answers", "attach", "back", "credit", "socket", "window"]


class Sender(ClientLink):
    """Made by `Connection.sender`. Counts since it was made: `accepted`, `rejected`, `released` (and modified).

    `last_number` and `missing`: what the node had stored of the producer at the latest attach. `over`: done once it
    has failed or was closed, see `failure`; not to be cancelled.
    """

    def __init__(
        self,
        connection: LinkConnection,
        address: str,
        *,
        producer: str | None,
        in_doubt_max: int,
        when_full: WhenFull,
        name: str,
    ) -> None:
        super().__init__(connection, f"sender to {shown(address)}", name)
        self.address = address
        self.producer = producer
        self.over: asyncio.Future[None] = self._loop.create_future()
        self._in_doubt_max = in_doubt_max
        self._raises = when_full == "raise"
        self._link: EngineSender | None = None
        self._size_max: int | None = None
        self._resume: SendingState[Doubt] | None = None
        if producer is None and connection.retry_s > 0:
            self._resume = SendingState()
        self._abandoned = False
        self._outflow: Outflow | None = None
        """The body that is being sent in parts."""
        self._spool: SpoolFile | None = None
        self._syncing: Syncing | None = None
        if isinstance(when_full, Spool):
            assert producer is not None, "the connection lets no spool without a name through"
            self._spool = SpoolFile(when_full, producer=producer, address=address)
            self._syncing = Syncing(self, self._spool, when_full.fsync_interval_s, self._loop)
        self._numbers = None if producer is None else ProducerNumbers(producer, address, self._what, self._spool)
        self._outbox = Outbox(
            self._loop, self.touch, in_doubt_max=in_doubt_max, numbers=self._numbers, spool=self._spool
        )

    # ------------------------------------------------------------------------------------------ for users

    @property
    def accepted(self) -> int:
        return self._outbox.accepted

    @property
    def rejected(self) -> int:
        return self._outbox.rejected

    @property
    def released(self) -> int:
        return self._outbox.released

    @property
    def last_number(self) -> int:
        return 0 if self._numbers is None else self._numbers.last_number

    @property
    def missing(self) -> RangeSet:
        return RangeSet() if self._numbers is None else self._numbers.missing

    @property
    def epoch(self) -> int:
        """How often senders had attached under its producer name when this one last did: the highest holds the name."""
        return 0 if self._numbers is None else self._numbers.epoch

    @property
    def in_doubt(self) -> int:
        """Messages in memory without an outcome."""
        return len(self._outbox.doubt)

    @property
    def spooled(self) -> int:
        """Messages in the spool without an outcome, those in memory included; 0 without a spool."""
        return self._outbox.spooled

    @property
    def waits_for(self) -> Waits | None:
        """What the sender waits for at a connected node; None without a connection, between two attaches, and while
        nothing is in doubt.

        "attach": the node has not answered the link's attach; the first one is waited for also with nothing in doubt.
        "socket": the node does not read. "window": its session window is closed. "credit": the link has none. "back":
        the node released messages, which are sent again after a while. "answers": all is sent, outcomes are
        outstanding. None too where a body in parts has nothing to send yet.
        """
        link, outflow, outbox = self._link, self._outflow, self._outbox
        if link is None or not (outbox.doubt or not self._ready.done()):
            return None
        if not outbox.has_link:
            return "attach" if self._connection.is_open else None
        if self._connection.is_paused:
            return "socket"
        if outflow is not None:
            return outflow.waits_for
        if outbox.given_back.entries:
            return "back"
        if not outbox.unsent or link.sendable:
            return "answers"
        return "window" if link.credit else "credit"

    @property
    def progress(self) -> tuple[int, int, int]:
        """(messages accepted or rejected, connections after the first, bytes that the node's host acknowledged). As a
        tuple it increases whenever anything goes on.
        """
        return self.accepted + self.rejected, self._connection.reconnects, self._connection.acknowledged_bytes()

    @property
    def next_number(self) -> int:
        """The number that the next message gets; of a producer that has attached once."""
        return 1 if self._numbers is None else self._numbers.next_number

    async def send(self, message: Message | bytes | str, *, number: int | None = None) -> Outcome:
        """Sends one message and waits for its outcome (with a spool perhaps only `Spooled`)."""
        return await (await self.submit(message, number=number))

    async def submit(self, message: Message | bytes | str, *, number: int | None = None) -> "asyncio.Future[Outcome]":
        """Hands one message over and returns the future of its outcome; waits only where too much is in doubt.

        `number`: the producer's own number for it, from 1, also one that was rejected before; else the next one.
        Raises ClientFull at the bound (`when_full="raise"`, or a full spool), and what ended the link.
        """
        if self.failure is not None or len(self._outbox.doubt) >= self._in_doubt_max:
            await self._room()
        future: asyncio.Future[Outcome] = self._loop.create_future()
        self._take(message, number, future, None)
        if self._syncing is not None and not self._syncing.interval_s:
            await self._syncing.done()
        return future

    async def post(
        self, message: Message | bytes | str, *, number: int | None = None, on_outcome: OnOutcome | None = None
    ) -> None:
        """As `submit`, without a future: the outcome is counted, and told to `on_outcome` unless accepted.

        What `on_outcome` raises ends this sender, and no other link, once all that came with it is told and counted:
        it is raised by its next call, and by `drain` and `close`.
        """
        if self.failure is not None or len(self._outbox.doubt) >= self._in_doubt_max:
            await self._room()
        self._take(message, number, None, on_outcome)
        if self._syncing is not None and not self._syncing.interval_s:
            await self._syncing.done()

    async def send_parts(
        self,
        body: Parts,
        *,
        message: Message | None = None,
        size: int | None = None,
        number: int | None = None,
    ) -> Outcome:
        """Sends one message whose body is read as it goes out, and waits for its outcome; memory holds a part of it.

        `body`: a file's path, bytes from an iterable or asynchronous iterable, or a function that returns one of
        these. What a path or a function gives is read anew after a break; an iterator's end is BodyGone then.
        `message`: all but body and footer. `size`: the body's bytes, if they are known beforehand (a file's are): then
        it is one data section. What reading `body` raises is raised here, and nothing is sent. Cancelled, it gives the
        message up, unless all of it was sent: then it stays in doubt until its outcome.
        """
        if self._spool is not None:
            raise ConfigError(f"{self._what}: found a body in parts and a Spool, accepted is one of them")
        if message is not None and (message.data, message.sequences, message.value) != (None, None, NO_VALUE):
            raise ConfigError(f"{self._what}: found a message with a body and one in parts, accepted is one of them")
        if message is not None and message.footer is not None:
            raise ConfigError(f"{self._what}: found a message with a footer and a body in parts, accepted is no footer")
        source = Body(body, size)
        if self.failure is not None or len(self._outbox.doubt) >= self._in_doubt_max:
            await self._room()
        future: asyncio.Future[Outcome] = self._loop.create_future()
        if number is not None:
            self._check_number(number)
        cut = payload.cut(message or Message(header=Header(durable=True)))
        entry = self._outbox.enter(cut, number, future, None, source)
        try:
            return await future
        except asyncio.CancelledError:
            if entry is not None:
                self._give_up(entry)
            raise

    async def drain(self) -> None:
        """Returns once nothing is in doubt (nor in the spool); raises what ended the link before."""
        outbox = self._outbox
        while outbox.doubt or outbox.spooled:
            self.check()
            await outbox.waiting.for_end()
        if outbox.raised is not None:
            raise outbox.raised
        if self._abandoned and self.failure is not None:
            raise self.failure

    async def close(self, *, drain: bool = True) -> None:
        """Drains, unless told not to or a spool keeps what is left, then detaches.

        The spool is free for another sender then. Raises StorageError where it could not be synced and closed.
        """
        try:
            if drain and self._spool is None:
                await self.drain()
        finally:
            await self._detach([] if self._link is None else [self._link])
        if self._syncing is not None:
            await self._syncing.ended()
            if self._syncing.failure is not None:
                raise self._syncing.failure

    # ------------------------------------------------------------------------- what the connection calls

    def attach(self, session: Session) -> None:
        target, resume = Target(address=self.address), self._resume
        properties: dict[Any, Any] | None = None
        unsettled: dict[bytes, Any] | None = None
        tag_offset = 0
        if resume is None:
            if self.producer is not None:
                properties = {PRODUCER: self.producer}
        else:
            tag_offset = session.tag_offset(resume.next_tag)
            properties = {TAG_OFFSET: Uint(tag_offset)}
            unsettled = resume.map(self._outbox.doubt)
            target.durable, target.timeout = 2, timeout_s(self._connection.retry_s)
        self._link = session.attach_sender(
            self._name, Source(address=self._name), target, properties=properties, unsettled=unsettled
        )
        if resume is not None:
            self._link.use_tags(tag_offset)
        self._link.context = self

    def attached(self, link: EngineLink) -> None:
        if link is not self._link:
            return
        assert link.remote_attach is not None
        self._size_max = link.remote_attach.max_message_size or None  # 0 is no limit too
        try:
            numbers, resume = self._numbers, self._resume
            if numbers is not None:
                numbers.learn(link.remote_attach.properties or {})
                self._decided(self._outbox.stored(), ACCEPTED)
            if resume is not None:
                for entry, state in resume.answered(self._link):
                    self._decided([entry], from_state(state))
            self._outbox.linked(() if resume is None else resume.kept())
        except HoldfastError as error:
            link.detach()
            self.fail(error)
            return
        super().attached(link)
        self.touch()

    def lost(self) -> None:
        super().lost()
        if self._link is not None and self._resume is not None:
            self._resume.suspend(self._link)
        self._unlinked()

    def detached(self, event: Any) -> None:
        link = self._link
        if link is None or event.link is not link:
            return
        resume = self._resume
        if resume is not None:
            resume.suspend(link)
            if event.closed and not link.refused:  # a refusal ends no link: the node keeps what it knows of the last
                resume.forget()
        self._unlinked()
        if resume is not None and resume.again and self._gone is None:
            resume.again = False
            self._connection.attach_again(self)
        else:
            super().detached(event)

    def _unlinked(self) -> None:
        self._link = None
        self._outbox.unlinked()
        if self._outflow is not None:
            self._outflow.stop()
            self._outflow = None

    def credit_changed(self, link: EngineLink) -> None:
        self.touch()

    def outcomes(self, event: Outcomes) -> None:
        state = event.state
        if isinstance(state, performatives.Received):
            return
        if not event.settled:
            event.link.settle(event.first, event.last, state)
        outcome = from_state(state if state is not None else event.link.default_outcome)
        self._decided(event.contexts, outcome)

    def turn_ended(self, *, paused: bool) -> None:
        if self._outbox.raised is not None:
            self.fail(self._outbox.raised)
            return
        try:
            if self._spool is not None:
                self._spool.flush_done()
                self._outbox.load()
            if not paused:
                self._pump()
        except HoldfastError as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        if self.failure is not None:
            return
        super().fail(error)
        if not self.over.done():
            self.over.set_result(None)
        if self._outbox.fail(error) and self._spool is None:
            self._abandoned = True
            self._connection.note_abandoned(error)
        self._outbox.waiting.wake_all()  # each looks at `failure` next
        if self._syncing is not None:
            self._syncing.stop()

    # ---------------------------------------------------------------------------------------- internals

    def _go_on(self, link: EngineSender, resume: "SendingState[Doubt]") -> None:
        """Transfers that resume, before anything new; another round where a map was incomplete."""
        again = resume.go_on(link)
        if again:
            self._outbox.send_again(again)
        if resume.round_over(link) and not resume.again:
            resume.next_round()
            link.detach(closed=False)

    def _take(
        self,
        message: Message | bytes | str,
        number: int | None,
        future: "asyncio.Future[Outcome] | None",
        on_outcome: OnOutcome | None,
    ) -> None:
        if number is not None:
            self._check_number(number)
        cut = payload.cut(message)
        if self._spool is None:
            self._outbox.enter(cut, number, future, on_outcome)
            return
        assert self._syncing is not None
        self._outbox.enter_spooled(self._spool, cut, future, on_outcome)
        self._syncing.later()

    def _give_up(self, entry: Doubt) -> None:
        """A body in parts that nobody waits for any more. One that a break cut short is given up when its turn comes
        again: only the next link tells whether the node has all of it."""
        outflow, outbox = self._outflow, self._outbox
        if entry in outbox.unsent or (outflow is not None and outflow.is_sending(entry)):
            outbox.give_up(entry)
            self.touch()

    def _check_number(self, number: int) -> None:
        if self.producer is None or self._spool is not None:
            raise ConfigError(f"number: found {number}, accepted is with a producer name and without a spool")
        if not 1 <= number <= NUMBER_MAX:
            raise ConfigError(f"number: found {number}, accepted is 1 to 2**63 - 1")

    def _pump(self) -> None:
        link, outbox = self._link, self._outbox
        if link is None or not outbox.has_link:
            return
        if self._resume is not None and (self._resume.steps or link.resumes_only):
            self._go_on(link, self._resume)
        unsent, given_back, size_max = outbox.unsent, outbox.given_back, self._size_max
        if self._outflow is not None and self._outflow.went_on():
            self._outflow = None
        while unsent and link.sendable and not given_back.entries:
            entry = unsent.popleft()
            if entry.body is not None:
                if entry.future is not None and entry.future.cancelled():
                    outbox.give_up(entry)
                    continue
                self._begin(link, entry, entry.body)
                continue
            parts = entry.cut.parts(entry.number)
            if size_max is not None and sum(map(len, parts)) > size_max:
                self._decided([entry], too_large(size_max))
                continue
            link.send(parts, context=entry)
        if link.drain and (not unsent or given_back.entries or link.resumes_only):
            link.drained()

    def _begin(self, link: EngineSender, entry: Doubt, body: Body) -> None:
        head, size_max = b"".join(entry.cut.parts(entry.number)), self._size_max
        length = body.length(len(head))
        if size_max is not None and length is not None and length > size_max:
            self._decided([entry], too_large(size_max))
            return
        self._outflow = Outflow(self, entry, body, link.begin(head, length, context=entry), len(head), size_max)

    def is_in_doubt(self, entry: Doubt) -> bool:
        """For an Outflow: nothing is decided about the message yet."""
        return entry.key in self._outbox.doubt

    def body_ended(self, entry: Doubt, end: Exception | Outcome) -> None:
        """An Outflow gave the message up: what its body raised, or why it does not go on."""
        if isinstance(end, Exception):
            self._outbox.drop(entry, end)
        else:
            self._decided([entry], end)

    def _decided(self, entries: Iterable[Doubt], outcome: Outcome) -> None:
        if self._outbox.decided(entries, outcome):
            self.outage.gained = True
        if self._outbox.raised is not None:
            self._abandoned = True
            self._connection.note_abandoned(self._outbox.raised)
            self.touch()  # what came with it is told and counted first

    async def _room(self) -> None:
        """Waits, or raises, until one more may be in doubt; with a spool there is always room to try."""
        while True:
            self.check()
            if not self._outbox.is_full or self._spool is not None:
                return
            if self._raises:
                raise ClientFull(
                    f"{self._what}: found {self.in_doubt} messages in doubt, accepted is {self._in_doubt_max}"
                )
            try:
                await self._outbox.waiting.for_room()
            except asyncio.CancelledError:
                self._outbox.wake()  # the place meant for us goes to the next
                raise
