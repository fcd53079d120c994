"""What an operator sees of a node and does to it, put together: questions after messages, warnings, records of
telemetry, `status`, and the operations of `$management`.

Rules of this file: it builds and joins, and holds no rule.
"""

from collections.abc import Callable, Mapping
from functools import partial

from holdfast.broker.queue import Queue
from holdfast.broker.work import Clock
from holdfast.core.asks import Asks
from holdfast.core.authorise import Authoriser
from holdfast.core.catalog import Catalog, Tables
from holdfast.core.chores import Chores
from holdfast.core.clocks import Clocks
from holdfast.core.config import NodeConfig
from holdfast.core.connections import Connections
from holdfast.core.containment import Containment
from holdfast.core.dead_letters import DeadLetters
from holdfast.core.departed import Departures
from holdfast.core.descriptors import Descriptors
from holdfast.core.destination import Destination
from holdfast.core.destination_status import DestinationStatus
from holdfast.core.disk import Disk
from holdfast.core.duplicates import Duplicates
from holdfast.core.endings import Endings
from holdfast.core.forwarding import Forwarding
from holdfast.core.identity import Identities
from holdfast.core.incidents import Incidents
from holdfast.core.link_tables import LinkTables
from holdfast.core.log import Log
from holdfast.core.logins import Logins
from holdfast.core.losses import Losses
from holdfast.core.management import Management
from holdfast.core.memory import Memory
from holdfast.core.meter import Meter, SenderMeter
from holdfast.core.next_hop import NextHop
from holdfast.core.node_operations import NodeOperations
from holdfast.core.origin_status import OriginStatus
from holdfast.core.outbox import Outbox
from holdfast.core.queue_operations import QueueOperations
from holdfast.core.queue_status import QueueStatus
from holdfast.core.report import Report
from holdfast.core.requests import RequestParts, Requests
from holdfast.core.resume import Resumption
from holdfast.core.room import Room
from holdfast.core.routes import Routes
from holdfast.core.session_status import SessionStatus
from holdfast.core.sessions import Neighbour
from holdfast.core.store_names import StoreNames
from holdfast.core.streams import Stream
from holdfast.core.subscription_operations import SubscriptionOperations
from holdfast.core.turn_times import TurnTimes
from holdfast.core.turns import Turns
from holdfast.core.users import Users
from holdfast.core.warnings import Warnings
from holdfast.core.where import Whereabouts


class Administration:
    """`asks`: questions after messages. `meter`: records of each interval. `requests`: the links of `$management`."""

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
        logins: Logins,
        turn_times: TurnTimes,
        descriptors: Descriptors,
        incidents: Incidents,
        streams: Mapping[Stream, None],
        duplicates: Duplicates,
        losses: Losses,
        identities: Identities,
        store_names: StoreNames,
        endings: Endings,
        dead_letters: DeadLetters,
        destination: Destination,
        forwarding: Forwarding,
        departures: Departures,
        next_hops: Mapping[str, NextHop],
        neighbours: Mapping[str, Neighbour],
        clocks: Clocks,
        routing: Routes | None,
        chores: Chores,
        resume: Resumption,
        authoriser: Authoriser,
        delete_queue: Callable[[Queue], None],
        resident_bytes: Callable[[], int],
    ) -> None:
        """`delete_queue`: deletes a queue that no link holds, with all that is kept of it. `resident_bytes`: the
        process's memory, as the driver measured it last."""
        here = Whereabouts(config.name, catalog, store, forwarding, destination, store_names, neighbours, next_hops)
        self.asks = Asks(here, clock, config.limits, neighbours, identities)
        self.warnings = Warnings(
            config.name, clock, log, catalog=catalog, disk=disk, descriptors=descriptors, incidents=incidents,
            neighbours=neighbours, routing=routing, stores=store_names, destination=destination,
            departures=departures, streams=streams,
        )  # fmt: skip
        self.meter = Meter(config, clock, outbox, catalog)
        self.meter.each_interval(SenderMeter(outbox, catalog, next_hops, duplicates).tell)
        self.meter.each_interval(partial(turn_times.tell, outbox))
        if routing is not None:
            self.meter.each_interval(lambda: outbox.record("paths", destination.paths.status()))
        self.queue_status = QueueStatus(catalog, clock)
        self.report = Report(
            config, clock, log, identities=identities, room=room, memory=memory, users=users, logins=logins,
            turn_times=turn_times, connections=connections, queues=self.queue_status,
            sessions=SessionStatus(clock, links, neighbours, disk, clocks),
            destinations=DestinationStatus(catalog, forwarding, next_hops, routing), routing=routing,
            paths=destination.paths, forwarding=forwarding, endings=endings, disk=disk, descriptors=descriptors,
            streams=streams, incidents=incidents, dead_letters=dead_letters, containment=containment,
            origins=OriginStatus(catalog, routing), losses=losses, warnings=self.warnings, started_at=clock.now,
            resident_bytes=resident_bytes,
        )  # fmt: skip
        self.management = Management(
            catalog, disk, authoriser,
            NodeOperations(self.report, self.asks, routing), SubscriptionOperations(catalog, resume),
            QueueOperations(
                catalog, links, turns, self.queue_status, resume=resume, chores=chores, departures=departures,
                forwarding=forwarding, destination=destination, delete=delete_queue,
            ),
        )  # fmt: skip
        parts = RequestParts(config.limits, memory, users, links, turns, self.management)
        self.requests = Requests(parts, containment.run)
