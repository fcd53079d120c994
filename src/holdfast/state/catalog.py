"""The named things of a node: its queues, cursors, producers and origins, from the small tables of the store.

Rules of this file: tables are read once, at start; every change is added to the turn's batch. Queue ids are never used
again. Clients cannot use the names of transmission queues, `@NODE` or `@HOST@NODE`, and of remotes', `ADDRESS@NAME`.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final
from uuid import UUID

from holdfast.broker import deletion, tracking
from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.entries import delays
from holdfast.broker.entries.address import split_topic
from holdfast.broker.entries.entry_log import EntryLog
from holdfast.broker.entries.host_names import DEFAULT_HOST, HostedName, hosted
from holdfast.broker.entries.kinds import QueueKind
from holdfast.broker.entries.work import Work
from holdfast.broker.queue import Queue, rows_of
from holdfast.broker.stored import custody_records, records
from holdfast.broker.topic import Topic
from holdfast.engine.clock import Clock
from holdfast.errors import ConfigError
from holdfast.names import DEAD_LETTERS, check_name
from holdfast.peers.limits.memory import Memory
from holdfast.settings.node import NodeConfig
from holdfast.settings.queues import QueueConfig, check_queue_name
from holdfast.state import queue_records, steady
from holdfast.state.delivery_rows import DeliveryRows
from holdfast.state.ledger import Ledger
from holdfast.state.named_producers import NamedProducers
from holdfast.state.queue_records import TIMED_IN_CUSTODY, QueueRecord
from holdfast.state.queue_rows import QueueRows
from holdfast.state.restoring import Restoring
from holdfast.state.tables import Tables

WAITING: Final = "$waiting"
"""Messages from other nodes that wait for an earlier one, before they have a place in their queue."""

DELAYED: Final = "$delayed"
"""Messages that are not to be delivered yet, before they have a place in their queue."""
DELAYED_BY_DEFAULT: Final = hosted(DEFAULT_HOST, DELAYED)

OWN_QUEUES: Final = {
    DEAD_LETTERS: QueueKind.DEAD_LETTERS,
    WAITING: QueueKind.WAITING,
    DELAYED: QueueKind.DELAYED,
}
"""Made when first needed, at the bound on queues too, which does not count them: a message's end needs them."""


class TooManyQueues(ConfigError):
    """The maximum number of queues is reached."""


def check_topic(config: QueueConfig) -> None:
    """Raises ConfigError for settings that a topic cannot have."""
    if not config.durable:
        raise ConfigError(f"invalid value false for queue {config.name!r} durable; a topic is durable")
    if config.priorities:
        text = "a topic gives its subscriptions what is published in its order"
        raise ConfigError(f"invalid value true for queue {config.name!r} priorities; {text}")


def _kind_of(name: str, *, is_topic: bool) -> QueueKind:
    """The kind of a queue that is stored. No name of a client's has an `@`, or begins with `$` (names.check_name)."""
    if is_topic:
        return QueueKind.TOPIC
    if "@" in name:
        return QueueKind.TRANSMISSION if name.startswith("@") else QueueKind.REMOTE
    return OWN_QUEUES.get(name, QueueKind.ORDINARY)


def _is_made(queue: Queue) -> bool:
    """Whether it counts towards its virtual host's `queues_max`."""
    return queue.name not in OWN_QUEUES and not queue.in_transit


def names_topic(name: str) -> bool:
    """Whether a new queue with that name is a topic."""
    return "@" not in name and split_topic(name) == (name, "")


class Catalog:
    """Everything durable with a name. `new_uuid` draws from the node's own random numbers."""

    def __init__(
        self,
        config: NodeConfig,
        store: Tables,
        *,
        clock: Clock,
        work: Work[Queue],
        memory: Memory,
        new_uuid: Callable[[], UUID],
    ) -> None:
        self.config = config
        self.store = store
        self.clock = clock
        self.work = work
        self.new_uuid = new_uuid
        self.memory = memory
        self.told = {queue.key: queue for queue in config.queues}
        """What the node's file says of queues."""
        self.queues: dict[HostedName, Queue] = {}
        self.hosts = {DEFAULT_HOST: None} | {item.name: item for item in config.vhosts}
        """The virtual hosts by name; None: nothing is said of it in the node's file."""
        self.made: Counter[str] = Counter()
        """By virtual host: queues beside the node's own, but for dynamic nodes'."""
        self.producers = NamedProducers(config.limits.producers_max, clock, work, memory)
        self.former: UUID | None = None
        """Who the store was when these tables were last written, where it got a new UUID since."""
        self.by_id: dict[int, Queue] = {}
        self.transit: dict[str, Queue] = {}
        """Transmission queues by destination, of all virtual hosts."""
        self.leaving: dict[int, int] = {}
        """Ids of deleted queues whose entries are still leaving the disk, and the sequence where that continues."""
        self.ledger = Ledger(config.name, work, self.transit)
        self.next_queue_id = 1
        self.deliveries = DeliveryRows(work)
        self.rows = QueueRows(work, memory, self.deliveries, self.has)
        self._load()

    # ------------------------------------------------------------------------------------------------ start

    def _load(self) -> None:
        small = dict(self.store.table("node"))
        self.deliveries.read(small)
        self.clock.steady_ms = steady.at_start(small, self.clock.wall_ms)
        custody = list(self.store.table("custody"))
        self._load_identity(dict(custody).get(custody_records.NUMBERED_BY))
        restoring = Restoring(
            small, self.former, store=self.store, deliveries=self.deliveries, work=self.work, memory=self.memory
        )
        for key, data in self.store.table("queues"):
            self._load_queue(queue_records.unpack(key, data), restoring)
        for key in small:
            if key[:1] == records.LEAVING:
                queue_id = int.from_bytes(key[1:], "big")
                self.leaving[queue_id] = 0
                self.next_queue_id = max(self.next_queue_id, queue_id + 1)
        restoring.cursors(self.by_id)
        self.producers.load(self.store.table("producers"))
        self.ledger.load(small, self.store.table("origins"), custody, self.former)
        for queue_config in self.config.queues:
            if queue_config.key not in self.queues:
                self.create(queue_config)

    def _load_identity(self, numbered_by: bytes | None) -> None:
        """`numbered_by`: the store whose numbers these are."""
        if numbered_by != self.store.uuid.bytes:
            self.ledger.put_numbered_by(self.store.uuid)
            if numbered_by is not None:
                self.former = UUID(bytes=numbered_by)

    def _load_queue(self, stored: QueueRecord, restoring: Restoring) -> None:
        config = stored.config
        self.hosts.setdefault(config.vhost, None)  # no client can enter a host that the file lacks; its contents stay
        uuid = stored.uuid if self.former is None else self.new_uuid()
        told = self.told.get(config.key) or self.config.own_queue(config.name) or config
        settings = stored.settings(told)
        queue = self._new(settings, stored.queue_id, uuid, is_topic=stored.is_topic)
        self._add(queue)
        restoring.queue(queue, stored)
        if settings != config or stored.timed < TIMED_IN_CUSTODY or self.former is not None:
            self._store(queue)

    # ------------------------------------------------------------------------------------------------ queues

    def _new(self, config: QueueConfig, queue_id: int, uuid: UUID, *, is_topic: bool) -> Queue:
        if is_topic:
            check_topic(config)
        return (Topic if is_topic else Queue)(
            queue_id=queue_id,
            name=config.name,
            kind=_kind_of(config.name, is_topic=is_topic),
            uuid=uuid,
            config=config,
            reader=self.store,
            cached=self.memory.cached,
            read_ahead=self.memory.read_ahead,
            ranges=self.memory.ranges,
            withheld=self.memory.withheld,
            clock=self.clock,
            work=self.work,
            memory=None if config.durable else self.memory.queues,
            host=config.vhost,
        )

    def _add(self, queue: Queue) -> None:
        counts = _is_made(queue)  # from here on nothing can fail: the queue is there whole, or not at all
        self.next_queue_id = max(self.next_queue_id, queue.queue_id + 1)
        self.queues[queue.key] = self.by_id[queue.queue_id] = queue
        self.made[queue.host] += counts
        if queue.in_transit:
            self.transit[queue.destination] = queue

    def _store(self, queue: Queue, *, is_new: bool = False) -> None:
        told, is_topic = self.told.get(queue.key), queue.kind is QueueKind.TOPIC
        record = queue_records.pack(queue.queue_id, queue.uuid, queue.config, told, is_topic=is_topic)
        if is_new:
            self._add(queue)
        self.work.batch.puts["queues", queue.key.encode()] = record
        self.work.dirty_counters[queue] = None

    def create(self, config: QueueConfig) -> Queue:
        """Creates a queue; its record is in this turn's batch. ConfigError at the maximum number."""
        if self.full:
            found, most = self.queues_counted, self.config.limits.queues_max
            text = f"there are {found}, and the limit is {most} (queues_max)"
            raise TooManyQueues(f"queue {config.name!r} cannot be created; {text}")
        host = self.hosts.get(config.vhost)
        if host is not None and host.queues_max is not None and self.made[host.name] >= host.queues_max:
            text = f"virtual host {host.name!r} has {self.made[host.name]} queues, the most it may have"
            raise TooManyQueues(f"queue {config.name!r} cannot be created; {text} (queues_max)")
        return self.create_bounded(config)

    def change(self, queue: Queue, config: QueueConfig) -> None:
        """Changes bounds, and what happens at them; stored with this turn's batch. If the file names the queue, it wins
        at the first start after its entry was changed."""
        queue.config = config
        queue.set_bands()
        for cursor in queue.cursors:
            cursor.count_deliveries()
        self._store(queue)
        queue.touch()

    @property
    def consumers(self) -> Iterator[object]:
        """All consumers, of every cursor of every queue."""
        return (consumer for queue in self.queues.values() for cursor in queue.cursors for consumer in cursor.consumers)

    def delayed_room(self, host: str) -> int:
        """How many more messages may be delayed in that host; those of open transactions count."""
        delayed = self.queues.get(hosted(host, DELAYED) if host else DELAYED_BY_DEFAULT)
        held = 0 if delayed is None else delayed.messages + delayed.reserved
        return max(0, self.config.limits.delayed_max - held)

    def delayed_full(self, host: str) -> str:
        """Why no more messages may be delayed in that host; "" if one may."""
        most = self.config.limits.delayed_max
        return "" if self.delayed_room(host) else f"{most} messages are delayed, the most there may be (delayed_max)"

    def is_delayed(self, queue: Queue | None, value: bytes) -> bool:
        """Whether the message of an entry for that queue is not to be delivered yet."""
        if queue is None or value[24:28] == b"\0\0\0\0" or not queue.may_delay:
            return False
        return delays.due_of(value, self.clock.steady_ms, self.clock.wall_ms) is not None

    @property
    def queues_counted(self) -> int:
        """Queues that count towards `queues_max`."""
        return len(self.queues) - sum(hosted(host, name) in self.queues for host in self.hosts for name in OWN_QUEUES)

    @property
    def full(self) -> bool:
        """Whether no further queue may be created for a client."""
        return self.queues_counted >= self.config.limits.queues_max

    def create_bounded(self, config: QueueConfig) -> Queue:
        """As `create`, for a queue whose kind is bounded elsewhere."""
        queue = self._new(config, self.next_queue_id, self.new_uuid(), is_topic=names_topic(config.name))
        self._store(queue, is_new=True)
        return queue

    def delete(self, queue: Queue) -> None:
        """Deletes a queue that no link uses, at once; its entries leave the disk in later turns. The caller removes it
        from the turn's work (broker/deletion.py)."""
        batch, queue_id = self.work.batch, queue.queue_id
        leaving_key = ("node", records.leaving_key(queue_id))
        keys = [("queues", queue.key.encode()), ("node", records.counters_key(queue_id))]
        keys += [("node", records.timed_key(queue_id)), ("node", records.tombstones_key(queue_id))]
        cursors = ("", *queue.named, *queue.deleted_cursors)
        keys += [("subscriptions", records.cursor_key(queue_id, name)) for name in cursors]
        keys += [("node", records.binding_key(queue_id, name)) for name in cursors if queue.kind is QueueKind.TOPIC]
        keys += [("node", key) for cursor in queue.cursors for key in rows_of(cursor)]
        keys += [("node", key) for key in queue.deleted_rows]
        producers = {producer.key: producer for producer in self.producers.values() if producer.address == queue.key}
        keys += [("producers", key) for key in producers]
        destination, made = queue.destination or None, _is_made(queue)
        kept = [item for item in batch.appends if item[0] != queue_id]
        taken_bytes = sum([len(value) for number, _, value in batch.appends if number == queue_id])
        # Appends of the commit in flight are on disk when this batch is applied.
        retires = [(queue_id, sequence) for sequence in range(queue.visible, queue.next_sequence)]
        for producer in producers.values():
            self.memory.ranges.refund(producer.counted_bytes)
            producer.counted_bytes = 0
        for sequence in list(queue.cache):
            queue.uncache(sequence)
        deletion.forget_entries(queue)  # from here on nothing is called that could fail: a queue is deleted completely
        for key in keys:
            batch.puts.pop(key, None)
        batch.deletes += keys
        if queue.config.durable and queue.messages:
            self.leaving[queue_id] = 0
            batch.puts[leaving_key] = b"\1"
        batch.appends[:] = kept
        batch.bytes_appended -= taken_bytes
        batch.retires += retires
        for producer_key in producers:
            del self.producers[producer_key]
        del self.queues[queue.key], self.by_id[queue_id]
        self.made[queue.host] -= made
        if destination is not None:
            del self.transit[destination]

    def has(self, queue: EntryLog) -> bool:
        """Whether the queue exists: it was not deleted, nor created again under its name."""
        return self.queues.get(queue.key) is queue

    def has_cursor(self, cursor: Cursor) -> bool:
        """Whether the cursor and its queue exist."""
        queue = self.queues.get(cursor.queue.key)
        return queue is not None and queue is cursor.queue and cursor in (queue.shared, queue.named.get(cursor.name))

    def queue_of(self, cursor: Cursor) -> Queue:
        """The cursor's queue, which must exist."""
        return self.queues[cursor.queue.key]

    def has_left(self, queue_id: int) -> None:
        """The last entries of that deleted queue leave the disk with this turn's batch."""
        del self.leaving[queue_id]
        self.work.batch.puts.pop(("node", records.leaving_key(queue_id)), None)
        self.work.batch.deletes.append(("node", records.leaving_key(queue_id)))

    def subscriptions_full(self, queue: Queue, more: Sequence[Queue] = ()) -> str | None:
        """Why `queue` may not have a further subscription; None if it may. `more`: queues that get one before it."""
        limits, here = self.config.limits, len(queue.named) + sum(each is queue for each in more)
        if here >= limits.queue_subscriptions_max:
            return f"queue {queue.name!r} has {here} subscriptions, the most it may have (queue_subscriptions_max)"
        if not queue.named and tracking.is_crowded(queue.shared):
            held = len(queue.shared.below_position())
            return (
                f"queue {queue.name!r}: its consumers hold {held} messages unsettled, too many to begin a subscription"
            )
        total = len(more) + sum(len(each.named) for each in self.queues.values())
        if total >= limits.subscriptions_max:
            return f"{total} subscriptions are here, the most there may be (subscriptions_max)"
        return None

    def find(self, host: str, name: str) -> Queue | None:
        """The queue with exactly that name in that host; None if there is none."""
        return self.queues.get(hosted(host, name))

    def of_host(self, host: str) -> Iterator[Queue]:
        """The queues of that host."""
        return (queue for queue in self.queues.values() if queue.host == host)

    def local(self, host: str, name: str) -> Queue | None:
        """The queue of that name in that host, created if the node creates queues on demand; None if there is none."""
        queue = self.find(host, name)
        if queue is None and name == DEAD_LETTERS:
            queue = self.own(host, name)
        if queue is None and (found := split_topic(name)) is not None:
            queue = self.find(host, found[0])
            if queue is None and self.config.create_queues:
                queue = self.create(QueueConfig(name=check_name(found[0]), vhost=host))
            if queue is not None and queue.kind is not QueueKind.TOPIC:  # it got this name before there were topics
                queue = None
        if queue is None and self.config.create_queues:
            queue = self.create(QueueConfig(name=check_queue_name(name), vhost=host))
        return queue

    def topics(self) -> list[Topic]:
        """All topics."""
        return [queue for queue in self.queues.values() if isinstance(queue, Topic)]

    def local_or_none(self, host: str, name: str) -> Queue | None:
        """As `local`; also None for an invalid name, and at the maximum number of queues, because the name came from
        another node."""
        queue = self.queues.get(hosted(host, name))
        if queue is not None and (queue.kind is QueueKind.ORDINARY or queue.kind is QueueKind.TOPIC):
            return queue  # its name was checked when it was created
        try:
            return self.local(host, name if name == DEAD_LETTERS else check_name(name))
        except ConfigError:
            return None

    def own(self, host: str, name: str) -> Queue:
        """That host's queue of OWN_QUEUES, created if needed."""
        return self.find(host, name) or self.create_bounded(QueueConfig(name=name, vhost=host))

    def transmission(self, destination: str, *, known: bool = True) -> Queue:
        """The one transmission queue for that destination, in its virtual host (amqp-illustrations, "Message Relay").
        Known nodes are bounded elsewhere, and do not count towards the maximum number of queues; else TooManyQueues."""
        if (queue := self.transit.get(destination)) is not None:
            return queue
        config = self.config.transmission(destination)
        return self.create_bounded(config) if known else self.create(config)

    def transmissions(self) -> list[tuple[str, Queue]]:
        """(destination, queue) of each, by name."""
        return sorted(self.transit.items())

    # ------------------------------------------------------------------------------------------------ turns

    def before_stop(self) -> None:
        """Before a proper stop: stores exactly what was shown, instead of the watermark."""
        self.rows.before_stop(self.queues.values())
        steady.put(self.work.batch, self.clock)
