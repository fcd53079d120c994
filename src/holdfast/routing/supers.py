"""Super nodes: which of them acts, what it knows of nodes by their heartbeats, and which nodes it declares lost.

Rules of this file: pure; times are the caller's monotonic seconds. There is no election: each node applies the same
rule to its own table, so a split network has one acting super node for each part that has any at all.
Source: esb-dynamic-routing §3.1, §4.2, §5.3 step 7; docs/adr/0015-routing.md.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

MISSED: Final = 4
"""Heartbeats in a row that do not come before a node counts as lost (esb-dynamic-routing §4.3 waits as long)."""

FIRST: Final = 4
"""The timeout of the first heartbeat of a newly reachable node, as a multiple of the usual one: the node has to learn
of its reachability first, and its heartbeat then crosses as many links."""

PATIENCE_MAX: Final = 16
CALM: Final = 100
"""After each false alarm a node's timeout doubles, up to PATIENCE_MAX times; after CALM heartbeats it halves. Without
this, late heartbeats on a full, slow link cause news about lost nodes, which fills the link further.
"""

PATIENCE_NODES_MAX: Final = 10_000
"""Nodes with a longer timeout that are remembered; at the bound the one declared lost longest ago is forgotten."""

DIFFERS: Final = 3
"""Heartbeats in a row with another digest than ours before the whole table is sent: changes are under way meanwhile."""


@dataclass(slots=True)
class Seen:
    """What the super node knows of one node by its heartbeats. Times are in seconds."""

    since: float
    """From when a heartbeat is expected."""
    version: int
    """Of its record when `since` was set: a new word of its own is a sign of life too."""
    heard_at: float | None = None
    trace: tuple[str, ...] = ()
    """The nodes passed, the sender first."""
    shortest: bool = False
    """Whether that was the shortest path in our table."""
    differs: int = 0
    """Heartbeats in a row whose digest was not ours."""
    calm: int = 0
    """Heartbeats that came since its patience last changed."""


def acting(numbers: Mapping[str, int], is_there: Callable[[str], bool]) -> str | None:
    """The acting super node of these (name -> number): the reachable one with the lowest number, then name; None if
    there is none."""
    return min((name for name in numbers if is_there(name)), key=lambda name: (numbers[name], name), default=None)


class Supers:
    """What this node knows as a super node. `heartbeat_s`: the interval of every node's heartbeats."""

    def __init__(self, heartbeat_s: float) -> None:
        self.heartbeat_s = heartbeat_s
        self.seen: dict[str, Seen] = {}
        self.patience: dict[str, int] = {}
        """Of those that were called lost of late: so many times as long they may be silent."""

    def expect(self, nodes: Mapping[str, int], now: float) -> None:
        """Sets the nodes whose heartbeats are expected: name -> version of its record. The time of a new one begins
        now."""
        for name in [name for name in self.seen if name not in nodes]:
            del self.seen[name]
        for name, version in nodes.items():
            seen = self.seen.get(name)
            if seen is None:
                self.seen[name] = Seen(now, version)
            elif seen.version != version:
                seen.version, seen.since = version, now

    def heard(self, name: str, trace: Iterable[str], *, shortest: bool, same: bool, now: float) -> bool:
        """A heartbeat arrived. True: its table has differed from ours for long, and all records must be sent to it."""
        seen = self.seen.get(name)
        if seen is None:
            return False
        seen.heard_at = seen.since = now
        seen.trace = tuple(trace)
        seen.shortest = shortest
        self._calm(name, seen)
        seen.differs = 0 if same else seen.differs + 1
        if seen.differs < DIFFERS:
            return False
        seen.differs = 0
        return True

    def overdue(self, now: float) -> list[str]:
        """Nodes whose heartbeats have stopped."""
        return [name for name, seen in self.seen.items() if now >= self._lost_at(name, seen)]

    def called_lost(self, name: str) -> float:
        """The node was declared lost, after the returned seconds without heartbeat; the next time-out is longer."""
        patience = self.patience.pop(name, 1)
        while len(self.patience) >= PATIENCE_NODES_MAX:
            del self.patience[next(iter(self.patience))]
        self.patience[name] = min(2 * patience, PATIENCE_MAX)
        return MISSED * self.heartbeat_s * patience

    def next_deadline(self) -> float | None:
        return min((self._lost_at(name, seen) for name, seen in self.seen.items()), default=None)

    def _lost_at(self, name: str, seen: Seen) -> float:
        beats = MISSED if seen.heard_at is not None else MISSED * FIRST
        return seen.since + beats * self.heartbeat_s * self.patience.get(name, 1)

    def _calm(self, name: str, seen: Seen) -> None:
        patience = self.patience.get(name)
        if patience is None:
            return
        seen.calm += 1
        if seen.calm >= CALM:
            seen.calm = 0
            if patience > 2:
                self.patience[name] = patience // 2
            else:
                del self.patience[name]
