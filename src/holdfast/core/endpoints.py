"""The endpoints of clients, put together: what their links share, who answers their attaches, what outlives them.

Rules of this file: it builds and joins, and holds no rule.
"""

from collections.abc import Callable, Container

from holdfast.amqp.connection import Receiver
from holdfast.broker.queue import Queue
from holdfast.broker.work import Clock, Work
from holdfast.core.attach import AttachTable
from holdfast.core.authorise import Authoriser
from holdfast.core.browser import ReaderParts
from holdfast.core.catalog import Catalog
from holdfast.core.chores import Chores
from holdfast.core.config import NodeConfig
from holdfast.core.connections import Connections
from holdfast.core.consumer import ConsumerParts
from holdfast.core.consumer_attach import ConsumerAttach
from holdfast.core.disk import Disk
from holdfast.core.duplicates import Duplicates
from holdfast.core.endings import Endings
from holdfast.core.forwarding import Forwarding
from holdfast.core.guard import Guard
from holdfast.core.identity import Identities
from holdfast.core.link_tables import LinkTables
from holdfast.core.memory import Memory
from holdfast.core.outbox import Outbox
from holdfast.core.peer import Peer
from holdfast.core.places import Resolver
from holdfast.core.producer_attach import ProducerAttach
from holdfast.core.relay import RelayParts, Requests
from holdfast.core.resume import Resumption
from holdfast.core.room import Room
from holdfast.core.sending import LargeSends
from holdfast.core.store_names import StoreNames
from holdfast.core.streams import LargeReceives
from holdfast.core.subscriptions import LinkSubscriptions
from holdfast.core.temporaries import Temporaries
from holdfast.core.turns import Turns
from holdfast.core.users import Users


class Endpoints:
    """`attaches`: who serves which address, all but the node's own registered. `resume`: what is kept of links that
    ended. `resolver`: what an address means."""

    def __init__(
        self,
        config: NodeConfig,
        clock: Clock,
        work: Work[Queue],
        turns: Turns,
        connections: Connections,
        links: LinkTables,
        memory: Memory,
        catalog: Catalog,
        *,
        room: Room,
        disk: Disk,
        outbox: Outbox,
        guard: Guard,
        users: Users,
        large_receives: LargeReceives,
        large_sends: LargeSends,
        duplicates: Duplicates,
        identities: Identities,
        endings: Endings,
        forwarding: Forwarding,
        store_names: StoreNames,
        chores: Chores,
        temporaries: Temporaries,
        authoriser: Authoriser,
        resting: Container[object],
        requests: Callable[[Peer, Receiver], Requests],
        is_stopping: Callable[[], bool],
    ) -> None:
        """`resting`: queues, among others, that rest after a failure. `requests` makes what takes the requests to
        `$management` that come on a link without an address. `is_stopping`: whether the node ends."""
        limits, settlements, returns = config.limits, chores.settlements, chores.returns
        self.resolver = Resolver(config, catalog, forwarding, temporaries, authoriser)
        producers = RelayParts(
            limits, clock, links, memory, guard, large_receives, config, turns, room, disk, outbox, duplicates,
            identities, endings, temporaries, self.resolver, catalog, requests,
        )  # fmt: skip
        consumers = ConsumerParts(
            config, clock, work, links, memory, large_sends, catalog, turns, disk, outbox, endings, settlements,
            returns, temporaries, resting,
        )  # fmt: skip
        readers = ReaderParts(config, clock, work, links, memory, large_sends, temporaries, resting, store_names)
        self.resume = Resumption(
            limits, clock, turns, work, connections, links, memory, settlements, returns, producers, consumers,
            catalog.links, is_stopping=is_stopping,
        )  # fmt: skip
        subscriptions = LinkSubscriptions(catalog, self.resume, authoriser)
        producing = ProducerAttach(catalog, turns, self.resolver, self.resume, producers)
        consuming = ConsumerAttach(config.name, catalog, self.resolver, self.resume, subscriptions, consumers, readers)
        self.attaches = AttachTable(clock, memory, catalog, users, authoriser, reattached=self.resume.reattached)
        self.attaches.serve_others(receive=producing.receive, send=consuming.send)
