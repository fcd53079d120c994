"""What must hold at the end of a run, and when tables are right.

Rules of this file: reads the world from outside; what it expects is worked out from entries and links alone, by other
code than the nodes'.
"""

from collections import deque
from collections.abc import Iterator, Set

from holdfast.federation.modes import DYNAMIC
from holdfast.federation.rows import RELAY, WIDE, Row, covers
from holdfast.federation.sets import Key
from holdfast_lab.bindings.world import World


def owed(world: World) -> Iterator[str]:
    """Messages that a confirmed bind was owed and has not got."""
    for one in world.published.values():
        if one.lost:
            continue
        for bind in one.due:
            if bind.ended_at is None and not one.got[bind]:
                yield f"{one.site} published {one.subject} at {one.at:.3f}, and {bind.site} did not get it"


def doubled(world: World) -> Iterator[str]:
    for one in world.published.values():
        for bind, times in one.got.items():
            if times > 1:
                yield f"{bind.site} got {one.subject} of {one.site} at {one.at:.3f} {times} times"


def waiting(world: World) -> Iterator[str]:
    """Binds that were asked for and never answered."""
    for site in world.sites.values():
        if site.alive and site.core.confirming.binds:
            yield f"{len(site.core.confirming.binds)} binds wait at {site.name}"
        if site.alive and site.outbox:
            yield f"{len(site.outbox)} branches wait at {site.name}"


def distances(world: World, start: str, topic: str) -> dict[str, int]:
    """Hops over entries of links that are up, to each node that is reached."""
    found, at = {start: 0}, deque([start])
    while at:
        name = at.popleft()
        site = world.sites[name]
        for entry in site.entries:
            end = entry.neighbour
            if entry.topic != topic or entry.mode != DYNAMIC or end in found or not site.alive:
                continue
            link = world.links[(name, end) if name < end else (end, name)]
            if link.is_up and world.sites[end].alive and end in site.links:
                found[end] = found[name] + 1
                at.append(end)
    del found[start]
    return found


def tables(world: World, topics: tuple[str, ...] = ("t",)) -> Iterator[str]:
    """Sets that differ from what their origin has, that are missing, or that nobody's entries lead to."""
    for topic in topics:
        for name, site in world.sites.items():
            if not site.alive:
                continue
            expected = distances(world, name, topic)
            held = {key.origin for key in site.core.sets.stored if key.topic == topic} - {name}
            for origin in held - expected.keys():
                yield f"{name} has a set of {origin}, to which no entries lead"
            for origin, hops in expected.items():
                key = Key(origin, topic)
                mine, theirs = site.core.sets.committed(key), world.sites[origin].core.sets.committed(key)
                if mine is None or theirs is None or (mine.rows, mine.edges) != (theirs.rows, theirs.edges):
                    yield f"{name} has not the set of {origin}"
                elif mine.edition != theirs.edition:
                    yield f"{name} has another edition of {origin}"
                parent = site.core.parents.get(key)
                if parent is None or (parent != origin and distances(world, parent, topic).get(origin) != hops - 1):
                    yield f"{name} takes {origin} from {parent}, {hops} hops away"
        for name, site in world.sites.items():
            if site.alive:
                own = site.core.sets.committed(Key(name, topic))
                wanted = {Row(bind.pattern.text) for bind in site.binds if bind.topic == topic}
                wanted |= {Row(pattern, None, RELAY) for pattern in site.core.relays.patterns(topic)}
                if own is not None and not _announces(own.rows, wanted, world.bounds.rows_max):
                    yield f"{name} announces other rows than it wants"


def _announces(rows: Set[Row], wanted: Set[Row], rows_max: int) -> bool:
    """Whether these are the rows; a summary may stay where a set has no room for both."""
    wide = {row for row in rows if row.bits & WIDE}
    if not wide:
        return rows == wanted
    covered = all(any(covers(wider.pattern, row.pattern) for wider in rows) for row in wanted)
    return covered and rows - wide <= wanted and len(rows) <= rows_max < len(wanted) + len(wide)


def diameter(world: World, topic: str = "t") -> int:
    return max((max(distances(world, name, topic).values(), default=0) for name in world.sites), default=0)


def verdict(world: World, *, owing: bool = True) -> str:
    """The first thing that is wrong, or nothing. `owing`: whether what a confirmed bind was owed is judged."""
    for check in (owed, doubled, waiting, tables) if owing else (doubled, waiting, tables):
        for text in check(world):
            return f"{check.__name__}: {text}"
    return ""
