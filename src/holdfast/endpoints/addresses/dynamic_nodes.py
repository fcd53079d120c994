"""Dynamic nodes: queues in memory, and topics, that a link's attach creates and that end with the link (AMQP 1.0
§3.5.3, §3.5.10 to §3.5.13; CLIENTS 32).

Rules of this file: a name is random, never chosen by a client, and no queue that a client names can begin like it.
Nothing of these queues is stored. Their number is bounded for each connection, their bytes for the node. At the bound a
message is refused, because credit that is withheld for one node would wait for the readers of another.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, Protocol, TypeVar
from uuid import UUID

from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.types import Described, Symbol, Ulong
from holdfast.broker import deletion
from holdfast.broker.entries.kinds import QueueKind
from holdfast.broker.queue import Queue
from holdfast.broker.topic import Topic
from holdfast.endpoints.background_jobs import BackgroundJobs
from holdfast.peers.limits.memory import Memory
from holdfast.peers.link_tables import LinkTables
from holdfast.peers.peer import Peer
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from holdfast.state.catalog import Catalog

PREFIX: Final = "$temporary/"
NAME_BITS: Final = 128

ORPHANS_MAX: Final = 1_000
"""Nodes that their policy keeps after the link that created them has ended; at the bound the oldest is deleted."""

TEMPORARY_TOPIC: Final = Symbol("temporary-topic")
"""Capability that makes a dynamic terminus a topic (AMQP JMS mapping)."""

LIFETIME_POLICY: Final = Symbol("lifetime-policy")
ON_CLOSE: Final = Ulong(0x2B)
ON_NO_LINKS: Final = Ulong(0x2C)
ON_NO_MESSAGES: Final = Ulong(0x2D)
ON_NO_LINKS_OR_MESSAGES: Final = Ulong(0x2E)
_POLICIES: Final[dict[object, Ulong]] = {
    ON_CLOSE: ON_CLOSE, "amqp:delete-on-close:list": ON_CLOSE,
    ON_NO_LINKS: ON_NO_LINKS, "amqp:delete-on-no-links:list": ON_NO_LINKS,
    ON_NO_MESSAGES: ON_NO_MESSAGES, "amqp:delete-on-no-messages:list": ON_NO_MESSAGES,
    ON_NO_LINKS_OR_MESSAGES: ON_NO_LINKS_OR_MESSAGES,
    "amqp:delete-on-no-links-or-messages:list": ON_NO_LINKS_OR_MESSAGES,
}  # fmt: skip


class Detachable(Protocol):
    """A link to a queue."""

    def detach_with(self, reason: str, condition: str) -> None: ...


@dataclass(slots=True, eq=False)
class TemporaryQueue(Queue):
    """A dynamic node's queue. `creator` is the link that created it, None after its end."""

    dynamic_nodes: "DynamicNodes" = field(kw_only=True)
    policy: Ulong = ON_CLOSE
    owner: str | None = None
    """The user of its host who created it, None without a login."""
    peer: Peer | None = None
    creator: object = None
    topic: Topic | None = None
    """The topic, if this is the queue of one of its subscriptions that are not durable."""

    # `super()` does not work in a dataclass with slots.

    def retire_all(self, sequences: list[int], size: int) -> None:
        Queue.retire_all(self, sequences, size)
        self.dynamic_nodes.due[self] = None
        if isinstance(self.topic, TemporaryTopic):  # this may have been the last that waited
            self.dynamic_nodes.due[self.topic] = None

    def links(self, tables: LinkTables) -> list[Detachable]:
        """All that have it as their source or target."""
        consumers: list[Any] = [consumer for cursor in self.cursors for consumer in cursor.consumers]
        return [*consumers, *tables.readers_of(self), *tables.producers_of(self)]

    @property
    def held(self) -> int:
        """Messages that wait in it."""
        return self.messages


@dataclass(slots=True, eq=False)
class TemporaryTopic(Topic):
    """A dynamic node's topic; its subscriptions have queues of their own, and end with it. `creator` and `owner` as
    above."""

    policy: Ulong = ON_CLOSE
    owner: str | None = None
    peer: Peer | None = None
    creator: object = None

    def subscribed_queues(self) -> list[TemporaryQueue]:
        return [queue for queue in self.listeners if isinstance(queue, TemporaryQueue)]

    def links(self, tables: LinkTables) -> list[Detachable]:
        """All that have it as their source or target."""
        of_subscriptions = [link for queue in self.subscribed_queues() for link in queue.links(tables)]
        return [*of_subscriptions, *tables.producers_of(self)]

    @property
    def held(self) -> int:
        """Messages that wait for its subscriptions."""
        return self.messages + sum(queue.messages for queue in self.subscribed_queues())


Temporary = TemporaryQueue | TemporaryTopic


def properties_of(node: Temporary) -> dict[Any, Any]:
    """dynamic-node-properties of the answer to the attach: those that are applied."""
    return {LIFETIME_POLICY: Described(node.policy, [])}


Made = TypeVar("Made", TemporaryQueue, TemporaryTopic)


class DynamicNodes:
    """The dynamic nodes of a node. `due`: those that may have to end; checked at the end of the turn."""

    def __init__(
        self,
        limits: Limits,
        memory: Memory,
        catalog: Catalog,
        links: LinkTables,
        jobs: BackgroundJobs,
        rng: Random,
        *,
        new_uuid: Callable[[], UUID],
        forget_queue: Callable[[Queue], None],
    ) -> None:
        """`forget_queue(queue)`: forgets everything about a deleted queue."""
        self._limits = limits
        self._memory = memory
        self._catalog = catalog
        self._links = links
        self._jobs = jobs
        self._rng = rng
        self._new_uuid = new_uuid
        self._forget_queue = forget_queue
        self.due: dict[Temporary, None] = {}
        self.of_peer: dict[Peer, int] = {}
        memory.nodes_of = self.of_peer
        self._orphans: dict[Temporary, None] = {}

    @property
    def bytes_left(self) -> int:
        """How many bytes the messages of all of them may still use."""
        return self._memory.dynamic.room

    def create(self, peer: Peer, wanted: dict[Any, Any] | None) -> TemporaryQueue | None:
        """Creates a node with the `wanted` lifetime policy, or delete-on-close if that is unknown; None at a bound. It
        ends with the turn unless its `creator` is set.
        """
        if not self._has_place(peer):
            return None
        return self._begin(peer, TemporaryQueue(**self._fields(peer, wanted), dynamic_nodes=self))

    def create_topic(self, peer: Peer, wanted: dict[Any, Any] | None) -> TemporaryTopic | None:
        """As `create`, a topic."""
        return self._begin(peer, TemporaryTopic(**self._fields(peer, wanted))) if self._has_place(peer) else None

    def bound_reached_text(self, peer: Peer, what: str) -> str:
        """Why `create` has returned None, with the name of the bound. `what`: the noun in the text, such as `dynamic
        nodes`."""
        most = self._limits.dynamic_nodes_max
        if self.of_peer.get(peer, 0) >= most:
            return f"the connection has too many {what}; the limit is {most} (dynamic_nodes_max)"
        return f"the node has too many queues; the limit is {self._limits.queues_max} (queues_max)"

    def _has_place(self, peer: Peer) -> bool:
        return self.of_peer.get(peer, 0) < self._limits.dynamic_nodes_max and not self._catalog.full

    def _fields(self, peer: Peer, wanted: dict[Any, Any] | None) -> dict[str, Any]:
        memory, catalog = self._memory, self._catalog
        name = f"{PREFIX}{self._rng.getrandbits(NAME_BITS):032x}"
        return {
            "queue_id": catalog.next_queue_id,
            "name": name,
            "kind": QueueKind.DYNAMIC,
            "uuid": self._new_uuid(),
            "config": QueueConfig(name=name, durable=False, when_full="refuse", vhost=peer.host),
            "reader": catalog.store,
            "cached": memory.cached,
            "read_ahead": memory.read_ahead,
            "ranges": memory.ranges,
            "withheld": memory.withheld,
            "memory": memory.dynamic,
            "clock": catalog.clock,
            "work": catalog.work,
            "policy": _policy(wanted),
            "host": peer.host,
            "owner": peer.who,
            "peer": peer,
        }

    def _begin(self, peer: Peer, node: Made) -> Made:
        self._catalog.next_queue_id += 1
        self._catalog.queues[node.key] = node
        self.of_peer[peer] = self.of_peer.get(peer, 0) + 1
        self.due[node] = None
        return node

    def left(self, link: object, queue: Queue) -> None:
        """The link has left the queue, which may be that of a dynamic node or of a subscription of one."""
        topic = queue.topic if isinstance(queue, TemporaryQueue) else None
        for node in (queue, topic):
            if isinstance(node, Temporary):
                if node.creator is link:
                    node.creator = None
                self.due[node] = None

    def sweep(self) -> None:
        """Ends nodes that have to end; links to them are detached."""
        while self.due:
            queue = next(iter(self.due))
            del self.due[queue]
            try:
                self._sweep_one(queue)
            except Exception:
                self.due[queue] = None  # behind the others
                raise
            while len(self._orphans) > ORPHANS_MAX:
                self._end(next(iter(self._orphans)), f"{ORPHANS_MAX} are the most that outlive their link")

    def _sweep_one(self, queue: Temporary) -> None:
        if not self._catalog.has(queue):
            return
        if queue.creator is None and queue.peer is not None:
            self._uncount(queue)
            self._orphans[queue] = None
        if self._over(queue):
            self._end(queue, "its lifetime policy says so")

    def _over(self, queue: Temporary) -> bool:
        if queue.policy == ON_CLOSE:
            return queue.creator is None
        if queue.policy == ON_NO_MESSAGES:
            return queue.creator is None and not queue.held
        if queue.links(self._links):
            return False
        return queue.policy == ON_NO_LINKS or not queue.held

    def _end(self, queue: Temporary, reason: str) -> None:
        for link in queue.links(self._links):
            link.detach_with(f"dynamic node {queue.name!r} was deleted: {reason}", conditions.RESOURCE_DELETED)
        if queue.peer is not None:
            self._uncount(queue)
        self._jobs.forget(queue)
        self._forget_queue(queue)
        if isinstance(queue, TemporaryTopic):
            for subscribed in queue.subscribed_queues():
                self._end(subscribed, "its topic was deleted")
        elif queue.topic is not None:
            queue.topic.unlisten(queue)
            if isinstance(queue.topic, TemporaryTopic):
                self.due[queue.topic] = None
        deletion.forget_entries(queue)  # from here on nothing is called that could fail
        self._orphans.pop(queue, None)
        del self._catalog.queues[queue.key]
        deletion.part(queue)

    def _uncount(self, queue: Temporary) -> None:
        peer, queue.peer = queue.peer, None
        assert peer is not None
        self.of_peer[peer] -= 1
        if not self.of_peer[peer]:
            del self.of_peer[peer]


def _policy(wanted: dict[Any, Any] | None) -> Ulong:
    policy = (wanted or {}).get(LIFETIME_POLICY)
    descriptor = policy.descriptor if isinstance(policy, Described) else None
    return _POLICIES.get(descriptor, ON_CLOSE) if isinstance(descriptor, (Ulong, Symbol)) else ON_CLOSE
