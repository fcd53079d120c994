"""Builds the management of a node: searches for messages, warnings, records of telemetry, `status`, and the operations
of `$management`.

Rules of this file: it builds and connects, and contains no rules.
"""

from collections.abc import Callable, Mapping
from functools import partial

from holdfast.management.network.own_row import OwnRow
from holdfast.management.network.view import NetworkView
from holdfast.management.operations.answers import Later
from holdfast.management.operations.connections import ConnectionOperations
from holdfast.management.operations.costs import Costs
from holdfast.management.operations.dispatch import Management
from holdfast.management.operations.entities import EntityOperations
from holdfast.management.operations.entries import EntryOperations
from holdfast.management.operations.federation import FederationOperations
from holdfast.management.operations.links import LinkOperations
from holdfast.management.operations.nodes import NodeOperations
from holdfast.management.operations.queues import QueueOperations
from holdfast.management.operations.rights import Rights
from holdfast.management.operations.services import ServiceOperations
from holdfast.management.operations.subscriptions import SubscriptionOperations
from holdfast.management.operations.transactions import TransactionOperations
from holdfast.management.requests import RequestParts, Requests
from holdfast.management.status.certificate_status import CertificateStatus
from holdfast.management.status.destinations import DestinationStatus
from holdfast.management.status.hosts import HostStatus
from holdfast.management.status.managed_parts import ManagedParts
from holdfast.management.status.measured import Measured
from holdfast.management.status.meter import Meter, SenderMeter
from holdfast.management.status.origins import OriginStatus
from holdfast.management.status.queues import QueueStatus
from holdfast.management.status.remotes import RemoteStatus
from holdfast.management.status.sessions import SessionStatus
from holdfast.management.status.status import NodeStatus
from holdfast.management.status.users_file_status import UsersFileStatus
from holdfast.management.status.warnings import Warnings
from holdfast.management.where.questions import WhereQuestions
from holdfast.management.where.search import Whereabouts
from holdfast.peers.peer import Peer


class Administration:
    """`asks`: searches for messages. `meter`: records of each interval. `requests`: the links of `$management`."""

    def __init__(self, parts: ManagedParts, *, reload: Callable[[], Later]) -> None:
        """`reload`: requests a reload of the configuration."""
        config, clock, catalog, neighbours = parts.config, parts.clock, parts.catalog, parts.neighbours
        here = Whereabouts(
            config.name, catalog, parts.store, parts.forwarding, parts.destination, parts.store_names, neighbours,
            parts.next_hops, parts.remotes.by_name,
        )  # fmt: skip
        self.questions = WhereQuestions(here, clock, config.limits, neighbours, parts.identities)
        remotes = RemoteStatus(clock, parts.remotes, parts.forwarding.knows)
        self.certificate_status = CertificateStatus(clock)
        self.users_file = UsersFileStatus(parts.log, (host.name for host in config.vhosts))
        self.warnings = Warnings(
            config.name, clock, parts.log, catalog=catalog, disk=parts.disk, descriptors=parts.descriptors,
            incidents=parts.incidents, neighbours=neighbours, routing=parts.routing, stores=parts.store_names,
            destination=parts.destination, forwarding=parts.forwarding, departures=parts.departures,
            bindings=parts.bindings, large_receives=parts.large_receives,
            sources=(self.certificate_status.conditions, self.users_file.conditions, remotes.conditions),
            has_topology=config.topology is not None,
        )  # fmt: skip
        self.meter = _meter(parts)
        self.queue_status = QueueStatus(catalog, clock)
        own_row = OwnRow(
            clock, catalog, parts.room, parts.disk, neighbours, parts.connections, parts.forwarding, parts.node_drain,
            self.warnings, links=partial(_count_links, parts.connections), started_at=clock.now,
        )  # fmt: skip
        self.view = NetworkView(config.name, clock, own_row, parts.forwarding, neighbours, parts.routing)
        self.report = NodeStatus(
            parts, hosts=HostStatus(config, catalog, parts.connections), queues=self.queue_status,
            sessions=SessionStatus(clock, parts.links, neighbours, parts.disk, parts.clocks),
            destinations=DestinationStatus(catalog, parts.forwarding, parts.next_hops, parts.routing),
            remotes=remotes,
            origins=OriginStatus(catalog.ledger, parts.routing, parts.destination.groups, parts.transactions),
            warnings=self.warnings, started_at=clock.now,
        )  # fmt: skip
        self.measured = Measured(self.report, self.queue_status, catalog, parts.users)
        self.management = self._operations(parts, reload)
        request_parts = RequestParts(
            config.limits, parts.memory, parts.users, parts.links, parts.turns, self.management
        )
        self.requests = Requests(request_parts, parts.containment.run)

    def _operations(self, parts: ManagedParts, reload: Callable[[], Later]) -> Management:
        """All operations of `$management`."""
        clock, catalog, connections = parts.clock, parts.catalog, parts.connections
        groups = (
            NodeOperations(
                self.report, self.questions, parts.routing, reload, parts.node_drain, self.view, catalog,
                parts.forwarding, parts.departures,
            ),
            SubscriptionOperations(catalog, parts.resume, clock),
            QueueOperations(
                catalog, parts.links, parts.turns, self.queue_status, resume=parts.resume, jobs=parts.jobs,
                departures=parts.departures, forwarding=parts.forwarding, destination=parts.destination,
                queue_links=parts.queue_links, remote_queues=parts.remotes.queues,
                federated_with=parts.bindings.made.neighbours_of, delete=parts.delete_queue,
            ),
            ConnectionOperations(connections, parts.refusals), TransactionOperations(parts.transactions, clock),
            LinkOperations(parts.queue_links), FederationOperations(catalog, parts.bindings, parts.routing),
            ServiceOperations(parts.resolver.services),
        )  # fmt: skip
        entries = EntryOperations(catalog, parts.store, clock, parts.turns, parts.resolver, parts.changes)
        types = tuple(each for group in groups for each in group.types())
        costs = Costs(catalog, links=lambda: len(connections) + _count_links(connections))
        return Management(
            parts.disk, parts.authoriser, Rights(parts.resolver, parts.queue_links.by_name.get), costs,
            self.queue_status, *groups, entries, EntityOperations(types),
        )  # fmt: skip


def _meter(parts: ManagedParts) -> Meter:
    """The meter, with everything that is recorded once an interval."""
    outbox, paths, routing = parts.outbox, parts.destination.paths, parts.routing
    meter = Meter(parts.config, parts.clock, outbox, parts.catalog)
    meter.each_interval(SenderMeter(outbox, parts.catalog, parts.next_hops, parts.duplicates).tell)
    meter.each_interval(partial(parts.turn_times.tell, outbox))
    meter.each_interval(lambda: None if routing() is None else outbox.record("paths", paths.status()))
    if parts.rates.active:
        meter.each_interval(partial(parts.rates.tell, outbox))
    return meter


def _count_links(connections: Mapping[int, Peer]) -> int:
    return sum(peer.counted_links for peer in connections.values())
