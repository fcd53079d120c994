"""A node that is told to stop: peers are told, and what is in somebody's hands goes back to its places.

Rules of this file: what is done may be done again, for what can fail is tried once more: the node ends whatever becomes
of it.
"""

from collections.abc import Mapping

from holdfast.amqp.performatives import Error
from holdfast.amqp.types import Symbol
from holdfast.core.catalog import Catalog
from holdfast.core.connections import Connections
from holdfast.core.resume import Resumption
from holdfast.core.routes import Routes
from holdfast.core.sessions import Neighbour


class Shutdown:
    """The end of a node; `routing` None: it has no topology."""

    def __init__(
        self,
        routing: Routes | None,
        neighbours: Mapping[str, Neighbour],
        connections: Connections,
        resume: Resumption,
        catalog: Catalog,
    ) -> None:
        self._routing = routing
        self._neighbours = neighbours
        self._connections = connections
        self._resume = resume
        self._catalog = catalog

    def begin(self) -> None:
        """Takes leave of everyone; `Stopped` follows once all connections are closed and all is stored."""
        if self._routing is not None:
            self._routing.leave()
        for neighbour in self._neighbours.values():
            neighbour.dial_at = None
        for peer in list(self._connections.values()):
            peer.amqp.close(Error(Symbol("amqp:connection:forced"), "the node is stopping"))
            peer.touch()
        self._resume.stop()
        for queue in self._catalog.queues.values():
            for taker in list(queue.shared.takers):
                queue.shared.release(taker)
            queue.shared.give_back(list(queue.shared.shown), failed=True)
        self._catalog.before_stop()
