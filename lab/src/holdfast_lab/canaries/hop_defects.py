"""Canaries in the hop and at the destination: when a message may be removed, and which numbers were seen before.

Rules of this file: each defect is wrong in a rare state alone, as those are that survive review; it calls the function
that it replaces, so that the rest of the node goes on unchanged.
"""

from collections.abc import Callable
from typing import Any, Final

from holdfast.broker.entries import entry
from holdfast.custody.forwarding import TIGHT_CREDIT
from holdfast.custody.hop.sender import LAST_STORED
from holdfast_lab.canaries.planting import Canary

Function = Callable[..., Any]

MANY: Final = 32
"""So many numbers in, or under way at once: what the ordinary tests do not reach where something breaks."""


def _hop_number_ahead(original: Function) -> Function:
    """Retires one number more than the answer says if further numbers are unanswered."""

    def attached(self: Any) -> None:
        answer = self.link.remote_attach
        last = (answer.properties or {}).get(LAST_STORED) if answer is not None else None
        extra = None
        if isinstance(last, int) and last > MANY and last + MANY in self.in_doubt:
            extra = self.in_doubt.pop(last + 1, None)
        original(self)
        if extra is not None:
            self.queue.shared.finish_wherever([extra])

    return attached


def _seen_range_one_off(original: Function) -> Function:
    """If several origins send and copies came twice, the number just after an origin's mark counts as seen."""

    def take(self: Any, host: str, arrival: Any, *, message_format: int, via: str) -> bool | None:
        number, origins = arrival.identity.number, self.catalog.ledger.by_host[host]
        origin = origins.get(arrival.identity.origin)
        several = len(origins) > 1 and number > MANY
        if several and origin is not None and origin.duplicates and number == origin.mark + 1:
            return True
        taken: bool | None = original(self, host, arrival, message_format=message_format, via=via)
        return taken

    return take


def _receipt_of_an_empty_queue(original: Function) -> Function:
    """An origin with nothing else in its queue takes everything that it sent as finished."""

    def receipt_for(self: Any, origin: bytes, destination: str) -> int:
        known: int = original(self, origin, destination)
        if origin == self._identities.store_uuid.bytes:
            queue = self._identities._catalog.transmission(destination)
            given = int(self._ledger.identities.get(destination, 1)) - 1
            if queue.messages == 1 and given > MANY:
                return max(known, given - 1)
        return known

    return receipt_for


def _starved_link_asleep(original: Function) -> Function:
    """A link that has used up a small window waits for the commit in flight, which does not wake it."""

    def refill(self: Any) -> None:
        small = self.parts.limits.credit <= TIGHT_CREDIT and self.taken > MANY
        if small and not self.parked and not self.link.credit and self.parts.turns.in_flight is not None:
            return
        original(self)

    return refill


def _full_credit_again(_original: Function) -> Function:
    """A hop grants full credit again at once, even if messages found no place to wait."""

    def credit(self: Any, hop: bytes, room: int) -> int:
        return room

    return credit


def _priority_lost(original: Function) -> Function:
    """A message with both a priority and annotations is forwarded with the default priority."""

    def for_neighbour(item: Any, steady_ms: int) -> tuple[bytes, list[Any]]:
        if item.annotation_count and item.identity.number > MANY and not item.expires_ms:
            item = item._replace(priority=entry.PRIORITY_DEFAULT)
        told: tuple[bytes, list[Any]] = original(item, steady_ms)
        return told

    return for_neighbour


def _part_unheard(original: Function) -> Function:
    """A neighbour whose frame has come in part counts as silent until the frame is complete."""

    def _received(self: Any, peer: Any, event: Any, now: float) -> None:
        neighbour = peer.neighbour
        heard_at = None if neighbour is None else neighbour.heard_at
        unread_bytes = len(peer.amqp._rest)
        original(self, peer, event, now)
        if peer.neighbour is neighbour is not None and len(peer.amqp._rest) == unread_bytes + len(event.data):
            neighbour.heard_at = heard_at

    return _received


def _oversized_forgotten(original: Function) -> Function:
    """Of several messages that wait to become dead letters the first is forgotten and stays held by its sender."""

    def step(self: Any, sender: Any, now: float) -> None:
        if len(self.sequences) > 1 and now >= self.due:
            del self.sequences[next(iter(self.sequences))]
        original(self, sender, now)

    return step


HOP_CANARIES = (
    Canary(
        name="part-unheard",
        sentence="While one large frame comes slowly, its sender is taken for silent.",
        target="core.node:NodeCore._received",
        signature="(self, peer: holdfast.peers.peer.Peer, event: holdfast.engine.events.BytesReceived, now: float) "
        "-> None",
        broken=_part_unheard,
        expected="gave",
    ),
    Canary(
        name="hop-number-ahead",
        sentence="After a cut the sender retires one number more than the neighbour's answer says is stored.",
        target="custody.hop.sender:CustodySender.attached",
        signature="(self) -> None",
        broken=_hop_number_ahead,
        expected="last copy",
    ),
    Canary(
        name="seen-range-one-off",
        sentence="The destination takes the number just behind its mark for seen, once copies came twice.",
        target="custody.arrival.destination:Destination.take",
        signature="(self, host: str, arrival: holdfast.custody.transfers.carried.Arrival, *, message_format: int, "
        "via: str) -> bool | None",
        broken=_seen_range_one_off,
        expected="accepted",
    ),
    Canary(
        name="receipt-of-an-empty-queue",
        sentence="An origin whose queue holds one message tells that all before it is finished.",
        target="custody.receipts:Receipts.receipt_for",
        signature="(self, origin: bytes, destination: str) -> int",
        broken=_receipt_of_an_empty_queue,
        expected="late, though its order is strict",
    ),
    Canary(
        name="starved-link-asleep",
        sentence="A small window that is used up while a commit is under way is never opened again.",
        target="custody.hop.receiver:CustodyReceiver.refill",
        signature="(self) -> None",
        broken=_starved_link_asleep,
        expected="not done",
    ),
    Canary(
        name="oversized-forgotten",
        sentence="Of messages that the neighbour does not take, and that wait to be dead letters, one is forgotten.",
        target="custody.hop.oversized:Oversized.step",
        signature="(self, sender: holdfast.custody.hop.oversized.Holder, now: float) -> None",
        broken=_oversized_forgotten,
        expected="forgot them",
    ),
    Canary(
        name="full-credit-again",
        sentence="A hop whose messages found no place to wait is given full credit again.",
        target="custody.hop_credit:HopCredits.credit",
        signature="(self, hop: bytes, room: int) -> int",
        broken=_full_credit_again,
        expected="not done",
    ),
    Canary(
        name="priority-lost",
        sentence="A message with a priority and with annotations goes on to the next node with the usual priority.",
        target="broker.entries.annotate:for_neighbour",
        signature="(item: holdfast.broker.entries.entry.Entry, steady_ms: int) -> tuple[bytes, list[typing.Any]]",
        broken=_priority_lost,
        expected="has priority",
    ),
)
