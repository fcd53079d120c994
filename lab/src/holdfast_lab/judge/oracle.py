"""What the tables of a network must be, computed in the plain way: Bellman and Ford's relaxation over the links that
are up.

Rules of this file: shares nothing with `routing/`, whose tables it judges. Of equal costs the fewest hops, then the
lowest names, path compared with path (docs/adr/0015-routing.md).
"""

from collections import deque
from collections.abc import Iterable, Mapping

Way = tuple[int, int, tuple[str, ...]]
"""Cost in millionths, hops, the nodes passed with both ends: the lower is the better way."""


def ways_from(source: str, edges: Mapping[str, Mapping[str, int]]) -> dict[str, Way]:
    """The best path to each node that `source` reaches; its own is empty."""
    best: dict[str, Way] = {source: (0, 0, (source,))}
    waiting = deque([source])
    while waiting:
        at = waiting.popleft()
        cost, hops, path = best[at]
        for name, more in edges.get(at, {}).items():
            way = cost + more, hops + 1, (*path, name)
            if name not in best or way < best[name]:
                best[name] = way
                if name not in waiting:
                    waiting.append(name)
    return best


def table_of(source: str, edges: Mapping[str, Mapping[str, int]]) -> dict[str, str]:
    """Destination to next hop; what cannot be reached is left out."""
    return {name: way[2][1] for name, way in ways_from(source, edges).items() if name != source}


def parts(nodes: Iterable[str], joined: Iterable[tuple[str, str]]) -> list[list[str]]:
    """The nodes by connected part, whichever way the links lead; in the order of `nodes`."""
    near: dict[str, list[str]] = {name: [] for name in nodes}
    for one, other in joined:
        near[one].append(other)
        near[other].append(one)
    found: list[list[str]] = []
    seen: set[str] = set()
    for name in near:
        if name in seen:
            continue
        seen.add(name)
        part = [name]
        for at in part:  # grows while it is walked
            for other in near[at]:
                if other not in seen:
                    seen.add(other)
                    part.append(other)
        found.append(part)
    return found
