"""Messages to one address: what is in doubt is kept until the node has decided, over any number of connections.

Rules of this file: a message leaves `_doubt` by an outcome, or because the node says at an attach that it has
stored its number or tag, and in no other way. Without a producer name the link is resumed after a break (resume.py):
what the node does not know goes again, or all of it where the peer keeps nothing: at least once. With a name each
message has a number; the node drops what it has, so it is appended once (docs/client.md; CUSTODY: Producers). Hot
path: `post`/`submit` → `_pump` → `outcomes`; one small object for each message.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Literal

from holdfast.amqp import performatives
from holdfast.amqp.events import Outcomes
from holdfast.amqp.extensions import LAST_NUMBER, PRODUCER, TAG_OFFSET
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
from holdfast.client.doubt import Doubt, OnOutcome, key_of, number_of, numbers_missing
from holdfast.client.errors import ClientFull, ProducerConflict
from holdfast.client.given_back import GivenBack
from holdfast.client.link import ClientLink, shown
from holdfast.client.outcomes import ACCEPTED, NOT_TAKEN, Accepted, Outcome, Rejected, Spooled, from_state, too_large
from holdfast.client.outflow import Outflow
from holdfast.client.resume import SendingState, timeout_s
from holdfast.client.spool import Spool, SpoolFile
from holdfast.client.syncing import Syncing
from holdfast.client.waiting import Waiting
from holdfast.errors import ConfigError, HoldfastError

if TYPE_CHECKING:
    from holdfast.client.connection import Connection

WhenFull = Literal["wait", "raise"] | Spool
WHEN_FULL: Final = ("wait", "raise")
Waits = Literal["answers", "back", "credit", "socket", "window"]


class Sender(ClientLink):
    """Made by `Connection.sender`. Counts since it was made: `accepted`, `rejected`, `released` (and modified).

    `last_number` and `missing`: what the node had stored of the producer at the latest attach. `over`: done once it
    has failed or was closed, see `failure`; not to be cancelled.
    """

    def __init__(
        self,
        connection: "Connection",
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
        self.accepted = 0
        self.rejected = 0
        self.released = 0
        self.last_number = 0
        self.missing = RangeSet()
        self.over: asyncio.Future[None] = self._loop.create_future()
        self._in_doubt_max = in_doubt_max
        self._raises = when_full == "raise"
        self._link: EngineSender | None = None
        self._may_send = False
        self._size_max: int | None = None
        self._doubt: dict[int, Doubt] = {}
        self._unsent: deque[Doubt] = deque()
        self._again = GivenBack(self._loop, self._offer_again)
        self._next_key = 0
        self._given_out = 0
        self._was_attached = False
        self._resume: SendingState[Doubt] | None = None
        if producer is None and connection.retry_s > 0:
            self._resume = SendingState()
        self._abandoned = False
        self._waiting = Waiting(self._loop)
        self._outflow: Outflow | None = None
        """The body that is being sent in parts."""
        self._spool: SpoolFile | None = None
        self._syncing: Syncing | None = None
        if isinstance(when_full, Spool):
            assert producer is not None, "the connection lets no spool without a name through"
            self._spool = SpoolFile(when_full, producer=producer, address=address)
            self._syncing = Syncing(self, self._spool, when_full.fsync_interval_s, self._loop)

    # ------------------------------------------------------------------------------------------ for users

    @property
    def in_doubt(self) -> int:
        """Messages in memory without an outcome."""
        return len(self._doubt)

    @property
    def spooled(self) -> int:
        """Messages in the spool without an outcome, those in memory included; 0 without a spool."""
        return self._spool.undone if self._spool is not None else 0

    @property
    def waits_for(self) -> Waits | None:
        """What the node, which is there, has yet to do, whether or not it is about to; None where that is nothing.

        It reads no more ("socket"), its session takes no more frames ("window"), its link no more messages ("credit"),
        it gives messages back ("back"), or it has not said what became of what was sent ("answers").
        """
        link, outflow = self._link, self._outflow
        if link is None or not self._may_send or not self._doubt:
            return None
        if self._connection.is_paused:
            return "socket"
        if outflow is not None:
            return outflow.waits_for
        if self._again.entries:
            return "back"
        if not self._unsent or link.sendable:
            return "answers"
        return "window" if link.credit else "credit"

    @property
    def progress(self) -> tuple[int, int, int]:
        """Rises, as tuples do, with each message that is taken or rejected, and with bytes that the node's system
        acknowledges: so (messages, connections, bytes)."""
        return self.accepted + self.rejected, self._connection.reconnects, self._connection.acknowledged_bytes()

    @property
    def next_number(self) -> int:
        """The number that the next message gets; of a producer that has attached once."""
        number = None if self._spool is None else self._spool.number(self._spool.next_local)
        return number or self._given_out + 1

    async def send(self, message: Message | bytes | str, *, number: int | None = None) -> Outcome:
        """Sends one message and waits for its outcome (with a spool perhaps only `Spooled`)."""
        return await (await self.submit(message, number=number))

    async def submit(self, message: Message | bytes | str, *, number: int | None = None) -> "asyncio.Future[Outcome]":
        """Hands one message over and returns the future of its outcome; waits only where too much is in doubt.

        `number`: the producer's own number for it, from 1, also one that was rejected before; else the next one.
        Raises ClientFull at the bound (`when_full="raise"`, or a full spool), and what ended the link.
        """
        if self.failure is not None or len(self._doubt) >= self._in_doubt_max:
            await self._room()
        future: asyncio.Future[Outcome] = self._loop.create_future()
        self._take(message, number, future, None)
        if self._syncing is not None and not self._syncing.interval_s:
            await self._syncing.done()
        return future

    async def post(
        self, message: Message | bytes | str, *, number: int | None = None, on_outcome: OnOutcome | None = None
    ) -> None:
        """As `submit`, without a future: the outcome is counted, and told to `on_outcome` unless accepted."""
        if self.failure is not None or len(self._doubt) >= self._in_doubt_max:
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
        it is one data section. What reading `body` raises is raised here, and nothing is sent.
        """
        if self._spool is not None:
            raise ConfigError(f"{self._what}: found a body in parts and a Spool, accepted is one of them")
        if message is not None and (message.data, message.sequences, message.value) != (None, None, NO_VALUE):
            raise ConfigError(f"{self._what}: found a message with a body and one in parts, accepted is one of them")
        if message is not None and message.footer is not None:
            raise ConfigError(f"{self._what}: found a message with a footer and a body in parts, accepted is no footer")
        source = Body(body, size)
        if self.failure is not None or len(self._doubt) >= self._in_doubt_max:
            await self._room()
        future: asyncio.Future[Outcome] = self._loop.create_future()
        self._take(message or Message(header=Header(durable=True)), number, future, None, source)
        return await future

    async def drain(self) -> None:
        """Returns once nothing is in doubt (nor in the spool); raises what ended the link before."""
        while self._doubt or self.spooled:
            self.check()
            await self._waiting.for_end()
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
        self._may_send = False
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
            unsettled = resume.map(self._doubt)
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
            if self.producer is not None:
                self._learn_numbers(link.remote_attach.properties or {})
            if self._resume is not None:
                for entry, state in self._resume.answered(self._link):
                    self._decided([entry], from_state(state))
            unsent = self._not_resumed()
            if self.producer is not None:
                unsent.sort(key=number_of)
            self._unsent = deque(unsent)
            self._load()
        except HoldfastError as error:
            link.detach()
            self.fail(error)
            return
        self._was_attached = self._may_send = True
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
            if event.closed:
                resume.forget()
        self._unlinked()
        if resume is not None and resume.again and self._gone is None:
            resume.again = False
            self._connection.attach_again(self)
        else:
            super().detached(event)

    def _unlinked(self) -> None:
        self._link = None
        self._may_send = False
        self._again.clear()
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
        try:
            if self._spool is not None:
                self._spool.flush_done()
                self._load()
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
        doubt, self._doubt = self._doubt, {}
        self._unsent.clear()
        self._again.clear()
        for entry in doubt.values():
            if entry.future is not None and not entry.future.done():
                entry.future.set_exception(error)
                entry.future.exception()  # who looks at it sees it; who does not gets no noise at exit
        if doubt and self._spool is None:
            self._abandoned = True
            self._connection.note_abandoned(error)
        self._waiting.wake_all()  # each looks at `failure` next
        if self._syncing is not None:
            self._syncing.stop()

    # ---------------------------------------------------------------------------------------- internals

    def _not_resumed(self) -> list[Doubt]:
        """What is in doubt and goes as new: all that no resumed link accounts for."""
        kept = {entry.key for entry in self._resume.kept()} if self._resume is not None else ()
        return [entry for key, entry in self._doubt.items() if key not in kept]

    def _go_on(self, link: EngineSender, resume: "SendingState[Doubt]") -> None:
        """Transfers that resume, before anything new; another round where a map was incomplete."""
        again = resume.go_on(link)
        if again:  # in their old order, also where credit lets a few through at a time
            self._unsent = deque(sorted((*again, *self._unsent), key=key_of))
        if resume.round_over(link) and not resume.again:
            resume.again = True
            link.detach(closed=False)

    def _take(
        self,
        message: Message | bytes | str,
        number: int | None,
        future: "asyncio.Future[Outcome] | None",
        on_outcome: OnOutcome | None,
        body: Body | None = None,
    ) -> None:
        if number is not None:
            self._check_number(number)
        cut = payload.cut(message)
        if self._spool is not None:
            self._take_to_spool(cut, future, on_outcome)
            return
        if self.producer is not None:
            if number is None:
                number = self._given_out + 1
            if number > self._given_out:
                self._given_out = number
            elif number <= self.last_number and number not in self.missing:
                self.accepted += 1
                if future is not None:
                    future.set_result(ACCEPTED)
                return
        self._enter(Doubt(self._next_key, cut, number, future, on_outcome, body))

    def _enter(self, entry: Doubt) -> None:
        self._next_key = entry.key + 1
        self._doubt[entry.key] = entry
        if self._may_send:
            if not self._unsent:
                self.touch()
            self._unsent.append(entry)

    def _check_number(self, number: int) -> None:
        if self.producer is None or self._spool is not None:
            raise ConfigError(f"number: found {number}, accepted is with a producer name and without a spool")
        if not 1 <= number < 2**63:
            raise ConfigError(f"number: found {number}, accepted is 1 to 2**63 - 1")

    def _take_to_spool(
        self, cut: payload.Cut, future: "asyncio.Future[Outcome] | None", on_outcome: OnOutcome | None
    ) -> None:
        spool, syncing = self._spool, self._syncing
        assert spool is not None and syncing is not None
        behind = not spool.is_drained() or len(self._doubt) >= self._in_doubt_max
        encoded = b"".join(cut.parts(None))
        local = spool.append(encoded)
        syncing.later()
        if behind:
            if future is not None:
                future.set_result(Spooled(spool.number(local) or local))
            return
        spool.skip_loaded()
        self._enter_local(local, len(encoded), cut, future, on_outcome)

    def _enter_local(
        self,
        local: int,
        size: int,
        cut: payload.Cut,
        future: "asyncio.Future[Outcome] | None" = None,
        on_outcome: OnOutcome | None = None,
    ) -> None:
        spool = self._spool
        assert spool is not None
        entry = Doubt(self._next_key, cut, spool.number(local), future, on_outcome)
        entry.local, entry.size = local, size
        self._enter(entry)

    def _load(self) -> None:
        """Brings what the spool still holds into the room that memory has, once the numbers are known."""
        spool = self._spool
        if spool is None or not spool.is_numbered or spool.is_drained():
            return
        room = self._in_doubt_max - len(self._doubt)
        if room <= 0:
            return
        for local, encoded in spool.load(room):
            number = spool.number(local)
            assert number is not None, "all have numbers by now"
            if number <= self.last_number and number not in self.missing:
                spool.done(local, len(encoded))
                self.accepted += 1
                self.touch()
                continue
            entry = Doubt(self._next_key, payload.cut_payload(encoded), number, None, None)
            entry.local, entry.size = local, len(encoded)
            self._next_key += 1
            self._doubt[entry.key] = entry
            self._unsent.append(entry)
        if not spool.is_drained() and len(self._doubt) < self._in_doubt_max:
            self.touch()
        self._wake()

    def _pump(self) -> None:
        link = self._link
        if link is None or not self._may_send:
            return
        if self._resume is not None and (self._resume.steps or link.resumes_only):
            self._go_on(link, self._resume)
        unsent, size_max = self._unsent, self._size_max
        if self._outflow is not None and self._outflow.went_on():
            self._outflow = None
        while unsent and link.sendable and not self._again.entries:
            entry = unsent.popleft()
            if entry.body is not None:
                self._begin(link, entry, entry.body)
                continue
            parts = entry.cut.parts(entry.number)
            if size_max is not None and sum(map(len, parts)) > size_max:
                self._decided([entry], too_large(size_max))
                continue
            link.send(parts, context=entry)
        if link.drain and (not unsent or self._again.entries or link.resumes_only):
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
        return entry.key in self._doubt

    def body_ended(self, entry: Doubt, end: Exception | Outcome) -> None:
        """An Outflow gave the message up: what its body raised, or why it does not go on."""
        if not isinstance(end, Exception):
            self._decided([entry], end)
        elif self._doubt.pop(entry.key, None) is not None:
            if entry.future is not None and not entry.future.done():
                entry.future.set_exception(end)
            self._wake()

    def _decided(self, entries: Iterable[Doubt], outcome: Outcome) -> None:
        doubt, spool, count = self._doubt, self._spool, 0
        if spool is not None and isinstance(outcome, NOT_TAKEN):
            self._given_back(entries)
            return
        for entry in entries:
            if doubt.pop(entry.key, None) is None:
                continue
            count += 1
            future = entry.future
            if future is not None and not future.done():
                future.set_result(outcome)
            if spool is not None:
                spool.done(entry.local, entry.size)
            if entry.on_outcome is not None and outcome is not ACCEPTED:
                entry.on_outcome(entry.number, outcome)
        if isinstance(outcome, Accepted):
            self.accepted += count
        elif isinstance(outcome, Rejected):
            self.rejected += count
        else:
            self.released += count
        if count:
            self.outage.gained = True
            if spool is not None:
                self.touch()
        self._wake()

    def _given_back(self, entries: Iterable[Doubt]) -> None:
        """Not taken now: what is in a spool stays there, and is offered again after a while, or on the next link."""
        back = [entry for entry in entries if entry.key in self._doubt]
        self.released += len(back)
        self._again.add(back)

    def _offer_again(self) -> bool:
        again, unsent = self._again.entries, self._unsent
        if len(self._doubt) > len(again) + len(unsent):
            return False  # what is under way may come back too, and then goes in its place
        self._unsent = deque(sorted((*again, *unsent), key=number_of))
        self.touch()
        return True

    def _learn_numbers(self, properties: dict[Any, Any]) -> None:
        """What the node has stored of this producer, and what of ours that settles."""
        last = properties.get(LAST_NUMBER)
        if not isinstance(last, int):
            raise ConfigError(
                f"producer {self.producer!r}: found a peer that keeps no producer names, accepted is a Holdfast node"
            )
        missing = numbers_missing(self._what, properties)
        self._check_last(last)
        spool = self._spool
        if spool is not None and not spool.is_numbered:
            spool.assign_numbers(last)
            for entry in self._doubt.values():
                entry.number = spool.number(entry.local)
        self.last_number, self.missing = last, missing
        stored = [
            entry
            for entry in self._doubt.values()
            if entry.number is not None and entry.number <= last and entry.number not in missing
        ]
        self._decided(stored, ACCEPTED)

    def _check_last(self, last: int) -> None:
        """Raises ProducerConflict where the node has a number that neither we nor an earlier run can have sent."""
        if self._spool is None:
            if not self._was_attached:
                self._given_out = max(self._given_out, last)
            highest: int | None = self._given_out
        else:
            highest = self.next_number - 1 if self._was_attached else self._spool.numbering.may_have_sent
        if highest is not None and last > highest:
            copy = "" if self._spool is None else ", or the spool is an older copy"
            raise ProducerConflict(
                f"producer {self.producer!r} to {self.address!r}: found number {last} stored, accepted is at most "
                f"{highest}, the last that was given out here: another sender uses the name{copy}"
            )

    async def _room(self) -> None:
        """Waits, or raises, until one more may be in doubt; with a spool there is always room to try."""
        while True:
            self.check()
            if len(self._doubt) < self._in_doubt_max or self._spool is not None:
                return
            if self._raises:
                raise ClientFull(
                    f"{self._what}: found {len(self._doubt)} messages in doubt, accepted is {self._in_doubt_max}"
                )
            try:
                await self._waiting.for_room()
            except asyncio.CancelledError:
                self._wake()  # the place meant for us goes to the next
                raise

    def _wake(self) -> None:
        self._waiting.wake(self._in_doubt_max - len(self._doubt), is_empty=not self._doubt and not self.spooled)
