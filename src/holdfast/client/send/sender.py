"""Sends messages to one address; each is kept until the node has decided, over any number of connections.

Rules of this file: what programs call, and what the connection calls. Messages without an outcome are the outbox's
(outbox.py), what goes out on a link is the transmission's (transmission.py). Without a producer name the link is
resumed after a break (client/resume.py): what the node does not know is sent again, or all of it where the peer keeps
no map: at least once. With a name each message has a number (client/spool/producer.py), and the node drops what it has
already: exactly once (docs/client.md; docs/CUSTODY.md, Producers). Hot path: `post` or `submit`, then `outcomes`.
"""

import asyncio
from collections.abc import Iterable
from types import TracebackType
from typing import Final, Literal, Self

from holdfast.amqp.links.link import Link as EngineLink
from holdfast.amqp.message.message import Message
from holdfast.amqp.session.events import LinkDetached, Outcomes
from holdfast.amqp.session.session import Session
from holdfast.amqp.wire import performatives
from holdfast.amqp.wire.performatives import Header, TransactionalState
from holdfast.amqp.wire.types import MISSING as NO_VALUE
from holdfast.broker.stored.ranges import RangeSet
from holdfast.client.errors import ClientFull
from holdfast.client.link import ClientLink, LinkHandler, LinkHost, shown
from holdfast.client.listing import Listed, hidden
from holdfast.client.messages import payload
from holdfast.client.messages.bodies import Body, Parts
from holdfast.client.outcomes import ACCEPTED, Outcome, check_accepted, from_state
from holdfast.client.send.outbox import Outbox
from holdfast.client.send.pending import OnOutcome, PendingMessage
from holdfast.client.send.transmission import Transmission
from holdfast.client.spool.producer import NUMBER_MAX, ProducerNumbers
from holdfast.client.spool.spool import Spool, SpoolFile
from holdfast.client.spool.syncing import Syncing
from holdfast.errors import ConfigError, HoldfastError

WhenFull = Literal["wait", "raise"] | Spool
WHEN_FULL: Final = ("wait", "raise")
Waits = Literal["answers", "attach", "back", "credit", "socket", "window"]


class Sender(ClientLink, Listed):
    """Sends messages to one address; made by `Connection.sender`.

    `send` waits for the outcome, `submit` returns a future of it, `post` only counts it. Messages arrive in the order
    of these calls.
    """

    HIDDEN = hidden(
        LinkHandler, ClientLink, "outage", "decided", "submit_within", "end_transaction", "submit_once", "take_back",
        shown=("failure", "is_over", "ready"),
    )  # fmt: skip

    def __init__(
        self,
        connection: LinkHost,
        address: str,
        *,
        producer: str | None,
        in_doubt_max: int,
        when_full: WhenFull,
        name: str,
    ) -> None:
        super().__init__(connection, f"sender to {shown(address)}", name)
        self.address = address
        """Where the messages go."""
        self.producer = producer
        """The producer name, or None."""
        self.over: asyncio.Future[None] = self._loop.create_future()
        """Done once the sender has failed (see `failure`) or was closed; not to be cancelled."""
        self._in_doubt_max = in_doubt_max
        self._raises = when_full == "raise"
        self._abandoned = False
        """The outcomes of messages are unknown, and `drain` raises why."""
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
        self._transmission = Transmission(self, self._outbox, producer=producer, retry_s=connection.retry_s)

    # ------------------------------------------------------------------------------------------ for users

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(drain=kind is None)

    @property
    def accepted(self) -> int:
        """Messages that the node has accepted."""
        return self._outbox.accepted

    @property
    def rejected(self) -> int:
        """Messages that the node has rejected."""
        return self._outbox.rejected

    @property
    def released(self) -> int:
        """Messages that the node has released or modified."""
        return self._outbox.released

    @property
    def last_number(self) -> int:
        """The highest number of the producer that the node had at the latest attach; 0 without a producer name."""
        return 0 if self._numbers is None else self._numbers.last_number

    @property
    def missing(self) -> RangeSet:
        """Numbers up to `last_number` that the node did not have: iterate over it for (first, last), both inclusive."""
        return RangeSet() if self._numbers is None else self._numbers.missing

    @property
    def epoch(self) -> int:
        """How often senders had attached under the producer name, this one's latest attach included; 0 without a name.

        A later attach fences this sender."""
        return 0 if self._numbers is None else self._numbers.epoch

    @property
    def in_doubt(self) -> int:
        """Messages in memory without an outcome."""
        return len(self._outbox.pending)

    @property
    def spooled(self) -> int:
        """Messages in the spool without an outcome, with those in memory; 0 without a spool."""
        return self._outbox.spooled

    @property
    def waits_for(self) -> Waits | None:
        """What the sender waits for at a connected node.

        - `"attach"`: the node has not answered the link's attach. The first one is waited for also with nothing in
          doubt.
        - `"socket"`: the node does not read from the connection.
        - `"window"`: the session's incoming window is closed.
        - `"credit"`: the link has no credit.
        - `"back"`: the node released messages, which are sent again after a delay.
        - `"answers"`: everything was sent, and outcomes are outstanding.

        None without a connection, between two attaches, while nothing is in doubt, and while a body in parts has
        nothing to send yet.
        """
        outbox, transmission = self._outbox, self._transmission
        link, outflow = transmission.link, transmission.outflow
        if link is None or not (outbox.pending or not self._ready.done()):
            return None
        if not outbox.has_link:
            return "attach" if self._connection.is_open else None
        if self._connection.is_paused:
            return "socket"
        if outflow is not None:
            return outflow.waits_for
        if outbox.retries.messages:
            return "back"
        if not outbox.unsent or link.sendable:
            return "answers"
        return "window" if link.credit else "credit"

    @property
    def progress(self) -> tuple[int, int, int]:
        """Messages accepted or rejected, connections after the first, and bytes that the node's host acknowledged.

        As a tuple it increases whenever the sender makes progress.
        """
        return self.accepted + self.rejected, self._connection.reconnects, self._connection.acknowledged_bytes()

    @property
    def next_number(self) -> int:
        """The number that the producer's next message gets; known once it has attached."""
        return 1 if self._numbers is None else self._numbers.next_number

    async def send(self, message: Message | object, *, number: int | None = None, check: bool = True) -> Outcome:
        """Sends one message and waits for its outcome: `Accepted`, or `Spooled` with a spool.

        Raises NotAccepted for any other outcome; `check=False` returns it instead. Arguments and errors otherwise as
        `submit`.
        """
        outcome = await (await self.submit(message, number=number))
        if check:
            check_accepted(outcome, self._what)
        return outcome

    async def submit(self, message: Message | object, *, number: int | None = None) -> "asyncio.Future[Outcome]":
        """Sends one message and returns the future of its outcome. It waits only while too many are in doubt.

        `message` is a Message, or a body: bytes are sent as one data section, and anything else as one AMQP value (str,
        int, float, bool, None, list, dict, datetime, UUID; docs/client.md, "Bodies"), both durable.

        `number` is the producer's own number of the message, from 1, which may be one that was rejected before; None
        takes the next one. Raises ClientFull at the bound with `when_full="raise"` or a full spool, and what ended the
        link.
        """
        if self.failure is not None or len(self._outbox.pending) >= self._in_doubt_max:
            await self._room()
        future: asyncio.Future[Outcome] = self._loop.create_future()
        self._take(message, number, future, None)
        if self._syncing is not None and not self._syncing.interval_s:
            await self._syncing.done()
        return future

    async def submit_within(
        self, message: Message | object, state: TransactionalState, *, number: int | None = None
    ) -> "asyncio.Future[Outcome]":
        """As `submit`, in a transaction (`Transaction.send` and `submit` call it)."""
        if self._spool is not None:
            raise ConfigError(f"{self._what}: a transaction and a Spool exclude each other; use one of them")
        if self.failure is not None or len(self._outbox.pending) >= self._in_doubt_max:
            await self._room()
        await self.ready()
        future: asyncio.Future[Outcome] = self._loop.create_future()
        if number is not None:
            self._check_number(number)
        self._outbox.enter(payload.cut(message), number, future, None, state=state)
        return future

    def end_transaction(self, txn_id: bytes) -> None:
        """What was submitted within that transaction and not sent yet is not sent any more; its rollback calls it."""
        self._outbox.end_transaction(txn_id)

    async def submit_once(self, message: Message | object) -> PendingMessage:
        """Sends one message on one link only, for `Conversation`: where the link ends before its outcome, its future
        gets NoReply, for somebody may have received it. `take_back` it when nobody waits for it any more."""
        if self.failure is not None or len(self._outbox.pending) >= self._in_doubt_max:
            await self._room()
        pending = self._outbox.enter(payload.cut(message), None, self._loop.create_future(), None)
        assert pending is not None, "it has no number that the node could have"
        pending.once = True
        return pending

    def take_back(self, message: PendingMessage) -> None:
        """If that message of `submit_once` was not sent yet, it is not sent any more."""
        self._outbox.take_back(message)

    async def post(
        self, message: Message | object, *, number: int | None = None, on_outcome: OnOutcome | None = None
    ) -> None:
        """Sends one message as `submit` does, but without a future: the cheapest way.

        The outcome is counted, and `on_outcome` is called with it unless it is `Accepted`. What `on_outcome` raises
        ends this sender and no other link, once all outcomes that arrived with it are counted and reported; then the
        sender's next call raises it, and so do `drain` and `close`.
        """
        if self.failure is not None or len(self._outbox.pending) >= self._in_doubt_max:
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
        check: bool = True,
    ) -> Outcome:
        """Sends one message of any size, whose body is read while it is sent, and waits for its outcome.

        - `body`: a file's path, an iterable or asynchronous iterable of bytes, or a function that returns one of these.
          After a break a path or a function is read from its beginning; an iterator cannot be, which is BodyGone.
        - `message`: all of the message but body and footer.
        - `size`: bytes of the body, if known beforehand (a file's are): then it is one data section.
        - `number`: as `submit` has it.
        - `check`: as `send` has it.

        What reading `body` raises is raised here, and nothing is sent. If this is cancelled, the message is given up,
        unless all of it was sent: then it stays in doubt until its outcome.
        """
        if self._spool is not None:
            raise ConfigError(f"{self._what}: a body in parts and a Spool exclude each other; use one of them")
        if message is not None and (message.data, message.sequences, message.value) != (None, None, NO_VALUE):
            raise ConfigError(f"{self._what}: the message has a body, and one in parts; give one of them")
        if message is not None and message.footer is not None:
            raise ConfigError(f"{self._what}: a message with a body in parts cannot have a footer; remove it")
        source = Body(body, size)
        if self.failure is not None or len(self._outbox.pending) >= self._in_doubt_max:
            await self._room()
        future: asyncio.Future[Outcome] = self._loop.create_future()
        if number is not None:
            self._check_number(number)
        cut = payload.cut(message or Message(header=Header(durable=True)))
        pending = self._outbox.enter(cut, number, future, None, source)
        try:
            outcome = await future
        except asyncio.CancelledError:
            if pending is not None:
                self._give_up(pending)
            raise
        if check:
            check_accepted(outcome, self._what)
        return outcome

    async def drain(self) -> None:
        """Waits until every message has its outcome, those in the spool too; raises what ended the link before that."""
        outbox = self._outbox
        while outbox.pending or outbox.spooled:
            self.check()
            await outbox.waiting.for_end()
        if outbox.raised is not None:
            raise outbox.raised
        if self._abandoned and self.failure is not None:
            raise self.failure

    async def close(self, *, drain: bool = True) -> None:
        """Waits for all outcomes, unless `drain` is False or a spool keeps the messages, then detaches.

        Afterwards the spool is free for another sender. Raises StorageError if it could not be synced and closed.
        """
        try:
            if drain and self._spool is None:
                await self.drain()
        finally:
            await self._detach()
        if self._syncing is not None:
            await self._syncing.ended()
            if self._syncing.failure is not None:
                raise self._syncing.failure

    # ------------------------------------------------------------------------- what the connection calls

    def attach(self, session: Session) -> None:
        self._transmission.attach(session, self._name, self.address).context = self

    def attached(self, link: EngineLink) -> None:
        if link is not self._transmission.link:
            return
        assert link.remote_attach is not None
        try:
            if self._numbers is not None:
                self._numbers.learn(link.remote_attach.properties or {})
                self.decided(self._outbox.stored(), ACCEPTED)
            self._transmission.attached()
        except HoldfastError as error:
            link.detach()
            self.fail(error)
            return
        super().attached(link)
        self.touch()

    def lost(self) -> None:
        super().lost()
        self._transmission.lost()

    def detached(self, event: LinkDetached) -> None:
        if event.link is not self._transmission.link:
            return
        self._transmission.detached()
        if self._gone is None and self._transmission.begins_round():
            self._connection.attach_again(self)
        else:
            super().detached(event)

    def credit_changed(self, link: EngineLink) -> None:
        self.touch()

    def outcomes(self, event: Outcomes) -> None:
        state = event.state
        if isinstance(state, performatives.Received):
            return
        if not event.settled:
            event.link.settle(event.first, event.last, state)
        outcome = from_state(state if state is not None else event.link.default_outcome)
        self.decided(event.contexts, outcome)

    def turn_ended(self, *, paused: bool) -> None:
        if self._outbox.raised is not None:
            self.fail(self._outbox.raised)
            return
        try:
            if self._spool is not None:
                self._spool.flush_done()
                self._outbox.load()
            if not paused:
                self._transmission.pump()
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
        self._outbox.waiting.wake_all()  # each of them looks at `failure` next
        if self._syncing is not None:
            self._syncing.stop()

    def decided(self, messages: Iterable[PendingMessage], outcome: Outcome) -> None:
        """These messages have their outcome; called by the transmission too."""
        if self._outbox.decided(messages, outcome):
            self.outage.gained = True
        if self._outbox.raised is not None:
            self._abandoned = True
            self._connection.note_abandoned(self._outbox.raised)
            self.touch()  # `turn_ended` fails the sender, once all outcomes that arrived with this one are counted

    # ---------------------------------------------------------------------------------------- internals

    def _take(
        self,
        message: Message | object,
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

    def _give_up(self, message: PendingMessage) -> None:
        """Gives up a body in parts whose caller has stopped waiting. One that a break interrupted is given up when its
        turn comes again: only the next link shows whether the node has all of it."""
        outbox = self._outbox
        if message in outbox.unsent or self._transmission.is_sending(message):
            outbox.give_up(message)
            self.touch()

    def _check_number(self, number: int) -> None:
        if self.producer is None or self._spool is not None:
            raise ConfigError(f"number {number} needs a producer name and no spool")
        if not 1 <= number <= NUMBER_MAX:
            raise ConfigError(f"invalid value {number} for number; expected 1 to 2**63 - 1")

    def _engine_links(self) -> list[EngineLink]:
        return [] if self._transmission.link is None else [self._transmission.link]

    async def _room(self) -> None:
        """Waits, or raises, until one more may be in doubt; with a spool there is always room to try."""
        while True:
            self.check()
            if not self._outbox.is_full or self._spool is not None:
                return
            if self._raises:
                raise ClientFull(
                    f"{self._what}: {self.in_doubt} messages are in doubt; the limit is {self._in_doubt_max}"
                )
            try:
                await self._outbox.waiting.for_room()
            except asyncio.CancelledError:
                self._outbox.wake()  # the room that this call was woken for goes to the next
                raise
