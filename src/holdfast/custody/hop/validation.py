"""Invariants of custody's senders to a neighbour (docs/adr/0020).

Rules of this file: reads, never changes; BrokenInvariant says what contradicts what.
"""

from holdfast.custody.forwarding import Forwarding
from holdfast.custody.hop.next_hop import NextHop
from holdfast.custody.hop.paced_sender import WAITING_MAX, PacedSender
from holdfast.custody.hop.sender import CustodySender
from holdfast.engine.invariants import must
from holdfast.peers.connections import Connections
from holdfast.peers.validation import alive
from holdfast.state.catalog import Catalog


def senders(
    hop: NextHop, connections: Connections, catalog: Catalog, forwarding: Forwarding, *, stopping: bool
) -> None:
    """Transfers in doubt belong to a link, or wait for one."""
    for destination, sender in hop.senders.items():
        _sender(
            sender, f"neighbour {hop.name}: custody for {destination}", connections, catalog, forwarding,
            stopping=stopping,
        )  # fmt: skip
    for doubting in hop.unanswered:
        must(bool(doubting.in_doubt), f"neighbour {hop.name}: nothing of {doubting.destination} waits for an answer")


def _sender(
    sender: CustodySender,
    where: str,
    connections: Connections,
    catalog: Catalog,
    forwarding: Forwarding,
    *,
    stopping: bool,
) -> None:
    must(sender in sender.queue.shared.consumers or stopping, f"{where} is no consumer of its queue")
    must(catalog.has(sender.queue), f"{where}: its queue is gone")
    must((sender.link is None) == (sender.peer is None), f"{where} has a link without a connection")
    if sender.peer is not None:
        alive(connections, sender.peer, f"{where}: its")
        must(sender.peer is sender.hop.peer, f"{where} speaks on a connection that the session has left")
    must(not sender.open or sender.link is not None, f"{where} is open without a link")
    returned = forwarding.returned.get(sender.destination)
    known = {*sender.in_doubt.values(), *sender.oversized.sequences, *(() if returned is None else returned.sequences)}
    for blocked in sender.blocked.values():
        known.update(blocked.aside)
    if isinstance(sender, PacedSender):
        must(len(sender.waiting) <= WAITING_MAX, f"{where}: too many wait for their rate", len(sender.waiting))
        unscheduled = sender.waiting and sender not in sender.hop.timed
        must(not unscheduled, f"{where}: what waits for its rate is not looked at again")
        aside = {*sender.oversized.sequences, *(each for blocked in sender.blocked.values() for each in blocked.aside)}
        must(sender.waiting.keys().isdisjoint(aside), f"{where}: what waits for its rate is elsewhere, too")
        known |= sender.waiting.keys()
    held = {sequence for sequence, item in sender.queue.shared.acquired.items() if item.consumer is sender}
    must(held <= known, f"{where} has entries in its hands, and forgot them", sorted(held - known)[:20])
    places = sender.places
    must((sender in places.holding) <= (sender.link is not None), f"{where} has a link's place, and no link")
    waits = sender in places.ready or sender in places.holding or not sender.may_attach or not sender.has_work
    waits = waits or stopping or sender.retry_at is not None or not sender.hop.established
    waits = waits or sender.queue.visible < sender.queue.next_sequence  # told of it once that is on disk
    must(waits or sender.link is not None, f"{where} has work, and nothing attaches its link")
