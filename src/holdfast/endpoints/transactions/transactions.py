"""Local transactions of clients: which ones are open, their contents, and their rollback (AMQP 1.0 part 4).

Rules of this file: until its discharge a transaction only changes memory: messages that it posts are in no queue, and
no other consumer gets deliveries that it takes. Everything in a transaction is counted, and bounded for each and for
all together. Beyond a bound, and after any refused message, only the rollback is left, because the transaction would
not be complete without that message.
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
from holdfast.links.incoming import Intake
from holdfast.links.ingress import ACCEPTED, rejection, unknown_transaction
from holdfast.links.large_receives import Stream
from holdfast.peers.connections import Connections
from holdfast.peers.limits.memory import Memory
from holdfast.peers.link_tables import LinkTables, links_of
from holdfast.peers.peer import Peer
from holdfast.settings.limits import Limits
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
        """Declares a transaction of that connection; returns its id, or why there is none."""
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
        if not count:  # its producers may get credit at full queues now
            self._parts.links.refills.update(
                (link, None) for link in links_of(peer) if isinstance(link, Intake) and not link.parked
            )
        return made

    def find(self, peer: Peer, txn_id: bytes) -> Transaction | None:
        """The open transaction with that id, if it is one of that connection."""
        found = self.open.get(txn_id)
        return found if found is not None and found.peer is peer else None

    # ------------------------------------------------------------------------------------------------ posted

    def post(
        self, link: Bringing, delivery: Delivery, state: TransactionalState, *, large: Stream | None = None
    ) -> bool:
        """Adds a message to its transaction, or refuses it there; False if the transaction is unknown. `large`: its
        bare message is a reference to a blob."""
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
        """A message is refused: its transaction can only be rolled back. False if that is unknown."""
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
        """The large message has arrived, and is added once it is on disk; False if its transaction is unknown."""
        transaction = self.find(peer, state.txn_id)
        if transaction is not None and transaction.error is None:
            transaction.streams[stream] = None
        return transaction is not None

    def post_large(self, link: Answering, stream: Stream, state: TransactionalState) -> None:
        """Adds a large message that is on disk, or refuses it because of `stream.outcome`."""
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
        """Whether one of its large messages is not on disk yet. `streams`: all such messages of the node."""
        lost = [stream for stream in transaction.streams if stream not in streams]
        if lost:
            text = "a large message of the transaction was given up with its link"
            self.fail(transaction, conditions.TRANSACTION_ROLLBACK, text)
        return bool(transaction.streams)

    # ------------------------------------------------------------------------------------------------ taken

    def take(self, link: Taking, sequences: list[int], state: TransactionalState, *, settled: bool) -> bool:
        """Adds deliveries with their outcome to a transaction; False if that is unknown. `settled`: by the peer, which
        cannot change the outcome any more."""
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
            taken = Take(transaction, link, sequence, size, outcome, settled, beside, leaves)
            link.take_away(sequence, size)
            acquired[sequence] = Acquired(transaction, size)
            transaction.takes[cursor, sequence] = taken
            if not settled:
                link.provisional[sequence] = taken
            if leaves:
                share.taken += 1
                share.taken_bytes += size
        if transaction.error is None:  # otherwise nothing is reserved for it any more
            reserve(link.queue, share)
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
            reserve(queue, share)
            if not stays_within(queue, share):
                text = f"queue {queue.name!r} is full: the transaction takes less from it than before"
                self.fail(transaction, conditions.RESOURCE_LIMIT_EXCEEDED, text)

    def link_gone(self, link: Taking) -> None:
        """A consumer's link has ended: deliveries that it had not settled cannot return to it any more."""
        for taken in link.provisional.values():
            taken.left = taken.settled = True
        link.provisional.clear()

    # ------------------------------------------------------------------------------------------------ ends

    def fail(self, transaction: Transaction, condition: str, description: str) -> None:
        """The transaction can only be rolled back: its messages are dropped. Deliveries stay in it until then."""
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
        """Frees its reservations in queues."""
        for queue, share in transaction.shares.items():
            queue.reserved -= share.reserved
            queue.reserved_bytes -= share.reserved_bytes
            if share.reserved or share.reserved_bytes:
                queue.touch()
        transaction.shares.clear()

    def roll_back(self, transaction: Transaction) -> None:
        """Rolls back: deliveries return to their links, or to their places in the queue. The id stays valid while it is
        open."""
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
        """Requeues a delivery that its peer had settled; it counts as failed if the default outcome of its source says
        so, or with `failed`."""
        outcome = link.link.default_outcome
        failed = failed or (isinstance(outcome, Modified) and bool(outcome.delivery_failed))
        link.cursor.requeue([sequence], failed=failed)

    def close(self, transaction: Transaction) -> None:
        """Forgets a transaction that was discharged, or that nobody can discharge any more."""
        if self.open.pop(transaction.txn_id, None) is None:
            return
        self.timed.pop(transaction.txn_id, None)
        peer = transaction.peer
        self.counts[peer] -= 1
        if not self.counts[peer]:
            del self.counts[peer]

    def decide(self, transaction: Transaction) -> None:
        """The gathered turn commits it: its id is not valid any more, and its messages belong to their queues."""
        self.release(transaction)
        self.close(transaction)
        transaction.deciding = True  # from here on nothing is called that could fail
        self.deciding[transaction] = None

    def end(self, transaction: Transaction) -> None:
        """Rolls it back and forgets it."""
        self.close(transaction)
        self.roll_back(transaction)
        self.forget(transaction)

    def forget(self, transaction: Transaction) -> None:
        """Frees everything that it holds."""
        self.deciding.pop(transaction, None)
        transaction.deciding = False
        self._parts.memory.transactions.refund(transaction.counted_bytes)
        transaction.counted_bytes = 0

    # ------------------------------------------------------------------------------------------------ time

    def next_deadline(self) -> float | None:
        return next((item.until for item in self.timed.values()), None)

    def tick(self, now: float) -> None:
        """Rolls back transactions that were open for too long; their clients are told with their next operation."""
        while self.timed:
            transaction = next(iter(self.timed.values()))
            if transaction.until > now:
                break
            text = f"the transaction was open for longer than {self._parts.limits.transaction_s:g} s"
            self.give_up(transaction, text, conditions.TRANSACTION_TIMEOUT)

    def give_up(self, transaction: Transaction, why: str, condition: str = conditions.TRANSACTION_ROLLBACK) -> None:
        """Rolls back a transaction that is open, whose client is told why with its next operation."""
        self.timed.pop(transaction.txn_id, None)
        self.fail(transaction, condition, why)
        self.roll_back(transaction)

    # ------------------------------------------------------------------------------------------------ turns

    def undo(self, undone: Undone) -> None:
        """Those turns were undone: transactions lose large messages whose pieces were in them."""
        self.refusal = undone.refusal
        if not undone.refusal:
            return
        lost = {stream.blob.number for turn in undone.turns for stream in turn.streams}
        for transaction in list(self.open.values()):
            if any(post.blob is not None and post.blob.number in lost for post in transaction.posts):
                self.fail(transaction, conditions.RESOURCE_LIMIT_EXCEEDED, undone.refusal)

    def suspended(self) -> Iterator[tuple[object, set[int]]]:
        """Transactions are holders of entries that stay when consumers are gone (state/queue_changes.py)."""
        for transaction in self.all():
            yield transaction, {sequence for _, sequence in transaction.takes}

    def recover(self) -> None:
        """After a failure: transactions of closed connections end, and everything is counted again."""
        connections = self._parts.connections
        for transaction in [item for item in self.deciding if not item.deciding]:  # its end was interrupted
            self.end(transaction)
        for transaction in list(self.open.values()):
            if connections.get(transaction.peer.number) is not transaction.peer:
                self.end(transaction)
        for txn_id in [txn_id for txn_id in self.timed if txn_id not in self.open]:
            del self.timed[txn_id]
        self.counts = dict(Counter(transaction.peer for transaction in self.open.values()))
        for transaction in self.open.values():
            if transaction.error is None:
                transaction.recount()
        for queue in self._parts.catalog.queues.values():  # links add what is theirs
            shares = [item.shares[queue] for item in self.open.values() if queue in item.shares]
            queue.reserved = sum(share.reserved for share in shares)
            queue.reserved_bytes = sum(share.reserved_bytes for share in shares)
        for transaction in self.all():
            transaction.counted_bytes = transaction.held_bytes


def _says_the_same(taken: Take, state: object) -> bool:
    """Whether the delivery has that outcome already, in the same transaction."""
    return (
        isinstance(state, TransactionalState)
        and state.txn_id == taken.transaction.txn_id
        and isinstance(state.outcome, OUTCOMES)
        and state.outcome == taken.outcome
    )
