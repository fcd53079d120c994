"""The coordinator: the link on which a client declares and discharges its transactions (AMQP 1.0 §4.2, §4.3).

Rules of this file: requests are answered in order: while a commit waits for the disk, all later requests wait. When the
link ends, all its transactions end.
"""

from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import Final

from holdfast.amqp.connection import Delivery, DeliveryPart, Receiver
from holdfast.amqp.effort import MESSAGE, OUTCOME
from holdfast.amqp.message.message import Message
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.composites import from_described
from holdfast.amqp.wire.performatives import (
    Coordinator,
    Declare,
    Declared,
    Discharge,
    Error,
    Rejected,
    TransactionalState,
)
from holdfast.amqp.wire.types import MISSING, Symbol
from holdfast.endpoints.addresses.link_refusal import Refusal
from holdfast.endpoints.transactions.discharge import Commits, Wait
from holdfast.endpoints.transactions.transactions import Transactions
from holdfast.endpoints.transactions.work import Transaction
from holdfast.errors import RemoteProtocolError
from holdfast.links.ingress import ACCEPTED, Ingress, rejection, unknown_transaction
from holdfast.peers.link_tables import LinkTables
from holdfast.peers.peer import Peer

CREDIT: Final = 100
"""Credit of one link, for declares and discharges."""

REQUEST_BYTES_MAX: Final = 1_024
"""Of one of them."""

CAPABILITIES: Final = (
    Symbol("amqp:local-transactions"),
    Symbol("amqp:multi-txns-per-ssn"),
    Symbol("amqp:multi-ssns-per-txn"),
)
"""What a coordinator offers: transactions of this node, several at once, over all sessions of a connection."""


@dataclass(frozen=True, slots=True)
class CoordinatorParts:
    """What coordinators use."""

    links: LinkTables
    transactions: Transactions
    commits: Commits

    def attach(self, peer: Peer, link: Receiver) -> None:
        """Answers the attach to a coordinator; Refusal for a neighbour's."""
        if peer.neighbour is not None:
            raise Refusal(conditions.NOT_ALLOWED, "a neighbour has no transactions; attach to a target with an address")
        link.context = coordinator = CoordinatorLink(self, peer, link)
        link.accept(target=Coordinator(CAPABILITIES))
        coordinator.refill()


class CoordinatorLink(Ingress):
    """A client's link to the coordinator."""

    def __init__(self, parts: CoordinatorParts, peer: Peer, link: Receiver) -> None:
        super().__init__(peer, link)
        self._parts = parts
        self.mine: dict[bytes, Transaction] = {}
        """Its transactions that are open."""
        self.waiting: deque[Delivery] = deque()
        """Requests that were not carried out yet; the first one waits."""

    def refill(self) -> None:
        """Continues with waiting requests, as far as possible."""
        while self.waiting:
            if not self._carry_out(self.waiting[0]):
                self._parts.links.wait_for_room(self)
                break
            if self.waiting:  # otherwise the link has ended
                self.waiting.popleft()
        self.top_up(max(0, CREDIT - len(self.waiting)))

    def delivered(self, delivery: Delivery) -> None:
        self.peer.amqp.took(MESSAGE)
        if delivery.payload and len(delivery.payload) <= REQUEST_BYTES_MAX:
            self.waiting.append(delivery._replace(payload=bytes(delivery.payload)))
        elif delivery.payload:
            text = f"the message to the coordinator is too large; the limit is {REQUEST_BYTES_MAX} bytes"
            self._refuse(delivery, rejection(conditions.RESOURCE_LIMIT_EXCEEDED, text))
        elif not delivery.settled:  # Proton repeats a delivery that it had settled, empty
            self._refuse(delivery, rejection(conditions.DECODE_ERROR, "the delivery has no payload"))
        self._parts.links.refills[self] = None

    def part(self, part: DeliveryPart) -> None:
        super().part(part)
        self._parts.links.refills[self] = None

    def gone(self) -> None:
        self.waiting.clear()
        self._parts.links.refills.pop(self, None)
        self._parts.links.waiting_for_space.pop(self, None)
        while self.mine:  # a step that fails is tried again, with the rest
            _, transaction = self.mine.popitem()
            self._parts.transactions.end(transaction)

    # ------------------------------------------------------------------------------------------------ requests

    def _carry_out(self, delivery: Delivery) -> bool:
        """False if it must wait."""
        try:
            request = _request_of(delivery.payload)
        except RemoteProtocolError as error:
            self._refuse(delivery, rejection(error.condition, error.description))
            return True
        if isinstance(request, Declare):
            self._declare(delivery, request)
            return True
        return self._discharge(delivery, request)

    def _refuse(self, delivery: Delivery, outcome: Rejected) -> None:
        """Refuses a request. If it is settled, the link ends, because the client would go on as if the request had
        succeeded."""
        if not delivery.settled:
            self.settle([delivery.delivery_id], outcome)
            return
        self.link.detach(closed=True, error=outcome.error)
        self.link.context = None
        self.peer.touch()
        self.gone()

    def _declare(self, delivery: Delivery, request: Declare) -> None:
        if request.global_id is not None:
            text = "distributed transactions are not supported; send declare without global-id"
            self._refuse(delivery, rejection(conditions.NOT_IMPLEMENTED, text))
            return
        if delivery.settled:
            text = "a declare that is settled has no answer that could tell its txn-id; send it unsettled"
            self._refuse(delivery, rejection(conditions.NOT_ALLOWED, text))
            return
        made = self._parts.transactions.declare(self.peer)
        if isinstance(made, Error):
            self._refuse(delivery, Rejected(made))
            return
        self.mine[made.txn_id] = made
        self.settle([delivery.delivery_id], Declared(made.txn_id))

    def _discharge(self, delivery: Delivery, request: Discharge) -> bool:
        transaction = self.mine.get(request.txn_id)
        if transaction is None:
            self._refuse(delivery, unknown_transaction(TransactionalState(request.txn_id)))
            return True
        self.peer.amqp.took(OUTCOME + len(transaction.posts) + len(transaction.takes))
        error: Error | None = None
        if not request.fail:
            found = self._parts.commits.commit(transaction, partial(self._decided, delivery))
            if isinstance(found, Wait):
                return False
            if found is None:
                del self.mine[request.txn_id]
                self._parts.transactions.discharged(self.peer)
                return True
            error = found
        del self.mine[request.txn_id]
        self._parts.transactions.end(transaction)
        self._parts.transactions.discharged(self.peer)
        self._answer(delivery, error)
        return True

    def _decided(self, delivery: Delivery, error: Error | None) -> None:
        """A commit is on disk, or was refused."""
        if not self.link.detached:
            self._answer(delivery, error)

    def _answer(self, delivery: Delivery, error: Error | None) -> None:
        if error is not None:
            self._refuse(delivery, Rejected(error))
        elif not delivery.settled:
            self.settle([delivery.delivery_id], ACCEPTED)


def _request_of(payload: bytes) -> Declare | Discharge:
    """The request in the message; RemoteProtocolError if it is neither a declare nor a discharge."""
    value = Message.decode(payload).value
    request = None if value is MISSING else from_described(value)
    if not isinstance(request, (Declare, Discharge)):
        raise RemoteProtocolError(conditions.DECODE_ERROR, "expected a declare or a discharge")
    return request
