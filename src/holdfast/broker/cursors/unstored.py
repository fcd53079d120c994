"""The lowest priority among a queue's entries that are not on disk yet (docs/adr/0072).

Rules of this file: used when a full queue that sorts drops entries; it looks at each entry once, in the batch of the
turn. Entries that went into a commit before are not known.
"""

from collections.abc import Iterator

from holdfast.broker.cursors.ready import LEVELS, level_of
from holdfast.broker.entries.entry_log import EntryLog


class Unstored:
    """Of one queue."""

    __slots__ = ("_end", "_first", "_last", "_queue")

    def __init__(self, queue: EntryLog) -> None:
        self._queue = queue
        self._first = self._end = queue.next_sequence
        """Those of [first, end) were looked at; those before first, and not visible yet, were not."""
        self._last: dict[int, int] = {}
        """By level: the last entry of it."""

    def lowest(self) -> int:
        """The lowest level of what is not visible yet; LEVELS where there is none, -1 where that is not known."""
        queue = self._queue
        if self._end < queue.next_sequence:
            self._look()
        if queue.visible < self._first:
            return -1
        return min([level for level, last in self._last.items() if last >= queue.visible], default=LEVELS)

    def _look(self) -> None:
        queue = self._queue
        first = queue.next_sequence
        for sequence, value in self._newest():
            if sequence < self._end:
                break
            first = sequence
            level = level_of(value)
            self._last[level] = max(sequence, self._last.get(level, 0))
        if first > self._end:
            self._first = first
        self._end = queue.next_sequence

    def _newest(self) -> Iterator[tuple[int, bytes]]:
        """What is not visible yet, the newest first."""
        queue = self._queue
        if queue.config.durable:
            for queue_id, sequence, value in reversed(queue.work.batch.appends):
                if queue_id == queue.queue_id:
                    yield sequence, value
        else:
            for sequence in range(queue.next_sequence - 1, queue.visible - 1, -1):
                held = queue.ephemeral.get(sequence)
                if held is not None:
                    yield sequence, held
