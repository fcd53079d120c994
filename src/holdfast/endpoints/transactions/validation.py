"""Invariants of transactions (docs/adr/0020).

Rules of this file: reads, never changes; BrokenInvariant says what contradicts what.
"""

from collections import Counter
from collections.abc import Iterable

from holdfast.broker.entries.kinds import QueueKind
from holdfast.broker.queue import Queue
from holdfast.endpoints.transactions.transactions import Transactions
from holdfast.endpoints.transactions.work import Share, Transaction
from holdfast.engine.invariants import must
from holdfast.peers.connections import Connections
from holdfast.peers.peer import Peer
from holdfast.peers.validation import alive
from holdfast.state.catalog import Catalog


def transactions(
    held: Transactions,
    connections: Connections,
    catalog: Catalog,
    others: Iterable[tuple[Queue, int, int]],
    *,
    stopping: bool,
) -> None:
    """Entries in transactions are held by them alone, and are counted; reservations, with those of `others`, match
    their queues."""
    counts: Counter[Peer] = Counter()
    reserved: Counter[Queue] = Counter()
    reserved_bytes: Counter[Queue] = Counter()
    for txn_id, transaction in held.open.items():
        must(transaction.txn_id == txn_id, "a transaction stands under another id", txn_id)
        must(not transaction.deciding, "an open transaction of which a turn decides", txn_id)
        alive(connections, transaction.peer, "a transaction's")
        _shares(transaction)
        counts[transaction.peer] += 1
        for queue, share in transaction.shares.items():
            reserved[queue] += share.reserved
            reserved_bytes[queue] += share.reserved_bytes
    must(held.counts == dict(counts), "transactions by connection")
    must(held.timed.keys() <= held.open.keys(), "a transaction that is over has a deadline")
    for transaction in held.deciding:
        must(transaction.deciding, "a transaction of which no turn decides")
        kept = [queue.name for queue in transaction.shares if queue.config.durable]
        must(not kept, "a transaction of which a turn decides has room reserved for what the turn has", kept)
        for queue, share in transaction.shares.items():
            reserved[queue] += share.reserved
            reserved_bytes[queue] += share.reserved_bytes
    for queue, messages, size in others:
        reserved[queue] += messages
        reserved_bytes[queue] += size
    for transaction in held.all():
        _one(transaction)
    for queue in catalog.queues.values():
        name, messages, size = queue.name, reserved[queue], reserved_bytes[queue]
        must(queue.reserved == messages, f"queue {name!r}: messages reserved", queue.reserved, messages)
        must(queue.reserved_bytes == size, f"queue {name!r}: bytes reserved", queue.reserved_bytes, size)
        for cursor in queue.cursors:
            for sequence, item in cursor.acquired.items():
                if isinstance(item.consumer, Transaction):
                    mine = (cursor, sequence) in item.consumer.takes
                    must(mine or stopping, f"queue {name!r}: {sequence} is held by a transaction that has it not")


def _shares(transaction: Transaction) -> None:
    """The reservations of an open transaction match its contents."""
    where = f"transaction {transaction.txn_id.hex()}"
    if transaction.error is not None:
        brings = transaction.posts or transaction.shares or transaction.numbers or transaction.streams
        must(not brings, f"{where} can only be rolled back, and brings something")
        return
    numbers = {post.number for post in transaction.posts} - {None}
    must(transaction.numbers == numbers, f"{where}: numbers", len(transaction.numbers), len(numbers))
    brought_to, takes_off = transaction.brings(), transaction.takes_off()
    for queue in {*transaction.shares, *brought_to, *takes_off}:
        share, of = transaction.shares.get(queue, Share()), f"{where} and queue {queue.name!r}"
        brought, taken = (share.brought, share.brought_bytes), (share.taken, share.taken_bytes)
        if queue.kind is not QueueKind.DELAYED:
            must(brought == brought_to.get(queue, (0, 0)), f"{of}: brought", brought, brought_to.get(queue))
        must(taken == takes_off.get(queue, (0, 0)), f"{of}: taken", taken, takes_off.get(queue))
        reserved = share.reserved, share.reserved_bytes
        must(reserved == share.wanted, f"{of}: reserved", reserved, share.wanted)


def _one(transaction: Transaction) -> None:
    where = f"transaction {transaction.txn_id.hex()}"
    held = transaction.held_bytes
    must(transaction.counted_bytes == held, f"{where}: bytes", transaction.counted_bytes, held)
    for (cursor, sequence), taken in transaction.takes.items():
        known = taken.link.provisional.get(sequence) is taken
        must(known != taken.settled, f"{where}: sequence {sequence} of queue {cursor.queue.name!r}, and its link")
        theirs = taken.makes_room and cursor.name
        must(not theirs, f"{where}: sequence {sequence} of queue {cursor.queue.name!r} is others' too, and makes room")
