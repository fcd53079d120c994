"""The row of this very node, gathered from its parts.

Rules of this file: reads, and changes nothing. It looks at each queue, so a row is made at most once in KEPT_S.
"""

from collections.abc import Callable, Mapping, Sized
from typing import Final

from holdfast import __version__
from holdfast.broker.entries.host_names import node_of
from holdfast.custody.forwarding import Forwarding
from holdfast.endpoints.addresses.node_drain import NodeDrain
from holdfast.engine.clock import Clock
from holdfast.links.disk import Disk
from holdfast.management.network.node_row import DISK_FAILS, DRAINED, OWED_MAX, NodeRow
from holdfast.management.status.warnings import Warnings
from holdfast.peering.sessions import Neighbour
from holdfast.peers.neighbours.features import PROTOCOL
from holdfast.state.catalog import Catalog
from holdfast.state.room import Room

KEPT_S: Final = 1.0
OLDEST_MAX: Final = 1_000
"""Queues with messages whose oldest one is looked at."""


class OwnRow:
    """Makes it."""

    def __init__(
        self,
        clock: Clock,
        catalog: Catalog,
        room: Room,
        disk: Disk,
        neighbours: Mapping[str, Neighbour],
        connections: Sized,
        forwarding: Forwarding,
        node_drain: NodeDrain,
        warnings: Warnings,
        *,
        links: Callable[[], int],
        started_at: float,
    ) -> None:
        """`links`: how many there are of all peers."""
        self._clock = clock
        self._catalog = catalog
        self._room = room
        self._disk = disk
        self._neighbours = neighbours
        self._connections = connections
        self._forwarding = forwarding
        self._node_drain = node_drain
        self._warnings = warnings
        self._links = links
        self._started_at = started_at
        self._kept: tuple[float, NodeRow] | None = None

    def row(self) -> NodeRow:
        now = self._clock.now
        if self._kept is None or now >= self._kept[0] + KEPT_S:
            self._kept = now, self._made(now)
        return self._kept[1]

    def _made(self, now: float) -> NodeRow:
        held, disk = self._node_drain.held(), self._disk.status()
        bits = (DISK_FAILS if disk["state"] != "ok" else 0) | (DRAINED if self._node_drain.active else 0)
        return NodeRow(
            version=__version__,
            protocol=PROTOCOL,
            uptime_s=int(now - self._started_at),
            messages=held["messages"],
            in_transmission=held["in_transmission"],
            oldest_s=self._oldest_s(),
            dead_letters=held["dead_letters"],
            sessions_up=sum(neighbour.established for neighbour in self._neighbours.values()),
            sessions=len(self._neighbours),
            links=self._links(),
            connections=len(self._connections),
            room_bytes=max(0, self._room.bytes_possible),
            warnings=len(self._warnings.all()),
            bits=bits,
            owed=self._owed(),
        )

    def _oldest_s(self) -> int | None:
        looked_at = (queue for queue in self._catalog.queues.values() if queue.messages > queue.tombstones)
        found = [at for queue, _ in zip(looked_at, range(OLDEST_MAX), strict=False) if (at := queue.oldest_wall_ms())]
        return max(0, self._clock.wall_ms - min(found)) // 1000 if found else None

    def _owed(self) -> dict[str, int]:
        owed: dict[str, int] = {}
        for destination, queue in self._catalog.transmissions():
            node, waiting = node_of(destination), queue.messages - queue.tombstones
            is_leaving = waiting and (self._forwarding.is_drained(node) or not self._forwarding.knows(node))
            if is_leaving and (node in owed or len(owed) < OWED_MAX):
                owed[node] = owed.get(node, 0) + waiting
        return owed
