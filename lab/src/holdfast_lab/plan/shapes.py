"""Shapes of networks: rings, grids, trees with chords, and neighbours on a map.

Rules of this file: pairs of places, counted from 0, each once, the lower first, and all in one piece; names, costs and
delays are the caller's. Only `tree` and `geometric` draw anything.
"""

from collections.abc import Callable
from math import ceil, hypot, isqrt
from random import Random
from typing import Final

Pairs = list[tuple[int, int]]

CHORDS: Final = 0.3
"""Of a tree's nodes, so many get a chord."""
NEAREST: Final = 2
"""On a map each node is joined at least with so many of those before it."""


def ring(count: int, random: Random) -> Pairs:
    """Each with the next, the last with the first, and one chord in eight nodes."""
    pairs = [(place, place + 1) for place in range(count - 1)]
    if count > 2:
        pairs.append((0, count - 1))
    return _with_chords(pairs, count, count // 8, random)


def grid(count: int, random: Random) -> Pairs:
    """Rows as long as the grid is high, the last one may be shorter; nothing is drawn."""
    width = ceil(count / max(1, isqrt(count)))
    pairs = []
    for place in range(count):
        if place % width and place:
            pairs.append((place - 1, place))
        if place >= width:
            pairs.append((place - width, place))
    return sorted(pairs)


def tree(count: int, random: Random) -> Pairs:
    """Each with one before it, and some chords."""
    pairs = [(random.randrange(place), place) for place in range(1, count)]
    return _with_chords(pairs, count, ceil(count * CHORDS), random)


def geometric(count: int, random: Random) -> Pairs:
    """Places on a square map: each joined with the nearest of those before it."""
    places = [(random.random(), random.random()) for _ in range(count)]

    def distance(one: int, other: int) -> float:
        (x, y), (u, v) = places[one], places[other]
        return hypot(x - u, y - v)

    pairs = []
    for place in range(1, count):
        near = sorted(range(place), key=lambda other: distance(place, other))
        pairs += [(other, place) for other in sorted(near[:NEAREST])]
    return pairs


def _with_chords(pairs: Pairs, count: int, chords: int, random: Random) -> Pairs:
    found = dict.fromkeys(pairs)
    for _ in range(chords if count > 3 else 0):
        one, other = sorted(random.sample(range(count), 2))
        found[one, other] = None
    return list(found)


SHAPES: Final[dict[str, Callable[[int, Random], Pairs]]] = {
    "ring": ring,
    "grid": grid,
    "tree": tree,
    "geometric": geometric,
}
