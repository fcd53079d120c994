"""A neighbour as forwarding uses it: the next hop of messages, and the sender of others.

Rules of this file: protocols only; `custody/hop` implements them.
"""

from collections.abc import Mapping
from typing import Protocol
from uuid import UUID


class HopSender(Protocol):
    """The sender of a hop to a neighbour for one destination. `retry_at`: when it tries to attach again; None if
    nothing prevents it."""

    retry_at: float | None

    def stop(self) -> None:
        """The route to its destination has changed."""


class Hop(Protocol):
    """A neighbour, as the next hop of messages and as the sender of others. `senders` by destination. `brings`:
    (origin, destination) pairs whose last message came from it. `told`: the last mark sent to it in this session, by
    (destination, origin).
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
        """Whether they may, and it supports such destinations."""

    @property
    def senders(self) -> Mapping[str, HopSender]: ...
    def sender_to(self, destination: str) -> object:
        """The sender for that destination, which pumps its transmission queue from now on."""

    def tell_version(self) -> None:
        """This node's table has changed."""
