"""The parts of a node that its management uses.

Rules of this file: data. Each part of the management takes from it what it needs when it is built.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

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
from holdfast.endpoints.remotes.remotes import Remotes
from holdfast.endpoints.resumption.resume import Resumption
from holdfast.endpoints.transactions.transactions import Transactions
from holdfast.engine.clock import Clock
from holdfast.engine.incidents import Incidents
from holdfast.engine.log import Log
from holdfast.engine.outbox import Outbox
from holdfast.links.containment import Containment
from holdfast.links.disk import Disk
from holdfast.links.large_receives import LargeReceives
from holdfast.management.status.descriptors import Descriptors
from holdfast.management.status.turn_times import TurnTimes
from holdfast.management.triggers import Triggers
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedParts:
    """`delete_queue`: deletes a queue that no link uses, with everything that is kept for it. `resident_bytes`: the
    process's memory, as last measured by the driver."""

    config: NodeConfig
    store: Tables
    clock: Clock
    log: Log
    outbox: Outbox
    turns: Turns
    room: Room
    links: LinkTables
    memory: Memory
    connections: Connections
    catalog: Catalog
    disk: Disk
    containment: Containment
    users: Users
    refusals: Refusals
    logins: Logins
    turn_times: TurnTimes
    descriptors: Descriptors
    incidents: Incidents
    large_receives: LargeReceives
    duplicates: Duplicates
    losses: Losses
    identities: Identities
    store_names: StoreNames
    dead_lettering: DeadLettering
    dead_letters: DeadLetters
    destination: Destination
    forwarding: Forwarding
    departures: Departures
    next_hops: Mapping[str, NextHop]
    neighbours: Mapping[str, Neighbour]
    clocks: Clocks
    routing: RoutesNow
    jobs: BackgroundJobs
    resume: Resumption
    queue_links: QueueLinks
    remotes: Remotes
    triggers: Triggers
    rates: RateControl
    bindings: BindingControl
    admission: Admission
    transactions: Transactions
    resolver: Resolver
    node_drain: NodeDrain
    changes: EntryChanges
    authoriser: Authoriser
    delete_queue: Callable[[Queue], None]
    resident_bytes: Callable[[], int]
