"""The sessions with neighbours in `status` (docs/management.md).

Rules of this file: reads, never changes; names of fields are a contract (docs/management.md).
"""

from collections.abc import Mapping
from typing import Any

from holdfast.amqp.wire.types import Ulong
from holdfast.engine.clock import Clock
from holdfast.links.disk import Disk
from holdfast.peering.clocks import Clocks
from holdfast.peering.sessions import Neighbour
from holdfast.peers.link_tables import LinkTables


class SessionStatus:
    """A map for each neighbour."""

    def __init__(
        self, clock: Clock, links: LinkTables, neighbours: Mapping[str, Neighbour], disk: Disk, clocks: Clocks
    ) -> None:
        self._clock = clock
        self._links = links
        self._neighbours = neighbours
        self._disk = disk
        self._clocks = clocks

    def status(self) -> list[dict[str, Any]]:
        return [self.of(neighbour) for neighbour in self._neighbours.values()]

    def of(self, neighbour: Neighbour) -> dict[str, Any]:
        """One session as `status` shows it; counts since the node's start."""
        liveness, peer = neighbour.liveness, neighbour.peer
        links = [
            link
            for link in self._links.custody_receivers.values()
            if link.neighbour == neighbour.name and not link.fenced
        ]
        return {
            "neighbour": neighbour.name,
            "state": neighbour.state.value,
            "version": neighbour.software,
            "protocol": neighbour.protocol,
            "since_s": round(self._clock.now - neighbour.since, 3),
            "reason": "" if neighbour.established else neighbour.reason,
            "last_end": neighbour.ended,
            "round_trip_s": liveness.smoothed_s,
            "hold_time_s": liveness.hold_time_s,
            "probe_s": liveness.probe_s,
            "attempts": neighbour.attempts,
            "established": neighbour.established_count,
            "lost": neighbour.flaps,
            "clock_offset_s": self._clocks.offset_s(neighbour.name),
            "damped": neighbour.damped,
            "disk_stalled": self._disk.stalled_at(neighbour),
            "probes": {
                "sent": Ulong(liveness.sent),
                "missed": Ulong(liveness.missed),
                "not_counted": Ulong(liveness.stalls),
                "false_alarms": Ulong(liveness.false_alarms),
            },
            "messages_in": Ulong(neighbour.hop.messages_in + sum(link.taken for link in links)),
            "messages_out": Ulong(neighbour.hop.messages_out),
            "messages_shared": Ulong(neighbour.hop.messages_shared),
            "bytes_in": Ulong(neighbour.bytes_in + (peer.heard_bytes if peer is not None else 0)),
            "bytes_out": Ulong(neighbour.bytes_out + neighbour.written_bytes),
        }
