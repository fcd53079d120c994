"""One sender's messages without an outcome: those in memory, in their order, and what its spool holds beyond them.

Rules of this file: it knows no link. A message leaves with its outcome, or because the node says at an attach that it
has stored the message's number or tag, and in no other way; each one that leaves is counted once. Hot path: `enter`,
then `decided`.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable

from holdfast.amqp.wire.performatives import TransactionalState
from holdfast.client.errors import NoReply, TransactionRolledBack
from holdfast.client.messages import payload
from holdfast.client.messages.bodies import Body
from holdfast.client.outcomes import ACCEPTED, Accepted, Outcome, Rejected, Spooled, is_not_taken
from holdfast.client.send.pending import OnOutcome, PendingMessage, key_of, number_of
from holdfast.client.send.retry_queue import RetryQueue
from holdfast.client.spool.producer import ProducerNumbers
from holdfast.client.spool.spool import SpoolFile
from holdfast.client.waiting import Waiting

Promise = asyncio.Future[Outcome] | None


class Outbox:
    """`pending`: messages in memory by key, in the order of the program's calls. `unsent`: those of them that the link
    has yet to send, in the order in which they are sent; set anew when a link is attached.

    Counts: `accepted`, `rejected`, `released` (and modified). `touch` is called when there is something to send, or to
    write to the spool.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        touch: Callable[[], None],
        *,
        in_doubt_max: int,
        numbers: ProducerNumbers | None,
        spool: SpoolFile | None,
    ) -> None:
        self.accepted = 0
        self.rejected = 0
        self.released = 0
        self.pending: dict[int, PendingMessage] = {}
        self.unsent: deque[PendingMessage] = deque()
        self.retries = RetryQueue(loop, self._send_retries)
        """Messages of the spool that the node did not take; while there are any, nothing else is sent."""
        self.waiting = Waiting(loop)
        self.has_link = False
        """A link is attached: new messages can be sent."""
        self.raised: Exception | None = None
        """The first exception that an `on_outcome` raised."""
        self._touch = touch
        self._in_doubt_max = in_doubt_max
        self._numbers = numbers
        self._spool = spool
        self._next_key = 0

    @property
    def spooled(self) -> int:
        """Messages in the spool without an outcome, those in memory included; 0 without a spool."""
        return self._spool.undone if self._spool is not None else 0

    @property
    def is_full(self) -> bool:
        """As many messages are in memory as may be in doubt."""
        return len(self.pending) >= self._in_doubt_max

    # ------------------------------------------------------------------------------------------ messages enter

    def enter(
        self,
        cut: payload.Cut,
        number: int | None,
        future: Promise,
        on_outcome: OnOutcome | None,
        body: Body | None = None,
        state: TransactionalState | None = None,
    ) -> PendingMessage | None:
        """Adds a message. `number`: a named producer's own number for it; None gives it the next one. Returns None
        where the node has stored that number already.
        """
        numbers = self._numbers
        if numbers is not None:
            wants_own, number = number is not None, numbers.give_out(number)
            if wants_own and numbers.is_stored(number):
                self.accepted += 1
                if future is not None:
                    future.set_result(ACCEPTED)
                return None
        key = self._next_key
        self._next_key = key + 1
        message = self.pending[key] = PendingMessage(key, cut, number, future, on_outcome, body)
        message.state = state
        if self.has_link:
            if not self.unsent:
                self._touch()
            self.unsent.append(message)
        return message

    def enter_spooled(self, spool: SpoolFile, cut: payload.Cut, future: Promise, on_outcome: OnOutcome | None) -> None:
        """Adds a message, written to `spool`. Where memory is full it stays in the file until there is room, and its
        future is done at once, as `Spooled`. Raises as `SpoolFile.append`.
        """
        is_behind = not spool.is_drained() or self.is_full
        encoded = b"".join(cut.parts(None))
        local = spool.append(encoded)
        if is_behind:
            if future is not None:
                future.set_result(Spooled(spool.number(local) or local))
            return
        spool.skip_loaded()
        message = self._hold(local, len(encoded), cut, spool.number(local), future, on_outcome)
        if self.has_link:
            if not self.unsent:
                self._touch()
            self.unsent.append(message)

    def load(self) -> None:
        """Reads messages from the spool as far as there is room in memory, once the spool's messages have numbers."""
        spool, numbers = self._spool, self._numbers
        if spool is None or numbers is None or not spool.is_numbered or spool.is_drained():
            return
        room = self._in_doubt_max - len(self.pending)
        if room <= 0:
            return
        for local, encoded in spool.load(room):
            number = spool.number(local)
            assert number is not None, "all have numbers by now"
            if numbers.is_stored(number):
                spool.done(local, len(encoded))
                self.accepted += 1
                self._touch()
                continue
            self.unsent.append(self._hold(local, len(encoded), payload.cut_payload(encoded), number))
        if not spool.is_drained() and not self.is_full:
            self._touch()
        self.wake()

    def _hold(
        self,
        local: int,
        size: int,
        cut: payload.Cut,
        number: int | None,
        future: Promise = None,
        on_outcome: OnOutcome | None = None,
    ) -> PendingMessage:
        """Keeps a message of the spool in memory too."""
        key = self._next_key
        self._next_key = key + 1
        message = self.pending[key] = PendingMessage(key, cut, number, future, on_outcome)
        message.local, message.size = local, size
        return message

    # ------------------------------------------------------------------------------------------ links come and go

    def stored(self) -> list[PendingMessage]:
        """The messages that the node had stored at this attach; the spool's messages have numbers from now on."""
        numbers, spool = self._numbers, self._spool
        assert numbers is not None, "a node tells numbers to producers with a name alone"
        messages = self.pending.values()
        if spool is not None:
            for message in messages:
                message.number = spool.number(message.local)
        return [message for message in messages if message.number is not None and numbers.is_stored(message.number)]

    def linked(self, resumed: Collection[PendingMessage]) -> None:
        """A link is attached: all messages are to be sent on it, but for those whose delivery is `resumed`."""
        kept = {message.key for message in resumed}
        unsent = [message for key, message in self.pending.items() if key not in kept]
        if self._numbers is not None:
            unsent.sort(key=number_of)
        self.unsent = deque(unsent)
        self.has_link = True
        self.load()

    def unlinked(self) -> None:
        """The link has ended, and with it the transactions of messages that were sent on it. What goes once and was
        sent on it is not sent again."""
        held_back = self._held_back()
        once = [message for message in self.pending.values() if message.once and message.key not in held_back]
        self.has_link = False
        for message in [message for message in self.pending.values() if message.state is not None]:
            self.drop(message, TransactionRolledBack("the link broke: the transaction is rolled back", None))
        for message in once:
            self.drop(message, NoReply("the link broke before the reply came; the request may have been carried out"))
        self.retries.clear()

    def send_again(self, messages: list[PendingMessage]) -> None:
        """Messages whose delivery could not be resumed are sent as new ones, in the order of the program's calls, also
        where credit comes a little at a time."""
        self.unsent = deque(sorted((*messages, *self.unsent), key=key_of))

    # ------------------------------------------------------------------------------------------ messages leave

    def decided(self, messages: Iterable[PendingMessage], outcome: Outcome) -> int:
        """Takes the node's outcome in and returns how many messages left. A message of a spool that the node did not
        take stays, and is sent again after a delay, or on the next link.
        """
        pending, spool, count = self.pending, self._spool, 0
        if spool is not None and is_not_taken(outcome):
            not_taken = [message for message in messages if message.key in pending]
            self.released += len(not_taken)
            self.retries.add(not_taken)
            return 0
        for message in messages:
            if pending.pop(message.key, None) is None:
                continue
            count += 1
            future = message.future
            if future is not None and not future.done():
                future.set_result(outcome)
            if spool is not None:
                spool.done(message.local, message.size)
            if message.on_outcome is not None and outcome is not ACCEPTED:
                try:
                    message.on_outcome(message.number, outcome)
                except Exception as error:  # the program's own; the other messages get their outcome all the same
                    self.raised = self.raised or error
        if isinstance(outcome, Accepted):
            self.accepted += count
        elif isinstance(outcome, Rejected):
            self.rejected += count
        else:
            self.released += count
        if count and spool is not None:
            self._touch()
        self.wake()
        return count

    def drop(self, message: PendingMessage, error: Exception) -> None:
        """The message is not sent, or not again, and its future gets `error`: what reading its body raised, or how its
        transaction ended, or its only link."""
        if self.pending.pop(message.key, None) is not None:
            if message.future is not None and not message.future.done():
                message.future.set_exception(error)
                if message.state is not None or message.once:
                    message.future.exception()  # marks it as retrieved: who made the future looks at it, or nobody
            self.wake()

    def end_transaction(self, txn_id: bytes) -> None:
        """That transaction is rolled back: what was not sent of it stays out of it."""
        held_back = self._held_back()
        of_it = (item for item in self.pending.values() if item.state is not None and item.state.txn_id == txn_id)
        for message in [item for item in of_it if item.key in held_back]:
            self.drop(message, TransactionRolledBack("the transaction ended before the message was sent", None))
        self.unsent = deque(message for message in self.unsent if message.key in self.pending)

    def take_back(self, message: PendingMessage) -> None:
        """Nobody waits any more for this message, which goes once: it does not go if it has not gone."""
        if message.key in self.pending and message.key in self._held_back():
            self.give_up(message)

    def give_up(self, message: PendingMessage) -> None:
        """The caller has given up the message, and not all of it was sent."""
        if self.pending.pop(message.key, None) is not None:
            if message in self.unsent:
                self.unsent.remove(message)
            self.wake()

    def fail(self, error: Exception) -> bool:
        """The sender's end: every future gets `error`. True where messages were in doubt."""
        pending, self.pending = self.pending, {}
        self.unsent.clear()
        self.retries.clear()
        for message in pending.values():
            if message.future is not None and not message.future.done():
                message.future.set_exception(error)
                message.future.exception()  # marks it as retrieved: asyncio logs nothing where nobody looks at it
        return bool(pending)

    def wake(self) -> None:
        """Wakes all that wait for room, or for the end."""
        self.waiting.wake(self._in_doubt_max - len(self.pending), is_empty=not self.pending and not self.spooled)

    def _held_back(self) -> Collection[int]:
        """The keys of messages that were not sent on the link that is attached; of all where there is none."""
        return {message.key for message in self.unsent} if self.has_link else set(self.pending)

    def _send_retries(self) -> bool:
        """Puts the messages of `retries` back among the unsent ones; False while others are under way."""
        retries, unsent = self.retries.messages, self.unsent
        if len(self.pending) > len(retries) + len(unsent):
            return False  # those may not be taken either, and are then sent again in their own place
        self.unsent = deque(sorted((*retries, *unsent), key=number_of))
        self._touch()
        return True
