"""What custody asks of the node's routing, which is above it (peering/routes.py); without a topology there is none."""

from typing import Protocol
from uuid import UUID


class Directory(Protocol):
    """The nodes of the topology, as this node knows them."""

    @property
    def version(self) -> int:
        """Another one, another table."""

    def knows(self, name: str) -> bool:
        """Whether a node of that name is in the topology."""

    def is_drained(self, name: str) -> bool:
        """Whether that node says that it takes no new messages."""

    def name_of_store(self, store: UUID) -> str | None:
        """The node that has, or had, that store, by its own record; None where no record says so."""

    def shortest_from(self, origin: str) -> tuple[str, ...] | None:
        """The nodes on the shortest path from there to this node, both among them; None where none is known."""

    def ask_sync(self, reason: str) -> None:
        """Compares the records with a neighbour's soon: for that reason some may be missing."""
