"""What every hand-out of a queue that sorts must be: nothing higher was ready and stored when it was made.

Rules of this file: reads the store, the cursor and the queue; it knows nothing of the index that decides.
"""

from collections.abc import Sequence

import pytest

from holdfast.broker.cursors import halting
from holdfast.broker.cursors.cursor import Cursor
from holdfast.endpoints.consumer import ConsumerLink


class Watch:
    """Wraps what hands messages to consumers, and fails where one is not the highest that its link could have."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.seen = 0
        """How many were looked at."""
        take, take_all = ConsumerLink.take, ConsumerLink.take_all

        def taken(link: ConsumerLink, sequence: int, value: bytes, count: int | None) -> None:
            self.look(link, [sequence], [value])
            take(link, sequence, value, count)

        def taken_all(link: ConsumerLink, sequences: Sequence[int], values: Sequence[bytes]) -> int:
            handed = take_all(link, sequences, values)
            self.look(link, sequences[:handed], values[:handed])
            return handed

        patch.setattr(ConsumerLink, "take", taken)
        patch.setattr(ConsumerLink, "take_all", taken_all)

    @staticmethod
    def halted(cursor: Cursor) -> bool:
        """Whether the oldest goes first, because more was finished out of order than is kept."""
        return halting.is_halted(cursor)

    def look(self, link: ConsumerLink, sequences: Sequence[int], values: Sequence[bytes]) -> None:
        cursor: Cursor = link.cursor
        queue = cursor.queue
        if not queue.config.priorities or not sequences or self.halted(cursor):
            return
        places = [(-min(value[2], 9), sequence) for sequence, value in zip(sequences, values, strict=True)]
        assert places == sorted(places), f"handed out of order: {places}"
        leaving = queue.leaving()
        group = next(group for group in cursor.sharing if link in group.consumers)
        for sequence, value in queue.read(0, count_max=10**6, bytes_max=10**9):
            place = (-min(value[2], 9), sequence)
            if place >= places[-1] or sequence in sequences or sequence in cursor.acquired or sequence in leaving:
                continue
            if sequence in cursor.finished or sequence < cursor.floor or sequence in link.excluded:
                continue
            waits = {*cursor.requeued, *cursor.exclusions.aside}
            if (sequence < cursor.position and sequence not in waits) or queue.expired(value):
                continue
            if link.delivery_bytes(sequence, value) > link.bytes_max:
                continue
            if not group.selector.matches(value) or not (cursor.selector is None or cursor.selector.matches(value)):
                continue
            raise AssertionError(f"{places[-1]} was handed out while {place} was ready")
        self.seen += len(sequences)
