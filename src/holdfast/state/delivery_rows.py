"""The stored counts of failed deliveries, for cursors whose queues limit them (docs/adr/0066).

Rules of this file: a row has the count of one entry; one row for each cursor says what earlier runs of the node may
have shown at their ends, as sequences. It is written with the watermark of the new run, so that no end counts twice.
"""

from collections.abc import Mapping
from typing import Any

from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.cursors.delivery_counts import DeliveryCounts
from holdfast.broker.entries.work import Work
from holdfast.broker.queue import Queue
from holdfast.broker.stored import records

CursorKey = tuple[int, str]
"""A queue's id, and a cursor's name."""


class DeliveryRows:
    """The rows of all cursors of a node; the rows that were read are kept while the node starts."""

    def __init__(self, work: Work[Any]) -> None:
        self._work = work
        self._lives: dict[CursorKey, tuple[int, ...]] = {}
        self._failures: dict[CursorKey, dict[int, tuple[int, bool]]] = {}
        self._ended: dict[Cursor, int] = {}
        """Below which sequences the life that is over may have shown all."""

    def read(self, rows: Mapping[bytes, bytes]) -> None:
        """Reads the rows of table `node`."""
        for key, data in rows.items():
            if key[:1] == records.LIVES:
                self._lives[records.split_cursor_key(key[1:])] = records.unpack_lives(data)
            elif key[:1] == records.FAILURES:
                queue_id, name, sequence = records.split_failures_key(key)
                self._failures.setdefault((queue_id, name), {})[sequence] = records.unpack_failures(data)

    def begin_life(self, queue: Queue, cursor: Cursor) -> None:
        """Entries up to the cursor's watermark may have been shown in an earlier run of the node. If deliveries are
        counted, the watermark only covers the new run from now on; if they no longer are, it covers the entries of all
        rows, whose counts hold until the node ends."""
        batch, watermark = self._work.batch, cursor.watermark
        earlier = self._lives.get((queue.queue_id, cursor.name), ())
        key = ("node", records.lives_key(queue.queue_id, cursor.name))
        ends = sorted((*earlier, *([watermark] if watermark else [])), reverse=True)
        self._ended[cursor] = watermark
        if cursor.is_counted:
            cursor.lives = tuple(ends[: queue.config.deliveries_max])
            cursor.watermark = 0
            if watermark:
                batch.puts[key] = records.pack_lives(cursor.lives)
                queue.begin_watermark(cursor)
        else:
            counted = self._failures.get((queue.queue_id, cursor.name), ())
            cursor.watermark = max(watermark, *earlier, max(counted, default=-1) + 1)
            cursor.lives = tuple(ends)
            if earlier:
                batch.deletes.append(key)
            if cursor.watermark > watermark or earlier:
                queue.begin_watermark(cursor)
        cursor.watermark_stored = cursor.watermark
        cursor.shown_below = max(cursor.lives, default=0)

    def begin(self, queues: Mapping[int, Queue]) -> None:
        """Sets the counts of failed deliveries from the rows, once all cursors exist; an entry that was marked has
        failed once more, unless it is below the watermark. Rows of entries that are gone, which an earlier version
        kept, are removed."""
        for (queue_id, name), rows in self._failures.items():
            queue = queues.get(queue_id)
            cursor = None if queue is None else queue.named.get(name) if name else queue.shared
            for sequence in [] if cursor is None else [sequence for sequence in rows if _is_gone(cursor, sequence)]:
                del rows[sequence]
                self._work.batch.deletes.append(("node", records.failures_key(queue_id, name, sequence)))
            found = {sequence: count for sequence, (count, marked) in rows.items() if count or not marked}
            if queue is None or cursor is None or not cursor.is_counted:
                if cursor is not None:
                    cursor.counts |= found
                    for sequence in self._shown_at_end(cursor, rows):
                        cursor.counts[sequence] = cursor.counts.get(sequence, 0) + 1
                self._work.batch.deletes += [("node", records.failures_key(queue_id, name, item)) for item in rows]
                continue
            counts = cursor.counts
            assert isinstance(counts, DeliveryCounts)
            counts.update(found)  # these are stored already, so they do not count as changed
            counts.changed.update(sequence for sequence, (_, marked) in rows.items() if marked)
            for sequence in self._shown_at_end(cursor, rows):
                counts[sequence] = counts.get(sequence, 0) + 1
            if counts.changed:
                queue.touch_counters()
        for cleared in (self._lives, self._failures, self._ended):
            cleared.clear()

    def _shown_at_end(self, cursor: Cursor, rows: Mapping[int, tuple[int, bool]]) -> list[int]:
        """Entries that were marked and that the watermark of the life that is over does not cover."""
        end = self._ended.get(cursor, 0)
        return [sequence for sequence, (_, marked) in rows.items() if marked and sequence >= end]

    def put(self, queue: Queue) -> list[tuple[Cursor, frozenset[int]]]:
        """Adds changed rows of the queue's entries to the batch; returns (cursor, sequences). They count as changed
        until `were_put`."""
        batch = self._work.batch
        told: list[tuple[Cursor, frozenset[int]]] = []
        gone = [("node", row) for row in queue.deleted_rows]
        for cursor in queue.cursors:
            counts = cursor.counts
            if not isinstance(counts, DeliveryCounts) or not counts.changed:
                continue
            for sequence in counts.changed:
                key = ("node", records.failures_key(queue.queue_id, cursor.name, sequence))
                row = counts.row(sequence)
                if row is None:
                    gone.append(key)
                else:
                    batch.puts[key] = records.pack_failures(*row)
            told.append((cursor, frozenset(counts.changed)))
        for key in gone:
            batch.puts.pop(key, None)
        batch.deletes += gone
        return told

    @staticmethod
    def were_put(queue: Queue) -> None:
        """The batch with them is handed over. Calls nothing that could fail."""
        queue.deleted_rows.clear()
        for cursor in queue.cursors:
            if isinstance(cursor.counts, DeliveryCounts):
                cursor.counts.changed.clear()

    @staticmethod
    def before_stop(queue: Queue) -> None:
        """Before a proper stop: the deliveries of acquired entries have failed, and are counted."""
        for cursor in queue.cursors:
            if isinstance(cursor.counts, DeliveryCounts):
                cursor.counts.unmark()
                cursor.watermark = cursor.watermark_stored = 0
                queue.begin_watermark(cursor)


def _is_gone(cursor: Cursor, sequence: int) -> bool:
    """Whether the cursor has finished the entry, or it has left the queue."""
    return sequence < cursor.floor or sequence in cursor.finished or cursor.queue.value(sequence) is None
