"""Counts whether messages that end here arrived by the shortest path (esb-dynamic-routing §4.4, "m_Link"). Rules of
this file: a message is never delayed or refused for its path, because messages that were queued before a change rightly
arrive by the old path. A trace is checked once for each version of the table; equal traces are only counted.
"""

from typing import Final

from holdfast.amqp.wire.types import Ulong
from holdfast.broker.entries import entry
from holdfast.custody.names.directory import Directory
from holdfast.peers.neighbours.trace_aliases import stores_of

TRACES_MAX: Final = 1_024
"""Traces whose result is remembered; at the bound all are forgotten and checked again."""

SHORTEST: Final = "paths_shortest"
OTHER: Final = "paths_other"
UNKNOWN: Final = "paths_unknown"


class PathCheck:
    """Counts the paths of messages that arrived at this node."""

    def __init__(self, own: str) -> None:
        """`own`: this node's name."""
        self._own = own
        self._directory: Directory | None = None
        self.counts = {SHORTEST: 0, OTHER: 0, UNKNOWN: 0}
        self.loops = 0
        """Copies that came back to a node they had passed."""
        self._verdicts: dict[bytes, str] = {}
        self._version = 0

    def routed_by(self, directory: Directory) -> None:
        """Connects the topology, which gives the shortest path; without it only loops are counted."""
        self._directory = directory

    def arrived(self, trace: bytes) -> None:
        """Counts the path of a message, not a duplicate, that ends here. The trace is as entries hold it."""
        table = self._directory
        if table is None:
            return
        if table.version != self._version:
            self._version = table.version
            self._verdicts.clear()
        verdict = self._verdicts.get(trace)
        if verdict is None:
            if len(self._verdicts) >= TRACES_MAX:
                self._verdicts.clear()
            verdict = self._verdicts[trace] = self._verdict(table, trace)
        self.counts[verdict] += 1
        if verdict is OTHER:
            table.ask_sync("a message came by another path than the shortest")

    def _verdict(self, table: Directory, trace: bytes) -> str:
        names = [table.name_of_store(entry.uuid_of(store)) for store in stores_of(trace)]
        passed = [*[name for name in names if name is not None], self._own]
        if len(passed) <= len(names) or len(passed) < 2:
            return UNKNOWN
        shortest = table.shortest_from(passed[0])
        if shortest is None:
            return UNKNOWN
        return SHORTEST if tuple(passed) == shortest else OTHER

    def came_back(self, neighbour: str) -> None:
        """Counts a copy that came back to this node."""
        self.loops += 1
        table = self._directory
        if table is not None:
            table.ask_sync(f"a message came back by {neighbour!r}")

    def status(self) -> dict[str, Ulong]:
        """The counts as `status` and telemetry report them."""
        return {**{key: Ulong(count) for key, count in self.counts.items()}, "loops": Ulong(self.loops)}
