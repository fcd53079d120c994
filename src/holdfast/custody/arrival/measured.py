"""A root as a destination: it measures what it accepts from each origin (docs/pacing.md).

Rules of this file: it only counts.
"""

from typing import Protocol
from uuid import UUID

from holdfast.custody.arrival.destination import Destination
from holdfast.custody.transfers.carried import Arrival


class Took(Protocol):
    def __call__(self, host: str, store: UUID, via: str, size: int) -> None:
        """Counts a message for that virtual host from that store and neighbour; its size is as queues count it."""


class MeasuredDestination(Destination):
    """A node that is not a root has a plain Destination, which does not count."""

    took: Took

    def take(self, host: str, arrival: Arrival, *, message_format: int, via: str) -> bool | None:
        taken = super().take(host, arrival, message_format=message_format, via=via)
        if taken and not arrival.tombstone:
            self.took(host, arrival.identity.origin, via, arrival.size)
        return taken
