"""Queues here that had no room for something from another node: since when, and who waits for room in them.

Rules of this file: bounded, for people; nothing is decided by it.
"""

from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from holdfast.broker.entries.host_names import DEFAULT_HOST
from holdfast.engine.clock import Clock
from holdfast.peers.link_tables import LinkTables
from holdfast.state.catalog import Catalog

FULL_QUEUES_MAX: Final = 100
"""Full queues of which it is known who waits for them."""

NEIGHBOURS_MAX: Final = 3
"""Neighbours that are named for one of them."""

WAITERS_MAX: Final = 1_000
"""Links with messages that wait, and origins, that one look counts."""


@dataclass(slots=True)
class Full:
    """A queue without room for what came: since when, the size that found none, the neighbours that brought such."""

    since: float
    size: int = 0
    via: dict[str, None] = field(default_factory=dict)


class FullQueues:
    """`by_name`: queues that had no room, and may have some again by now."""

    def __init__(self, clock: Clock, catalog: Catalog, links: LinkTables) -> None:
        self._clock = clock
        self._catalog = catalog
        self._links = links
        self.by_name: dict[str, Full] = {}

    def no_room(self, name: str, size: int, via: str | None) -> None:
        full = self.by_name.get(name)
        if full is None:
            if len(self.by_name) >= FULL_QUEUES_MAX:
                return
            full = self.by_name[name] = Full(self._clock.now)
        full.size = size
        if via is not None and len(full.via) < NEIGHBOURS_MAX:
            full.via[via] = None

    def is_full(self, name: str) -> bool:
        """Whether the queue had no room for something from another node, and still has none for it."""
        full, queue = self.by_name.get(name), self._catalog.find(DEFAULT_HOST, name)
        return full is not None and queue is not None and not queue.fits(full.size)

    def forget_some(self) -> None:
        """Those that have room again, or are gone. To be called now and then."""
        for name in [name for name in self.by_name if not self.is_full(name)]:
            del self.by_name[name]

    def waiting_for_room(self, name: str) -> tuple[list[str], int]:
        """Of a full queue: the neighbours whose links wait for it, and the messages that wait on them, for it or behind
        one that is. Bounded by WAITERS_MAX."""
        named: dict[str, None] = {}
        messages = 0
        for receiver in islice(self._links.parked_receivers, WAITERS_MAX):
            if receiver.parked and not receiver.in_transit and receiver.neighbour in self.by_name[name].via:
                named[receiver.neighbour] = None
                messages += len(receiver.parked)
        return list(named), messages
