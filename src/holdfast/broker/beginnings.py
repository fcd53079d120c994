"""Where a reader with a cursor of its own begins: a subscription by sequence, a link that copies.

Rules of this file: pure. A sequence outside the queue means the nearest place in it.
"""

from typing import Final

from holdfast.errors import ConfigError
from holdfast.schema import is_whole, is_whole_within

FIRST: Final = "first"
"""At the first message in the queue."""
NEXT: Final = "next"
"""At the next message that arrives."""
SEQUENCES_END: Final = 1 << 63


def check_start(where: str, start: object) -> None:
    """Raises ConfigError that names `where` unless a reader may begin there."""
    if not (isinstance(start, str) and start in (FIRST, NEXT)) and not is_whole_within(start, 0, SEQUENCES_END):
        raise ConfigError(f"invalid value {start!r} for {where}; expected first, next or a sequence")


def beginning(start: object, head: int, next_sequence: int) -> int | None:
    """The sequence at which a reader begins; None if `start` is invalid. `head`: the first sequence in the queue."""
    if start == FIRST:
        return head
    if start == NEXT:
        return next_sequence
    return min(max(int(start), head), next_sequence) if is_whole(start) else None


def put_back(queue: str, sequence: int, visible: int) -> str:
    """What it means that a reader has been told of a sequence which the queue has not reached."""
    return f"queue {queue!r} ends at {visible}, before {sequence}: its store was put back to an older state"
