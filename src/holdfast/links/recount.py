"""Counts again what connections and large messages hold: after a failure, and for the invariants.

Rules of this file: it sums up what is counted elsewhere step by step (docs/adr/0019, docs/adr/0020).
"""

from collections import Counter

from holdfast.amqp.connection import Delivery, Receiver
from holdfast.broker.entries.blob import Blob
from holdfast.links.incoming import Intake
from holdfast.links.large_receives import Stream
from holdfast.links.pressure import Pressure
from holdfast.peers.connections import Connections
from holdfast.peers.deadlines import Deadlines
from holdfast.peers.limits.memory import PARKED_BYTES, Memory
from holdfast.peers.link_tables import LinkTables, links_of
from holdfast.peers.peer import Peer
from holdfast.state.blobs import Blobs


def partial_bytes_of(peer: Peer) -> int:
    """Bytes of that connection's unfinished deliveries."""
    receivers = {
        link for session in peer.amqp.sessions for link in session.remote_links.values() if isinstance(link, Receiver)
    }
    return sum(link.partial.kept_bytes for link in receivers if link.partial is not None)


def parked_bytes_of(peer: Peer) -> int:
    """Bytes of that connection's deliveries that wait for room, as they are counted."""
    waiting = (item for link in links_of(peer) if isinstance(link, Intake) for item in link.parked)
    return sum(PARKED_BYTES + len(item.payload) for item in waiting if isinstance(item, Delivery))


def pins_of(connections: Connections) -> Counter[Blob]:
    """How often each blob is being sent."""
    return Counter(send.blob for peer in connections.values() for send in peer.sends)


class LinkCounts:
    """Counts of links, which are corrected after a failure. `streams`: large messages that are arriving."""

    def __init__(
        self,
        connections: Connections,
        links: LinkTables,
        memory: Memory,
        pressure: Pressure,
        blobs: Blobs,
        deadlines: Deadlines,
        streams: dict[Stream, None],
    ) -> None:
        self._connections = connections
        self._links = links
        self._pressure = pressure
        self._blobs = blobs
        self._deadlines = deadlines
        self._streams = streams
        memory.held_in(memory.parked, lambda: sum(map(parked_bytes_of, connections.values())))

    def recover(self) -> None:
        """Counts again which blobs are being received and sent, and what waits in memory."""
        brought = {stream.blob for stream in self._streams}
        pins = pins_of(self._connections) + self._blobs.pinned
        for blob in self._blobs.by_number.values():
            blob.open = blob.open and blob in brought
            blob.pins = pins[blob]
        for peer in self._connections.values():
            peer.parked_bytes = parked_bytes_of(peer)
        self._pressure.ahead_bytes = sum(stream.counted for stream in self._streams)
        self._pressure.partials.held = sum(map(partial_bytes_of, self._connections.values()))

    def wake(self) -> None:
        """Connections write, continue large messages, and read again."""
        for peer in self._connections.values():
            peer.touch()
            self._deadlines.watch(peer)
            if peer.sends:
                self._connections.sending[peer] = None
            for link in links_of(peer):
                if isinstance(link, Intake):
                    self._links.refills[link] = None
