"""`status`, collected from the parts of a node (docs/management.md).

Rules of this file: reads, never changes; a virtual host other than the default one only gets its own. Names of fields
are a contract (docs/management.md): fields may be added, and none is removed.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from holdfast import __version__
from holdfast.amqp.wire.types import Ulong
from holdfast.broker.entries.host_names import DEFAULT_HOST
from holdfast.management.status.destinations import DestinationStatus
from holdfast.management.status.hosts import HostStatus
from holdfast.management.status.managed_parts import ManagedParts
from holdfast.management.status.origins import OriginStatus
from holdfast.management.status.queues import QueueStatus
from holdfast.management.status.remotes import RemoteStatus
from holdfast.management.status.sessions import SessionStatus
from holdfast.management.status.warnings import Warnings
from holdfast.peering import binding_status, route_status
from holdfast.peering.route_status import RoutesNow
from holdfast.peers.neighbours import features


class NodeStatus:
    """The fields of `status`, in order, each with its source."""

    def __init__(
        self,
        parts: ManagedParts,
        *,
        hosts: HostStatus,
        queues: QueueStatus,
        sessions: SessionStatus,
        destinations: DestinationStatus,
        remotes: RemoteStatus,
        origins: OriginStatus,
        warnings: Warnings,
        started_at: float,
    ) -> None:
        """`started_at`: on the clock's scale."""
        self._parts: list[Callable[[], Mapping[str, Any]]] = []
        self._of_host: list[Callable[[str], Mapping[str, Any]]] = []
        """The fields of each virtual host; all others are only in the status of the default host."""
        self._config = parts.config
        self._hosts = hosts
        tells, tell, tells_host = self._tells, self._tell, self._tells_host
        tells("node", lambda: parts.config.name)
        tells("store", lambda: str(parts.identities.store_uuid))
        tells("former_store", lambda: None if parts.identities.former is None else str(parts.identities.former.uuid))
        tells("version", lambda: __version__)
        tells("protocol", lambda: features.PROTOCOL)
        tells("uptime_s", lambda: round(parts.clock.now - started_at, 3))
        tells("resident_bytes", lambda: Ulong(parts.resident_bytes()))
        tells("room_bytes", lambda: parts.room.bytes_possible)
        self._brief = list(self._parts)
        tells("drain", parts.node_drain.status)
        tells("memory", parts.memory.status)
        tells_host("users", parts.users.status)
        tells("logins", parts.logins.status)
        tells("turns", lambda: parts.turn_times.status(parts.clock.now))
        tells("connections", lambda: len(parts.connections))
        peers = parts.connections
        self._of_host.append(lambda host: {"connections": sum(peer.host == host for peer in peers.values())})
        tell(lambda: queues.fields(DEFAULT_HOST))
        self._of_host.append(queues.fields)
        tells_host("refused", parts.admission.rows)
        tells_host("links", parts.queue_links.status)
        tells_host("triggers", parts.triggers.status)
        tells("sessions", sessions.status)
        tell(remotes.fields)
        tells_host("routes", destinations.status)
        tell(partial(_routing, parts.routing))
        tell(partial(binding_status.status, parts.bindings))
        if parts.rates.root is not None:
            tells("pacing", parts.rates.root.shared)
            tells("paces", parts.rates.root.given)
        if parts.config.pacing.roots:
            tells("paced", parts.rates.kept)
        tells("paths", parts.destination.paths.status)
        forwarding, dead_lettering = parts.forwarding, parts.dead_lettering
        tells("unroutable", lambda: _counts(refused=forwarding.refused, dead_lettered=dead_lettering.unroutable))
        tells("disk", parts.disk.status)
        tells("descriptors", parts.descriptors.status)
        streams_max, large = parts.config.limits.streams_max, parts.large_receives
        tells(
            "large_messages",
            lambda: _counts(under_way=large.under_way, max=streams_max, refused=parts.incidents.large_refused_total),
        )
        tells_host("dead_letters", parts.dead_letters.status)
        if parts.config.vhosts:
            tells("vhosts", hosts.status)
        containment = parts.containment
        tells("failures", lambda: _counts(peers_ended=containment.peers_ended, parts=containment.parts_failed))
        tell(lambda: origins.fields(DEFAULT_HOST))
        self._of_host.append(origins.fields)
        tells("groups", origins.groups)
        tell(parts.losses.fields)
        tells("warnings", lambda: [condition.text for condition in warnings.all()])
        tells("log_lines_left_out", lambda: Ulong(parts.log.left_out_total))

    def _tells(self, name: str, value: Callable[[], Any]) -> None:
        self._tell(lambda: {name: value()})

    def _tell(self, fields: Callable[[], Mapping[str, Any]]) -> None:
        self._parts.append(fields)

    def _tells_host(self, name: str, value: Callable[[str], Any]) -> None:
        """A field that each host has for itself; in the default host's status it is in this place."""
        self._tells(name, lambda: value(DEFAULT_HOST))
        self._of_host.append(lambda host: {name: value(host)})

    def summary(self, host: str) -> dict[str, Any]:
        """The node as an entity of QUERY."""
        if host != DEFAULT_HOST:
            return {"node": self._config.name, "vhost": host, "name": self._config.name, "identity": host}
        told: dict[str, Any] = {}
        for fields in self._brief:
            told |= fields()
        return told | {"name": told["node"], "identity": told["store"]}

    def status(self, host: str) -> dict[str, Any]:
        """The answer to STATUS in that virtual host, with the first page of queues."""
        told: dict[str, Any] = {}
        if host != DEFAULT_HOST:
            told |= {"node": self._config.name, "vhost": host}
            for of_host in self._of_host:
                told |= of_host(host)
            return told
        for fields in self._parts:
            told |= fields()
        return told


def _routing(routing: RoutesNow) -> dict[str, Any]:
    """Nothing while the node has no topology and no federation."""
    found = routing()
    return {} if found is None else {"routing": route_status.status(found)}


def _counts(**counts: int) -> dict[str, Ulong]:
    return {name: Ulong(count) for name, count in counts.items()}
