"""Builds the management of a node: searches for messages, warnings, records of telemetry, `status`, and the operations
of `$management`.

Rules of this file: it builds and connects, and contains no rules.
"""

from collections.abc import Callable, Mapping
from functools import partial

from holdfast.broker.queue import Queue
from holdfast.custody.arrival.destination import Destination
from holdfast.custody.arrival.duplicates import Duplicates
from holdfast.custody.dead_lettering import DeadLettering
from holdfast.custody.departed import Departures
from holdfast.custody.forwarding import Forwarding
from holdfast.custody.hop.next_hop import NextHop
from holdfast.custody.names.identity import Identities
from holdfast.custody.names.store_names import StoreNames
from holdfast.endpoints.addresses.node_drain import NodeDrain
from holdfast.endpoints.addresses.resolver import Resolver
from holdfast.endpoints.admission import Admission
from holdfast.endpoints.background_jobs import BackgroundJobs
from holdfast.endpoints.entry_changes import EntryChanges
from holdfast.endpoints.resumption.resume import Resumption
from holdfast.endpoints.transactions.transactions import Transactions
from holdfast.engine.clock import Clock
from holdfast.engine.incidents import Incidents
from holdfast.engine.log import Log
from holdfast.engine.outbox import Outbox
from holdfast.links.containment import Containment
from holdfast.links.disk import Disk
from holdfast.links.large_receives import Stream
from holdfast.management.network.own_row import OwnRow
from holdfast.management.network.view import NetworkView
from holdfast.management.operations.answers import Later
from holdfast.management.operations.connections import ConnectionOperations
from holdfast.management.operations.entities import EntityOperations
from holdfast.management.operations.entries import EntryOperations
from holdfast.management.operations.federation import FederationOperations
from holdfast.management.operations.links import LinkOperations
from holdfast.management.operations.nodes import NodeOperations
from holdfast.management.operations.operation import Management
from holdfast.management.operations.queues import QueueOperations
from holdfast.management.operations.rights import Rights
from holdfast.management.operations.services import ServiceOperations
from holdfast.management.operations.subscriptions import SubscriptionOperations
from holdfast.management.operations.transactions import TransactionOperations
from holdfast.management.requests import RequestParts, Requests
from holdfast.management.status.descriptors import Descriptors
from holdfast.management.status.destinations import DestinationStatus
from holdfast.management.status.hosts import HostStatus
from holdfast.management.status.measured import Measured
from holdfast.management.status.meter import Meter, SenderMeter
from holdfast.management.status.origins import OriginStatus
from holdfast.management.status.queues import QueueStatus
from holdfast.management.status.sessions import SessionStatus
from holdfast.management.status.status import NodeStatus
from holdfast.management.status.turn_times import TurnTimes
from holdfast.management.status.warnings import Warnings
from holdfast.management.triggers import Triggers
from holdfast.management.where.questions import WhereQuestions
from holdfast.management.where.search import Whereabouts
from holdfast.peering.binding_control import BindingControl
from holdfast.peering.clocks import Clocks
from holdfast.peering.rate_control import RateControl
from holdfast.peering.route_status import RoutesNow
from holdfast.peering.sessions import Neighbour
from holdfast.peers.authorise import Authoriser
from holdfast.peers.connections import Connections
from holdfast.peers.limits.memory import Memory
from holdfast.peers.limits.refusals import Refusals
from holdfast.peers.link_tables import LinkTables
from holdfast.peers.logins import Logins
from holdfast.peers.users import Users
from holdfast.queue_links.links import QueueLinks
from holdfast.settings.node import NodeConfig
from holdfast.state.catalog import Catalog
from holdfast.state.dead_letter_bounds import DeadLetters
from holdfast.state.losses import Losses
from holdfast.state.room import Room
from holdfast.state.tables import Tables
from holdfast.state.turns import Turns


class Administration:
    """`asks`: searches for messages. `meter`: records of each interval. `requests`: the links of `$management`."""

    def __init__(
        self,
        config: NodeConfig,
        store: Tables,
        clock: Clock,
        log: Log,
        outbox: Outbox,
        turns: Turns,
        room: Room,
        links: LinkTables,
        memory: Memory,
        connections: Connections,
        catalog: Catalog,
        *,
        disk: Disk,
        containment: Containment,
        users: Users,
        refusals: Refusals,
        logins: Logins,
        turn_times: TurnTimes,
        descriptors: Descriptors,
        incidents: Incidents,
        streams: Mapping[Stream, None],
        duplicates: Duplicates,
        losses: Losses,
        identities: Identities,
        store_names: StoreNames,
        dead_lettering: DeadLettering,
        dead_letters: DeadLetters,
        destination: Destination,
        forwarding: Forwarding,
        departures: Departures,
        next_hops: Mapping[str, NextHop],
        neighbours: Mapping[str, Neighbour],
        clocks: Clocks,
        routing: RoutesNow,
        jobs: BackgroundJobs,
        resume: Resumption,
        queue_links: QueueLinks,
        triggers: Triggers,
        rates: RateControl,
        bindings: BindingControl,
        admission: Admission,
        transactions: Transactions,
        resolver: Resolver,
        node_drain: NodeDrain,
        changes: EntryChanges,
        authoriser: Authoriser,
        reload: Callable[[], Later],
        delete_queue: Callable[[Queue], None],
        resident_bytes: Callable[[], int],
    ) -> None:
        """`reload`: takes up the configuration. `delete_queue`: deletes a queue that no link holds, with all that is
        kept of it. `resident_bytes`: the process's memory, as the driver measured it last."""
        here = Whereabouts(config.name, catalog, store, forwarding, destination, store_names, neighbours, next_hops)
        self.questions = WhereQuestions(here, clock, config.limits, neighbours, identities)
        self.warnings = Warnings(
            config.name, clock, log, catalog=catalog, disk=disk, descriptors=descriptors, incidents=incidents,
            neighbours=neighbours, routing=routing, stores=store_names, destination=destination,
            forwarding=forwarding, departures=departures, streams=streams, has_topology=config.topology is not None,
        )  # fmt: skip
        self.meter = Meter(config, clock, outbox, catalog)
        self.meter.each_interval(SenderMeter(outbox, catalog, next_hops, duplicates).tell)
        self.meter.each_interval(partial(turn_times.tell, outbox))
        self.meter.each_interval(
            lambda: None if routing() is None else outbox.record("paths", destination.paths.status())
        )
        if rates.active:
            self.meter.each_interval(partial(rates.tell, outbox))
        self.queue_status = QueueStatus(catalog, clock)

        def all_links() -> int:
            return sum(peer.counted_links for peer in connections.values())

        own_row = OwnRow(
            clock, catalog, room, disk, neighbours, connections, forwarding, node_drain, self.warnings,
            links=all_links, started_at=clock.now,
        )  # fmt: skip
        self.view = NetworkView(config.name, clock, own_row, forwarding, neighbours, routing)
        self.report = NodeStatus(
            config, clock, log, identities=identities, room=room, memory=memory, users=users, logins=logins,
            turn_times=turn_times, connections=connections, queues=self.queue_status,
            sessions=SessionStatus(clock, links, neighbours, disk, clocks),
            destinations=DestinationStatus(catalog, forwarding, next_hops, routing), routing=routing,
            paths=destination.paths, forwarding=forwarding, dead_lettering=dead_lettering, disk=disk,
            descriptors=descriptors, streams=streams, incidents=incidents, dead_letters=dead_letters,
            containment=containment, hosts=HostStatus(config, catalog, connections), losses=losses,
            origins=OriginStatus(catalog.ledger, routing, destination.groups, transactions),
            warnings=self.warnings, queue_links=queue_links, triggers=triggers, rates=rates,
            bindings=bindings, admission=admission, node_drain=node_drain, started_at=clock.now,
            resident_bytes=resident_bytes,
        )  # fmt: skip
        self.measured = Measured(self.report, self.queue_status, catalog)
        queues = QueueOperations(
            catalog, links, turns, self.queue_status, resume=resume, jobs=jobs, departures=departures,
            forwarding=forwarding, destination=destination, queue_links=queue_links, delete=delete_queue,
        )  # fmt: skip
        groups = (
            NodeOperations(
                self.report, self.questions, routing, reload, node_drain, self.view, catalog, forwarding, departures
            ),
            SubscriptionOperations(catalog, resume), queues, ConnectionOperations(connections, refusals),
            TransactionOperations(transactions, clock), LinkOperations(queue_links),
            FederationOperations(bindings, routing), ServiceOperations(resolver.services),
        )  # fmt: skip
        entries = EntryOperations(catalog, store, clock, turns, resolver, changes)
        types = tuple(each for group in groups for each in group.types())
        self.management = Management(
            catalog, disk, authoriser, Rights(resolver, queue_links.by_name.get), self.queue_status, *groups, entries,
            EntityOperations(types),
            links=lambda: len(connections) + all_links(),
        )  # fmt: skip
        parts = RequestParts(config.limits, memory, users, links, turns, self.management)
        self.requests = Requests(parts, containment.run)
