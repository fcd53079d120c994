"""Invariants of links and of their waiting messages (docs/adr/0020).

Rules of this file: reads, never changes; BrokenInvariant says what contradicts what.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from holdfast.engine.invariants import must
from holdfast.links.incoming import Intake
from holdfast.links.ingress import Ingress
from holdfast.links.large_receives import Stream
from holdfast.links.outgoing import Egress
from holdfast.links.pressure import Pressure
from holdfast.links.recount import parked_bytes_of, partial_bytes_of, pins_of
from holdfast.peers.connections import Connections
from holdfast.peers.link_tables import LinkTables
from holdfast.peers.peer import Peer, PeerLink
from holdfast.peers.validation import alive
from holdfast.state.blobs import Blobs
from holdfast.state.catalog import Catalog


def tables(
    known: list[PeerLink], tables: LinkTables, connections: Connections, catalog: Catalog, streams: Iterable[Stream]
) -> None:
    """No table has a link of a closed connection; links of a queue are known to their connections, and their queue
    exists. `known`: every link that the engines of the connections know."""
    for number, peer in connections.items():
        for send in peer.sends:
            sent = send.peer is peer and peer in connections.sending
            must(sent, f"connection {number}: a large message nobody sends")
    ids = {id(link) for link in known}
    for what, standing in tables.each():
        alive(connections, standing.peer, f"{what}: a link's")
    for stream in streams:
        brings = stream.bringer.growing is stream or stream in stream.bringer.parked
        must(brings, "a large message that is under way, and that no link brings", stream.first.link.name)
    served: dict[str, Any] = {"producers": tables.producers, "readers": tables.readers}
    for what, by_queue in served.items():
        for queue, held in by_queue.items():
            for link in held:
                must(id(link) in ids, f"{what} of {queue.name!r}: a link that its connection does not know")
                must(link.queue is queue, f"{what} of {queue.name!r}: a link of {link.queue.name!r}")
                must(catalog.has(queue), f"{what}: queue {queue.name!r} is gone")
    for what, standing in tables.each():
        if isinstance(standing, Ingress):
            must(id(standing) in ids, f"{what}: a link that its connection does not know any more")
    for link in known:
        if isinstance(link, (Ingress, Egress)):
            must(link.link.context is link, "a link of the engine belongs to another of the core")


def arrived(known: Iterable[PeerLink], steady_ms: int) -> None:
    """The time of arrival is known for every delivery that waits for room."""
    for link in known:
        if isinstance(link, Intake):
            waits = {item.first.delivery_id if isinstance(item, Stream) else item.delivery_id for item in link.parked}
            where = f"link {link.link.name!r}"
            must(link.came_ms.keys() == waits, f"{where}: what waits, and when it came", waits ^ link.came_ms.keys())
            latest = max(link.came_ms.values(), default=0)
            must(latest <= steady_ms, f"{where}: came after now", latest, steady_ms)


def pressure(pressure: Pressure, connections: Connections, streams: Iterable[Stream]) -> None:
    """Counted bytes are the sum of what the holders have."""
    for peer in connections.values():
        parked = parked_bytes_of(peer)
        must(peer.parked_bytes == parked, f"connection {peer.number}: parked bytes", peer.parked_bytes, parked)
    ahead: Counter[Peer] = Counter()
    for stream in streams:
        ahead[stream.bringer.peer] += stream.counted
    must(pressure.ahead_bytes == ahead.total(), "bytes of large messages", pressure.ahead_bytes, ahead.total())
    for peer in connections.values():
        must(peer.ahead_bytes == ahead[peer], f"connection {peer.number}: large bytes", peer.ahead_bytes, ahead[peer])
    partial_bytes, held = sum(map(partial_bytes_of, connections.values())), pressure.partials.held
    must(held == partial_bytes, "bytes of deliveries that have not come whole", held, partial_bytes)


def blobs(blobs: Blobs, connections: Connections, streams: Iterable[Stream]) -> None:
    """Each open blob is being received, and each blob that is being sent is pinned."""
    brought, pins = {stream.blob for stream in streams}, pins_of(connections) + blobs.pinned
    for number, blob in blobs.by_number.items():
        must(not blob.open or blob in brought, f"blob {number}: nobody brings it")
        must(blob.pins == pins[blob], f"blob {number}: who sends it", blob.pins, pins[blob])
