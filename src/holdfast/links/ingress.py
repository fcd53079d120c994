"""What all links that bring messages share: their outcomes, and credit.

Rules of this file: a delivery is settled once it is on disk (`stored`) or cannot be (`refused`).
"""

from collections.abc import Container, Iterator
from typing import Any, Final

from holdfast.amqp.connection import Deliveries, Delivery, DeliveryPart, Receiver
from holdfast.amqp.session.events import DeliveryBegun
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.extensions import TRY_LATER
from holdfast.amqp.wire.performatives import Accepted, Error, Rejected, TransactionalState
from holdfast.amqp.wire.types import Symbol
from holdfast.broker.queue import Queue
from holdfast.peers.peer import Peer, PeerLink
from holdfast.state.turns import runs
from holdfast.units import MIB

ACCEPTED: Final = Accepted()

NODE_MESSAGE_BYTES_MAX: Final = MIB
"""The largest message for the node itself: a request, or a neighbour's control message."""

DESCRIPTION_CHARACTERS_MAX: Final = 500
"""The maximum length of a rejection's text. It may contain text of the peer, and may be kept
(endpoints/resumption/producer.py)."""


def rejection(condition: str, description: str, *, later: bool = False) -> Rejected:
    """`later`: there is no room now, and the same message may be accepted later."""
    info: dict[Any, Any] | None = {TRY_LATER: True} if later else None
    return Rejected(Error(Symbol(condition), description[:DESCRIPTION_CHARACTERS_MAX], info))


def unknown_transaction(state: TransactionalState) -> Rejected:
    """The outcome for an unknown transaction."""
    return rejection(conditions.UNKNOWN_TRANSACTION, unknown_text(state))


def unknown_text(state: TransactionalState) -> str:
    """The text for an unknown transaction."""
    return f"transaction {state.txn_id.hex()[:64]} is not known here; declare it on this connection first"


class Ingress(PeerLink):
    """What all links that bring messages share: dispositions of ranges, credit topped up at half. Messages are held as
    a whole, unless the kind of link sets its `stream_bytes`."""

    def __init__(self, peer: Peer, link: Receiver) -> None:
        self.peer = peer
        self.link: Receiver = link

    def settle(self, deliveries: list[int], outcome: object) -> None:
        """One disposition for each run of delivery-ids; nothing if the link has ended."""
        if self.link.detached or not deliveries:
            return
        for first, last in runs(deliveries):
            self.link.settle(first, last, outcome)
        self.peer.touch()

    def stored(self, deliveries: list[int]) -> None:
        self.settle(deliveries, ACCEPTED)

    def refused(self, deliveries: list[int], outcome: object) -> None:
        self.settle(deliveries, outcome)

    def stays(self, lost: Container[Queue]) -> bool:
        """Whether its messages stay although their turn is undone. `lost`: queues in memory that lost some of them."""
        return False

    def top_up(self, window: int) -> None:
        """Grants `window` if half of it is used up (CLIENTS 16); takes credit back if the window has shrunk."""
        if self.link.attached and self.link.credit <= window // 2 and self.link.credit != window:
            self.link.grant(window)
            self.peer.touch()

    def delivered(self, delivery: Delivery) -> None:
        raise AssertionError("each kind of link takes its own")

    def delivered_all(self, run: Deliveries) -> None:
        """As `delivered`, for each of a run."""
        for delivery in self._each(run):
            self.delivered(delivery)

    def _each(self, run: Deliveries) -> Iterator[Delivery]:
        for number, payload in enumerate(run.payloads, run.first_id):
            yield Delivery(self.link, number, b"", run.message_format, run.settled, payload, None, None)

    def refuse_unusable(self, delivery: Delivery) -> bool:
        """Settles a delivery without payload or of a transaction; False for any other. To be called for such deliveries
        only. Proton repeats a delivery that it had settled, empty: that is dropped, and is not a message.
        """
        state = delivery.state
        if isinstance(state, TransactionalState):
            if delivery.payload and self.in_transaction(delivery, state):
                self.peer.touch()
                return True
            outcome = unknown_transaction(state)
            if delivery.settled:  # its sender does not wait for an outcome
                self.link.detach(closed=True, error=outcome.error)
        elif delivery.payload:
            return False
        else:
            outcome = rejection(conditions.DECODE_ERROR, "the delivery has no payload")
        if not delivery.settled:
            self.settle([delivery.delivery_id], outcome)
        self.peer.touch()
        return True

    def in_transaction(self, delivery: Delivery, state: TransactionalState) -> bool:
        """Adds a message to its transaction, and settles it; False if this kind of link has no transactions."""
        return False

    def begun(self, event: DeliveryBegun) -> None:
        """A large delivery has begun; hops look at it."""

    def part(self, part: DeliveryPart) -> None:
        """Part of a request that is larger than the link's `stream_bytes`, or that arrives while unfinished deliveries
        are at their bound. It is rejected at its last part."""
        if part.last and not part.settled:
            text = f"the message is too large; the limit is {NODE_MESSAGE_BYTES_MAX} bytes, and few unfinished at once"
            self.settle([part.delivery_id], rejection(conditions.RESOURCE_LIMIT_EXCEEDED, text))

    def aborted(self) -> None:
        """The sender aborted a delivery of which parts had arrived."""

    def drained(self) -> None:
        """The peer has used up or returned its credit, for which it was asked."""

    def gone(self) -> None:
        """The link was detached, by either side, or its connection was lost."""
