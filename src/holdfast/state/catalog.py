"""The named things of a node: its queues, cursors, producers and origins, from the small tables of the store.

Rules of this file: tables are read once, at start; every change is added to the turn's batch. Queue ids are never used
again. Transmission queues have names `@NODE`, those of another virtual host `@HOST@NODE`, which clients cannot use.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, Protocol
from uuid import UUID

from holdfast.broker import deletion, tracking
from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.entries import delays
from holdfast.broker.entries.address import split_topic
from holdfast.broker.entries.entry_log import EntryLog
from holdfast.broker.entries.host_names import DEFAULT_HOST, HostedName, hosted, read_key
from holdfast.broker.entries.kinds import QueueKind
from holdfast.broker.entries.work import Work
from holdfast.broker.queue import COUNTERS, Queue, rows_of
from holdfast.broker.stored import records
from holdfast.broker.stored.ranges import RangeSet
from holdfast.broker.topic import Topic
from holdfast.engine.clock import Clock
from holdfast.engine.port import EntryReader, Rows, Space
from holdfast.errors import ConfigError
from holdfast.names import check_name
from holdfast.peers.limits.memory import Memory
from holdfast.settings.node import NodeConfig
from holdfast.settings.queues import QueueConfig
from holdfast.state.delivery_rows import DeliveryRows
from holdfast.state.ledger import Ledger
from holdfast.state.named_producers import NamedProducers
from holdfast.state.queue_settings import (
    CONFIG_FIELDS,
    LATER_FIELDS,
    TOLD_FIELD,
    check_empty,
    check_topic,
    stored_fields,
    told_fields,
)

DEAD_LETTERS: Final = "$dead-letters"
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

STEADY_KEY: Final = b"steady"
TOPIC_FIELD: Final = "topic"
"""Of a topic's record."""
TIMED_FIELD: Final = "timed"
"""Of a queue's record: it was written by a version that stores where its entries with a time to live are; with
TIMED_IN_CUSTODY, by one that does so for transmission queues and `$waiting` too."""
TIMED_IN_CUSTODY: Final = 2
COUNTS_MAX: Final = 10_000
"""Delivery counts kept over a proper stop."""


class TooManyQueues(ConfigError):
    """The maximum number of queues is reached."""


class Tables(EntryReader, Protocol):
    """What the core needs of an open store."""

    uuid: UUID
    copied: str | None

    on_disk: bool

    @property
    def shared_bytes(self) -> int: ...
    @property
    def pieces_a_byte(self) -> int: ...
    def gone(self) -> str | None: ...
    def space(self) -> Space: ...
    def table(self, name: str) -> Iterator[tuple[bytes, bytes]]: ...
    def draw_uuid(self) -> UUID: ...
    def mint(self, rows: Callable[[UUID], Rows] | None = None) -> UUID: ...
    def room_bytes(self) -> int: ...
    def room_bytes_possible(self) -> int: ...
    def room_bytes_most(self) -> int: ...


def _kind_of(name: str, *, is_topic: bool) -> QueueKind:
    """The kind of a queue that is stored. No name of a client's begins with `@` or `$` (names.check_name)."""
    if is_topic:
        return QueueKind.TOPIC
    return QueueKind.TRANSMISSION if name.startswith("@") else OWN_QUEUES.get(name, QueueKind.ORDINARY)


def _is_made(queue: Queue) -> bool:
    """Whether it counts as one that its virtual host made."""
    return queue.name not in OWN_QUEUES and not queue.in_transit


def names_topic(name: str) -> bool:
    """Whether a new queue with that name is a topic."""
    return split_topic(name) == (name, "")


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
        """Ids of deleted queues whose entries still leave the disk, and the sequence where that goes on."""
        self.ledger = Ledger(config.name, work, self.transit)
        self.next_queue_id = 1
        self.tied: dict[Cursor, dict[int, None]] = {}
        """By cursor that remembers what it finished: sequences that are finished once a transaction is stored."""
        self.deliveries = DeliveryRows(work)
        self._load()

    # ------------------------------------------------------------------------------------------------ start

    def _load(self) -> None:
        store = self.store
        settings = self.told
        small = dict(store.table("node"))
        self.deliveries.read(small)
        self.clock.steady_ms = max(self.clock.steady_ms, int.from_bytes(small.get(STEADY_KEY, b""), "big"))
        custody = list(store.table("custody"))
        numbered_by = dict(custody).get(records.NUMBERED_BY)
        if numbered_by != store.uuid.bytes:
            self.ledger.put_numbered_by(store.uuid)
            if numbered_by is not None:
                self.former = UUID(bytes=numbered_by)
        for key, data in store.table("queues"):
            host, name = read_key(key.decode())
            self.hosts.setdefault(
                host, None
            )  # no client can enter a host that the file does not have any more; its contents stay
            fields = records.unpack_map(data)
            stored = QueueConfig(
                name=name, vhost=host, **LATER_FIELDS | {key: fields[key] for key in CONFIG_FIELDS if key in fields}
            )
            uuid = fields["uuid"] if self.former is None else self.new_uuid()
            is_transit = name.startswith("@")
            told = self.config.transmission(name[1:]) if is_transit else settings.get(stored.key, stored)
            if told != stored and LATER_FIELDS | fields.get(TOLD_FIELD, {}) == told_fields(told):
                told = stored  # changed by an operator since, and the file is unchanged
            is_topic = bool(fields.get(TOPIC_FIELD))
            queue = self._make(told, int(fields["id"]), uuid, is_topic=is_topic)
            counters = small.get(records.counters_key(queue.queue_id))
            if counters is not None and stored.durable and not queue.config.durable:
                check_empty(name, COUNTERS.unpack(counters)[1])
            if counters is not None and queue.config.durable:
                queue.next_sequence, queue.messages, queue.bytes_held, watermark = COUNTERS.unpack(counters)
                queue.visible = queue.next_sequence
                if self.former is not None:  # it is not known what it showed meanwhile
                    watermark = queue.next_sequence
                queue.shared.watermark = watermark
                self.deliveries.begin_life(queue, queue.shared)
            tombstones = small.get(records.tombstones_key(queue.queue_id))
            if tombstones is not None:
                queue.tombstones, queue.tombstones_stored = int.from_bytes(tombstones, "big"), True
            counts = small.get(b"c" + records.counters_key(queue.queue_id))
            if counts is not None:
                queue.shared.counts = {  # an earlier version kept some of entries that had left
                    sequence: count
                    for sequence, count in records.PAIRS.iter_unpack(counts)
                    if store.get(queue.queue_id, sequence) is not None
                }
                # The counts are forgotten now: after a crash all up to the last of them counts as shown.
                queue.shared.count_deliveries()
                if not queue.shared.is_counted:
                    queue.shared.watermark = max([queue.shared.watermark, *(last + 1 for last in queue.shared.counts)])
                self.work.dirty_counters[queue] = None
                self.work.batch.deletes.append(("node", b"c" + records.counters_key(queue.queue_id)))
            timed, looked_after = small.get(records.timed_key(queue.queue_id)), int(fields.get(TIMED_FIELD, 0))
            if timed is not None:
                queue.timed = records.PAIRS.unpack(timed)
            elif looked_after < (TIMED_IN_CUSTODY if queue.holds_custody else 1) and queue.config.durable:
                queue.set_timed((0, queue.next_sequence))  # an earlier version kept no such row
            if told != stored or looked_after < TIMED_IN_CUSTODY or self.former is not None:
                self._store(queue)
        for key in small:
            if key[:1] == records.LEAVING:
                queue_id = int.from_bytes(key[1:], "big")
                self.leaving[queue_id] = 0
                self.next_queue_id = max(self.next_queue_id, queue_id + 1)
        for key, data in store.table("subscriptions"):
            queue_id, name = records.split_cursor_key(key)
            if queue_id in self.by_id:
                self._load_cursor(self.by_id[queue_id], name, records.unpack_cursor(data))
        for key, data in small.items():
            if key[:1] == records.BINDING:
                queue_id, name = records.split_cursor_key(key[1:])
                topic = self.by_id.get(queue_id)
                if isinstance(topic, Topic) and name in topic.named:
                    topic.bindings[name] = records.unpack_binding(data)
        self.deliveries.begin(self.by_id)
        for queue in self.queues.values():
            if queue.named:
                queue.reclaim()
            elif queue.shared.tracked:  # its last subscription was deleted, and what that kept had not all left
                queue.untrack()
        self.producers.load(store.table("producers"))
        self.ledger.load(small, store.table("origins"), custody, self.former)
        for queue_config in self.config.queues:
            if queue_config.key not in self.queues:
                self.create(queue_config)

    def _load_cursor(self, queue: Queue, name: str, record: records.CursorRecord) -> None:
        if name:
            cursor = Cursor(queue, queue, name, mode="take" if record.taking else "copy", floor=record.floor)
            cursor.count_deliveries()
            queue.named[name] = cursor
            watermark = record.watermark if self.former is None else max(record.watermark, queue.next_sequence)
            cursor.watermark = watermark
            self.deliveries.begin_life(queue, cursor)
            if self.former is not None:
                queue.dirty(cursor)
        else:
            cursor = queue.shared
            cursor.tracked = True
            cursor.floor = cursor.position = record.floor
        cursor.lease_epoch = record.lease_epoch
        cursor.finished = record.finished
        self.memory.count_ranges(cursor, cursor.finished)

    # ------------------------------------------------------------------------------------------------ queues

    def _make(self, config: QueueConfig, queue_id: int, uuid: UUID, *, is_topic: bool) -> Queue:
        if is_topic:
            check_topic(config)
        queue = (Topic if is_topic else Queue)(
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
        self.queues[queue.key] = self.by_id[queue_id] = queue
        self.made[queue.host] += _is_made(queue)
        if queue.in_transit:
            self.transit[queue.destination] = queue
        self.next_queue_id = max(self.next_queue_id, queue_id + 1)
        return queue

    def _store(self, queue: Queue) -> None:
        fields = stored_fields(queue.config)
        told = self.told.get(queue.key)
        if told is not None and told != queue.config:
            fields[TOLD_FIELD] = stored_fields(told)
        if queue.kind is QueueKind.TOPIC:
            fields[TOPIC_FIELD] = True
        record = records.pack_map({"id": queue.queue_id, "uuid": queue.uuid, TIMED_FIELD: TIMED_IN_CUSTODY, **fields})
        self.work.batch.puts["queues", queue.key.encode()] = record
        self.work.dirty_counters[queue] = None

    def create(self, config: QueueConfig) -> Queue:
        """Creates a queue; its record is in this turn's batch. ConfigError at the maximum number."""
        if self.full:
            found, most = self.queues_counted, self.config.limits.queues_max
            raise TooManyQueues(f"queue {config.name!r} cannot be created; there are {found}, and the limit is {most}")
        host = self.hosts.get(config.vhost)
        if host is not None and host.queues_max is not None and self.made[host.name] >= host.queues_max:
            text = f"virtual host {host.name!r} has {self.made[host.name]} queues, the most it may have"
            raise TooManyQueues(f"queue {config.name!r} cannot be created; {text} (queues_max)")
        return self._create(config)

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
        return "" if self.delayed_room(host) else f"{most} messages are delayed, the most there may be"

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

    def _create(self, config: QueueConfig) -> Queue:
        queue = self._make(config, self.next_queue_id, self.new_uuid(), is_topic=names_topic(config.name))
        self._store(queue)
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
        """With this turn's batch, the last entries of that deleted queue leave the disk."""
        del self.leaving[queue_id]
        self.work.batch.puts.pop(("node", records.leaving_key(queue_id)), None)
        self.work.batch.deletes.append(("node", records.leaving_key(queue_id)))

    def subscriptions_full(self, queue: Queue) -> str | None:
        """Why `queue` may not have a further subscription; None if it may."""
        limits = self.config.limits
        if len(queue.named) >= limits.queue_subscriptions_max:
            return f"queue {queue.name!r} has {len(queue.named)} subscriptions, the most that one may have"
        if not queue.named and tracking.is_crowded(queue.shared):
            held = len(queue.shared.below_position())
            return (
                f"queue {queue.name!r}: its consumers hold {held} messages unsettled, too many to begin a subscription"
            )
        total = sum(len(each.named) for each in self.queues.values())
        return f"{total} subscriptions are here, the most there may be" if total >= limits.subscriptions_max else None

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
            queue = self.create(QueueConfig(name=check_name(name), vhost=host))
        return queue

    def topics(self) -> list[Topic]:
        """All topics."""
        return [queue for queue in self.queues.values() if isinstance(queue, Topic)]

    def bind(self, topic: Topic, name: str, wants: records.BindingRecord) -> None:
        """Stores what that subscription wants with the turn's batch."""
        topic.bindings[name] = wants
        self.work.batch.puts["node", records.binding_key(topic.queue_id, name)] = records.pack_binding(wants)

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
        return self.find(host, name) or self._create(QueueConfig(name=name, vhost=host))

    def transmission(self, destination: str, *, known: bool = True) -> Queue:
        """The one transmission queue for that destination, in its virtual host (amqp-illustrations, "Message Relay").

        The queues of known nodes do not count towards the maximum number of queues, because these nodes are bounded
        elsewhere; for other nodes TooManyQueues.
        """
        queue = self.transit.get(destination)
        if queue is not None:
            return queue
        config = self.config.transmission(destination)
        return self._create(config) if known else self.create(config)

    def transmissions(self) -> list[tuple[str, Queue]]:
        """(destination, queue) of each, by name."""
        return sorted(self.transit.items())

    # ------------------------------------------------------------------------------------------------ turns

    def put_counters(self) -> tuple[list[tuple[Cursor, int]], list[tuple[Cursor, frozenset[int]]]]:
        """Adds counters and cursors of changed queues to the batch; returns (cursor, watermark) that hold once it is
        stored, and (cursor, sequences) whose failed deliveries it stores. Until `counters_put` they count as changed.
        """
        watermarks: list[tuple[Cursor, int]] = []
        counts: list[tuple[Cursor, frozenset[int]]] = []
        batch = self.work.batch
        for queue in list(self.work.dirty_counters):
            if not queue.config.durable or not self.has(queue):
                continue
            queue.before_commit()
            watermarks += self._put_cursors(queue)
            counts += self.deliveries.put(queue)
            batch.puts["node", records.counters_key(queue.queue_id)] = queue.counters()
            tombstones = queue.tombstone_count()
            if tombstones is not None:
                batch.puts["node", records.tombstones_key(queue.queue_id)] = tombstones
            if queue.shared.watermark > queue.shared.watermark_stored:
                watermarks.append((queue.shared, queue.shared.watermark))
        return watermarks, counts

    def counters_put(self) -> None:
        """The batch with them was handed over. Calls nothing that could fail."""
        for queue in self.work.dirty_counters:
            queue.deleted_cursors.clear()
            queue.dirty_cursors.clear()
            self.deliveries.were_put(queue)
        self.work.dirty_counters.clear()

    def _put_cursors(self, queue: Queue) -> list[tuple[Cursor, int]]:
        """The records of `queue`'s cursors that changed or went."""
        watermarks: list[tuple[Cursor, int]] = []
        batch = self.work.batch
        for name in queue.deleted_cursors:
            keys = [("subscriptions", records.cursor_key(queue.queue_id, name))]
            if queue.kind is QueueKind.TOPIC:
                keys.append(("node", records.binding_key(queue.queue_id, name)))
            for key in keys:
                batch.puts.pop(key, None)
                batch.deletes.append(key)
        for name, cursor in queue.dirty_cursors.items():
            floor, finished = self._with_tied(cursor) if cursor in self.tied else (cursor.floor, cursor.finished)
            record = records.CursorRecord(cursor.mode == "take", floor, cursor.watermark, cursor.lease_epoch, finished)
            batch.puts["subscriptions", records.cursor_key(queue.queue_id, name)] = records.pack_cursor(record)
            if isinstance(queue, Topic) and name in queue.deleted_cursors and name in queue.bindings:  # made anew
                self.bind(queue, name, queue.bindings[name])
            self.memory.count_ranges(cursor, cursor.finished)
            watermarks.append((cursor, cursor.watermark))
        return watermarks

    def _with_tied(self, cursor: Cursor) -> tuple[int, RangeSet]:
        """Floor and finished ranges of the cursor once the batch that is gathered or under way is on disk."""
        finished = cursor.finished.copy()
        for sequence in self.tied[cursor]:
            if sequence >= cursor.floor:
                finished.add(sequence)
        floor = max(cursor.floor, finished.end_of_run(cursor.floor) + 1)
        finished.drop_below(floor)
        return floor, finished

    def before_stop(self) -> None:
        """Before a proper stop: stores exactly what was shown, instead of the watermark."""
        for queue in self.queues.values():
            self.deliveries.before_stop(queue)
            shared = queue.shared
            if not queue.config.durable or not shared.watermark or len(shared.counts) > COUNTS_MAX:
                continue
            if shared.shown_below > queue.head():
                continue  # some entries that an earlier run may have shown are still here: keep the watermark
            shared.watermark = shared.watermark_stored = 0
            counts = b"".join(records.PAIRS.pack(*pair) for pair in sorted(shared.counts.items()))
            if counts:
                self.work.batch.puts["node", b"c" + records.counters_key(queue.queue_id)] = counts
            self.work.dirty_counters[queue] = None
        self.work.batch.puts["node", STEADY_KEY] = self.clock.steady_ms.to_bytes(8, "big")
