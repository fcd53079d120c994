"""Local transactions of clients: which there are, what each has so far, and how one ends without being committed (AMQP
1.0 part 4).

Rules of this file: until its discharge a transaction changes nothing but memory: what it posts has no place in a queue,
what it takes is given out to nobody else. Everything that a transaction holds is counted, and bounded for each and for
all together. Past a bound, and after any message that is refused, only the rollback is left: what was refused cannot
be part of it, and the rest without it would not be the whole.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from holdfast.amqp.connection import Delivery
from holdfast.amqp.message.framing import check
from holdfast.amqp.weight import weight
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.performatives import Accepted, Error, Modified, Rejected, Released, TransactionalState
from holdfast.amqp.wire.types import Symbol
from holdfast.broker.cursors.entry_consumer import Acquired
from holdfast.broker.entries import entry
from holdfast.broker.entries.blob import Blob
from holdfast.custody.arrival.duplicates import Duplicates
from holdfast.endpoints.addresses.link_refusal import Refusal
from holdfast.endpoints.admission import Admission, full_text
from holdfast.endpoints.transactions.work import (
    POST_BYTES,
    TAKE_BYTES,
    TRANSACTION_BYTES,
    Answering,
    Bringing,
    Post,
    Prepared,
    Take,
    Taking,
    Transaction,
    fits,
    reserve,
    stays_within,
)
from holdfast.engine.clock import Clock
from holdfast.errors import RemoteProtocolError
from holdfast.links.incoming import ACCEPTED, Intake, rejection, unknown_transaction
from holdfast.links.large_receives import Stream
from holdfast.peers.connections import Connections
from holdfast.peers.limits.memory import Memory
from holdfast.peers.link_tables import LinkTables, links_of
from holdfast.peers.peer import Peer
from holdfast.settings import Limits
from holdfast.state.blobs import Blobs
from holdfast.state.catalog import DELAYED, Catalog
from holdfast.state.turns import Undone

OUTCOMES: Final = (Accepted, Rejected, Released, Modified)
RELEASED: Final = Released()

COUNTER_BYTES: Final = 8
NONCE_BYTES: Final = 8
"""An id is what the node drew when its first transaction of this start was declared, and a number: an id of an earlier
start is unknown, as it must be."""


@dataclass(frozen=True, slots=True)
class TransactionParts:
    """What transactions use of the node."""

    limits: Limits
    clock: Clock
    memory: Memory
    catalog: Catalog
    blobs: Blobs
    connections: Connections
    links: LinkTables
    duplicates: Duplicates
    admission: Admission
    rng: Random


class Transactions:
    """All that are open, by id, the one declared first in front; `deciding` are those of which a turn decides.
    `groups_apart`: how often the messages of one for another node were too many to be shown together there, since the
    node's start."""

    def __init__(self, parts: TransactionParts) -> None:
        self._parts = parts
        self.open: dict[bytes, Transaction] = {}
        self.deciding: dict[Transaction, None] = {}
        self.timed: dict[bytes, Transaction] = {}
        """Those whose time is not over."""
        self.counts: dict[Peer, int] = {}
        """How many each connection has."""
        self.refusal = ""
        """Why the disk refused the turn that is being undone; empty where a failure was contained."""
        self.groups_apart = 0
        self._nonce = b""
        self._declared = 0
        account = parts.memory.transactions
        parts.memory.held_in(account, lambda: sum(item.counted_bytes for item in self.all()))
        parts.blobs.pinned_by(self._blobs)

    def all(self) -> Iterator[Transaction]:
        yield from self.open.values()
        yield from self.deciding

    def _blobs(self) -> Iterable[Blob]:
        return [post.blob for item in self.all() for post in item.posts if post.blob is not None]

    # ------------------------------------------------------------------------------------------------ declared

    def declare(self, peer: Peer) -> Transaction | Error:
        """A new transaction of that connection, or why there is none."""
        limits = self._parts.limits
        count = self.counts.get(peer, 0)
        if count >= limits.transactions_max:
            text = f"the connection has {count} transactions; the limit is {limits.transactions_max}"
            return Error(Symbol(conditions.RESOURCE_LIMIT_EXCEEDED), text)
        if not self._parts.memory.transactions.charge(TRANSACTION_BYTES):
            text = "transactions have used up the memory that they may; try again later"
            return Error(Symbol(conditions.RESOURCE_LIMIT_EXCEEDED), text)
        if not self._nonce:
            self._nonce = self._parts.rng.getrandbits(8 * NONCE_BYTES).to_bytes(NONCE_BYTES)
        self._declared += 1
        txn_id = self._nonce + self._declared.to_bytes(COUNTER_BYTES)
        made = Transaction(txn_id, peer, self._parts.clock.now + limits.transaction_s)
        self.open[txn_id] = self.timed[txn_id] = made
        self.counts[peer] = count + 1
        if not count:  # its producers may have credit at full queues now
            self._parts.links.refills.update(
                (link, None) for link in links_of(peer) if isinstance(link, Intake) and not link.parked
            )
        return made

    def find(self, peer: Peer, txn_id: bytes) -> Transaction | None:
        """The open transaction of that id; another connection's is nobody's business here."""
        found = self.open.get(txn_id)
        return found if found is not None and found.peer is peer else None

    # ------------------------------------------------------------------------------------------------ posted

    def post(
        self, link: Bringing, delivery: Delivery, state: TransactionalState, *, large: Stream | None = None
    ) -> bool:
        """Takes a message into its transaction, or refuses it there; False where the transaction is not known.
        `large`: its bare message is a reference to a blob."""
        transaction = self.find(link.peer, state.txn_id)
        if transaction is None:
            return False
        if transaction.error is None:
            try:
                if large is None:
                    check(delivery.payload)
                self._take_in(transaction, link, delivery, link.prepare(delivery, large=large), large=large)
            except (Refusal, RemoteProtocolError) as error:
                self.fail(transaction, error.condition, error.description)
        self._answer(transaction, link, delivery.delivery_id, delivery.settled)
        return True

    def refuse(
        self, link: Answering, delivery: Delivery, state: TransactionalState, error: Refusal | RemoteProtocolError
    ) -> bool:
        """A message cannot be taken: its transaction has only the rollback left. False where that is not known."""
        transaction = self.find(link.peer, state.txn_id)
        if transaction is None:
            return False
        self.fail(transaction, error.condition, error.description)
        self._answer(transaction, link, delivery.delivery_id, delivery.settled)
        return True

    def _answer(self, transaction: Transaction, link: Answering, delivery_id: int, settled: bool) -> None:
        outcome = ACCEPTED if transaction.error is None else Rejected(transaction.error)
        link.settle_one(delivery_id, settled, TransactionalState(transaction.txn_id, outcome))

    def _take_in(
        self, transaction: Transaction, link: Bringing, delivery: Delivery, message: Prepared, *, large: Stream | None
    ) -> None:
        """Refusal where it is one too many, or its queue has no room."""
        producer = message.producer
        number = None if producer is None else (producer, message.number)
        if producer is not None and (message.number in producer.stored or number in transaction.numbers):
            self._parts.duplicates.suppressed += 1
            return
        queue, share = message.queue, transaction.share(message.queue)
        held = POST_BYTES + len(message.value)
        priority = message.value[2]
        if not fits(queue, share, message.size, priority):
            self._parts.admission.refuse(queue, link.peer, priority, message.size)
            text = full_text(queue, message.size, priority)
            if queue.reserved:
                text += (
                    f"; transactions and links have reserved {queue.reserved} messages, {queue.reserved_bytes} bytes"
                )
            raise Refusal(conditions.RESOURCE_LIMIT_EXCEEDED, text)
        catalog = self._parts.catalog
        is_delayed = catalog.is_delayed(queue, message.value)
        if is_delayed and (full := catalog.delayed_full(queue.host)):
            raise Refusal(conditions.RESOURCE_LIMIT_EXCEEDED, full)
        self._count(transaction, len(message.value), held)
        blob = None
        if large is not None:
            blob = self._parts.blobs.pin(entry.blob_of(message.value).blob)
        if number is not None:
            transaction.numbers.add(number)
        epoch = 0 if producer is None else producer.epoch
        transaction.posts.append(Post(link, delivery.delivery_id, delivery.settled, message, epoch, blob))
        share.brought += 1
        share.brought_bytes += message.size
        reserve(queue, share)
        if is_delayed:
            delayed = catalog.own(queue.host, DELAYED)
            place = transaction.share(delayed)
            place.brought += 1
            reserve(delayed, place)

    def _count(self, transaction: Transaction, size: int, held: int) -> None:
        """Counts one operation more, of a message of `size` bytes that is kept; Refusal past a bound."""
        limits = self._parts.limits
        if transaction.operations >= limits.transaction_operations_max:
            text = f"the transaction has too many operations; the limit is {limits.transaction_operations_max}"
            raise Refusal(conditions.RESOURCE_LIMIT_EXCEEDED, text)
        if transaction.bytes + size > limits.transaction_bytes_max:
            text = f"the messages of the transaction are too large; the limit is {limits.transaction_bytes_max} bytes"
            raise Refusal(conditions.RESOURCE_LIMIT_EXCEEDED, text)
        if not self._parts.memory.transactions.charge(held):
            text = "transactions have used up the memory that they may; try again later"
            raise Refusal(conditions.RESOURCE_LIMIT_EXCEEDED, text)
        transaction.operations += 1
        transaction.bytes += size
        transaction.counted_bytes += held

    # ------------------------------------------------------------------------------------------------ large messages

    def begin_large(self, peer: Peer, stream: Stream, state: TransactionalState) -> bool:
        """The large message came whole, and is taken in once it is on disk; False where its transaction is unknown."""
        transaction = self.find(peer, state.txn_id)
        if transaction is not None and transaction.error is None:
            transaction.streams[stream] = None
        return transaction is not None

    def post_large(self, link: Answering, stream: Stream, state: TransactionalState) -> None:
        """The large message is on disk, or `stream.outcome` says why it cannot be."""
        transaction = self.find(link.peer, state.txn_id)
        if transaction is not None:
            transaction.streams.pop(stream, None)
        if stream.outcome is None:
            assert isinstance(link, Bringing)
            if self.post(link, stream.delivery(), state, large=stream):
                return
        elif transaction is not None:
            error = stream.outcome.error if isinstance(stream.outcome, Rejected) else None
            condition = conditions.RESOURCE_LIMIT_EXCEEDED if error is None else error.condition
            self.fail(transaction, condition, (None if error is None else error.description) or "it cannot be stored")
            self._answer(transaction, link, stream.first.delivery_id, stream.settled)
            return
        link.settle_one(stream.first.delivery_id, stream.settled, unknown_transaction(state))

    def waits(self, transaction: Transaction, streams: Container[Stream]) -> bool:
        """Whether a large message of it is on its way to the disk. `streams`: those that are, of the whole node."""
        lost = [stream for stream in transaction.streams if stream not in streams]
        if lost:
            text = "a large message of the transaction was given up with its link"
            self.fail(transaction, conditions.TRANSACTION_ROLLBACK, text)
        return bool(transaction.streams)

    # ------------------------------------------------------------------------------------------------ taken

    def take(self, link: Taking, sequences: list[int], state: TransactionalState, *, settled: bool) -> bool:
        """Takes deliveries with their outcome into a transaction; False where that is not known. `settled`: by their
        peer, which can say nothing more of them."""
        transaction = self.find(link.peer, state.txn_id)
        if transaction is None:
            return False
        outcome = state.outcome if isinstance(state.outcome, OUTCOMES) else link.link.default_outcome
        acquired, cursor = link.cursor.acquired, link.cursor
        beside = weight(outcome) if isinstance(outcome, (Rejected, Modified)) else 0
        copied = isinstance(outcome, Rejected) or (isinstance(outcome, Modified) and bool(outcome.message_annotations))
        leaves = isinstance(outcome, (Accepted, Rejected)) and not cursor.tracked
        share = transaction.share(link.queue)
        for sequence in sequences:
            item = acquired.get(sequence)
            if item is None or item.consumer is not link:
                continue
            size = item.size
            if transaction.error is None:
                try:
                    self._count(transaction, size if copied else 0, TAKE_BYTES + beside)
                except Refusal as error:
                    self.fail(transaction, error.condition, error.description)
            if transaction.error is not None:
                if settled:
                    link.take_away(sequence, size)
                    self._give_up(link, sequence, failed=False)
                continue
            taken = Take(transaction, link, sequence, size, outcome, settled, beside)
            link.take_away(sequence, size)
            acquired[sequence] = Acquired(transaction, size)
            transaction.takes[cursor, sequence] = taken
            if not settled:
                link.provisional[sequence] = taken
            if leaves:
                share.taken += 1
                share.taken_bytes += size
        if transaction.error is None:  # else nothing is reserved for it any more
            reserve(link.queue, share)
        return True

    def changed(self, link: Taking, sequences: list[int], state: object, *, settled: bool) -> list[int]:
        """The peer says another word on deliveries, some of which it had given an outcome in a transaction. These are
        the link's again, and returned with the others, but for those of which a turn decides, and those of which it
        says the same."""
        left = []
        for sequence in sequences:
            taken = link.provisional.get(sequence)
            if taken is None:
                left.append(sequence)
            elif taken.transaction.deciding or _says_the_same(taken, state):
                if settled:
                    taken.settled = True
                    del link.provisional[sequence]
            else:
                self._forget_take(taken)
                link.give(sequence, self._size(taken))
                left.append(sequence)
        return left

    def _size(self, taken: Take) -> int:
        item = taken.cursor.acquired.get(taken.sequence)
        return taken.size if item is None else item.size

    def _forget_take(self, taken: Take) -> None:
        """It is no part of its transaction any more. What that brings may find no room without it: then it fails."""
        transaction, link = taken.transaction, taken.link
        del transaction.takes[taken.cursor, taken.sequence]
        link.provisional.pop(taken.sequence, None)
        held = taken.held_bytes
        transaction.counted_bytes -= held
        self._parts.memory.transactions.refund(held)
        if isinstance(taken.outcome, (Accepted, Rejected)) and not taken.cursor.tracked:
            queue, share = link.queue, transaction.share(link.queue)
            share.taken = max(0, share.taken - 1)
            share.taken_bytes = max(0, share.taken_bytes - taken.size)
            reserve(queue, share)
            if not stays_within(queue, share):
                text = f"queue {queue.name!r} is full: the transaction takes less from it than before"
                self.fail(transaction, conditions.RESOURCE_LIMIT_EXCEEDED, text)

    def link_gone(self, link: Taking) -> None:
        """A consumer's link is over: what it had not settled cannot be its any more."""
        for taken in link.provisional.values():
            taken.left = taken.settled = True
        link.provisional.clear()

    # ------------------------------------------------------------------------------------------------ ends

    def fail(self, transaction: Transaction, condition: str, description: str) -> None:
        """Only a rollback is left: what it posted is let go. What it took stays with it until then."""
        if transaction.error is None:
            transaction.error = rejection(condition, description).error
        self._drop_posts(transaction)

    def _drop_posts(self, transaction: Transaction) -> None:
        posts, transaction.posts = transaction.posts, []
        transaction.numbers.clear()
        transaction.streams.clear()
        self.release(transaction)
        for post in posts:
            if post.blob is not None:
                self._parts.blobs.unpin(post.blob)
        held = sum(POST_BYTES + len(post.message.value) for post in posts)
        transaction.counted_bytes -= held
        self._parts.memory.transactions.refund(held)

    def release(self, transaction: Transaction) -> None:
        """What it has reserved in queues is free again."""
        for queue, share in transaction.shares.items():
            queue.reserved -= share.reserved
            queue.reserved_bytes -= share.reserved_bytes
            if share.reserved or share.reserved_bytes:
                queue.touch()
        transaction.shares.clear()

    def roll_back(self, transaction: Transaction) -> None:
        """It never was: what it took is back with its links, or in its places. Its id stays known while it is open."""
        self._drop_posts(transaction)
        takes, transaction.takes = transaction.takes, {}
        held = sum(taken.held_bytes for taken in takes.values())
        transaction.counted_bytes -= held
        self._parts.memory.transactions.refund(held)
        for (cursor, sequence), taken in takes.items():
            link = taken.link
            link.provisional.pop(sequence, None)
            item = cursor.acquired.get(sequence)
            if item is None or item.consumer is not transaction or not self._parts.catalog.has_cursor(cursor):
                continue
            if taken.settled:
                self._give_up(link, sequence, failed=taken.left)
            else:
                link.give(sequence, item.size)
        for cursor in dict.fromkeys(cursor for cursor, _ in takes):
            cursor.queue.touch()

    def _give_up(self, link: Taking, sequence: int, *, failed: bool) -> None:
        """A delivery that its peer had settled goes back to its place, and counts as failed where the default outcome
        of its source says so, or `failed`."""
        outcome = link.link.default_outcome
        failed = failed or (isinstance(outcome, Modified) and bool(outcome.delivery_failed))
        link.cursor.requeue([sequence], failed=failed)

    def close(self, transaction: Transaction) -> None:
        """It was discharged, or nobody is there any more to discharge it: nothing of it is known from now on."""
        if self.open.pop(transaction.txn_id, None) is None:
            return
        self.timed.pop(transaction.txn_id, None)
        peer = transaction.peer
        self.counts[peer] -= 1
        if not self.counts[peer]:
            del self.counts[peer]

    def decide(self, transaction: Transaction) -> None:
        """The gathered turn decides of it from now on: its id is known no more, and what it brings is its queues'."""
        self.release(transaction)
        self.close(transaction)
        transaction.deciding = True  # from here on nothing is called that could fail
        self.deciding[transaction] = None

    def end(self, transaction: Transaction) -> None:
        """It is rolled back, and nothing of it is known from now on."""
        self.close(transaction)
        self.roll_back(transaction)
        self.forget(transaction)

    def forget(self, transaction: Transaction) -> None:
        """Nothing of it is held any more."""
        self.deciding.pop(transaction, None)
        transaction.deciding = False
        self._parts.memory.transactions.refund(transaction.counted_bytes)
        transaction.counted_bytes = 0

    # ------------------------------------------------------------------------------------------------ time

    def next_deadline(self) -> float | None:
        return next((item.until for item in self.timed.values()), None)

    def tick(self, now: float) -> None:
        """Rolls back those whose time is over; what they hear of it they hear when they go on."""
        while self.timed:
            transaction = next(iter(self.timed.values()))
            if transaction.until > now:
                break
            del self.timed[transaction.txn_id]
            text = f"the transaction was open for longer than {self._parts.limits.transaction_s:g} s"
            self.fail(transaction, conditions.TRANSACTION_TIMEOUT, text)
            self.roll_back(transaction)

    # ------------------------------------------------------------------------------------------------ turns

    def undo(self, undone: Undone) -> None:
        """Those turns never were. Large messages whose pieces were in them are lost to their transactions."""
        self.refusal = undone.refusal
        if not undone.refusal:
            return
        lost = {stream.blob.number for turn in undone.turns for stream in turn.streams}
        for transaction in list(self.open.values()):
            if any(post.blob is not None and post.blob.number in lost for post in transaction.posts):
                self.fail(transaction, conditions.RESOURCE_LIMIT_EXCEEDED, undone.refusal)

    def suspended(self) -> Iterator[tuple[object, set[int]]]:
        """What transactions hold is in nobody's hands who is gone (state/queue_changes.py)."""
        for transaction in self.all():
            yield transaction, {sequence for _, sequence in transaction.takes}

    def recover(self) -> None:
        """After a failure: those of connections that are gone are over, and what they all hold is counted anew."""
        connections = self._parts.connections
        for transaction in [item for item in self.deciding if not item.deciding]:  # its end was cut short
            self.end(transaction)
        for transaction in list(self.open.values()):
            if connections.get(transaction.peer.number) is not transaction.peer:
                self.end(transaction)
        for txn_id in [txn_id for txn_id in self.timed if txn_id not in self.open]:
            del self.timed[txn_id]
        self.counts = dict(Counter(transaction.peer for transaction in self.open.values()))
        for queue in self._parts.catalog.queues.values():
            shares = [item.shares[queue] for item in self.open.values() if queue in item.shares]
            queue.reserved = sum(share.reserved for share in shares)
            queue.reserved_bytes = sum(share.reserved_bytes for share in shares)
        for transaction in self.all():
            transaction.counted_bytes = transaction.held_bytes


def _says_the_same(taken: Take, state: object) -> bool:
    """Whether that is the outcome which the delivery has, in the same transaction."""
    return (
        isinstance(state, TransactionalState)
        and state.txn_id == taken.transaction.txn_id
        and isinstance(state.outcome, OUTCOMES)
        and state.outcome == taken.outcome
    )
