"""The routes in `status` (docs/management.md, `routes`).

Rules of this file: reads, never changes; names of fields are a contract (docs/management.md).
"""

from collections.abc import Mapping
from typing import Any

from holdfast.amqp.wire.types import Ulong
from holdfast.broker.entries.host_names import destination_of, node_of
from holdfast.custody.forwarding import Forwarding
from holdfast.custody.hop.next_hop import NextHop
from holdfast.peering.route_status import RoutesNow
from holdfast.routing.topology import MICRO
from holdfast.state.catalog import Catalog


class DestinationStatus:
    """A row for each destination."""

    def __init__(
        self,
        catalog: Catalog,
        forwarding: Forwarding,
        hops: Mapping[str, NextHop],
        routing: RoutesNow,
    ) -> None:
        self._catalog = catalog
        self._forwarding = forwarding
        self._hops = hops
        self._routing = routing

    def status(self, host: str) -> list[dict[str, Any]]:
        """A row for each node for which messages of that virtual host wait; in the default one also for each other
        reachable destination, the nearest first."""
        routing = self._routing()
        paths = {} if routing is None else routing.paths
        all_waiting = self._catalog.transmissions()
        waiting = {node_of(destination): queue for destination, queue in all_waiting if queue.host == host}
        rows = []
        for name in dict.fromkeys([*([] if host else paths), *waiting]):
            hop, queue, path = self._hops.get(self._forwarding.via(name)), waiting.get(name), paths.get(name)
            row: dict[str, Any] = {
                "destination": name,
                "next_hop": None if hop is None else hop.name,
                "waiting": Ulong(0 if queue is None else queue.messages - queue.tombstones),
                "held": self._forwarding.sent_back.held(destination_of(host, name)),
            }
            if routing is not None:
                row["cost"] = None if path is None else path.cost_micro / MICRO
                row["path"] = None if path is None else list(path.nodes)
            rows.append(row)
        return rows
