"""Builds the endpoints of clients: what their links share, the handlers of attaches, and what outlives links.

Rules of this file: it builds and connects, and contains no rules.
"""

from collections.abc import Callable, Container
from random import Random

from holdfast.amqp.connection import Receiver
from holdfast.broker.entries.work import Work
from holdfast.broker.queue import Queue
from holdfast.custody.arrival.duplicates import Duplicates
from holdfast.custody.dead_lettering import DeadLettering
from holdfast.custody.forwarding import Forwarding
from holdfast.custody.names.identity import Identities
from holdfast.custody.names.store_names import StoreNames
from holdfast.endpoints.addresses.attach import AttachTable
from holdfast.endpoints.addresses.dynamic_nodes import DynamicNodes
from holdfast.endpoints.addresses.node_drain import NodeDrain
from holdfast.endpoints.addresses.remote_queues import RemoteQueues
from holdfast.endpoints.addresses.resolver import Resolver
from holdfast.endpoints.addresses.services import Services
from holdfast.endpoints.admission import Admission
from holdfast.endpoints.attaching.consumer_attach import ConsumerAttach
from holdfast.endpoints.attaching.filters import Decoded
from holdfast.endpoints.attaching.producer_attach import ProducerAttach
from holdfast.endpoints.attaching.subscriptions import LinkSubscriptions
from holdfast.endpoints.attaching.topic_attach import TopicAttach
from holdfast.endpoints.background_jobs import BackgroundJobs
from holdfast.endpoints.browser import ReaderParts
from holdfast.endpoints.consumer import ConsumerParts
from holdfast.endpoints.publishers import Publishers
from holdfast.endpoints.relay import RelayParts, Requests
from holdfast.endpoints.remotes.remote import RemoteParts
from holdfast.endpoints.remotes.remotes import Remotes
from holdfast.endpoints.resumption.resume import Resumption
from holdfast.endpoints.spreading import Spreading
from holdfast.endpoints.stored_answers import StoredAnswers
from holdfast.endpoints.too_large import TooLarge
from holdfast.endpoints.topic_bindings import TopicBindings
from holdfast.endpoints.transactions.coordinator import CoordinatorParts
from holdfast.endpoints.transactions.discharge import CommitParts, Commits
from holdfast.endpoints.transactions.transactional_work import TransactionalWork, WorkParts
from holdfast.endpoints.transactions.transactions import TransactionParts, Transactions
from holdfast.engine.clock import Clock
from holdfast.engine.log import Log
from holdfast.engine.outbox import Outbox
from holdfast.links.disk import Disk
from holdfast.links.large_receives import LargeReceives
from holdfast.links.large_sends import LargeSends
from holdfast.peers.authorise import Authoriser
from holdfast.peers.connections import Connections
from holdfast.peers.limits.guard import Guard
from holdfast.peers.limits.memory import Memory
from holdfast.peers.link_tables import LinkTables
from holdfast.peers.peer import Peer
from holdfast.peers.users import Users
from holdfast.settings.node import NodeConfig
from holdfast.state.blobs import Blobs
from holdfast.state.catalog import Catalog
from holdfast.state.configured_subscriptions import ConfiguredSubscriptions
from holdfast.state.room import Room
from holdfast.state.tables import Tables
from holdfast.state.turns import Turns


class Endpoints:
    """`attaches`: the handlers of addresses; those of the node's own are registered elsewhere. `resume`: what is kept
    of links that ended. `resolver`: what an address means.
    `remotes`: the brokers that are no nodes."""

    def __init__(
        self,
        config: NodeConfig,
        store: Tables,
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
        dead_lettering: DeadLettering,
        forwarding: Forwarding,
        store_names: StoreNames,
        jobs: BackgroundJobs,
        remote_queues: RemoteQueues,
        dynamic_nodes: DynamicNodes,
        authoriser: Authoriser,
        node_drain: NodeDrain,
        blobs: Blobs,
        streams: Container[object],
        rng: Random,
        log: Log,
        bindings: TopicBindings,
        spreading: Spreading,
        configured: ConfiguredSubscriptions,
        resting: Container[object],
        requests: Callable[[Peer, Receiver], Requests],
        is_stopping: Callable[[], bool],
    ) -> None:
        """`streams`: large messages that are arriving. `resting`: what is paused after a failure, queues among them.
        `requests` creates the handler of requests to `$management` on a link without an address. `is_stopping`: whether
        the node is stopping."""
        limits, settlements, returns = config.limits, jobs.settlements, jobs.returns
        self.admission = Admission(clock, catalog)
        self.transactions = transactions = Transactions(
            TransactionParts(limits, clock, memory, catalog, blobs, connections, links, rng)
        )
        transactional_work = TransactionalWork(
            WorkParts(limits, memory, catalog, blobs, duplicates, self.admission), transactions
        )
        commits = Commits(
            CommitParts(
                config, catalog, turns, work, room, disk, memory, outbox, identities, dead_lettering, streams,
                spreading,
            ),
            transactions,
        )  # fmt: skip
        publishers = Publishers(clock)
        services = Services(config, turns, store.table("node"))
        self.resolver = Resolver(
            config, catalog, forwarding, remote_queues, dynamic_nodes, services, authoriser, admit=node_drain.admit
        )
        producers = RelayParts(
            limits, clock, links, memory, guard, large_receives, config, turns, room, disk, outbox, duplicates,
            identities, dead_lettering, dynamic_nodes, self.resolver, transactional_work, catalog, publishers,
            self.admission, spreading, requests,
        )  # fmt: skip
        self.too_large = TooLarge(clock, turns, links, dead_lettering)
        consumers = ConsumerParts(
            config, clock, work, links, memory, large_sends, catalog, turns, disk, outbox, dead_lettering, settlements,
            returns, dynamic_nodes, transactional_work, self.too_large, resting,
        )  # fmt: skip
        readers = ReaderParts(
            config, clock, work, links, memory, large_sends, dynamic_nodes, resting, store_names, transactions
        )
        self.resume = Resumption(
            limits, clock, turns, work, connections, links, memory, settlements, returns, producers, consumers,
            catalog.ledger.links, is_stopping=is_stopping,
        )  # fmt: skip
        remotes = RemoteParts(clock, rng, outbox, log, connections, consumers, producers)
        self.remotes = Remotes(remotes, remote_queues)
        subscriptions = LinkSubscriptions(catalog, self.resume, authoriser)
        coordinators = CoordinatorParts(links, transactions, commits)
        producing = ProducerAttach(catalog, turns, self.resolver, self.resume, producers, coordinators)
        decoded = Decoded()
        topics = TopicAttach(limits, catalog, dynamic_nodes, self.resume, decoded, publishers, configured)
        consuming = ConsumerAttach(
            config.name,
            catalog,
            self.resolver,
            self.resume,
            subscriptions,
            topics,
            consumers,
            readers,
            decoded,
            bindings,
            StoredAnswers(turns),
        )
        self.attaches = AttachTable(
            clock, memory, catalog, users, authoriser, ask=self.resolver.ask, reattached=self.resume.reattached
        )
        self.attaches.serve_others(receive=producing.receive, send=consuming.send)
