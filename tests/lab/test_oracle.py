"""The oracle of tables against every path there is; networks in each shape."""

from itertools import pairwise, permutations
from random import Random

import pytest

from holdfast_lab.judge.oracle import parts, table_of, ways_from
from holdfast_lab.plan.shapes import NEAREST, SHAPES


def best_of_all(edges: dict[str, dict[str, int]], source: str, target: str) -> tuple[int, int, tuple[str, ...]] | None:
    """By trying them all: the lowest cost, then the fewest hops, then the lowest names."""
    between = [name for name in edges if name not in (source, target)]
    found = []
    for count in range(len(between) + 1):
        for middle in permutations(between, count):
            path = (source, *middle, target)
            if all(end in edges[start] for start, end in pairwise(path)):
                found.append((sum(edges[start][end] for start, end in pairwise(path)), len(path) - 1, path))
    return min(found, default=None)


def test_ways_are_the_best_of_all_paths() -> None:
    """Few costs, so that most ways have rivals; some nodes are out of reach."""
    random = Random(4)
    for _ in range(60):
        edges: dict[str, dict[str, int]] = {name: {} for name in "abcdef"}
        for start, ends in edges.items():
            for end in edges:
                if start != end and random.random() < 0.35:
                    ends[end] = random.choice((1, 1, 2, 3))
        ways = ways_from("a", edges)
        for name in "bcdef":
            assert ways.get(name) == best_of_all(edges, "a", name)
        assert table_of("a", edges) == {name: way[2][1] for name, way in ways.items() if name != "a"}


def test_parts() -> None:
    assert parts("abcdef", [("e", "a"), ("b", "d"), ("d", "f")]) == [["a", "e"], ["b", "d", "f"], ["c"]]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("count", [2, 3, 8, 17, 300])
def test_a_shape_joins_all_once(shape: str, count: int) -> None:
    pairs = SHAPES[shape](count, Random(count))
    assert len(set(pairs)) == len(pairs) and all(0 <= one < other < count for one, other in pairs)
    names = [str(place) for place in range(count)]
    assert len(parts(names, [(names[one], names[other]) for one, other in pairs])) == 1
    assert len(pairs) <= NEAREST * count
