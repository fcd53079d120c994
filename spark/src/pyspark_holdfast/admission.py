"""How much of each queue a batch takes, where several queues share one bound.

Rules of this file: pure. A bound is shared as water fills vessels: who has little is taken whole, and the others get
equal shares. So a queue with a backlog keeps no other waiting.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from pyspark_holdfast.bus import Window

ROUNDS_MAX: Final = 3
"""How often what queues with little have left is shared anew, where nodes count the bytes."""

K = TypeVar("K")


class Request(NamedTuple):
    """What a queue may give: from `start` so many messages and bytes."""

    start: int
    rows_max: int
    bytes_max: int


def shares(wanted: Mapping[K, int], bound: int) -> dict[K, int]:
    """At most `wanted` for each and `bound` together; what cannot be divided goes to the first ones."""
    given = dict.fromkeys(wanted, 0)
    left = bound
    hungry = [key for key, want in wanted.items() if want > 0]
    while hungry and left > 0:
        share = left // len(hungry)
        for key in hungry if share else hungry[:left]:
            more = min(wanted[key] - given[key], max(1, share))
            given[key] += more
            left -= more
        hungry = [key for key in hungry if given[key] < wanted[key]]
    return given


def turned(keys: Sequence[K], turn: int) -> list[K]:
    """The keys from another one on each time, so that none is always the last."""
    at = turn % len(keys) if keys else 0
    return [*keys[at:], *keys[:at]]


def within_aim(
    windows: Mapping[K, Window], starts: Mapping[K, int], rows_max: int | None, bytes_aim: int
) -> dict[K, int]:
    """Where each range ends, with at most `rows_max` sequences in all of them, and about `bytes_aim` by the average
    sizes; one of each queue that has any, while there are rows for it. Without `rows_max` all that is there."""
    wanted = {key: max(0, window.end - starts[key]) for key, window in windows.items()}
    if rows_max is not None:
        sizes = {key: wanted[key] * windows[key].average for key in wanted}
        if sum(sizes.values()) > bytes_aim:
            for key, size in shares(sizes, bytes_aim).items():
                if sizes[key]:
                    wanted[key] = max(1, size // windows[key].average)
        if sum(wanted.values()) > rows_max:
            wanted = shares(wanted, rows_max)
    return {key: starts[key] + count for key, count in wanted.items()}


def within_bytes(
    starts: Mapping[K, int], rows_max: int, bytes_max: int, ask: Callable[[dict[K, Request]], Mapping[K, Window]]
) -> dict[K, int]:
    """Where each range ends, with at most so many messages and bytes in all of them, as their nodes count them; one
    message at least, whatever its size. `ask`: what these queues answer, of nodes that are away nothing."""
    ends: dict[K, int] = {}
    rows, size, hungry = rows_max, bytes_max, list(starts)
    for count in range(ROUNDS_MAX + len(starts)):
        asked, hungry = hungry[:rows], hungry[rows:]
        if not asked or size <= 0 or (count >= ROUNDS_MAX and rows < rows_max):
            break  # where nothing was found yet, those are asked that had no share
        share = rows // len(asked), max(1, size // len(asked))
        windows = ask({key: Request(ends.get(key, starts[key]), *share) for key in asked})
        for key in asked:
            window = windows.get(key)
            if window is None:
                continue
            messages, own = window.messages or 0, window.bytes or 0
            if own > size and rows < rows_max:  # another has its place in this batch already
                continue
            ends[key] = window.end
            rows, size = rows - messages, size - own
            if window.more:
                hungry.append(key)
        if len(starts) == 1:  # its share was all there is
            break
    return ends
