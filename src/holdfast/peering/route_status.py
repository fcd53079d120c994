"""The part `routing` of a node's status (docs/management.md).

Rules of this file: reads, and changes nothing.
"""

from collections.abc import Callable
from typing import Any

from holdfast.amqp.wire.types import Ulong
from holdfast.peering.routes import Routes
from holdfast.routing.records import Known
from holdfast.routing.topology import MICRO

RoutesNow = Callable[[], Routes | None]
"""The node's routing; None while it has no topology and no federation."""


def status(routes: Routes) -> dict[str, Any]:
    """The part `routing` of the node's status (docs/management.md)."""
    states = routes.states
    now = routes.clock.now
    told = {
        "acting_super": routes.acting,
        "version": Ulong(routes.version),
        "changed_s": round(now - routes.changed_at, 6),
        "digest": f"{states.digest:016x}",
        "records": len([known for known in states.known.values() if known.record.version]),
        "synchronised": routes.synchronised,
        "nodes": [
            {
                "name": name,
                "state": state_of(routes, known),
                "version": Ulong(known.record.version),
                "super": known.record.is_super,
                "links": [
                    {"to": to, "cost": None if cost is None else cost / MICRO} for to, cost in known.record.links
                ],
            }
            for name, known in sorted(states.known.items())
        ],
    }
    if routes.acting == routes.name:
        told["heartbeats"] = [
            {
                "node": name,
                "last_heard_s": None if seen.heard_at is None else round(now - seen.heard_at, 3),
                "path": [*seen.trace, routes.name] if seen.trace else [],
                "shortest": seen.shortest,
            }
            for name, seen in sorted(routes.supers.seen.items())
        ]
    return told


def state_of(routes: Routes, known: Known) -> str:
    """What this node knows of another one."""
    if known.record.left:
        return "left"
    if known.lost_by is not None:
        return "lost"
    if not routes.reaches(known.record.name):
        return "unreachable"
    return "up" if known.record.version else "not heard of"
