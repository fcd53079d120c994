"""What custody uses of the node's routing, a higher package (peering/routes.py); without a topology there is none."""

from typing import Protocol
from uuid import UUID


class Directory(Protocol):
    """The nodes of the topology, as this node knows them."""

    @property
    def version(self) -> int:
        """Changes with the table."""

    def knows(self, name: str) -> bool:
        """Whether a node of that name is in the topology."""

    def is_drained(self, name: str) -> bool:
        """Whether that node says that it takes no new messages."""

    def name_of_store(self, store: UUID) -> str | None:
        """The node that has, or had, that store, by its own record; None if there is no such record."""

    def shortest_from(self, origin: str) -> tuple[str, ...] | None:
        """The nodes on the shortest path from there to this node, with both ends; None if none is known."""

    def ask_sync(self, reason: str) -> None:
        """Requests a comparison of records, because for that reason some may be missing."""
