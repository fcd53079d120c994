"""After a failure: what its peer had is forgotten, what peers share is counted anew, whoever may wait is asked again.

Rules of this file: it reads and mends every part of the node, and runs after a failure alone (docs/adr/0019).
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from holdfast.broker.entry_log import ENTRY_BYTES
from holdfast.core import invariants, undo
from holdfast.core.parts import Parts
from holdfast.endpoints.browser import ReaderLink
from holdfast.endpoints.consumer import ConsumerLink
from holdfast.links.incoming import Ingress, Intake
from holdfast.links.outgoing import Egress
from holdfast.peers.link_tables import links_of
from holdfast.peers.peer import Peer, PeerLink, Requesting


class Recovery:
    """Of the whole node."""

    def __init__(self, core: Parts) -> None:
        self.core = core

    def take_back_gathered(self, ended: Collection[Peer]) -> None:
        """Undoes the gathered turn; `ended`: peers whose deliveries get no answer."""
        undo.take_back_gathered(self.core, ended)

    def forget(self, peer: Peer, links: Sequence[PeerLink]) -> None:
        """Takes all that the peer has out of every table; each step is tried again where it fails."""
        core = self.core
        mine = [*core.links.of_peer(peer), *(link for link in links if link.peer is peer)]
        for link in dict.fromkeys(mine):
            link.link.context = None
            _surely(partial(_gone, link))
            if isinstance(link, Requesting):
                _surely(partial(core.users.forget, link))  # first: its own tables say what else is to be forgotten
            _surely(partial(core.links.forget, link))
        for send in list(peer.sends):
            _surely(send.close)
        core.connections.sending.pop(peer, None)
        core.connections.touched.pop(peer, None)
        core.pressure.paused.pop(peer, None)
        core.turns.gathered.heard_bytes -= core.turns.gathered.heard.pop(peer, 0)
        for tell in core.connections.leaving:
            _surely(partial(tell, peer))
        if peer.neighbour is not None:
            _surely(partial(peer.neighbour.lost, peer, "a failure of this node, see its log"))

    def take_stock(self) -> None:
        """Counts anew what peers share, from who holds it: the failure may lie between a change and its count."""
        core = self.core
        for neighbour in core.neighbours.values():
            neighbour.recover()
        core.resume.recover()
        core.jobs.returns.waiting.clear()  # whoever is gone holds nothing
        suspended = [record for record in core.resume.outgoing.values() if record.until is not None]
        kept = {id(record.taker): {*record.held.values()} for record in suspended}
        for queue in core.catalog.queues.values():
            queue.consumers_changed(bool(queue.shared.takers))
            for cursor in queue.cursors:
                cursor.exclusions.recount(cursor.takers, cursor.returned)
                here = {*map(id, cursor.takers), *map(id, core.jobs.settlements.waiting)}
                lost = [
                    number
                    for number, item in cursor.shown.items()
                    if id(item.taker) not in here and number not in kept.get(id(item.taker), ())
                ]
                cursor.give_back(lost, failed=True)
                queue.look_again(cursor.returned)
        brought = {stream.blob for stream in core.streams}
        pins = Counter(send.blob for peer in core.connections.values() for send in peer.sends)
        for blob in core.blobs.by_number.values():
            blob.open = blob.open and blob in brought
            blob.pins = pins[blob]
        pressure = core.pressure
        links: list[Any] = [link for peer in core.connections.values() for link in links_of(peer)]
        for queue in core.catalog.queues.values():
            if queue.memory is not None:
                queue.counted_bytes = queue.bytes_held + ENTRY_BYTES * queue.messages
        for peer in core.connections.values():
            intakes = [link for link in links_of(peer) if isinstance(link, Intake)]
            peer.parked_bytes = sum(map(invariants.parked_bytes_of, intakes))
        memory = core.memory
        for account, size in invariants.held_by_account(core, links).items():
            account.held = size
        memory.total.held = sum(account.held for account in memory.accounts)
        unsettled = invariants.unsettled_bytes(core, links)
        for use in core.users.all():
            mine = [peer for peer in core.connections.values() if peer.use is use]
            use.connections, use.links = len(mine), sum(peer.counted_links for peer in mine)
            use.unsettled_bytes = unsettled[use]
            use.settled(0)  # there may be room again
        pressure.ahead_bytes = sum(stream.counted for stream in core.streams)
        pressure.partials.held = sum(map(invariants.partial_bytes_of, core.connections.values()))

    def wake_all(self) -> None:
        """Whoever waited for a step that the failure cut short is asked again; that costs a look each."""
        core = self.core
        for queue in core.catalog.queues.values():
            core.jobs.offer_again(queue)
        for destination, _ in core.catalog.transmissions():
            core.forwarding.steer(destination)
        for peer in core.connections.values():
            peer.touch()
            core.deadlines.watch(peer)
            if peer.sends:
                core.connections.sending[peer] = None
            for link in links_of(peer):
                if isinstance(link, Intake):
                    core.links.refills[link] = None
                elif isinstance(link, (ConsumerLink, ReaderLink)):
                    link.credited()
                    if isinstance(link, ConsumerLink) and link.batch:
                        core.links.presettled[link] = None


def _gone(link: PeerLink) -> None:
    if isinstance(link, Ingress):
        link.gone()
    elif isinstance(link, Egress):
        link.gone([])


def _surely(step: Callable[[], None]) -> None:
    """A step of an ending: tried again where it fails, since what it did not do once it may do then."""
    try:
        step()
    except Exception:
        step()


# ---------------------------------------------------------------------------------------------------- whose it is
