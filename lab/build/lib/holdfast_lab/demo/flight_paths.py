"""By which path each flight came, when, and how soon after a fault it came by another one.

Rules of this file: pure functions. Times `…_s` are seconds since the sites began to send. A path is its nodes' names, a
space between two (docs/amqp.md, "Paths"); one that is not known is `NO_PATH`.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final

from holdfast.amqp.wire.extensions import PATH

NO_PATH: Final = "(not known)"
GAP_S: Final = 3.0
"""A path that nothing took for so long was left, and is another span when it is taken again."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A flight in the hub's queue. `second`: of 1970, in which it was stored, as Spark counts it."""

    airport: str
    identity: str
    path: str
    created_s: float
    stored_s: float
    second: int


@dataclass(frozen=True, slots=True)
class Event:
    """What was done: `kind` is `cut` or `heal` of the link between two nodes, `kill` or `start` of one."""

    at_s: float
    kind: str
    nodes: tuple[str, ...]

    @property
    def breaks(self) -> bool:
        return self.kind in ("cut", "kill")

    def is_on(self, path: str) -> bool:
        """Whether the path goes over that link, or that node."""
        nodes = path.split(" ")
        if len(self.nodes) == 1:
            return self.nodes[0] in nodes
        return set(self.nodes) in [set(pair) for pair in pairwise(nodes)]


@dataclass(frozen=True, slots=True)
class Use:
    """What came by one path from one airport; `spans` are (first, last) of each time that it was in use."""

    airport: str
    path: str
    flights: int
    spans: tuple[tuple[float, float], ...] = field(default=())


def arrivals_of(columns: Mapping[str, Sequence[Any]], began_s: float) -> list[Arrival]:
    """The table's rows in their order, which is the queue's. Columns: application_properties and annotations, lists of
    pairs; created and enqueued, moments in UTC. `began_s`: seconds since 1970 when the sites began to send.
    """
    wanted = (columns[name] for name in ("application_properties", "annotations", "created", "enqueued"))
    found = []
    for properties, annotations, created, enqueued in zip(*wanted, strict=True):
        fields, told = dict(properties), dict(annotations).get(PATH)
        stored_s = _epoch_s(enqueued)
        found.append(
            Arrival(
                airport=fields["origin"],
                identity=fields["id"],
                path=NO_PATH if told is None else " ".join(json.loads(told)),
                created_s=_epoch_s(created) - began_s,
                stored_s=stored_s - began_s,
                second=int(stored_s),
            )
        )
    return found


def _epoch_s(moment: datetime) -> float:
    """Parquet's moments may come without their zone: they are UTC."""
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


def identities(arrivals: Sequence[Arrival]) -> dict[str, list[str]]:
    """By airport, in the order of arrival."""
    found: dict[str, list[str]] = defaultdict(list)
    for arrival in arrivals:
        found[arrival.airport].append(arrival.identity)
    return dict(found)


def counts(arrivals: Sequence[Arrival]) -> Counter[tuple[str, str, int]]:
    """Flights by airport, path and second of 1970."""
    return Counter((arrival.airport, arrival.path, arrival.second) for arrival in arrivals)


def answered_counts(rows: Sequence[Mapping[str, Any]]) -> Counter[tuple[str, str, int]]:
    """The same from Spark's answer (`by_path` of pyspark_holdfast.flights)."""
    told = {(row["origin"], row["path"] or NO_PATH, int(row["second"])): int(row["count"]) for row in rows}
    return Counter(told)


def uses(arrivals: Sequence[Arrival]) -> list[Use]:
    """By airport, and in the order in which each path was first taken."""
    moments: dict[tuple[str, str], list[float]] = defaultdict(list)
    for arrival in sorted(arrivals, key=lambda arrival: arrival.stored_s):
        moments[arrival.airport, arrival.path].append(arrival.stored_s)
    found = []
    for (airport, path), stored in moments.items():
        begins = [stored[0], *(after for before, after in pairwise(stored) if after - before > GAP_S)]
        ends = [*(before for before, after in pairwise(stored) if after - before > GAP_S), stored[-1]]
        found.append(Use(airport, path, len(stored), tuple(zip(begins, ends, strict=True))))
    return sorted(found, key=lambda use: (use.airport, use.spans[0]))


def turned(arrivals: Sequence[Arrival], event: Event) -> dict[str, float | None]:
    """Of a cut or a kill: the airports whose flights came over what it broke, and how many seconds later the first one
    came by a path without it; None where none did.
    """
    by_airport: dict[str, list[Arrival]] = defaultdict(list)
    for arrival in sorted(arrivals, key=lambda arrival: arrival.stored_s):
        by_airport[arrival.airport].append(arrival)
    found: dict[str, float | None] = {}
    for airport, theirs in sorted(by_airport.items()):
        before = [arrival for arrival in theirs if arrival.stored_s < event.at_s]
        if event.breaks and before and event.is_on(before[-1].path):
            others = (
                arrival.stored_s - event.at_s
                for arrival in theirs
                if arrival.stored_s >= event.at_s and not event.is_on(arrival.path)
            )
            found[airport] = next(others, None)
    return found


def waiting(arrivals: Sequence[Arrival], step_s: float, end_s: float) -> dict[str, list[tuple[float, int]]]:
    """By airport, every `step_s`: flights that were sent and are not in the hub's queue yet."""
    found: dict[str, list[tuple[float, int]]] = {}
    steps = [number * step_s for number in range(int(end_s / step_s) + 1)]
    for airport in sorted({arrival.airport for arrival in arrivals}):
        changes = sorted(
            change
            for arrival in arrivals
            if arrival.airport == airport
            for change in ((arrival.created_s, 1), (arrival.stored_s, -1))
        )
        found[airport] = []
        at, count = 0, 0
        for step in steps:
            while at < len(changes) and changes[at][0] <= step:
                count += changes[at][1]
                at += 1
            found[airport].append((step, count))
    return found


def use_lines(found: Sequence[Use]) -> list[str]:
    """What a person reads of the paths."""
    width = max((len(use.path) for use in found), default=0)
    lines = [f"{'path of the flights':<{width}}  flights  seconds"]
    for use in found:
        spans = ", ".join(f"{first:.1f}-{last:.1f}" for first, last in use.spans)
        lines.append(f"{use.path:<{width}}  {use.flights:>7,}  {spans}")
    return lines


def event_line(event: Event, after: Mapping[str, float | None]) -> str:
    """`after` as `turned` found it."""
    name = "-".join(event.nodes)
    what = {
        "cut": f"link {name} cut, silently",
        "heal": f"link {name} healed",
        "kill": f"super node {name} killed with -9",
        "start": f"node {name} started again",
    }[event.kind]
    others = [
        f"{airport} {'never' if seconds is None else f'after {seconds:.1f} s'}" for airport, seconds in after.items()
    ]
    return f"{event.at_s:5.1f} s  {what}" + (f"; by another path: {', '.join(others)}" if others else "")
