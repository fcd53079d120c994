"""A queue and its cursors as they were when the node stopped, from the rows of tables `node` and `subscriptions`.

Rules of this file: a row that only a proper stop leaves is deleted with the first turn, because a crash must not find
it again. If the store got a new UUID, every entry in it counts as possibly delivered.
"""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.entries.work import Work
from holdfast.broker.queue import COUNTERS, Queue
from holdfast.broker.stored import records
from holdfast.broker.topic import Topic
from holdfast.errors import ConfigError
from holdfast.peers.limits.memory import Memory
from holdfast.state.delivery_rows import DeliveryRows
from holdfast.state.queue_records import TIMED_IN_CUSTODY, QueueRecord
from holdfast.state.tables import Tables

COUNTS: Final = b"c"
"""Before a queue's counters key: the delivery counts that a proper stop stored."""


def _check_empty(name: str, messages: int) -> None:
    """Refuses to make a durable queue with messages one in memory, because its accepted messages would be invisible."""
    if messages:
        text = f"expected true while {messages} messages of it are stored"
        raise ConfigError(f"invalid value false for queue {name!r} durable; {text}")


class Restoring:
    """Restores queues at a start. `rows`: table `node`; `former`: the earlier identity of the store, if it got a new
    UUID."""

    def __init__(
        self,
        rows: Mapping[bytes, bytes],
        former: UUID | None,
        *,
        store: Tables,
        deliveries: DeliveryRows,
        work: Work[Queue],
        memory: Memory,
    ) -> None:
        self._rows = rows
        self._former = former
        self._store = store
        self._deliveries = deliveries
        self._work = work
        self._memory = memory

    def queue(self, queue: Queue, stored: QueueRecord) -> None:
        """Restores the queue's counters, delivery counts, tombstones, and the position of messages with a time to
        live."""
        rows = self._rows
        counters = rows.get(records.counters_key(queue.queue_id))
        if counters is not None:
            self._restore_counters(queue, counters, was_durable=stored.config.durable)
        tombstones = rows.get(records.tombstones_key(queue.queue_id))
        if tombstones is not None:
            queue.tombstones, queue.tombstones_stored = int.from_bytes(tombstones, "big"), True
        counts = rows.get(COUNTS + records.counters_key(queue.queue_id))
        if counts is not None:
            self._restore_counts(queue, counts)
        timed = rows.get(records.timed_key(queue.queue_id))
        if timed is not None:
            queue.timed = records.PAIRS.unpack(timed)
        elif stored.timed < (TIMED_IN_CUSTODY if queue.holds_custody else 1) and queue.config.durable:
            queue.set_timed((0, queue.next_sequence))  # an earlier version kept no such row

    def _restore_counters(self, queue: Queue, counters: bytes, *, was_durable: bool) -> None:
        if not queue.config.durable:
            if was_durable:
                _check_empty(queue.name, COUNTERS.unpack(counters)[1])
            return
        queue.next_sequence, queue.messages, queue.bytes_held, watermark = COUNTERS.unpack(counters)
        queue.visible = queue.next_sequence
        if self._former is not None:  # it is not known what it showed meanwhile
            watermark = queue.next_sequence
        queue.shared.watermark = watermark
        self._deliveries.begin_life(queue, queue.shared)

    def _restore_counts(self, queue: Queue, counts: bytes) -> None:
        queue.shared.counts = {  # an earlier version kept some of entries that had left
            sequence: count
            for sequence, count in records.PAIRS.iter_unpack(counts)
            if self._store.get(queue.queue_id, sequence) is not None
        }
        # The counts are forgotten now: after a crash all up to the last of them counts as shown.
        queue.shared.count_deliveries()
        if not queue.shared.is_counted:
            queue.shared.watermark = max([queue.shared.watermark, *(last + 1 for last in queue.shared.counts)])
        self._work.dirty_counters[queue] = None
        self._work.batch.deletes.append(("node", COUNTS + records.counters_key(queue.queue_id)))

    def cursors(self, queues: Mapping[int, Queue]) -> None:
        """Reads table `subscriptions`, and the patterns of topics' subscriptions. `queues`: by their ids."""
        for key, data in self._store.table("subscriptions"):
            queue_id, name = records.split_cursor_key(key)
            if queue_id in queues:
                self._restore_cursor(queues[queue_id], name, records.unpack_cursor(data))
        for key, data in self._rows.items():
            if key[:1] == records.BINDING:
                queue_id, name = records.split_cursor_key(key[1:])
                topic = queues.get(queue_id)
                if isinstance(topic, Topic) and name in topic.named:
                    topic.bind(name, records.unpack_binding(data))
        self._deliveries.begin(queues)
        for queue in queues.values():
            if queue.named:
                queue.reclaim()
            elif queue.shared.tracked:  # its last subscription was deleted, and what that kept had not all left
                queue.untrack()

    def _restore_cursor(self, queue: Queue, name: str, record: records.CursorRecord) -> None:
        if name:
            cursor = Cursor(queue, queue, name, mode="take" if record.taking else "copy", floor=record.floor)
            cursor.count_deliveries()
            queue.named[name] = cursor
            watermark = record.watermark if self._former is None else max(record.watermark, queue.next_sequence)
            cursor.watermark = watermark
            cursor.is_stored = True
            self._deliveries.begin_life(queue, cursor)
            if self._former is not None:
                queue.dirty(cursor)
        else:
            cursor = queue.shared
            cursor.tracked = True
            cursor.floor = cursor.position = record.floor
        cursor.lease_epoch = record.lease_epoch
        cursor.finished = record.finished
        self._memory.count_ranges(cursor, cursor.finished)
