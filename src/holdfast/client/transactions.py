"""Transactions of a client: what is sent and settled within one is done together at its commit, or not at all (AMQP 1.0
part 4).

Rules of this file: a transaction lives on one connection and does not outlive it. What a break leaves is said as it is:
rolled back, or, where the commit was under way, in doubt. Nothing is tried again here. A cancelled task leaves no
transaction open at the node, which would lock its deliveries for minutes.
"""

import asyncio
from types import TracebackType
from typing import Any, Final, Protocol, Self

from holdfast.amqp.links.link import Link as EngineLink
from holdfast.amqp.links.sender import Sender as EngineSender
from holdfast.amqp.message.message import Message
from holdfast.amqp.session.events import LinkDetached, Outcomes
from holdfast.amqp.session.session import Session
from holdfast.amqp.wire import conditions, performatives
from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.performatives import Coordinator, Declare, Declared, Discharge, Source, TransactionalState
from holdfast.amqp.wire.types import Symbol
from holdfast.client.errors import TransactionInDoubt, TransactionRolledBack
from holdfast.client.link import ClientLink, LinkHost
from holdfast.client.outcomes import Accepted, Outcome, Rejected, check_accepted, from_state
from holdfast.client.receive.delivery import Delivery
from holdfast.client.receive.receiver import Receiver
from holdfast.client.send.sender import Sender
from holdfast.errors import ConfigError, LocalProtocolError

LOCAL: Final = Symbol("amqp:local-transactions")
OUTCOMES: Final = tuple(Symbol(f"amqp:{name}:list") for name in ("accepted", "rejected", "released", "modified"))


class _Asked:
    """A declare or a discharge without an answer."""

    __slots__ = ("future", "payload")

    def __init__(self, payload: bytes, future: "asyncio.Future[Any]") -> None:
        self.payload = payload
        self.future = future


class Lost(Exception):
    """The coordinator's link is gone, and with it all of its transactions; one discharge may have been done."""


class Controller(ClientLink):
    """The link to the node's coordinator; one for a connection, made by `Connection.transaction`.

    `generation` counts the links: a transaction that was declared on an earlier one is gone.
    """

    def __init__(self, connection: LinkHost, name: str) -> None:
        super().__init__(connection, f"transactions of {connection.url}", name)
        self.generation = 0
        self._link: EngineSender | None = None
        self._unsent: list[_Asked] = []
        self._asked: dict[_Asked, None] = {}

    @property
    def is_attached(self) -> bool:
        """Whether there is a link at this moment."""
        return self._link is not None and self._link.attached

    async def ask(self, value: Declare | Discharge) -> Any:
        """The state with which the node answers. Raises Lost, or what ended the link."""
        self.check()
        asked = self._put(value)
        try:
            return await asked.future
        except asyncio.CancelledError:
            if asked in self._unsent and isinstance(value, Discharge):
                self.abandon(value.txn_id)
            raise

    def abandon(self, txn_id: bytes) -> None:
        """Has that transaction rolled back; nobody waits for it."""
        if self.failure is None:
            self._put(Discharge(txn_id, True)).future.add_done_callback(_forget)

    def _put(self, value: Declare | Discharge) -> _Asked:
        asked = _Asked(b"\x00\x53\x77" + encode(value), self._loop.create_future())
        self._unsent.append(asked)
        self.touch()
        return asked

    # ------------------------------------------------------------------------- what the connection calls

    def attach(self, session: Session) -> None:
        self.generation += 1
        name = f"{self._name}-{self.generation}"  # the node may not have answered the detach of the last one yet
        self._link = session.attach_sender(name, Source(address=name, outcomes=OUTCOMES), Coordinator((LOCAL,)))
        self._link.context = self

    def attached(self, link: EngineLink) -> None:
        super().attached(link)
        self.touch()

    def lost(self) -> None:
        super().lost()
        self._link = None
        asked, self._asked = [*self._asked], {}
        for item in asked:
            if not item.future.done():
                item.future.set_exception(Lost())

    def detached(self, event: LinkDetached) -> None:
        if event.link is self._link:
            self.lost()
            super().detached(event)

    def credit_changed(self, link: EngineLink) -> None:
        self.touch()

    def turn_ended(self, *, paused: bool) -> None:
        link = self._link
        while self._unsent and link is not None and link.sendable and not paused:
            asked = self._unsent.pop(0)
            if not asked.future.cancelled():
                self._asked[asked] = None
                link.send(asked.payload, context=asked)

    def outcomes(self, event: Outcomes) -> None:
        if not event.settled:
            event.link.settle(event.first, event.last, event.state)
        for asked in event.contexts:
            self._asked.pop(asked, None)
            if not asked.future.done():
                asked.future.set_result(event.state)
            elif asked.future.cancelled() and isinstance(event.state, Declared):
                self.abandon(event.state.txn_id)

    def fail(self, error: Exception) -> None:
        if self.failure is not None:
            return
        super().fail(error)
        unsent, self._unsent = self._unsent, []
        for asked in unsent:
            if not asked.future.done():
                asked.future.set_exception(error)

    def _engine_links(self) -> list[EngineLink]:
        return [] if self._link is None else [self._link]


def _forget(answer: "asyncio.Future[Any]") -> None:
    """It is not reported."""
    if not answer.cancelled():
        answer.exception()


class Controlled(Protocol):
    """The owner of a connection's controller."""

    def controller(self) -> Controller:
        """The one that lives, made where there is none."""


class Transaction:
    """What a program sends and settles together; made by `Connection.transaction`, and used as `async with`.

    At the end of the block it is committed, or rolled back if the block raised. Messages that are sent in it are in
    their queues at the commit, all at once; deliveries that are settled in it have their outcome then. After a rollback
    nothing was sent, and the deliveries are given out again.
    """

    def __init__(self, connection: Controlled) -> None:
        self._connection = connection
        self._controller: Controller | None = None
        self._generation = 0
        self._txn_id = b""
        self._sent: list[asyncio.Future[Outcome]] = []
        self._senders: dict[Sender, None] = {}
        self._receivers: dict[Receiver, None] = {}
        self._accepted = TransactionalState(b"")
        self._is_cut_short = False
        """A send was cancelled before its message was one of `_sent`."""
        self._over = False

    async def __aenter__(self) -> Self:
        controller = self._controller = self._connection.controller()
        await controller.ready()
        try:
            state = await controller.ask(Declare())
        except Lost:
            raise TransactionRolledBack("the connection broke before the transaction began", None) from None
        if not isinstance(state, Declared):
            raise _refused("the node began no transaction", state)
        self._txn_id, self._generation = state.txn_id, controller.generation
        self._accepted = TransactionalState(self._txn_id, performatives.Accepted())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._over:
            return
        if kind is None:
            await self.commit()
        else:
            await self.rollback()

    # ------------------------------------------------------------------------------------------ sending

    async def send(
        self, sender: Sender, message: Message | object, *, number: int | None = None, check: bool = True
    ) -> Outcome:
        """Sends a message in the transaction, and waits until the node has taken it in. One that it refuses raises
        NotAccepted, or with `check=False` is returned, and leaves the transaction only the rollback. So does a call
        that is cancelled or timed out, as nobody knows whether the message is in. Arguments otherwise as
        `Sender.submit`."""
        outcome = await (await self.submit(sender, message, number=number))
        if check:
            check_accepted(outcome, f"sender to {sender.address!r}")
        return outcome

    async def submit(
        self, sender: Sender, message: Message | object, *, number: int | None = None
    ) -> "asyncio.Future[Outcome]":
        """As `send`, but returns the future of the outcome, so that the next message need not wait for it."""
        self._check()
        self._senders[sender] = None
        try:
            future = await sender.submit_within(message, TransactionalState(self._txn_id), number=number)
        except asyncio.CancelledError:
            self._is_cut_short = True
            raise
        self._sent.append(future)
        return future

    # ------------------------------------------------------------------------------------------ settling

    def accept(self, delivery: Delivery) -> None:
        """Settles the delivery as processed: it leaves its queue at the commit."""
        self._settle(delivery, self._accepted)

    def reject(self, delivery: Delivery, condition: str | None = None, description: str | None = None) -> None:
        """Settles it as invalid for every consumer: it is a dead letter at the commit."""
        error = None if condition is None else performatives.Error(Symbol(condition), description)
        self._settle(delivery, TransactionalState(self._txn_id, performatives.Rejected(error)))

    def release(self, delivery: Delivery) -> None:
        """Puts it back to its place in the queue at the commit, as if it had not been delivered."""
        self._settle(delivery, TransactionalState(self._txn_id, performatives.Released()))

    def _settle(self, delivery: Delivery, state: TransactionalState) -> None:
        self._check()
        if delivery.settled:
            raise ConfigError(f"{delivery!r} is settled already; settle it within the transaction only")
        try:
            encode(state)
        except LocalProtocolError as error:
            raise ConfigError(f"invalid outcome ({error}); expected what AMQP can encode") from None
        receiver = delivery.settle_within(state)
        if receiver is None:
            raise TransactionRolledBack("the link of the delivery is gone: the node offers the message again", None)
        if isinstance(receiver, Receiver):
            self._receivers[receiver] = None

    # ------------------------------------------------------------------------------------------ the end

    async def commit(self) -> None:
        """Waits until the node has stored all of it. Raises TransactionRolledBack where nothing of it was done, and
        TransactionInDoubt where the connection broke while the node may have committed it."""
        self._check()
        try:
            if self._sent:
                await asyncio.wait(self._sent)
        except asyncio.CancelledError:
            controller = self._end()
            self._leave_out()
            self._flush()
            controller.abandon(self._txn_id)
            raise
        failed = [item for item in map(_outcome, self._sent) if not isinstance(item, Accepted)]
        if failed or self._is_cut_short:
            await self.rollback()
            raise next((_why(item) for item in failed if item is not None), _why(None))
        controller = self._end()
        self._flush()
        try:
            state = await controller.ask(Discharge(self._txn_id, False))
        except Lost:
            text = "the connection broke during the commit: the node may have done it or not"
            raise TransactionInDoubt(text, None) from None
        if not isinstance(state, performatives.Accepted):
            raise _refused("the node rolled the transaction back", state)

    async def rollback(self) -> None:
        """Gives up all of it. Returns as well where the connection is gone, which comes to the same."""
        if self._over:
            return
        controller = self._end()
        self._leave_out()
        self._flush()
        if controller.failure is not None or controller.generation != self._generation:
            return
        try:
            await controller.ask(Discharge(self._txn_id, True))
        except Lost:
            pass

    def _end(self) -> Controller:
        assert self._controller is not None
        self._over = True
        return self._controller

    def _leave_out(self) -> None:
        """What is not sent yet would come after the discharge."""
        for sender in self._senders:
            sender.end_transaction(self._txn_id)

    def _flush(self) -> None:
        """What was settled goes out before the discharge."""
        for receiver in self._receivers:
            receiver.turn_ended(paused=False)

    def _check(self) -> None:
        controller = self._controller
        if controller is None or not self._txn_id:
            raise ConfigError("the transaction has not begun; use it as `async with`")
        if self._over:
            raise ConfigError("the transaction is over; begin another")
        controller.check()
        if controller.generation != self._generation or not controller.is_attached:
            self._over = True
            raise TransactionRolledBack("the connection broke: the node has rolled the transaction back", None)


def _outcome(future: "asyncio.Future[Outcome]") -> Outcome | BaseException | None:
    """None of one that was cancelled."""
    if future.cancelled():
        return None
    return future.exception() or future.result()


def _why(failed: Outcome | BaseException | None) -> TransactionRolledBack:
    """For a message that has this in the place of Accepted."""
    if isinstance(failed, Rejected):
        return TransactionRolledBack(f"a message was refused: {failed.description}", failed.condition)
    if failed is None:
        return TransactionRolledBack("a send was cancelled: its message may not be in the transaction", None)
    return TransactionRolledBack(str(failed) if isinstance(failed, BaseException) else "a message was not taken", None)


def _refused(what: str, state: Any) -> TransactionRolledBack:
    outcome = from_state(state)
    if not isinstance(outcome, Rejected):
        return TransactionRolledBack(what, conditions.TRANSACTION_ROLLBACK)
    return TransactionRolledBack(f"{what}: {outcome.description or outcome.condition}", outcome.condition)
