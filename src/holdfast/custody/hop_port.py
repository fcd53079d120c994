"""A neighbour, as forwarding needs it: the next hop of messages, and the one that brought some.

Rules of this file: protocols alone; `custody/hop` implements them.
"""

from collections.abc import Mapping
from typing import Protocol
from uuid import UUID


class HopSender(Protocol):
    """Our end of a neighbour's hop for one destination. `retry_at`: when it asks for a link again; None where nothing
    keeps it from one."""

    retry_at: float | None

    def stop(self) -> None:
        """The way to its destination is another one now."""


class Hop(Protocol):
    """A neighbour, as the next hop of messages and as the one that brought some.

    `senders` by destination. `brings`: (origin, destination) of what it was the last to bring. `told`: the last mark
    that it was told in this session, by (destination, origin).
    """

    brings: dict[tuple[UUID, str], None]
    told: dict[tuple[str, UUID], int]

    hosts: frozenset[str]
    """The virtual hosts whose messages may cross to it, and from it; the default one is among them."""

    @property
    def name(self) -> str: ...
    @property
    def established(self) -> bool: ...
    def may_have(self, destination: str) -> bool:
        """Whether messages for that destination may cross to it, and from it."""

    def takes(self, destination: str) -> bool:
        """Whether they may, and its version knows such destinations."""

    @property
    def senders(self) -> Mapping[str, HopSender]: ...
    def sender_to(self, destination: str) -> object:
        """The sender for that destination, which pumps its transmission queue from now on."""

    def tell_version(self) -> None:
        """This node's table is another one."""
