"""What `status` reports about federation: entries, the bindings behind each, the neighbours that use this node's
bindings, and the tree by which messages of a subject are sent (docs/federation.md).

Rules of this file: reads only. The bindings that are examined and reported are bounded: a status is asked for often.
"""

from collections import Counter
from itertools import islice
from typing import Any, Final

from holdfast.amqp.wire.types import Ulong
from holdfast.federation.federation import Federation
from holdfast.federation.modes import DYNAMIC
from holdfast.federation.sets import Key
from holdfast.federation.settings import Entry
from holdfast.peering.binding_control import BindingControl
from holdfast.peering.routes import Routes

ROWS_LOOKED_AT: Final = 10_000
"""Bindings of all entries of one answer that are examined; for the rest only the sizes of their sets count."""

PATTERNS_TOLD: Final = 200
"""Patterns that are reported for one entry."""


def status(control: BindingControl) -> dict[str, Any]:
    """The parts `federation` and `federated_by` of the node's status. Empty if there is neither federation nor
    an entry that a request created."""
    told = rows(control)
    if control.federation is None and not told:
        return {}
    return {"federation": told, "federated_by": _followers(control.federation)}


def rows(control: BindingControl) -> list[dict[str, Any]]:
    """A row for each entry, in their order; behind them those that requests created and that do not apply."""
    found = None if control.federation is None else _Found(control.federation)
    return [row(control, entry, state, found) for entry, state in listed(control)]


def listed(control: BindingControl) -> list[tuple[Entry, str | None]]:
    """All entries; with the state of one that does not apply."""
    return [*((entry, None) for entry in control.entries), *control.made.inapplicable]


def row(control: BindingControl, entry: Entry, state: str | None, found: "_Found | None" = None) -> dict[str, Any]:
    """`state`: that of an entry that does not apply. `found`: what was found for other entries of the answer."""
    federation = control.federation
    told: dict[str, Any] = {
        "topic": entry.topic,
        "neighbour": entry.neighbour,
        "direction": entry.direction,
        "mode": entry.mode,
        "state": state or _state(control, federation, entry),
        "configured": control.made.is_configured(entry),
        "asked": entry.asked,
    }
    if entry.mode != DYNAMIC or not entry.goes or state is not None or federation is None:
        return told | {"patterns": list(entry.patterns), "origins": Ulong(0), "rows": Ulong(0), "bindings": []}
    found = found or _Found(federation)
    origins, count = 0, 0
    patterns: dict[str, set[str]] = {}
    for key in found.behind(entry):
        held = federation.sets.current(key)
        if held is None or not held.rows:
            continue
        origins, count = origins + 1, count + len(held.rows)
        for each in islice(held.rows, found.left):
            patterns.setdefault(each.pattern, set()).add(key.origin)
        found.left = max(0, found.left - len(held.rows))
    told |= {"patterns": [], "origins": Ulong(origins), "rows": Ulong(count)}
    some = sorted(patterns.items())[:PATTERNS_TOLD]
    return told | {"bindings": [{"pattern": pattern, "origins": sorted(of)} for pattern, of in some]}


class _Found:
    """For all entries of one answer: which sets came by each, and how many bindings may still be looked at."""

    def __init__(self, federation: Federation) -> None:
        self.left = ROWS_LOOKED_AT
        self._federation = federation
        self._behind: dict[str, dict[str, list[Key]]] = {}
        """By topic and neighbour."""

    def behind(self, entry: Entry) -> list[Key]:
        """The sets that come by that entry; of nodes to which no way leads now, those that came by it, or might have:
        by the first entry that leads there."""
        found = self._behind.get(entry.topic)
        if found is None:
            found = self._behind[entry.topic] = {}
            firsts = self._firsts(entry.topic)
            for origin in self._federation.sets.origins(entry.topic):
                key = Key(origin, entry.topic)
                neighbour = self._federation.parents.get(key, firsts.get(origin))
                if neighbour is not None and origin != self._federation.name:
                    found.setdefault(neighbour, []).append(key)
        return found.get(entry.neighbour, [])

    def _firsts(self, topic: str) -> dict[str, str]:
        """The neighbour of the first entry that leads to each node, not by way of this one, whatever is down. Each node
        is looked at once."""
        edges = self._federation.sets.edges(topic)
        firsts = {self._federation.name: ""}
        for entry in self._federation.entries:
            if entry.topic != topic or entry.mode != DYNAMIC:
                continue
            at = [entry.neighbour]
            while at:
                node = at.pop()
                if node not in firsts:
                    firsts[node] = entry.neighbour
                    at.extend(edges.get(node, ()))
        return firsts


def _state(control: BindingControl, federation: Federation | None, entry: Entry) -> str:
    """`up`; `asked`: the neighbour is asked to forward the topic, and does not; `plain`: the neighbour's version knows
    no federation; `down`: there is no session."""
    neighbour = None if federation is None else federation.neighbours.get(entry.neighbour)
    if neighbour is not None:
        return "up" if not entry.comes or neighbour.modes.get(entry.topic) == entry.mode else "asked"
    if control.remote_is_up(entry.neighbour):
        return "up"
    return "plain" if control.is_up(entry.neighbour) else "down"


def _followers(federation: Federation | None) -> list[dict[str, Any]]:
    """The topics that neighbours forward to this node, for which they get the bindings of this node and of nodes behind
    it."""
    found = []
    for name, neighbour in federation.neighbours.items() if federation is not None else ():
        sets = Counter(key.topic for key in neighbour.serving.followers)
        found += [
            {"topic": topic, "neighbour": name, "mode": mode, "sets": Ulong(sets[topic])}
            for topic, mode in neighbour.modes.items()
        ]
    return found


def tree(control: BindingControl, routing: Routes | None, topic: str, subject: str) -> list[dict[str, Any]]:
    """Where a message goes that is published here with that subject: a row, with the path, for each node that gets
    it."""
    choice = control.choose(topic, subject)
    found = []
    for name in choice.branches:
        path = None if routing is None else routing.paths.get(name)
        found.append(
            {
                "destination": name,
                "next_hop": control.via(name),
                "path": None if path is None else list(path.nodes),
                "relay": False,
            }
        )
    return found + [{"destination": name, "next_hop": name, "path": None, "relay": True} for name in choice.relays]
