"""The names of stores: traces and identities have UUIDs, and users are shown names of nodes (docs/amqp.md, "Paths";
docs/where.md).

Rules of this file: reads only and keeps nothing, so names are those known at the time of the call, which is made for
each message whose path is shown.
"""

from uuid import UUID

from holdfast.broker.entries import entry
from holdfast.custody.names.directory import Directory
from holdfast.custody.names.identity import Identities
from holdfast.peers.neighbours.trace_aliases import stores_of
from holdfast.state.ledger import Ledger


class StoreNames:
    """Names of stores. `own`: this node's name."""

    def __init__(self, own: str, identities: Identities, ledger: Ledger) -> None:
        self._own = own
        self._identities = identities
        self._ledger = ledger
        self._directory: Directory | None = None

    def routed_by(self, directory: Directory) -> None:
        """Connects the topology, whose records come first."""
        self._directory = directory

    def name_of(self, store: UUID) -> str:
        """The node that has, or had, that store: by its own link-state record, else from its session as a neighbour;
        the UUID if neither is known."""
        if self._directory is not None:
            routed = self._directory.name_of_store(store)
            if routed is not None:
                return routed
        if store == self._identities.store_uuid:
            return self._own
        for name, known in self._ledger.neighbour_stores.items():
            if known == store:
                return name
        return str(store)

    def names_of(self, trace: bytes) -> list[str]:
        """The nodes of a trace as entries hold it, in its order."""
        return [self.name_of(entry.uuid_of(store)) for store in stores_of(trace)]
