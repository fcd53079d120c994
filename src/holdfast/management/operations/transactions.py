"""The operations of `$management` about clients' transactions that are open (docs/management.md).

Rules of this file: a transaction is identified by its id in hexadecimal. One that is closed is rolled back; its client
learns it with its next operation, as for one that was open too long.
"""

from typing import Any, Final

from holdfast.amqp.wire.types import Ulong
from holdfast.endpoints.transactions.transactions import Transactions
from holdfast.endpoints.transactions.work import Transaction
from holdfast.engine.clock import Clock
from holdfast.entity_types import TRANSACTION
from holdfast.management.operations.answers import Answer, Refused
from holdfast.management.operations.changes import done_to
from holdfast.management.operations.connections import CLOSED
from holdfast.management.operations.entities import EntityType
from holdfast.management.operations.operation import Operation, Table

TRANSACTION_ATTRIBUTES: Final = ("connection", "user", "messages", "deliveries", "bytes", "left_s", "failed")


class TransactionOperations:
    """What there is of transactions; CLOSE."""

    def __init__(self, transactions: Transactions, clock: Clock) -> None:
        self._transactions = transactions
        self._clock = clock

    def register(self, table: Table) -> None:
        table |= {(TRANSACTION, "CLOSE"): Operation(self.close, done_to("transaction", "closed"), in_memory=True)}

    def types(self) -> tuple[EntityType, ...]:
        """The attributes of QUERY."""
        return (EntityType(TRANSACTION, TRANSACTION_ATTRIBUTES, self._keys, self._row),)

    def _keys(self, host: str, after: str) -> list[Transaction]:
        """The ids of one start ascend."""
        return [item for item in self._transactions.open.values() if item.peer.host == host and _named(item) > after]

    def _row(self, item: Transaction) -> dict[str, Any]:
        return {
            "name": _named(item),
            "identity": _named(item),
            "connection": str(item.peer.number),
            "user": item.peer.amqp.authenticated_user,
            "messages": len(item.posts),
            "deliveries": len(item.takes),
            "bytes": Ulong(item.bytes),
            "left_s": max(0.0, item.until - self._clock.now),
            "failed": None if item.error is None else item.error.description,
        }

    def close(self, host: str, name: str, arguments: dict[str, Any]) -> Answer:
        found = next((item for item in self._transactions.open.values() if _named(item) == name), None)
        if found is None or found.peer.host != host:
            raise Refused(404, f"no open transaction {name[:60]!r}")
        found.peer.log("INFO", f"transaction {name} {CLOSED}")
        self._transactions.give_up(found, f"the transaction was {CLOSED}")
        return Answer(200, "OK", {"closed": name})


def _named(item: Transaction) -> str:
    return item.txn_id.hex()
