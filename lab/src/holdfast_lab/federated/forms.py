"""The forms of networks over which a topic goes, and the entries of their nodes.

Rules of this file: one seed, one network. No node has a topology file.
"""

from collections.abc import Callable
from itertools import combinations, pairwise
from random import Random
from typing import Final

from holdfast_lab.plan.networks import Link, LinkShape, Topology

Pairs = list[tuple[str, str]]

DELAYS_S: Final = (0.0005, 0.005, 0.03)


def _line(names: list[str], random: Random) -> Pairs:
    return list(pairwise(names))


def _star(names: list[str], random: Random) -> Pairs:
    return [(names[0], name) for name in names[1:]]


def _ring(names: list[str], random: Random) -> Pairs:
    return [*pairwise(names), (names[-1], names[0])]


def _mesh(names: list[str], random: Random) -> Pairs:
    return list(combinations(names, 2))


def _tree_of_rings(names: list[str], random: Random) -> Pairs:
    """Rings of three, each of which hangs at a node of an earlier one."""
    pairs: Pairs = []
    inside, rest = names[:1], names[1:]
    while rest:
        hung, taken, rest = random.choice(inside), rest[:2], rest[2:]
        pairs += pairwise([hung, *taken])
        if len(taken) == 2:
            pairs.append((taken[-1], hung))
        inside += taken
    return pairs


def _random(names: list[str], random: Random) -> Pairs:
    """A tree with some more links."""
    pairs = {(names[random.randrange(at)], names[at]): None for at in range(1, len(names))}
    for _ in range(len(names) // 2):
        one, other = random.sample(names, 2)
        if (other, one) not in pairs:
            pairs[one, other] = None
    return list(pairs)


FORMS: Final[dict[str, tuple[Callable[[list[str], Random], Pairs], int, int]]] = {
    "line": (_line, 3, 10),
    "star": (_star, 3, 10),
    "ring": (_ring, 3, 10),
    "full mesh": (_mesh, 3, 7),
    "tree of rings": (_tree_of_rings, 5, 11),
    "random": (_random, 4, 11),
    "one-way links": (_random, 4, 10),
    "islands that join": (_line, 4, 10),
}
"""How each is made, and of how many nodes; in the last but one some entries go in one direction, and in the last one
the link in the middle opens late."""


def drawn(form: str, random: Random) -> Topology:
    made, least, most = FORMS[form]
    names = [chr(ord("a") + number) for number in range(random.randint(least, most))]
    links = [
        Link(one=one, other=other, there=LinkShape(delay_s=random.choice(DELAYS_S), jitter_s=0.001))
        for one, other in made(names, random)
    ]
    return Topology(nodes=tuple(names), links=tuple(links))


def entries(form: str, topology: Topology, random: Random) -> list[list[str]]:
    """From node to node, each way of each link; of one-way networks, some in one direction alone."""
    found = []
    for link in topology.links:
        ways = [[link.one, link.other], [link.other, link.one]]
        found += ways if form != "one-way links" or random.random() < 0.6 else [random.choice(ways)]
    return found
