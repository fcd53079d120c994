"""The parts of a node, and what each of them uses.

Rules of this file: parts are built in the order of their dependencies; if a part needs a later one, it gets a callable,
or a named method hands it over afterwards.
"""

from collections.abc import Callable, Iterable, Sized
from random import Random
from uuid import UUID

from holdfast.access.actions import RECEIVE
from holdfast.access.current import CurrentAccess
from holdfast.access.rules import NO_ACCESS
from holdfast.amqp import connection as amqp
from holdfast.broker import deletion
from holdfast.broker.entries import entry
from holdfast.broker.entries.address import TOPIC_PREFIX
from holdfast.broker.entries.host_names import DEFAULT_HOST
from holdfast.broker.entries.kinds import QueueKind
from holdfast.broker.entries.work import Work
from holdfast.broker.queue import Queue
from holdfast.core.driver_events import DriverEvents
from holdfast.core.neighbour_changes import NeighbourChanges
from holdfast.core.relief import Relief
from holdfast.core.reloading import Reloading
from holdfast.core.shutdown import Shutdown
from holdfast.custody.arrival.destination import Destination
from holdfast.custody.arrival.duplicates import Duplicates
from holdfast.custody.arrival.faults import Publishing, no_message
from holdfast.custody.arrival.measured import MeasuredDestination
from holdfast.custody.dead_lettering import DeadLettering
from holdfast.custody.delays import Delays
from holdfast.custody.delivery_limits import DeliveryLimits
from holdfast.custody.departed import Departures
from holdfast.custody.expiry import Expiry
from holdfast.custody.forwarding import Forwarding
from holdfast.custody.hop.next_hop import NextHop
from holdfast.custody.hop.progress import HopProgress
from holdfast.custody.hop.receiver import ReceiverParts
from holdfast.custody.hop.sender import CustodySender, HopParts, may_expire
from holdfast.custody.names import identity
from holdfast.custody.names.neighbour_stores import NeighbourStores
from holdfast.custody.names.store_names import StoreNames
from holdfast.custody.overflow import Overflow
from holdfast.endpoints.addresses.dynamic_nodes import DynamicNodes
from holdfast.endpoints.addresses.node_drain import NodeDrain
from holdfast.endpoints.addresses.remote_queues import RemoteQueues
from holdfast.endpoints.assembly import Endpoints
from holdfast.endpoints.attaching.neighbour_attach import NeighbourAttach
from holdfast.endpoints.background_jobs import BackgroundJobs
from holdfast.endpoints.entry_changes import EntryChanges
from holdfast.endpoints.listening import Listening
from holdfast.endpoints.passing_on import PassingOn
from holdfast.endpoints.recovery import ClientRecovery
from holdfast.endpoints.remotes.kept_link import KeptLink
from holdfast.endpoints.spreading import Spreading
from holdfast.endpoints.subscription_ends import SubscriptionEnds
from holdfast.endpoints.topic_bindings import TopicBindings
from holdfast.engine.clock import Clock
from holdfast.engine.due_times import ALWAYS, DueTimes, Timed
from holdfast.engine.incidents import Incidents
from holdfast.engine.log import Log
from holdfast.engine.outbox import Outbox
from holdfast.links import disk
from holdfast.links.containment import Containment, Recovery
from holdfast.links.disk import Disk
from holdfast.links.dispatch import Dispatch
from holdfast.links.large_receives import LargeReceives, Stream
from holdfast.links.large_sends import LargeSends
from holdfast.links.pressure import Pressure
from holdfast.links.recount import LinkCounts
from holdfast.management.assembly import Administration
from holdfast.management.attach import ManagementAttach
from holdfast.management.status.descriptors import Descriptors
from holdfast.management.status.managed_parts import ManagedParts
from holdfast.management.status.turn_times import TurnTimes
from holdfast.management.triggers import Triggers
from holdfast.peering.binding_control import BindingControl
from holdfast.peering.clocks import Clocks, calendar_ms
from holdfast.peering.doors import Doors
from holdfast.peering.rate_control import RateControl
from holdfast.peering.routes import Routes
from holdfast.peering.session_parts import SessionParts
from holdfast.peering.sessions import Neighbour
from holdfast.peers.audit import Audit
from holdfast.peers.authorise import Authoriser
from holdfast.peers.connections import Connections
from holdfast.peers.deadlines import Deadlines
from holdfast.peers.hosts import VirtualHosts
from holdfast.peers.limits.guard import Guard
from holdfast.peers.limits.memory import Memory
from holdfast.peers.limits.refusals import Refusals
from holdfast.peers.link_tables import LinkTables
from holdfast.peers.logins import Logins
from holdfast.peers.neighbours.session_port import ControlKinds
from holdfast.peers.peer_log import PeerLog
from holdfast.peers.users import Users
from holdfast.queue_links.handing import HandingParts
from holdfast.queue_links.links import QueueLinks
from holdfast.routing.topology import Topology, star
from holdfast.settings.node import NodeConfig
from holdfast.state.blobs import Blobs
from holdfast.state.catalog import Catalog
from holdfast.state.configured_queues import ConfiguredQueues
from holdfast.state.configured_subscriptions import ConfiguredSubscriptions
from holdfast.state.dead_letter_bounds import DeadLetters
from holdfast.state.losses import Losses
from holdfast.state.participants import Following, Recovering, Storing, Undoing, Waking
from holdfast.state.producer_ends import ProducerEnds
from holdfast.state.queue_changes import QueueChanges
from holdfast.state.room import Room
from holdfast.state.tables import Tables
from holdfast.state.turns import Turns


class Parts:
    """All parts of one node, built and connected; each gets what it uses, and none gets this object."""

    def __init__(
        self,
        config: NodeConfig,
        store: Tables,
        *,
        rng: Random,
        wall_ms: int,
        now: float,
        recovery: Callable[["Parts"], Recovery],
        authoriser: Authoriser | None,
    ) -> None:
        config.validate()
        access = CurrentAccess(config.access) if authoriser is None else None
        self.authoriser = authoriser or access or CurrentAccess(NO_ACCESS)
        self.config = config
        self.store = store
        former = identity.begin_anew(store, config.name)
        self.rng = rng
        self.started_at = now
        self.started_wall_ms = wall_ms = calendar_ms(wall_ms)
        self.clock = clock = Clock(wall_ms, wall_ms, now)
        self.work: Work[Queue] = Work()
        self.turns = Turns(self.work.batch)
        self.outbox = Outbox()
        self.log = Log(clock, self.outbox, config.limits.log_lines_per_minute)
        self.links = LinkTables()
        self.dispatch = Dispatch(self.links)
        self.connections = Connections(self.outbox, self.dispatch.deliver)
        self.recovery = recovery(self)
        self.containment = Containment(clock, self.turns, self.outbox, self.log, self.connections, self.recovery)
        self.memory = memory = Memory(config.limits, self.connections)
        self.links.wait_in("memory", lambda: memory.waiting)
        self.catalog = Catalog(config, store, clock=clock, work=self.work, memory=memory, new_uuid=self.new_uuid)
        self.steady_at_start_ms = clock.steady_ms
        self.steady_stored_ms = 0
        self.room = Room(store, self.turns, self.work)
        self.neighbours: dict[str, Neighbour] = {}
        self.next_hops: dict[str, NextHop] = {}
        self._build_state(former)
        self._build_connections()
        self._build_custody()
        self._build_peering()
        endpoints = self._build_endpoints(access)
        self._build_management(endpoints)
        self._register()
        self.bindings.spreads(self._route_over)
        self.bindings.learned = self.links.all_may_go_on
        self.forwarding.wake()
        self.departures.look()
        self.identities.tell_former()
        self.outbox.record(
            "node", {"event": "started", "store": str(self.identities.store_uuid), "resident_bytes": None}
        )

    def _build_state(self, former: identity.Former | None) -> None:
        """What is on disk, and what the gathered turn changes of it."""
        store = self.store
        self.losses = Losses(store, self.clock, self.turns, self.work, self.outbox, self.log)
        self.identities = identity.Identities(
            store, former, self.catalog, self.turns, self.work, self.room, self.outbox, self.log, self.losses,
            self.neighbours, offer_again=self._offer_again,
        )  # fmt: skip
        self.queue_changes = QueueChanges(self.catalog, self.turns, self.work, self.memory)
        self.blobs = Blobs(self.catalog, store, self.work)
        self.streams: dict[Stream, None] = {}
        """Large messages that are arriving."""
        self.links.serve_in("consumers", lambda: self.catalog.consumers)
        self.links.serve_in("holders", lambda: [producer.holder for producer in self.catalog.producers.values()])
        self.links.serve_in("streams", lambda: [stream.bringer for stream in self.streams])

    def _build_connections(self) -> None:
        """What connections and their users may use, and what their links share."""
        config, store, clock, memory = self.config, self.store, self.clock, self.memory
        self.pressure = Pressure(config.limits, self.connections, self.turns, memory, self.outbox, self.streams)
        self.deadlines = Deadlines(self.connections)
        self.guard = Guard(
            config.limits, self.connections, self.outbox, memory, self.links, self.dispatch.deliver,
            self._other_connections,
        )  # fmt: skip
        self.refusals = Refusals(self.connections, clock, self.guard.uncount)
        self.users = Users(config, clock, memory, self.links, self.connections)
        self.peer_log = PeerLog(self.log, self.users.by_name)
        for part in (self.guard, self.refusals, memory, self.users):
            self.connections.each_leaves(part.left)
        self.logins = Logins(config.limits, clock, self.users)
        self.incidents = Incidents(clock)
        self.large_receives = LargeReceives(
            config.limits, store, self.room, self.turns, self.work, self.blobs, self.pressure, self.incidents,
            self.streams,
        )  # fmt: skip
        self.large_sends = LargeSends(store, self.blobs, self.connections, memory)
        self.retire_at: float | None = None
        self.turn_ended = 0
        """The number of the event that ended the last turn."""
        self.duplicates = Duplicates()
        self.resident_bytes = 0
        self.stopping = False
        self.stopped = False
        self.turn_times = TurnTimes()
        self.failure: Exception | None = None
        """What `next_deadline` raised, and of which part it had asked."""
        self.asked: Timed | None = None
        self.commits_failed = 0
        """How often in a row the gathered turn could not be handed over."""
        self.disk = Disk(
            config.limits, clock, self.log, store, self.room, self.links, self.neighbours,
            finish=self.containment.finish,
        )  # fmt: skip

    def _build_custody(self) -> None:
        """Each message once, in order: how it ends, its destination, and the next hop."""
        config, clock, memory = self.config, self.clock, self.memory
        self.dead_lettering = DeadLettering(
            config, clock, self.catalog, self.turns, self.work, self.room, memory, self.pressure, self.disk,
        )  # fmt: skip
        self.jobs = BackgroundJobs(
            config.limits, self.catalog, self.turns, self.work, self.dead_lettering, self.identities, memory.settling
        )
        self.dead_letters = DeadLetters(
            config.dead_letters, clock, self.catalog, self.turns, self.work, self.log, self.losses
        )
        self.delivery_limits = DeliveryLimits(self.catalog, self.turns, self.work, self.links, self.dead_lettering)
        self.queue_changes.suspended_by(self.delivery_limits.suspended)
        self.overflow = Overflow(self.catalog, self.work, self.links, self.dead_lettering)
        self.delays = Delays(clock, self.catalog, self.turns, self.work, self.room, self.dead_lettering, memory)
        self.queue_changes.suspended_by(self.dead_lettering.suspended)
        self.dynamic_nodes = DynamicNodes(
            config.limits, memory, self.catalog, self.links, self.jobs, self.rng,
            new_uuid=self.new_uuid, forget_queue=self.forget_queue,
        )  # fmt: skip
        is_root = config.pacing.rate is not None
        self.destination = (MeasuredDestination if is_root else Destination)(
            config, clock, self.catalog, self.turns, self.room, self.outbox, self.log, self.links, self.losses,
            self.dead_lettering, self.duplicates,
        )  # fmt: skip
        self.audit = Audit(self.outbox, clock, is_wanted=config.audit)
        self._publish_by(config)
        self.expiry = Expiry(
            clock, self.catalog, self.turns, self.work, self.room, self.destination, may_expire=may_expire
        )
        self.store_names = StoreNames(config.name, self.identities, self.catalog.ledger)
        self.neighbour_stores = NeighbourStores(
            self.catalog, self.log, self.incidents, self.neighbours, self.destination
        )
        self.forwarding = Forwarding(
            config, clock, self.catalog, self.room, self.disk, self.outbox, self.log, self.links,
            self.identities, self.dead_lettering, self.destination, self.next_hops, version=self.started_wall_ms,
            changed=self._nodes_may_have_left,
        )  # fmt: skip
        self.hop_progress = HopProgress(self.catalog.ledger, self.links, self.next_hops)
        producer_ends = ProducerEnds(self.turns)
        self.departures = Departures(
            config, self.catalog, self.turns, self.log, self.links, producer_ends, self.identities, self.dead_lettering,
            self.forwarding, self.next_hops, offer_again=self.jobs.offer_again, delete=self.delete_queue,
            forget_hops=self.hop_progress.forget,
        )  # fmt: skip
        self.jobs.join(self.departures, self.destination)
        self.node_drain = NodeDrain(
            config.name, clock, self.catalog, self.turns, self.links, producer_ends, self.forwarding, self.log,
            self.store.table("node"), changed=lambda: None if self.routing is None else self.routing.wake(),
        )  # fmt: skip

    def _build_peering(self) -> None:
        """Sessions with neighbours, and what uses their control links."""
        config, clock, memory = self.config, self.clock, self.memory
        store, wall_ms = self.store, self.started_wall_ms
        self.routing: Routes | None = None
        self.control_kinds = ControlKinds({disk.KIND: self.disk.hear})
        """The handlers of control messages that sessions do not handle themselves; parts add theirs."""
        self.rates = RateControl(
            config, clock, self.catalog, self.room, self.identities, self.forwarding, self.neighbours, self.next_hops,
            self.links, self.control_kinds, process=wall_ms, name_of=self.store_names.name_of,
        )  # fmt: skip
        self.bindings = BindingControl(
            config, store, clock, self.turns, self.room, self.neighbours, self.control_kinds, memory, life=wall_ms,
            via=self.forwarding.via, permits=self._may_receive,
        )  # fmt: skip
        if isinstance(self.destination, MeasuredDestination) and self.rates.root is not None:
            self.destination.took = self.rates.root.took
        self.descriptors = Descriptors(self.log)
        self.clocks = Clocks(clock, self.neighbours)
        self.control_kinds.add(self.clocks.hears)
        self.due_times: DueTimes[Neighbour] = DueTimes()
        self.session_parts = SessionParts(
            config, clock, self.rng, self.outbox, self.log, self.connections, self.catalog, self.incidents,
            self.neighbour_stores, self.forwarding, self.disk, self.clocks, self.due_times, self.control_kinds,
            self.rates, self.bindings, wall_ms, advertised_uuid=lambda: self.advertised_uuid,
            is_stopping=lambda: self.stopping,
        )  # fmt: skip
        self.hop_parts = HopParts(
            config, self.clock, self.outbox, self.log, self.connections, self.catalog, self.identities,
            self.dead_lettering, self.forwarding, self.large_sends, self.new_uuid, self.rates.pacers,
        )  # fmt: skip
        self.next_hops |= {item.name: NextHop(self.hop_parts, item.name, item.hosts) for item in config.neighbours}
        self.receiver_parts = ReceiverParts(
            config.limits, self.clock, self.links, memory, self.guard, self.large_receives,
            config, self.turns, self.room, self.log, self.incidents, self.disk, self.forwarding, self.destination,
            self.next_hops, self.hop_progress.stored, None if self.rates.root is None else self.rates.root.credit,
        )  # fmt: skip
        for item in config.neighbours:
            hop, kind = self.next_hops[item.name], config.kind_of_link(item.name)
            self.neighbours[item.name] = Neighbour(self.session_parts, item, hop, kind)

    def _build_endpoints(self, access: CurrentAccess | None) -> Endpoints:
        """Clients' links, links between queues, and the changes of the configuration. `access`: the rules of the
        configuration; None if another authoriser decides."""
        config, store, clock, memory, rng = self.config, self.store, self.clock, self.memory, self.rng
        self.topic_bindings = TopicBindings(self.catalog, self.work, self.bindings)
        self.connections.each_leaves(self.topic_bindings.left)
        self.remote_queues = RemoteQueues(self.catalog, config.remotes)
        self.listening = Listening(self.work, self.turns, self.catalog, self.blobs)
        self.spreading = Spreading(
            config, self.catalog, store, self.forwarding, self.remote_queues, self.identities, self.dead_lettering,
            self.outbox, self.bindings, self.turns,
        )  # fmt: skip
        self.passing_on = PassingOn(
            self.work, self.clock, self.turns, self.catalog, self.bindings, self.spreading, self.duplicates
        )
        self.queue_links = QueueLinks(
            HandingParts(
                config, clock, self.catalog, self.turns, self.room, self.disk, self.outbox, self.links, memory,
                self.identities, self.dead_lettering, self.forwarding, self.remote_queues, self.spreading,
            ),
            store, rng, is_stopping=lambda: self.stopping, run=self.containment.run,
            rests=lambda part: part in self.containment.resting,
        )  # fmt: skip
        if config.topology is not None:
            self._route_by(config.topology)
        self.triggers = Triggers(config, clock, self.catalog, self.outbox, self.log, is_stopping=lambda: self.stopping)
        subscriptions = ConfiguredSubscriptions(self.catalog, config.subscriptions)
        endpoints = Endpoints(
            config, store, clock, self.work, self.turns, self.connections, self.links, memory, self.catalog,
            room=self.room, disk=self.disk, outbox=self.outbox, guard=self.guard, users=self.users,
            large_receives=self.large_receives, large_sends=self.large_sends,
            duplicates=self.duplicates, identities=self.identities,
            dead_lettering=self.dead_lettering, forwarding=self.forwarding, store_names=self.store_names,
            jobs=self.jobs, remote_queues=self.remote_queues, dynamic_nodes=self.dynamic_nodes,
            authoriser=self.authoriser, node_drain=self.node_drain, blobs=self.blobs,
            streams=self.streams, rng=rng, log=self.log, bindings=self.topic_bindings, spreading=self.spreading,
            configured=subscriptions, resting=self.containment.resting,
            requests=lambda peer, link: self.requests.request_link(peer, link, grants=False),
            is_stopping=lambda: self.stopping,
        )  # fmt: skip
        self.resume, self.transactions, self.admission = endpoints.resume, endpoints.transactions, endpoints.admission
        self.bindings.remote_is_up = endpoints.remotes.is_up
        self.services, self.remotes = endpoints.resolver.services, endpoints.remotes
        self.too_large = endpoints.too_large
        self.subscription_ends = SubscriptionEnds(clock, self.catalog, self.work, self.resume, self.log)
        self.queue_changes.suspended_by(self.transactions.suspended)
        self.reloading = Reloading(
            config, self.outbox, self.log, access=access, publish_by=self._publish_by,
            queues=ConfiguredQueues(self.catalog, self.links, delete=self.delete_queue), subscriptions=subscriptions,
            queue_links=self.queue_links,
            neighbours=NeighbourChanges(
                self.neighbours, self.next_hops, self.hop_parts, self.session_parts, self.due_times,
                self.containment, self.forwarding, routing=lambda: self.routing, nodes_left=self._nodes_may_have_left,
            ),
            remotes=lambda: self.remotes, bindings=self.bindings, doors=lambda: self.doors,
            is_stopping=lambda: self.stopping,
            routed=lambda: () if self.routing is None else self.routing.costs, audit=self.audit,
            users=self.users, containment=self.containment, turns=self.turns,
        )  # fmt: skip
        return endpoints

    def _build_management(self, endpoints: Endpoints) -> None:
        """`$management`, admission, the end of the node, and the driver's events."""
        config, clock, memory = self.config, self.clock, self.memory
        self.relief = Relief(memory, self.connections, self.links, self.resume, self.users.who)
        changes = EntryChanges(
            clock, self.catalog, self.turns, self.room, self.disk, self.identities, self.dead_lettering
        )
        administration = Administration(ManagedParts(
            config=config, store=self.store, clock=clock, log=self.log, outbox=self.outbox, turns=self.turns,
            room=self.room, links=self.links, memory=memory, connections=self.connections, catalog=self.catalog,
            disk=self.disk, containment=self.containment, users=self.users, refusals=self.refusals, logins=self.logins,
            turn_times=self.turn_times, descriptors=self.descriptors, incidents=self.incidents,
            large_receives=self.large_receives, duplicates=self.duplicates, losses=self.losses,
            identities=self.identities, store_names=self.store_names,
            dead_lettering=self.dead_lettering, dead_letters=self.dead_letters, destination=self.destination,
            forwarding=self.forwarding, departures=self.departures, next_hops=self.next_hops,
            neighbours=self.neighbours, clocks=self.clocks, routing=lambda: self.routing, jobs=self.jobs,
            resume=self.resume, resolver=endpoints.resolver, node_drain=self.node_drain, changes=changes,
            queue_links=self.queue_links, remotes=self.remotes, triggers=self.triggers, rates=self.rates,
            bindings=self.bindings, admission=self.admission, transactions=self.transactions,
            authoriser=self.authoriser, delete_queue=self.delete_queue, resident_bytes=lambda: self.resident_bytes,
        ), reload=self.reloading.ask)  # fmt: skip
        self.questions, self.warnings, self.meter = (
            administration.questions,
            administration.warnings,
            administration.meter,
        )
        self.control_kinds.add(self.questions.hears)
        self.view = administration.view
        self.control_kinds.add(self.view.hears)
        self.queue_status, self.report = administration.queue_status, administration.report
        self.management, self.requests = administration.management, administration.requests
        self.shutdown = Shutdown(
            self.identities, self.catalog, self.outbox, self.connections, self.neighbours, lambda: self.routing,
            self.rates, self.remotes, self.resume, self.containment, resident_bytes=lambda: self.resident_bytes,
        )  # fmt: skip
        self.doors = Doors(
            config, clock, self.connections, memory, self.deadlines, self.guard, self.refusals, self.users,
            self.logins, self.pressure.partials, self.neighbours, self.remotes.by_name, VirtualHosts(config),
            self.audit,
            log=self.peer_log.write, deliver=self.dispatch.deliver, store=lambda: self.advertised_uuid,
            is_stopping=lambda: self.stopping, came_as_neighbour=self.incidents.came_as_neighbour,
        )  # fmt: skip
        ManagementAttach(config.limits, self.requests).serve(endpoints.attaches)
        NeighbourAttach(
            config.name, self.log, self.turns, self.links, endpoints.resolver, self.neighbours, self.receiver_parts,
            why_no_neighbour=self.doors.why_no_neighbour,
        ).serve(endpoints.attaches)  # fmt: skip
        self.driver_events = DriverEvents(
            clock, self.log, self.outbox, self.connections, self.guard, self.pressure, self.containment, self.doors,
            self.forwarding, self.descriptors, self.neighbours, self.remotes, self.triggers, self.reloading,
            measured=administration.measured.fields, certificate_read=administration.certificate_expiry.read,
            users_file=administration.users_file,
        )  # fmt: skip
        self.dispatch.join(
            self.connections,
            attach=endpoints.attaches.open,
            answered=_answered,
            opened=self.doors.welcome,
            ended=self.topic_bindings.ended,
        )

    def _register(self) -> None:
        """Lists the parts that act at a time, take part in turns, or recover from a failure, each in order."""
        memory = self.memory
        always: list[Timed] = [self.destination, self.warnings, self.questions, self.view, self.clocks]
        always += [self.dead_letters, self.disk, self.expiry, self.delays]
        if self.routing is not None:
            always.append(self.routing)
        self.timed: list[tuple[Sized, Timed]] = [
            *((ALWAYS, part) for part in always),
            (self.forwarding.returned, self.forwarding.sent_back), (self.resume.due, self.resume),
            (self.transactions.timed, self.transactions), (self.triggers.waiting, self.triggers),
            (self.admission.waiting, self.admission), (self.work.awaiting, self.subscription_ends),
            (self.queue_links.windowed, self.queue_links), (self.too_large.waiting, self.too_large),
            (self.queue_links.handing.remote_room.links, self.queue_links.handing.remote_room),
            (self.remotes.by_name, self.remotes),
            *([(self.rates.active, self.rates)] if self.rates.active else []),
            (self.bindings.active, self.bindings), (self.passing_on.waiting, self.passing_on),
            (self.guard.waiting, self.guard), (self.users.uses, self.users), (self.refusals.due, self.refusals),
            (self.containment.resting, self.containment),
        ]  # fmt: skip
        """Parts that act at a time, each with what it waits for: while that is empty it has no deadline."""
        self.storing: tuple[Storing, ...] = (
            self.hop_progress, self.resume, self.catalog.producers, self.queue_changes, self.blobs,
            self.bindings, self.spreading,
        )  # fmt: skip
        self.following: tuple[Following, ...] = (
            self.blobs,
            self.losses,
            self.queue_changes,
            self.hop_progress,
            self.destination,
            self.bindings,
        )
        self.undoing: tuple[Undoing, ...] = (
            self.transactions,
            self.queue_changes, self.catalog.producers, self.destination, self.identities, self.forwarding.sent_back,
            self.large_receives, self.losses, self.bindings, self.topic_bindings,
        )  # fmt: skip
        client_recovery = ClientRecovery(
            self.connections, self.links, memory, self.users, self.queue_changes, self.resume, self.jobs
        )
        link_counts = LinkCounts(
            self.connections, self.links, memory, self.pressure, self.blobs, self.deadlines, self.streams
        )
        self._recovering: tuple[Recovering, ...] = (
            self.transactions, self.queue_links, client_recovery, self.queue_changes, self.delivery_limits, link_counts,
            memory, self.users, self.bindings, self.remotes,
        )  # fmt: skip
        self.waking: tuple[Waking, ...] = (self.jobs, self.forwarding, link_counts, client_recovery)

    def recovering(self) -> Iterable[Recovering]:
        """The parts that repair their state after a failure, in order."""
        return (*self.neighbours.values(), *self._recovering)

    def _other_connections(self) -> int:
        """How many connections do not count as clients: those of neighbours, and those that are being refused."""
        neighbours = sum(1 for neighbour in self.neighbours.values() if neighbour.peer is not None)
        remotes = sum(1 for remote in self.remotes.by_name.values() if remote.peer is not None)
        return neighbours + remotes + len(self.refusals.due)

    def _publish_by(self, config: NodeConfig) -> None:
        """Sets the accounts by which neighbours' messages are published; access rules apply to accounts."""
        self.accounts = accounts = {item.name: item.account for item in config.neighbours}
        if config.access.rules:
            self.destination.fault_of = Publishing(self.catalog, self.authoriser, accounts, self.audit).fault_of
        else:
            self.destination.fault_of = no_message

    def _may_receive(self, neighbour: str, topic: str) -> bool:
        """Whether the neighbour may have the messages of the topic sent to it."""
        who = self.accounts.get(neighbour)
        return self.authoriser.authorise(who, RECEIVE, TOPIC_PREFIX + topic, host=DEFAULT_HOST) is None

    # ------------------------------------------------------------------------------------------------ routing

    def _route_by(self, topology: Topology) -> Routes:
        routing = self.routing = self.session_parts.routing = Routes(
            self.config, topology, self.clock, self.rng, self.log, self.identities, self.forwarding, self.disk,
            self.neighbours, self.control_kinds, version=self.started_wall_ms,
            advertised_uuid=lambda: self.advertised_uuid, nodes_left=self._nodes_may_have_left,
            is_draining=lambda: self.node_drain.active, drained=self.node_drain.others_drained,
        )  # fmt: skip
        self.store_names.routed_by(routing)
        self.destination.paths.routed_by(routing)
        self.forwarding.routed_by(routing)
        self.disk.each_change(routing.disk_changed)
        self.bindings.routed_by(routing)
        return routing

    def _route_over(self, names: Iterable[str]) -> None:
        """Sets the neighbours over which topics are forwarded. Without a topology file, routing uses the links to
        them."""
        if self.config.topology is not None:
            return
        if self.routing is None:
            routing = self._route_by(star(self.config.name, names))
            self.timed.append((ALWAYS, routing))
            for neighbour in self.neighbours.values():
                if neighbour.offered:
                    routing.link_up(neighbour)
            return
        for name in names:
            self.routing.join(self.neighbours[name])

    # ------------------------------------------------------------------------------------------------ who is where

    def delete_queue(self, queue: Queue) -> None:
        """Deletes a queue that no link uses, with everything that is kept for it. Requests that wait for a purge of it
        are answered."""
        if queue.kind is QueueKind.REMOTE:
            self.remote_queues.released(queue)
        self.jobs.forget(queue)
        self.work.rebound.setdefault(queue, {})
        self.catalog.delete(queue)
        self.forget_queue(queue)
        deletion.part(queue)

    def _nodes_may_have_left(self) -> None:
        self.departures.look_soon()
        self.queue_links.look_soon()

    def _offer_again(self, queue: Queue) -> None:
        self.jobs.offer_again(queue)

    def forget_queue(self, queue: Queue) -> None:
        """Forgets everything about a deleted queue."""
        self.links.forget_queue(queue)
        self.meter.totals.pop(queue.key, None)
        self.resume.going_on.pop(queue, None)
        self.expiry.forget(queue)

    # ------------------------------------------------------------------------------------------------ custody

    @property
    def advertised_uuid(self) -> UUID:
        """The store UUID that this node advertises: the one on disk. New messages may already have numbers under a
        newer one; none of them is sent before that one is stored."""
        return entry.uuid_of(self.store.uuid.bytes)

    def new_uuid(self) -> UUID:
        return UUID(int=self.rng.getrandbits(128), version=4)


def _answered(link: amqp.Link) -> None:
    """A neighbour or remote answered the attach of one of our links."""
    if isinstance(link.context, (CustodySender, KeptLink)) and link.attached and not link.refused:
        link.context.attached()
