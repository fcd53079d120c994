"""The store of each neighbour, and conflicts if two neighbours have the same store (CUSTODY, "Names"). Rules of this
file: a store belongs to one node, because destinations count finished numbers by store; the catalog keeps the names.
"""

from collections.abc import Mapping
from typing import Protocol
from uuid import UUID

from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.performatives import Error
from holdfast.amqp.wire.types import Symbol
from holdfast.engine.incidents import Incidents
from holdfast.engine.log import Log
from holdfast.peers.peer import Peer
from holdfast.state.catalog import Catalog


class Connected(Protocol):
    """A configured neighbour; `peer`: its session's connection."""

    @property
    def peer(self) -> Peer | None: ...


class Replaced(Protocol):
    """The destination, which closes the gaps of a replaced store after a while."""

    def replaced(self, store: UUID) -> None:
        """The node of that store came back with another store."""

    def lives(self, store: UUID) -> None:
        """That store is in use by its neighbour: its gaps stay open."""


class NeighbourStores:
    """Keeps the stores of neighbours, and refuses a connection with a store that another neighbour has."""

    def __init__(
        self,
        catalog: Catalog,
        log: Log,
        incidents: Incidents,
        neighbours: Mapping[str, Connected],
        destination: Replaced,
    ) -> None:
        self._catalog = catalog
        self._ledger = catalog.ledger
        self._log = log
        self._incidents = incidents
        self._neighbours = neighbours
        self._destination = destination

    def heard(self, neighbour: str, store: UUID) -> None:
        """Records the store of a neighbour; after a change the gaps of the old one close after a grace time."""
        catalog = self._catalog
        old = catalog.ledger.neighbour_stores.get(neighbour)
        if old == store:
            return
        self._tell_renamed(neighbour, store)
        catalog.ledger.put_neighbour(neighbour, store)
        if store in catalog.ledger.replaced:  # it was there before the other: both live
            self._incidents.name_contested(neighbour)
        catalog.ledger.drop_replaced(store)
        self._destination.lives(store)
        if old is not None:
            why = "it was created again, or an older copy was put back"
            text = f"neighbour {neighbour} has a new store {store}, was {old}: {why}"
            self._log.write("WARNING", f"{text}, or two nodes use its name", about=neighbour)
            catalog.ledger.put_replaced(old)
            self._destination.replaced(old)

    def _tell_renamed(self, neighbour: str, store: UUID) -> None:
        """Logs that a neighbour's store belonged to another name: numbers of ours that it reports may be those for that
        name."""
        others = [name for name, known in self._ledger.neighbour_stores.items() if known == store]
        if others:
            names = " and ".join(others)
            text = f"neighbour {neighbour} has the store {store}, known as {names} before: the node was renamed"
            self._log.write("WARNING", f"{text}, or two nodes run on copies of one store", about=neighbour)

    def refuse_shared(self, neighbour: str, peer: Peer, store: object) -> bool:
        """Closes the connection of a neighbour whose store is that of another neighbour with a session, because as
        origins the two would be one. Both ends log why. Returns whether it did."""
        for name, other in self._neighbours.items():
            if name != neighbour and other.peer is not None and self._ledger.neighbour_stores.get(name) == store:
                text = f"the store {store} belongs to node {name!r} too, whose session is up; a store is for one node"
                self._incidents.store_shared(neighbour, text)
                peer.log("INFO", text)
                peer.amqp.close(Error(Symbol(conditions.NOT_ALLOWED), text))
                peer.touch()
                return True
        return False
