"""When others begin to read a queue whose consumers had it for themselves: from then on what is finished is remembered.

Rules of this file: what was finished before is what lies below the position and is in nobody's hands.
"""

from holdfast.broker.cursors import halting
from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.stored.ranges import RangeSet


def begin(cursor: Cursor, head: int) -> None:
    """From now on others read the queue too: what is finished must be remembered until they have."""
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
    """Whether too much is in consumers' hands for tracking to begin."""
    return not cursor.tracked and len(cursor.below_position()) >= halting.OUTSTANDING_MAX
