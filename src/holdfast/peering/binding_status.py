"""What `status` reports about federation: entries, the bindings behind each, the neighbours that use this node's
bindings, and the tree by which messages of a subject are sent (docs/federation.md).

Rules of this file: reads only. The reported bindings are bounded.
"""

from typing import Any, Final

from holdfast.amqp.wire.types import Ulong
from holdfast.federation.federation import Federation
from holdfast.federation.messages import DYNAMIC
from holdfast.federation.parents import reached
from holdfast.federation.sets import Key
from holdfast.federation.settings import Entry
from holdfast.peering.binding_control import BindingControl
from holdfast.peering.routes import Routes

ROWS_LOOKED_AT: Final = 10_000
"""Bindings behind one entry that are examined; for the rest only the sizes of their sets count."""

PATTERNS_TOLD: Final = 200
"""Patterns that are reported for one entry."""


def status(control: BindingControl) -> dict[str, Any]:
    """The parts `federation` and `federated_by` of the node's status; nothing without federation."""
    if control.federation is None:
        return {}
    return {"federation": rows(control), "federated_by": _followers(control.federation)}


def rows(control: BindingControl) -> list[dict[str, Any]]:
    """A row for each entry, in their order."""
    federation = control.federation
    return [] if federation is None else [row(control, federation, entry) for entry in control.entries]


def row(control: BindingControl, federation: Federation, entry: Entry) -> dict[str, Any]:
    told: dict[str, Any] = {
        "topic": entry.topic,
        "neighbour": entry.neighbour,
        "mode": entry.mode,
        "state": _state(control, federation, entry),
        "configured": control.made.is_configured(entry),
    }
    if entry.mode != DYNAMIC:
        return told | {"patterns": list(entry.patterns), "origins": Ulong(0), "rows": Ulong(0), "bindings": []}
    origins, count, found = 0, 0, _Found()
    for key in _behind(federation, entry):
        held = federation.sets.current(key)
        if held is None or not held.rows:
            continue
        origins, count = origins + 1, count + len(held.rows)
        found.add(key.origin, sorted({each.pattern for each in held.rows}) if found.left > 0 else [])
    told |= {"patterns": [], "origins": Ulong(origins), "rows": Ulong(count)}
    return told | {"bindings": found.told()}


def _behind(federation: Federation, entry: Entry) -> list[Key]:
    """The sets that arrive through that entry; of unreachable nodes, those that arrived through it or might have."""
    topic, edges = entry.topic, federation.sets.edges(entry.topic)
    before = [one for one in federation.entries if one.topic == topic and one.mode == DYNAMIC]
    before = before[: before.index(entry)]
    ends = {entry.neighbour} | reached(entry.neighbour, edges)
    earlier = {end for one in before for end in (one.neighbour, *reached(one.neighbour, edges))}
    found = []
    for origin in federation.sets.origins(topic):
        key = Key(origin, topic)
        parent = federation.parents.get(key)
        if parent == entry.neighbour or (parent is None and origin in ends - earlier):
            found.append(key)
    return [key for key in found if key.origin != federation.name]


class _Found:
    """Patterns, each with the nodes that bound it."""

    def __init__(self) -> None:
        self.left = ROWS_LOOKED_AT
        self._origins: dict[str, list[str]] = {}

    def add(self, origin: str, patterns: list[str]) -> None:
        for pattern in patterns[: max(0, self.left)]:
            self._origins.setdefault(pattern, []).append(origin)
        self.left -= len(patterns)

    def told(self) -> list[dict[str, Any]]:
        found = sorted(self._origins.items())[:PATTERNS_TOLD]
        return [{"pattern": pattern, "origins": sorted(origins)} for pattern, origins in found]


def _state(control: BindingControl, federation: Federation, entry: Entry) -> str:
    """`up`; `plain`: the neighbour's version knows no federation; `down`: there is no session."""
    if entry.neighbour in federation.neighbours:
        return "up"
    return "plain" if control.is_up(entry.neighbour) else "down"


def _followers(federation: Federation) -> list[dict[str, Any]]:
    """The topics that neighbours forward to this node, for which they get the bindings of this node and of nodes behind
    it."""
    return [
        {
            "topic": topic,
            "neighbour": name,
            "mode": mode,
            "sets": Ulong(sum(key.topic == topic for key in neighbour.serving.followers)),
        }
        for name, neighbour in federation.neighbours.items()
        for topic, mode in neighbour.modes.items()
    ]


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
