"""The bound of one durable subscription of a topic: how many messages it may have that it has not finished
(docs/adr/0096).

Rules of this file: nothing is counted beside the cursor. What it has not finished is what lies between its floor and
what is on disk, without its finished ranges; so of a bounded one each sequence that it does not want, that was undone
or that has left is finished at once, wherever it is. Messages that a link holds stay, and count.
"""

from itertools import islice
from typing import Final

from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.cursors.halting import FINISHED_MAX
from holdfast.broker.stored.records import BindingRecord

DROP_OLDEST: Final = "drop-oldest"
END: Final = "end"
AT_BOUND: Final = (DROP_OLDEST, END)

BOUND_MAX: Final = FINISHED_MAX // 2
"""The greatest bound: between two finished ranges lies an unfinished message, so that these are bounded as well."""

DROPS_MAX: Final = 2_000
"""Messages that a subscription drops in one turn."""


def unfinished(cursor: Cursor) -> int:
    """How many messages on disk the subscription has not finished; exact once `Topic.unmarked` is None."""
    visible = cursor.queue.visible
    return max(0, visible - cursor.floor - cursor.finished.count_below(visible))


def keep(cursor: Cursor, wants: BindingRecord) -> int:
    """Holds the subscription to its bound; one that ends at it is ended later in this turn. Returns how many of its
    messages were dropped."""
    queue = cursor.queue
    if queue.visible - cursor.floor <= wants.messages_max:
        return 0
    over = unfinished(cursor) - wants.messages_max
    if over <= 0:
        return 0
    if wants.when_full == END:
        queue.work.overfull[cursor] = wants.messages_max
        return 0
    held, most = cursor.acquired, min(over, DROPS_MAX)
    ranges = cursor.finished.gaps(cursor.floor, queue.visible - 1, most + len(held))
    free = (number for first, last in ranges for number in range(first, last + 1) if number not in held)
    gone = list(islice(free, most))
    if gone:
        cursor.pass_over(gone)
        cursor.owner.reclaim()
    return len(gone)
