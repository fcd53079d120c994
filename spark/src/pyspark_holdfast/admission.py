"""How much of each queue a batch takes, where several queues share one bound.

Rules of this file: pure. A bound is shared as water fills vessels: who has little is taken whole, and the others get
equal shares. So a queue with a backlog keeps no other waiting.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from pyspark_holdfast.bus import Window

K = TypeVar("K")


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


def within_rows(windows: Mapping[K, Window], starts: Mapping[K, int], rows_max: int | None) -> dict[K, int]:
    """Where each range ends, with at most `rows_max` sequences in all of them."""
    wanted = {key: max(0, window.end - starts[key]) for key, window in windows.items()}
    if rows_max is None or sum(wanted.values()) <= rows_max:
        return {key: starts[key] + count for key, count in wanted.items()}
    return {key: starts[key] + count for key, count in shares(wanted, rows_max).items()}
