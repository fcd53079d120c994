"""Routing of one simulated node: the nodes' own table of link states, told from neighbour to neighbour.

Rules of this file: what a node knows of links is what it was told, so that tables differ while something changes.
"""

from collections.abc import Mapping
from typing import Any

from holdfast.federation.parents import Routes
from holdfast.routing.linkstate import LinkStates
from holdfast.routing.paths import Path, shortest_paths
from holdfast.routing.records import Known

RECORDS_MAX = 1_000
NEIGHBOURS_MAX = 250


def _all(known: Known) -> bool:
    """Every record may be told to everybody."""
    return True


class Router:
    """`links`: the neighbours to which this node can send messages, with their costs."""

    def __init__(self, name: str, links: Mapping[str, int], initial: Mapping[str, Mapping[str, int]]) -> None:
        self.name = name
        self.links = dict(links)
        self.up: set[str] = set()
        self.states = LinkStates(name, initial, records_max=RECORDS_MAX, neighbours_max=NEIGHBOURS_MAX)
        self.paths: dict[str, Path] = {}

    def originate(self, version: int) -> None:
        self.states.originate(
            {name: cost if name in self.up else None for name, cost in self.links.items()}, version=version
        )

    def session_up(self, neighbour: str, version: int) -> list[dict[str, Any]]:
        """What it is told first."""
        self.up.add(neighbour)
        self.states.up(neighbour)
        self.originate(version)
        messages = self.states.summary()
        return [
            {"kind": "summary", "rows": rows, "first": at == 0, "last": at == len(messages) - 1}
            for at, rows in enumerate(messages)
        ]

    def session_down(self, neighbour: str, version: int) -> None:
        self.up.discard(neighbour)
        self.states.down(neighbour)
        self.originate(version)

    def receive(self, neighbour: str, message: dict[str, Any], version: int) -> None:
        if message["kind"] == "summary":
            self.states.receive_summary(neighbour, message["rows"], first=message["first"], last=message["last"])
        else:
            self.states.receive(neighbour, message["rows"])
        if self.states.must_reoriginate:
            self.originate(version)

    def to_tell(self, neighbour: str) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = []
        while True:
            rows, editions = self.states.to_tell(neighbour, _all)
            if not rows:
                return messages
            self.states.was_told(neighbour, editions)
            messages.append({"kind": "linkstate", "rows": rows})

    def routes(self) -> Routes | None:
        """What has changed; None where nothing did."""
        if not self.states.changed:
            return None
        self.states.changed = False
        up = self.states.edges()
        self.paths = shortest_paths(up, self.name)
        return Routes(up)
