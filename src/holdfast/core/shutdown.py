"""Shutdown of a node: closes each connection, and returns acquired entries to their places.

Rules of this file: a step that fails is tried once more; then the node ends all the same.
"""

from collections.abc import Callable, Mapping

from holdfast.amqp.wire.performatives import Error
from holdfast.amqp.wire.types import Symbol
from holdfast.custody.names.identity import Identities
from holdfast.endpoints.remotes.remotes import Remotes
from holdfast.endpoints.resumption.resume import Resumption
from holdfast.engine.outbox import Outbox
from holdfast.links.containment import Containment
from holdfast.peering.rate_control import RateControl
from holdfast.peering.route_status import RoutesNow
from holdfast.peering.sessions import Neighbour
from holdfast.peers.connections import Connections
from holdfast.state.catalog import Catalog


class Shutdown:
    """The end of a node. `resident_bytes`: as last measured by the driver."""

    def __init__(
        self,
        identities: Identities,
        catalog: Catalog,
        outbox: Outbox,
        connections: Connections,
        neighbours: Mapping[str, Neighbour],
        routing: RoutesNow,
        rates: RateControl,
        remotes: Remotes,
        resume: Resumption,
        containment: Containment,
        *,
        resident_bytes: Callable[[], int],
    ) -> None:
        self._identities = identities
        self._catalog = catalog
        self._outbox = outbox
        self._connections = connections
        self._neighbours = neighbours
        self._routing = routing
        self._rates = rates
        self._remotes = remotes
        self._resume = resume
        self._containment = containment
        self._resident_bytes = resident_bytes

    def begin(self) -> None:
        """Closes all connections; `Stopped` follows once they are closed and everything is stored."""
        try:
            self._leave()
        except Exception as error:
            self._containment.failed(error)
            self._leave()

    def _leave(self) -> None:
        routing = self._routing()
        if routing is not None:
            routing.leave()
        self._rates.leave()
        for neighbour in self._neighbours.values():
            neighbour.dial_at = None
        self._remotes.stop()
        for peer in list(self._connections.values()):
            peer.amqp.close(Error(Symbol("amqp:connection:forced"), "the node is stopping"))
            peer.touch()
        self._resume.stop()
        for queue in self._catalog.queues.values():
            for consumer in list(queue.shared.consumers):
                queue.shared.release(consumer)
            queue.shared.requeue(list(queue.shared.acquired), failed=True)
            for cursor in [cursor for cursor in queue.named.values() if cursor.is_counted]:
                for consumer in list(cursor.consumers):
                    cursor.release(consumer)
                cursor.requeue(list(cursor.acquired), failed=True)
        self._catalog.before_stop()
        store, resident_bytes = str(self._identities.store_uuid), self._resident_bytes()
        self._outbox.record("node", {"event": "stopped", "store": store, "resident_bytes": resident_bytes})
