"""`status`, collected from the parts of a node (docs/management.md).

Rules of this file: reads, never changes; a virtual host other than the default one only gets its own. Names of fields
are a contract (docs/management.md): fields may be added, and none is removed.
"""

from collections.abc import Callable, Mapping, Sized
from functools import partial
from typing import Any

from holdfast import __version__
from holdfast.amqp.wire.types import Ulong
from holdfast.broker.entries.host_names import DEFAULT_HOST
from holdfast.custody.arrival.path_check import PathCheck
from holdfast.custody.dead_lettering import DeadLettering
from holdfast.custody.forwarding import Forwarding
from holdfast.custody.names.identity import Identities
from holdfast.endpoints.addresses.node_drain import NodeDrain
from holdfast.endpoints.admission import Admission
from holdfast.engine.clock import Clock
from holdfast.engine.incidents import Incidents
from holdfast.engine.log import Log
from holdfast.links.containment import Containment
from holdfast.links.disk import Disk
from holdfast.management.status.descriptors import Descriptors
from holdfast.management.status.destinations import DestinationStatus
from holdfast.management.status.hosts import HostStatus
from holdfast.management.status.origins import OriginStatus
from holdfast.management.status.queues import QueueStatus
from holdfast.management.status.sessions import SessionStatus
from holdfast.management.status.turn_times import TurnTimes
from holdfast.management.status.warnings import Warnings
from holdfast.management.triggers import Triggers
from holdfast.peering import binding_status, route_status
from holdfast.peering.binding_control import BindingControl
from holdfast.peering.rate_control import RateControl
from holdfast.peering.route_status import RoutesNow
from holdfast.peers.limits.memory import Memory
from holdfast.peers.logins import Logins
from holdfast.peers.neighbours import features
from holdfast.peers.peer import Peer
from holdfast.peers.users import Users
from holdfast.queue_links.links import QueueLinks
from holdfast.settings.node import NodeConfig
from holdfast.state.dead_letter_bounds import DeadLetters
from holdfast.state.losses import Losses
from holdfast.state.room import Room


class NodeStatus:
    """The fields of `status`, in order, each with its source."""

    def __init__(
        self,
        config: NodeConfig,
        clock: Clock,
        log: Log,
        *,
        identities: Identities,
        room: Room,
        memory: Memory,
        users: Users,
        logins: Logins,
        turn_times: TurnTimes,
        connections: Mapping[int, Peer],
        hosts: HostStatus,
        queues: QueueStatus,
        sessions: SessionStatus,
        destinations: DestinationStatus,
        routing: RoutesNow,
        paths: PathCheck,
        forwarding: Forwarding,
        dead_lettering: DeadLettering,
        disk: Disk,
        descriptors: Descriptors,
        streams: Sized,
        incidents: Incidents,
        dead_letters: DeadLetters,
        containment: Containment,
        origins: OriginStatus,
        losses: Losses,
        warnings: Warnings,
        queue_links: QueueLinks,
        triggers: Triggers,
        rates: RateControl,
        bindings: BindingControl,
        admission: Admission,
        node_drain: NodeDrain,
        started_at: float,
        resident_bytes: Callable[[], int],
    ) -> None:
        """`streams`: large messages that are arriving. `started_at`: on the clock's scale. `resident_bytes`: the
        process's memory, as last measured by the driver."""
        self._parts: list[Callable[[], Mapping[str, Any]]] = []
        self._of_host: list[Callable[[str], Mapping[str, Any]]] = []
        """What each virtual host is told of itself; its other parts are the default host's to know."""
        self._config = config
        self._hosts = hosts
        tells, tell, tells_host = self._tells, self._tell, self._tells_host
        tells("node", lambda: config.name)
        tells("store", lambda: str(identities.store_uuid))
        tells("former_store", lambda: None if identities.former is None else str(identities.former.uuid))
        tells("version", lambda: __version__)
        tells("protocol", lambda: features.PROTOCOL)
        tells("uptime_s", lambda: round(clock.now - started_at, 3))
        tells("resident_bytes", lambda: Ulong(resident_bytes()))
        tells("room_bytes", lambda: room.bytes)
        self._brief = list(self._parts)
        tells("drain", node_drain.status)
        tells("memory", memory.status)
        tells_host("users", users.status)
        tells("logins", logins.status)
        tells("turns", lambda: turn_times.status(clock.now))
        tells("connections", lambda: len(connections))
        self._of_host.append(lambda host: {"connections": sum(peer.host == host for peer in connections.values())})
        tell(lambda: queues.fields(DEFAULT_HOST))
        self._of_host.append(queues.fields)
        tells_host("refused", admission.told)
        tells_host("links", queue_links.status)
        tells_host("triggers", triggers.status)
        tells("sessions", sessions.status)
        tells_host("routes", destinations.status)
        tell(partial(_routing, routing))
        tell(partial(binding_status.status, bindings))
        if rates.root is not None:
            tells("pacing", rates.root.shared)
            tells("paces", rates.root.given)
        if config.pacing.roots:
            tells("paced", rates.kept)
        tells("paths", paths.status)
        tells("unroutable", lambda: _counts(refused=forwarding.refused, dead_lettered=dead_lettering.unroutable))
        tells("disk", disk.status)
        tells("descriptors", descriptors.status)
        streams_max = config.limits.streams_max
        tells(
            "large_messages",
            lambda: _counts(under_way=len(streams), max=streams_max, refused=incidents.large_refused_total),
        )
        tells_host("dead_letters", dead_letters.status)
        if config.vhosts:
            tells("vhosts", hosts.status)
        tells("failures", lambda: _counts(peers_ended=containment.peers_ended, parts=containment.parts_failed))
        tell(lambda: origins.fields(DEFAULT_HOST))
        self._of_host.append(origins.fields)
        tells("groups", origins.groups)
        tell(losses.fields)
        tells("warnings", lambda: [text for _, text in warnings.all()])
        tells("log_lines_left_out", lambda: Ulong(log.left_out_total))

    def _tells(self, name: str, value: Callable[[], Any]) -> None:
        self._tell(lambda: {name: value()})

    def _tell(self, fields: Callable[[], Mapping[str, Any]]) -> None:
        self._parts.append(fields)

    def _tells_host(self, name: str, value: Callable[[str], Any]) -> None:
        """For each host its own; for the default one in this place."""
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
