"""Super nodes: which of them acts, what it sees of the others by their heartbeats, and whom it calls lost.

Rules of this file: pure; times are the caller's monotonic seconds. There is no election: each node applies the same
rule to its own table, so a split network has one acting super node for each part that has any at all.
Source: esb-dynamic-routing §3.1, §4.2, §5.3 step 7; docs/adr/0015-routing.md.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

MISSED: Final = 4
"""Heartbeats in a row that do not come before a node counts as lost (esb-dynamic-routing §4.3 waits as long)."""

DIFFERS: Final = 3
"""Heartbeats in a row with another digest than ours before the whole table is sent: changes are under way meanwhile."""


@dataclass(slots=True)
class Seen:
    """What the super node knows of one node by its heartbeats. Times in seconds."""

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


def acting(numbers: Mapping[str, int], is_there: Callable[[str], bool]) -> str | None:
    """The acting super node of those (name -> number): the lowest number, then name, that is there; None: none is."""
    return min((name for name in numbers if is_there(name)), key=lambda name: (numbers[name], name), default=None)


class Supers:
    """What this node, as a super node, sees. `heartbeat_s`: how often every node says that it lives."""

    def __init__(self, heartbeat_s: float) -> None:
        self.heartbeat_s = heartbeat_s
        self.seen: dict[str, Seen] = {}

    def expect(self, nodes: Mapping[str, int], now: float) -> None:
        """Whose heartbeats should come here now: name -> version of its record. Who is new has its time from now."""
        for name in [name for name in self.seen if name not in nodes]:
            del self.seen[name]
        for name, version in nodes.items():
            seen = self.seen.get(name)
            if seen is None:
                self.seen[name] = Seen(now, version)
            elif seen.version != version:
                seen.version, seen.since = version, now

    def heard(self, name: str, trace: Iterable[str], *, shortest: bool, same: bool, now: float) -> bool:
        """A heartbeat came. True: its table stays another than ours, it is to be sent the whole of ours."""
        seen = self.seen.get(name)
        if seen is None:
            return False
        seen.heard_at = seen.since = now
        seen.trace = tuple(trace)
        seen.shortest = shortest
        seen.differs = 0 if same else seen.differs + 1
        if seen.differs < DIFFERS:
            return False
        seen.differs = 0
        return True

    def overdue(self, now: float) -> list[str]:
        """Nodes whose heartbeats stopped."""
        return [name for name, seen in self.seen.items() if now >= seen.since + MISSED * self.heartbeat_s]

    def next_deadline(self) -> float | None:
        return min((seen.since + MISSED * self.heartbeat_s for seen in self.seen.values()), default=None)
