"""The virtual hosts in the default host's `status` (docs/virtual-hosts.md).

Rules of this file: reads, never changes; only numbers, and no names within a host.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from holdfast.amqp.wire.types import Ulong
from holdfast.peers.peer import Peer
from holdfast.settings.node import NodeConfig
from holdfast.state.catalog import Catalog


class HostStatus:
    """A row for each virtual host except the default one, including those that only the store still has."""

    def __init__(self, config: NodeConfig, catalog: Catalog, connections: Mapping[int, Peer]) -> None:
        self._configured = {host.name for host in config.vhosts}
        self._catalog = catalog
        self._connections = connections

    def status(self) -> list[dict[str, Any]]:
        catalog = self._catalog
        connections = Counter(peer.host for peer in self._connections.values())
        messages: Counter[str] = Counter()
        held: Counter[str] = Counter()
        waiting: Counter[str] = Counter()
        for queue in catalog.queues.values():
            waiting[queue.host] += queue.messages - queue.tombstones if queue.in_transit else 0
            messages[queue.host] += queue.messages
            held[queue.host] += queue.bytes_held
        return [
            {
                "name": name,
                "configured": name in self._configured,
                "connections": connections[name],
                "queues": catalog.made[name],
                "messages": Ulong(messages[name]),
                "bytes": Ulong(held[name]),
                "waiting": Ulong(waiting[name]),
            }
            for name in catalog.hosts
            if name
        ]
