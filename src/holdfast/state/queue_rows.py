"""The rows of queues' counters and of their cursors: what changed in a turn is in the turn's batch.

Rules of this file: until `were_put`, a queue counts as changed, so that a batch that is given up loses nothing.
"""

from collections.abc import Callable, Iterable
from typing import Final

from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.entries.kinds import QueueKind
from holdfast.broker.entries.work import Work
from holdfast.broker.queue import Queue
from holdfast.broker.stored import records
from holdfast.broker.stored.ranges import RangeSet
from holdfast.broker.topic import Topic
from holdfast.peers.limits.memory import Memory
from holdfast.state.delivery_rows import DeliveryRows
from holdfast.state.restoring import COUNTS

COUNTS_MAX: Final = 10_000
"""Delivery counts kept over a proper stop."""


class QueueRows:
    """Writes the rows of changed queues and cursors. `exists`: whether a queue was neither deleted nor created again
    under its name."""

    def __init__(
        self, work: Work[Queue], memory: Memory, deliveries: DeliveryRows, exists: Callable[[Queue], bool]
    ) -> None:
        self._work = work
        self._memory = memory
        self._deliveries = deliveries
        self._exists = exists
        self.tied: dict[Cursor, dict[int, None]] = {}
        """By cursor that remembers what it finished: sequences that are finished once a transaction is stored."""

    def put(self) -> tuple[list[tuple[Cursor, int]], list[tuple[Cursor, frozenset[int]]]]:
        """Adds counters and cursors of changed queues to the batch; returns (cursor, watermark) that hold once it is
        stored, and (cursor, sequences) whose failed deliveries it stores."""
        watermarks: list[tuple[Cursor, int]] = []
        counts: list[tuple[Cursor, frozenset[int]]] = []
        batch = self._work.batch
        for queue in list(self._work.dirty_counters):
            if not queue.config.durable or not self._exists(queue):
                continue
            queue.before_commit()
            watermarks += self._put_cursors(queue)
            counts += self._deliveries.put(queue)
            batch.puts["node", records.counters_key(queue.queue_id)] = queue.counters()
            tombstones = queue.tombstone_count()
            if tombstones is not None:
                batch.puts["node", records.tombstones_key(queue.queue_id)] = tombstones
            if queue.shared.watermark > queue.shared.watermark_stored:
                watermarks.append((queue.shared, queue.shared.watermark))
        return watermarks, counts

    def were_put(self) -> None:
        """The batch with them was handed over. Calls nothing that could fail."""
        for queue in self._work.dirty_counters:
            queue.deleted_cursors.clear()
            queue.dirty_cursors.clear()
            self._deliveries.were_put(queue)
        self._work.dirty_counters.clear()

    def _put_cursors(self, queue: Queue) -> list[tuple[Cursor, int]]:
        """Writes or deletes the records of `queue`'s cursors that changed or ended."""
        watermarks: list[tuple[Cursor, int]] = []
        batch = self._work.batch
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
                self._put_binding(queue, name)
            self._memory.count_ranges(cursor, cursor.finished)
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

    def bind(self, topic: Topic, name: str, wants: records.BindingRecord) -> None:
        """Stores that subscription's pattern, selector and bounds with the turn's batch."""
        topic.bind(name, wants)
        self._put_binding(topic, name)

    def _put_binding(self, topic: Topic, name: str) -> None:
        key = records.binding_key(topic.queue_id, name)
        self._work.batch.puts["node", key] = records.pack_binding(topic.bindings[name])

    def before_stop(self, queues: Iterable[Queue]) -> None:
        """Before a proper stop: stores exactly what was shown, instead of the watermark."""
        for queue in queues:
            self._deliveries.before_stop(queue)
            shared = queue.shared
            if not queue.config.durable or not shared.watermark or len(shared.counts) > COUNTS_MAX:
                continue
            if shared.shown_below > queue.head():
                continue  # some entries that an earlier run may have shown are still here: keep the watermark
            shared.watermark = shared.watermark_stored = 0
            counts = b"".join(records.PAIRS.pack(*pair) for pair in sorted(shared.counts.items()))
            if counts:
                self._work.batch.puts["node", COUNTS + records.counters_key(queue.queue_id)] = counts
            self._work.dirty_counters[queue] = None
