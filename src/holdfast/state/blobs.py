"""The node's blobs: bare messages too large to be a value, in pieces, and which entries refer to each (ADR 0014).

Rules of this file: the changes of a batch are computed when it is handed over, and applied when it is on disk, so that
a refused batch changes nothing. A blob is deleted when no entry refers to it and it is neither being received nor sent:
some pieces in each commit, so that no commit takes long. Every removed entry is in the batch: this is the only place
that looks for them.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from holdfast.broker.entries import entry
from holdfast.broker.entries.blob import Blob, EntryRef
from holdfast.broker.entries.work import Work
from holdfast.broker.queue import Queue
from holdfast.broker.stored import records
from holdfast.broker.stored.records import BlobRecord
from holdfast.state.catalog import Catalog
from holdfast.state.tables import Tables
from holdfast.state.turns import Turn

DROP_PIECES: Final = 128
"""Pieces that one commit takes off the disk: 8 MB, each found on a page of its own."""

TABLE: Final = "blobs"


class Blobs:
    """All blobs in the store."""

    def __init__(self, catalog: Catalog, store: Tables, work: Work[Queue]) -> None:
        self._catalog = catalog
        self._work = work
        self.by_number: dict[int, Blob] = {}
        self.by_place: dict[EntryRef, Blob] = {}
        self.loose: dict[Blob, None] = {}
        """Those without an entry: still open, sent, or going."""
        self._pinned: list[Callable[[], Iterable[Blob]]] = []
        self._next = 1
        ends = {queue.queue_id: queue.next_sequence for queue in catalog.queues.values() if queue.config.durable}
        for key, data in store.table(TABLE):
            record = records.unpack_blob(data)
            blob = Blob(records.split_blob_key(key))
            blob.open = False
            blob.length, blob.first, blob.end = record.length, record.first, record.end
            self.by_number[blob.number] = blob
            # An earlier version named places in queues in memory, whose ids may be others' now.
            self._settle(blob, {place: None for place in record.places if place[1] < ends.get(place[0], 0)})
            self._next = max(self._next, blob.number + 1)

    def new(self) -> Blob:
        """Creates an empty blob; `close` it afterwards."""
        blob = self.by_number[self._next] = Blob(self._next)
        self._next += 1
        self.loose[blob] = None
        return blob

    def close(self, blob: Blob) -> None:
        """The blob is complete or was given up: it is deleted unless it has an entry, in this turn's batch at the
        latest."""
        blob.open = False

    def pinned_by(self, find: Callable[[], Iterable[Blob]]) -> None:
        """Registers another user that pins blobs: `find` yields each as often as it is pinned."""
        self._pinned.append(find)

    @property
    def pinned(self) -> Counter[Blob]:
        """How often each blob is pinned by these users."""
        return Counter(blob for find in self._pinned for blob in find())

    def pin(self, number: int) -> Blob:
        """Keeps the blob while it is being sent; `unpin` it afterwards."""
        blob = self.by_number[number]
        blob.pins += 1
        return blob

    def unpin(self, blob: Blob) -> None:
        blob.pins -= 1

    @property
    def dropping(self) -> bool:
        """Whether there are pieces to delete."""
        return bool(self.loose) and any(not blob.needed for blob in self.loose)

    # ------------------------------------------------------------------------------------------------ turn

    def before_commit(self, turn: Turn) -> None:
        """Adds the changed records, and a share of the pieces to delete, to the batch."""
        batch = turn.batch
        if not (self.by_number or turn.streams):
            return
        batch.drops.clear()  # of an attempt that failed
        turn.dropped.clear()
        changed: dict[Blob, dict[EntryRef, None]] = {}
        for stream in turn.streams:
            changed[stream.blob] = dict(stream.blob.places)
        queues, left = self._catalog.queues, {*self._work.left}
        for queue, sequence, number in self._work.referred:
            # else it has left, or was deleted, in this very turn
            if queues.get(queue.key) is queue and (queue.queue_id, sequence) not in left:
                blob = self.by_number[number]
                changed.setdefault(blob, dict(blob.places))[queue.queue_id, sequence] = None
        if self.by_place:
            ended = [
                (queue.queue_id, sequence)
                for (queue, sequence), value in turn.rewritten.items()
                if not value[1] & entry.BLOB
            ]
            for place in (*batch.retires, *self._work.moved, *self._work.left, *ended):
                held = self.by_place.get(place)
                if held is not None:
                    changed.setdefault(held, dict(held.places)).pop(place, None)
        by_id = self._catalog.by_id
        for blob, places in changed.items():
            # Nothing of a queue in memory is stored, and its id may be used again after a restart.
            stored = [place for place in places if (named := by_id.get(place[0])) and named.config.durable]
            record = BlobRecord(blob.length, blob.first, blob.end, tuple(stored))
            batch.puts[TABLE, records.blob_key(blob.number)] = records.pack_blob(record)
        turn.blobs = changed
        if self.loose:
            self._drop_some(turn, changed)

    def _drop_some(self, turn: Turn, changed: dict[Blob, dict[EntryRef, None]]) -> None:
        batch = turn.batch
        left = DROP_PIECES
        for blob in self.loose:
            if left <= 0:
                break
            if blob.needed or blob in changed:
                continue
            end = min(blob.end, blob.first + left)
            left -= end - blob.first
            if end > blob.first:
                batch.drops.append((blob.number, blob.first, end))
            key = (TABLE, records.blob_key(blob.number))
            if end == blob.end:
                batch.deletes.append(key)
                left -= 1  # deleting a record is work too
            else:
                batch.puts[key] = records.pack_blob(BlobRecord(blob.length, end, blob.end, ()))
            turn.dropped.append((blob, end))

    def committed(self, turn: Turn) -> None:
        """The batch is on disk: applies the computed changes."""
        for blob, places in turn.blobs.items():
            self._settle(blob, places)
        for blob, end in turn.dropped:
            blob.first = end
            if end == blob.end:
                del self.loose[blob], self.by_number[blob.number]

    def _settle(self, blob: Blob, places: dict[EntryRef, None]) -> None:
        for place in blob.places:
            if place not in places:
                del self.by_place[place]
        for place in places:
            self.by_place[place] = blob
        blob.places = places
        if places:
            self.loose.pop(blob, None)
        else:
            self.loose[blob] = None
