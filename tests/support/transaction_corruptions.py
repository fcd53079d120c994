"""Corruptions of transactions (support/corruption.py).

Rules of this file: one function, or one line, each.
"""

from typing import Any

from holdfast.amqp.wire.performatives import Error
from holdfast.amqp.wire.types import Symbol
from support.corruption import breaks, one_more
from support.standing import deciding, transacting


@breaks("endpoints.transactions: a transaction stands under another id", transacting)
def _(s: Any) -> None:
    s.transaction.txn_id = b"another"


@breaks("endpoints.transactions: an open transaction of which a turn decides", transacting)
def _(s: Any) -> None:
    s.transaction.deciding = True


@breaks("endpoints.transactions: a transaction's", transacting)
def _(s: Any) -> None:
    gone = s.rig.client(s.node)
    s.rig.settle()
    (peer,) = [peer for peer in s.core.connections.values() if peer is not s.transaction.peer]
    gone.close_transport()
    s.rig.settle()
    s.transaction.peer = peer


@breaks("endpoints.transactions: transactions by connection", transacting)
def _(s: Any) -> None:
    s.held.counts[s.transaction.peer] += 1


@breaks("endpoints.transactions: a transaction that is over has a deadline", transacting)
def _(s: Any) -> None:
    s.held.timed[b"over"] = s.transaction


@breaks("endpoints.transactions: a transaction of which no turn decides", deciding)
def _(s: Any) -> None:
    s.transaction.deciding = False


@breaks(
    "endpoints.transactions: a transaction of which a turn decides has room reserved for what the turn has", deciding
)
def _(s: Any) -> None:
    s.transaction.share(next(queue for queue in s.core.catalog.queues.values() if queue.config.durable))


one_more("endpoints.transactions: queue {}: messages reserved", transacting, lambda s: s.other, "reserved")
one_more("endpoints.transactions: queue {}: bytes reserved", transacting, lambda s: s.other, "reserved_bytes")


@breaks("endpoints.transactions: queue {}: {} is held by a transaction that has it not", transacting)
def _(s: Any) -> None:
    place, taken = next(iter(s.transaction.takes.items()))
    del s.transaction.takes[place]
    s.transaction.recount()
    s.transaction.counted_bytes -= taken.held_bytes
    s.core.memory.transactions.refund(taken.held_bytes)


@breaks("endpoints.transactions: {}: bytes", transacting)
def _(s: Any) -> None:
    s.transaction.counted_bytes += 1
    s.core.memory.transactions.add(1)


@breaks("endpoints.transactions: {}: sequence {} of queue {}, and its link", transacting)
def _(s: Any) -> None:
    taken = next(taken for taken in s.transaction.takes.values() if not taken.settled)
    taken.settled = True


@breaks("endpoints.transactions: {} can only be rolled back, and brings something", transacting)
def _(s: Any) -> None:
    s.transaction.error = Error(Symbol("amqp:transaction:rollback"))


@breaks("endpoints.transactions: {}: numbers", transacting)
def _(s: Any) -> None:
    s.transaction.numbers.add(("a producer", 1))


@breaks("endpoints.transactions: {}: brought", transacting)
def _(s: Any) -> None:
    s.transaction.shares[s.other].brought += 1


@breaks("endpoints.transactions: {}: taken", transacting)
def _(s: Any) -> None:
    s.transaction.shares[s.work].taken_bytes -= 1


@breaks("endpoints.transactions: {}: reserved", transacting)
def _(s: Any) -> None:
    s.transaction.shares[s.other].reserved += 1


@breaks("endpoints.transactions: {}: sequence {} of queue {} is others' too, and makes room", transacting)
def _(s: Any) -> None:
    taken = next(iter(s.transaction.takes.values()))
    taken.cursor.name = "theirs"
