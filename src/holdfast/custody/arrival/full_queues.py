"""Queues of this node that had no room for a message from another node: since when, and which neighbours and origins
wait.

Rules of this file: bounded, for `status`; no decision depends on it.
"""

from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from holdfast.broker.entries.host_names import HostedName, read_key
from holdfast.engine.clock import Clock
from holdfast.peers.link_tables import LinkTables
from holdfast.state.catalog import Catalog

FULL_QUEUES_MAX: Final = 100
"""Full queues whose waiting neighbours are remembered."""

NEIGHBOURS_MAX: Final = 3
"""Neighbours that are remembered for one of them."""

WAITERS_MAX: Final = 1_000
"""Links with waiting messages, and origins, that one look counts."""


@dataclass(slots=True)
class Full:
    """A full queue: since when, the size that found no room, and the neighbours that sent such messages."""

    since: float
    size: int = 0
    via: dict[str, None] = field(default_factory=dict)


class FullQueues:
    """`by_key`: queues that had no room, and may have some again by now."""

    def __init__(self, clock: Clock, catalog: Catalog, links: LinkTables) -> None:
        self._clock = clock
        self._catalog = catalog
        self._links = links
        self.by_key: dict[HostedName, Full] = {}

    def no_room(self, key: HostedName, size: int, via: str | None) -> None:
        full = self.by_key.get(key)
        if full is None:
            if len(self.by_key) >= FULL_QUEUES_MAX:
                return
            full = self.by_key[key] = Full(self._clock.now)
        full.size = size
        if via is not None and len(full.via) < NEIGHBOURS_MAX:
            full.via[via] = None

    def is_full(self, key: HostedName) -> bool:
        """Whether the queue had no room for something from another node, and still has none for it."""
        full, queue = self.by_key.get(key), self._catalog.queues.get(key)
        return full is not None and queue is not None and not queue.fits(full.size)

    def forget_some(self) -> None:
        """Forgets queues that have room again or were deleted. Called now and then."""
        for key in [key for key in self.by_key if not self.is_full(key)]:
            del self.by_key[key]

    def waiting_for_room(self, key: HostedName) -> tuple[list[str], int]:
        """For a full queue: the neighbours whose links wait for it, and the messages that wait on those links, for this
        queue or behind a message that does. Bounded by WAITERS_MAX."""
        named: dict[str, None] = {}
        messages = 0
        host, _ = read_key(key)
        for receiver in islice(self._links.parked_receivers, WAITERS_MAX):
            if receiver.host != host or receiver.in_transit:
                continue
            if receiver.parked and receiver.neighbour in self.by_key[key].via:
                named[receiver.neighbour] = None
                messages += len(receiver.parked)
        return list(named), messages
