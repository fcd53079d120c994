"""Local transactions of clients: which ones are open, and how each ends (AMQP 1.0 part 4).

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

from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.performatives import Error
from holdfast.amqp.wire.types import Symbol
from holdfast.broker.entries.blob import Blob
from holdfast.broker.queue import Queue
from holdfast.endpoints.transactions.work import (
    POST_BYTES,
    TRANSACTION_BYTES,
    Transaction,
    requeue_settled,
)
from holdfast.engine.clock import Clock
from holdfast.links.incoming import Intake
from holdfast.links.ingress import rejection
from holdfast.links.large_receives import Stream
from holdfast.peers.connections import Connections
from holdfast.peers.limits.memory import Memory
from holdfast.peers.link_tables import LinkTables, links_of
from holdfast.peers.peer import Peer
from holdfast.settings.limits import Limits
from holdfast.state.blobs import Blobs
from holdfast.state.catalog import Catalog
from holdfast.state.turns import Undone
from holdfast.units import written

COUNTER_BYTES: Final = 8
NONCE_BYTES: Final = 8
"""Random bytes in an id, drawn when the first transaction since the start is declared, followed by a number: so ids of
earlier starts are unknown."""


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
        """Transactions whose time limit has not passed."""
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
            text = f"the connection has {count} transactions; the limit is {limits.transactions_max} (transactions_max)"
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
        if not count:
            self._renew_credit(peer)
        return made

    def _renew_credit(self, peer: Peer) -> None:
        """Its producers have credit at full queues while it has a transaction (endpoints/producer.py)."""
        self._parts.links.refills.update(
            (link, None) for link in links_of(peer) if isinstance(link, Intake) and not link.parked
        )

    def discharged(self, peer: Peer) -> None:
        """A transaction of that connection was discharged by its client."""
        if peer not in self.counts:
            self._renew_credit(peer)

    def find(self, peer: Peer, txn_id: bytes) -> Transaction | None:
        """The open transaction with that id, if it is one of that connection."""
        found = self.open.get(txn_id)
        return found if found is not None and found.peer is peer else None

    def waits(self, transaction: Transaction, streams: Container[Stream]) -> bool:
        """Whether one of its large messages is not on disk yet. `streams`: all such messages of the node."""
        lost = [stream for stream in transaction.streams if stream not in streams]
        if lost:
            text = "a large message of the transaction was given up with its link"
            self.fail(transaction, conditions.TRANSACTION_ROLLBACK, text)
        return bool(transaction.streams)

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
        self._release(transaction, list(transaction.shares))

    @staticmethod
    def _release(transaction: Transaction, queues: Iterable[Queue]) -> None:
        for queue in queues:
            share = transaction.shares.pop(queue)
            queue.reserved -= share.reserved
            queue.reserved_bytes -= share.reserved_bytes
            if share.reserved or share.reserved_bytes:
                queue.touch()

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
                requeue_settled(link, sequence, failed=taken.left)
            else:
                link.give(sequence, item.size)
        for cursor in dict.fromkeys(cursor for cursor, _ in takes):
            cursor.queue.touch()

    def close(self, transaction: Transaction) -> None:
        """Forgets a transaction that was discharged, or that no client can discharge."""
        if self.open.pop(transaction.txn_id, None) is None:
            return
        self.timed.pop(transaction.txn_id, None)
        peer = transaction.peer
        self.counts[peer] -= 1
        if not self.counts[peer]:
            del self.counts[peer]

    def decide(self, transaction: Transaction) -> None:
        """The gathered turn commits it: its id becomes invalid, and its messages belong to their queues; those in
        memory get them once the turn is stored, and keep their room until then."""
        self._release(transaction, [queue for queue in transaction.shares if queue.config.durable])
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
        """Rolls back transactions that were open for too long; their clients learn it with their next operation."""
        while self.timed:
            transaction = next(iter(self.timed.values()))
            if transaction.until > now:
                break
            most_s = written(self._parts.limits.transaction_s)
            text = f"the transaction was open for longer than {most_s} s (transaction_s)"
            self.give_up(transaction, text, conditions.TRANSACTION_TIMEOUT)

    def give_up(self, transaction: Transaction, why: str, condition: str = conditions.TRANSACTION_ROLLBACK) -> None:
        """Rolls back an open transaction; its client gets the reason with its next operation."""
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
            shares = [item.shares[queue] for item in self.all() if queue in item.shares]
            queue.reserved = sum(share.reserved for share in shares)
            queue.reserved_bytes = sum(share.reserved_bytes for share in shares)
        for transaction in self.all():
            transaction.counted_bytes = transaction.held_bytes
