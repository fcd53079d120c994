"""What clients' links do in transactions: they post messages and take deliveries (AMQP 1.0 §4.4).

Rules of this file: as in `transactions.py`. Each operation is counted before anything is changed, and one that is
refused leaves its transaction only the rollback.
"""

from dataclasses import dataclass
from typing import Final

from holdfast.amqp.connection import Delivery
from holdfast.amqp.message.framing import check
from holdfast.amqp.weight import weight
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.performatives import Accepted, Modified, Rejected, Released, TransactionalState
from holdfast.broker.cursors.entry_consumer import Acquired
from holdfast.broker.entries import entry
from holdfast.custody.arrival.duplicates import Duplicates
from holdfast.endpoints.addresses.link_refusal import Refusal
from holdfast.endpoints.admission import Admission, full_text
from holdfast.endpoints.transactions.transactions import Transactions
from holdfast.endpoints.transactions.work import (
    POST_BYTES,
    TAKE_BYTES,
    Answering,
    Bringing,
    Post,
    Prepared,
    Take,
    Taking,
    Transaction,
    fits,
    requeue_settled,
    reserve,
    stays_within,
)
from holdfast.errors import RemoteProtocolError
from holdfast.links.ingress import ACCEPTED, unknown_transaction
from holdfast.links.large_receives import Stream
from holdfast.peers.limits.memory import Memory
from holdfast.peers.peer import Peer
from holdfast.settings.limits import Limits
from holdfast.state.blobs import Blobs
from holdfast.state.catalog import DELAYED, Catalog

OUTCOMES: Final = (Accepted, Rejected, Released, Modified)


@dataclass(frozen=True, slots=True)
class WorkParts:
    """What the operations use of the node."""

    limits: Limits
    memory: Memory
    catalog: Catalog
    blobs: Blobs
    duplicates: Duplicates
    admission: Admission


class TransactionalWork:
    """Adds to the transactions that are open."""

    def __init__(self, parts: WorkParts, transactions: Transactions) -> None:
        self._parts = parts
        self._transactions = transactions

    def has_open(self, peer: Peer) -> bool:
        """Whether that connection has a transaction."""
        return peer in self._transactions.counts

    # ------------------------------------------------------------------------------------------------ posted

    def post(
        self, link: Bringing, delivery: Delivery, state: TransactionalState, *, large: Stream | None = None
    ) -> bool:
        """Adds a message to its transaction, or refuses it there; False if the transaction is unknown. `large`: its
        bare message is a reference to a blob."""
        transaction = self._transactions.find(link.peer, state.txn_id)
        if transaction is None:
            return False
        if transaction.error is None:
            try:
                if large is None:
                    check(delivery.payload)
                self._take_in(transaction, link, delivery, link.prepare(delivery, large=large), large=large)
            except (Refusal, RemoteProtocolError) as error:
                self._transactions.fail(transaction, error.condition, error.description)
        self._answer(transaction, link, delivery.delivery_id, delivery.settled)
        return True

    def refuse(
        self, link: Answering, delivery: Delivery, state: TransactionalState, error: Refusal | RemoteProtocolError
    ) -> bool:
        """A message is refused: its transaction can only be rolled back. False if that is unknown."""
        transaction = self._transactions.find(link.peer, state.txn_id)
        if transaction is None:
            return False
        self._transactions.fail(transaction, error.condition, error.description)
        self._answer(transaction, link, delivery.delivery_id, delivery.settled)
        return True

    def _answer(self, transaction: Transaction, link: Answering, delivery_id: int, settled: bool) -> None:
        outcome = ACCEPTED if transaction.error is None else Rejected(transaction.error)
        link.settle_one(delivery_id, settled, TransactionalState(transaction.txn_id, outcome))

    def _take_in(
        self, transaction: Transaction, link: Bringing, delivery: Delivery, message: Prepared, *, large: Stream | None
    ) -> None:
        """Adds a message. Refusal if it is one too many, or if its queue has no room."""
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
        """Counts one more operation, with a kept message of `size` bytes; Refusal beyond a bound."""
        limits = self._parts.limits
        if transaction.operations >= limits.transaction_operations_max:
            most = limits.transaction_operations_max
            text = f"the transaction has too many operations; the limit is {most} (transaction_operations_max)"
            raise Refusal(conditions.RESOURCE_LIMIT_EXCEEDED, text)
        if transaction.bytes + size > limits.transaction_bytes_max:
            most = limits.transaction_bytes_max
            text = f"the messages of the transaction are too large; the limit is {most} bytes (transaction_bytes_max)"
            raise Refusal(conditions.RESOURCE_LIMIT_EXCEEDED, text)
        if not self._parts.memory.transactions.charge(held):
            text = "transactions have used up the memory that they may; try again later"
            raise Refusal(conditions.RESOURCE_LIMIT_EXCEEDED, text)
        transaction.operations += 1
        transaction.bytes += size
        transaction.counted_bytes += held

    # ------------------------------------------------------------------------------------------------ large messages

    def begin_large(self, peer: Peer, stream: Stream, state: TransactionalState) -> bool:
        """The large message has arrived, and is added once it is on disk; False if its transaction is unknown."""
        transaction = self._transactions.find(peer, state.txn_id)
        if transaction is not None and transaction.error is None:
            transaction.streams[stream] = None
        return transaction is not None

    def post_large(self, link: Answering, stream: Stream, state: TransactionalState) -> None:
        """Adds a large message that is on disk, or refuses it because of `stream.outcome`."""
        transaction = self._transactions.find(link.peer, state.txn_id)
        if transaction is not None:
            transaction.streams.pop(stream, None)
        if stream.outcome is None:
            assert isinstance(link, Bringing)
            if self.post(link, stream.delivery(), state, large=stream):
                return
        elif transaction is not None:
            error = stream.outcome.error if isinstance(stream.outcome, Rejected) else None
            condition = conditions.RESOURCE_LIMIT_EXCEEDED if error is None else error.condition
            text = (None if error is None else error.description) or "it cannot be stored"
            self._transactions.fail(transaction, condition, text)
            self._answer(transaction, link, stream.first.delivery_id, stream.settled)
            return
        link.settle_one(stream.first.delivery_id, stream.settled, unknown_transaction(state))

    # ------------------------------------------------------------------------------------------------ taken

    def take(self, link: Taking, sequences: list[int], state: TransactionalState, *, settled: bool) -> bool:
        """Adds deliveries with their outcome to a transaction; False if that is unknown. `settled`: by the peer, which
        then cannot change the outcome."""
        transaction = self._transactions.find(link.peer, state.txn_id)
        if transaction is None:
            return False
        outcome = state.outcome if isinstance(state.outcome, OUTCOMES) else link.link.default_outcome
        acquired, cursor = link.cursor.acquired, link.cursor
        beside = weight(outcome) if isinstance(outcome, (Rejected, Modified)) else 0
        copied = isinstance(outcome, Rejected) or (isinstance(outcome, Modified) and bool(outcome.message_annotations))
        leaves = isinstance(outcome, (Accepted, Rejected)) and not cursor.tracked
        for sequence in sequences:
            item = acquired.get(sequence)
            if item is None or item.consumer is not link:
                continue
            size = item.size
            if transaction.error is None:
                try:
                    self._count(transaction, size if copied else 0, TAKE_BYTES + beside)
                except Refusal as error:
                    self._transactions.fail(transaction, error.condition, error.description)
            if transaction.error is not None:
                if settled:
                    link.take_away(sequence, size)
                    requeue_settled(link, sequence, failed=False)
                continue
            taken = Take(transaction, link, sequence, size, outcome, settled, beside, leaves)
            link.take_away(sequence, size)
            acquired[sequence] = Acquired(transaction, size)
            transaction.takes[cursor, sequence] = taken
            if not settled:
                link.provisional[sequence] = taken
            if leaves:
                share = transaction.share(link.queue)
                share.taken += 1
                share.taken_bytes += size
        if leaves and transaction.error is None:  # otherwise nothing is reserved for it any more
            reserve(link.queue, transaction.share(link.queue))
        return True

    def changed(self, link: Taking, sequences: list[int], state: object, *, settled: bool) -> list[int]:
        """The peer sends another state for deliveries, some of which have an outcome in a transaction. These leave
        their transactions and are returned with the others, except those whose commit is in a turn, and those with the
        same state as before."""
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
        """Removes it from its transaction. If the transaction's messages have no room without it, the transaction
        fails."""
        transaction, link = taken.transaction, taken.link
        del transaction.takes[taken.cursor, taken.sequence]
        link.provisional.pop(taken.sequence, None)
        held = taken.held_bytes
        transaction.counted_bytes -= held
        self._parts.memory.transactions.refund(held)
        if taken.makes_room and transaction.error is None:  # else nothing is reserved for it any more
            queue, share = link.queue, transaction.share(link.queue)
            share.taken -= 1
            share.taken_bytes -= taken.size
            if reserve(queue, share) and not stays_within(queue, share):
                text = f"queue {queue.name!r} is full: the transaction takes less from it than before"
                self._transactions.fail(transaction, conditions.RESOURCE_LIMIT_EXCEEDED, text)

    def link_gone(self, link: Taking) -> None:
        """A consumer's link has ended: deliveries that it had not settled can no longer return to it."""
        for taken in link.provisional.values():
            taken.left = taken.settled = True
        link.provisional.clear()


def _says_the_same(taken: Take, state: object) -> bool:
    """Whether the delivery has that outcome already, in the same transaction."""
    return (
        isinstance(state, TransactionalState)
        and state.txn_id == taken.transaction.txn_id
        and isinstance(state.outcome, OUTCOMES)
        and state.outcome == taken.outcome
    )
