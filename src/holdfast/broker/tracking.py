"""When a second cursor begins to read a queue: from then on the shared cursor remembers what it has finished.

Rules of this file: entries below the position that are not acquired were finished before.
"""

from holdfast.broker.cursors import halting
from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.stored.ranges import RangeSet


def begin(cursor: Cursor, head: int) -> None:
    """Begins to remember finished entries, because other cursors read the queue too."""
    cursor.tracked = True
    cursor.floor = head
    left = [(low, high) for low, high in cursor.finished if high >= head]  # of earlier tracking, over a restart
    ranges = []
    first = head
    for sequence in sorted(cursor.below_position()):
        if sequence > first:
            ranges.append((first, sequence - 1))
        first = max(first, sequence + 1)
    if cursor.position > first:
        ranges.append((first, cursor.position - 1))
    cursor.finished = RangeSet([*ranges, *left])
    cursor.move_to(max(cursor.position, head))
    cursor.raise_floor()
    cursor.owner.dirty(cursor)


def is_crowded(cursor: Cursor) -> bool:
    """Whether too many entries are acquired for tracking to begin."""
    return not cursor.tracked and len(cursor.below_position()) >= halting.OUTSTANDING_MAX
