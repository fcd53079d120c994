"""A root as a destination: what it takes of each origin is measured (docs/pacing.md).

Rules of this file: it counts what was taken, and decides nothing.
"""

from typing import Protocol
from uuid import UUID

from holdfast.custody.arrival.destination import Destination
from holdfast.custody.transfers.carried import Arrival


class Took(Protocol):
    def __call__(self, host: str, store: UUID, via: str, size: int) -> None:
        """A message for that virtual host came in of that store, by that neighbour, of so many bytes as queues count
        them."""


class MeasuredDestination(Destination):
    """Where this node is no root, a plain Destination stands in its place, and nothing is counted."""

    took: Took

    def take(self, host: str, arrival: Arrival, *, message_format: int, via: str) -> bool | None:
        taken = super().take(host, arrival, message_format=message_format, via=via)
        if taken and not arrival.tombstone:
            self.took(host, arrival.identity.origin, via, arrival.size)
        return taken
