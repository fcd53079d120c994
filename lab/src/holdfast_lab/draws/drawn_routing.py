"""What a seed draws where nodes compute their own routes: larger networks, and links that fail by a random process.

Rules of this file: as in `drawn_static.py`. Every network holds together by links that carry messages both ways, and
what is taken out for good leaves it whole; so all that is sent can arrive.
"""

from itertools import pairwise
from random import Random
from typing import Final

from holdfast.routing.settings import RoutingConfig
from holdfast_lab.base.seed_tree import SeedTree
from holdfast_lab.draws.drawn_static import draw_load, draw_shape
from holdfast_lab.judge.oracle import parts
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.networks import Link, LinkShape, Topology, joined
from holdfast_lab.plan.plan import Plan
from holdfast_lab.plan.shapes import SHAPES

NODES: Final = ((8, 12), (8, 12), (8, 16), (8, 16), (12, 24), (12, 24), (16, 40))
"""How many nodes, least and most, each as likely."""
LARGE: Final = (100, 300)
LARGE_SHARE: Final = 0.005
"""Of the seeds of `swarm-routing`; such a run takes minutes."""
MIDDLING: Final = 24
"""Nodes above which links are fast and probes are rare, so that a run takes seconds."""
SAFETY_S: Final = (10.0, 30.0)
LINK_FAULTS_MAX: Final = 60
UP_S: Final = (2.0, 10.0, 30.0)
"""How long a link works on average, in the plans that have links fail."""
DOWN_S: Final = (0.2, 2.0, 8.0)
GONE_MAX: Final = 2
"""Links that are taken out for good."""
MEASURED_COSTS_SHARE: Final = 0.2
"""Of these networks, those whose links cost what is measured of them."""
SPOILT_SHARE: Final = 0.2
"""Of the seeds: plans in which nodes' tables are made wrong."""
SPOILT_REFRESH_S: Final = 4.0
"""How often tables are compared there: often enough for runs of half a minute."""
REFRESH_S: Final = (RoutingConfig().refresh_s, 3_600.0)
"""And where none are: as by default, or so rarely that news alone must make all tables right. A comparison would hide
news that was believed wrongly, or told to nobody."""
HOPS_MAX: Final = 8
"""The longest way that the windows are made for; a longer one takes its messages longer."""

Pair = tuple[str, str]


def plan_of(seed: int, *, large_share: float = 0.0) -> Plan:
    """The plan of that seed; the same on every machine. `large_share` of all seeds have networks of LARGE size; what
    any other seed draws does not depend on it."""
    seeds = SeedTree(seed).child("swarm-routing")
    nodes, links = _network(seeds.stream("graph"), large_share)
    large = len(nodes) > MIDDLING
    timing = seeds.stream("timing")
    safety_s = round(timing.uniform(*SAFETY_S), 3)
    spare = _spare(seeds.stream("spare"), nodes, links)
    supers = tuple(timing.sample(nodes, timing.choice((0, 1, 1, 1, 2, 2, 3))))
    joins: tuple[str, ...] = ()
    if timing.random() < 0.3:
        joins = tuple(name for name in timing.sample(nodes, timing.choice((1, 2))) if name not in supers)
    faults = _faults(seeds.stream("faults"), nodes, links, supers, spare, safety_s)
    spoiling = seeds.stream("wrong-tables")
    spoils = spoiling.random() < SPOILT_SHARE
    if spoils:
        faults += _wrong_tables(spoiling, nodes, safety_s)
    hops = min(HOPS_MAX, len(nodes) // 2)
    queues, workloads, limits, slowest_s = draw_load(seeds, nodes, links, faults, safety_s, hops)
    keepalive_s = max(timing.choice((1.0, 3.0) if large else (0.2, 0.5, 1.0)), round(slowest_s, 3))
    hold_time_s = round(keepalive_s * timing.uniform(2.5, 4.0), 3)
    timing.random()  # decides nothing any more: what a seed draws behind it stays as it was
    topology = Topology(
        nodes=nodes,
        links=links,
        queues=queues,
        limits=limits,
        keepalive_s=keepalive_s,
        hold_time_s=hold_time_s,
        routing=RoutingConfig(
            heartbeat_s=timing.choice((2.0, 5.0) if large else (0.5, 1.0, 2.0)),
            registration_s=timing.choice((0.2, 1.0)),
            refresh_s=SPOILT_REFRESH_S if spoils else spoiling.choice(REFRESH_S),
            cost="measured" if seeds.stream("costs").random() < MEASURED_COSTS_SHARE else "given",
        ),
        supers=supers,
        joins=joins,
    )
    drifts = {name: round(timing.uniform(-0.02, 0.02), 6) for name in nodes if timing.random() < 0.3}
    return Plan(
        name="swarm-routing",
        topology=topology,
        workloads=tuple(workloads),
        faults=tuple(sorted(faults, key=lambda fault: fault.at)),
        safety_s=safety_s,
        turn_s=timing.choice((0.000_01, 0.000_1, 0.000_1, 0.001)),
        drifts=drifts,
    )


# ------------------------------------------------------------------------------------------------------ networks


def _network(random: Random, large_share: float) -> tuple[tuple[str, ...], tuple[Link, ...]]:
    """Names in the order of their numbers, and links: their costs often tie, and some lead one way."""
    least, most = LARGE if random.random() < large_share else random.choice(NODES)
    count = random.randint(least, most)
    pairs = SHAPES[random.choice(list(SHAPES))](count, random)
    names = [f"n{place:03}" for place in range(count)]
    random.shuffle(names)
    costs = random.choice(((None,), (1.0,), (1.0, 1.0, 2.0, 3.0, 10.0), (0.5, 1.0)))
    one_way_share = random.choice((0.0, 0.0, 0.3))
    base = _spanning(count, pairs)
    links = []
    for one, other in pairs:
        chord = (one, other) not in base
        ends = [names[one], names[other]]
        random.shuffle(ends)
        if count > MIDDLING:
            shape, back = LinkShape(delay_s=random.choice((0.000_1, 0.001, 0.02))), None
        else:
            shape, back = draw_shape(random), draw_shape(random) if random.random() < 0.1 else None
        direction = "one" if chord and random.random() < one_way_share else "both"
        cost = random.choice(costs)
        links.append(Link(one=ends[0], other=ends[1], there=shape, back=back, cost=cost, direction=direction))
        if random.random() < 0.1 and direction == "both":  # both sides dial: connections that cross
            links.append(Link(one=ends[1], other=ends[0], there=shape, back=back, cost=cost))
    order = list(names)
    random.shuffle(order)
    return tuple(order), tuple(links)


def _spanning(count: int, pairs: list[tuple[int, int]]) -> dict[tuple[int, int], None]:
    """The first pairs that join all."""
    part = list(range(count))

    def root(place: int) -> int:
        while part[place] != place:
            place = part[place]
        return place

    found: dict[tuple[int, int], None] = {}
    for one, other in pairs:
        if root(one) != root(other):
            part[root(one)] = root(other)
            found[one, other] = None
    return found


def _spare(random: Random, nodes: tuple[str, ...], links: tuple[Link, ...]) -> list[Pair]:
    """Links that may go for good, all together: the network stays whole without them."""
    left = joined(link for link in links if link.direction == "both")
    found: list[Pair] = []
    for pair in random.sample(left, len(left)):
        if len(found) < GONE_MAX and len(parts(nodes, [other for other in left if other != pair])) == 1:
            left.remove(pair)
            found.append(pair)
    return found


# -------------------------------------------------------------------------------------------------------- faults


def _faults(
    random: Random,
    nodes: tuple[str, ...],
    links: tuple[Link, ...],
    supers: tuple[str, ...],
    spare: list[Pair],
    span_s: float,
) -> list[Fault]:
    pairs = joined(links)
    found: list[Fault] = []
    if random.random() < 0.8:
        found += _failing_links(random, pairs, span_s)
    if random.random() < 0.4:
        found += _split(random, nodes, pairs, span_s)
    if random.random() < 0.4:
        found += _flapping(random, random.choice(pairs), span_s)
    if supers and random.random() < 0.6:
        found += _lost_super(random, supers, found, span_s)
    found += _restarts(random, nodes, span_s)
    if spare and random.random() < 0.4:
        for pair in spare[: random.randint(1, GONE_MAX)]:
            at = random.uniform(0.0, span_s * 0.8)
            found.append(Fault(kind="remove-link", at=round(at, 6), link=pair))
    for _ in range(random.choice((0, 0, 0, 2))):
        kind = random.choice(("slow-disk", "full-disk", "slow-link", "failed-sync"))
        at, seconds = random.uniform(0.0, span_s), random.uniform(0.1, 4.0)
        if kind == "slow-link":
            link = random.choice(pairs)
            found.append(
                Fault(
                    kind=kind, at=round(at, 6), link=link, seconds=round(seconds, 6), amount=random.choice((2.0, 10.0))
                )
            )
        else:
            amount = {"slow-disk": 10.0, "full-disk": 4_096.0, "failed-sync": 0.0}[kind]
            node = random.choice(nodes)
            found.append(Fault(kind=kind, at=round(at, 6), node=node, seconds=round(seconds, 6), amount=amount))
    return found


def _broken(random: Random, link: Pair, at: float, seconds: float, kind: str) -> list[Fault]:
    """One failure of a link: silent, or with a reset, one way or both."""
    at, seconds = round(at, 6), round(seconds, 6)
    if kind in ("cut", "silent-cut"):
        return [Fault(kind=kind, at=at, link=link)]
    if kind == "reset":  # both ends are told, and cannot come back before it is over
        return [Fault(kind="cut", at=at, link=link), Fault(kind="partition", at=at, link=link, seconds=seconds)]
    if kind == "one-way" and random.random() < 0.5:
        link = link[::-1]
    return [Fault(kind=kind, at=at, link=link, seconds=seconds)]


def _failing_links(random: Random, pairs: list[Pair], span_s: float) -> list[Fault]:
    """Each link works and fails by turns, both for times that are exponentially distributed."""
    kinds = random.choice(
        (("partition",), ("reset",), ("cut",), ("partition", "reset", "cut", "silent-cut", "one-way"))
    )
    up_s, down_s = random.choice(UP_S), random.choice(DOWN_S)
    share = random.choice((0.2, 0.5, 1.0))
    found: list[Fault] = []
    for link in random.sample(pairs, len(pairs)):
        if random.random() >= share:
            continue
        at = random.expovariate(1 / up_s)
        while at < span_s and len(found) < LINK_FAULTS_MAX:
            seconds = random.expovariate(1 / down_s)
            found += _broken(random, link, at, seconds, random.choice(kinds))
            at += seconds + random.expovariate(1 / up_s)
    return found


def _split(random: Random, nodes: tuple[str, ...], pairs: list[Pair], span_s: float) -> list[Fault]:
    """The network falls into two: what lies within some hops of a node, and the rest."""
    side = {random.choice(nodes)}
    for _ in range(random.choice((0, 1, 2))):
        side |= {name for pair in pairs if side & set(pair) for name in pair}
    at, seconds = random.uniform(0.0, span_s * 0.7), random.choice((1.0, 5.0, 12.0)) * random.uniform(0.5, 1.5)
    across = [pair for pair in pairs if len(side & set(pair)) == 1]
    kind = random.choice(("partition", "reset"))
    return [fault for pair in across for fault in _broken(random, pair, at, seconds, kind)]


def _flapping(random: Random, link: Pair, span_s: float) -> list[Fault]:
    """One link that comes and goes."""
    step_s = random.choice((0.2, 1.0, 3.0))
    at = random.uniform(0.0, span_s * 0.5)
    kind = random.choice(("cut", "reset"))
    times = [at + step_s * place for place in range(random.randint(4, 12))]
    return [
        fault for when, _ in pairwise(times) if when < span_s for fault in _broken(random, link, when, step_s / 2, kind)
    ]


def _lost_super(random: Random, supers: tuple[str, ...], before: list[Fault], span_s: float) -> list[Fault]:
    """A super node dies just when it is wanted: while the news of a link is under way to it."""
    found = []
    for name in supers[: random.choice((1, 1, 2))]:
        if before and random.random() < 0.8:
            at = max(0.0, random.choice(before).at + random.choice((0.0, 0.01, 0.1, 1.0)) * random.uniform(-0.2, 1.0))
        else:
            at = random.uniform(0.0, span_s)
        seconds = random.choice((0.1, 2.0, 8.0)) * random.uniform(0.5, 1.5)
        kind = random.choice(("crash", "power", "stop"))
        found.append(Fault(kind=kind, at=round(at, 6), node=name, seconds=round(seconds, 6)))
    return found


def _wrong_tables(random: Random, nodes: tuple[str, ...], span_s: float) -> list[Fault]:
    """One to all nodes' tables hold what nobody said, at one moment or at several."""
    at = [random.uniform(0.0, span_s) for _ in range(random.choice((1, 1, 2)))]
    return [
        Fault(kind="wrong-tables", at=round(when, 6), node=name, amount=random.choice((0.1, 0.5, 1.0)))
        for when in at
        for name in random.sample(nodes, random.choice((1, 2, len(nodes))))
    ]


def _restarts(random: Random, nodes: tuple[str, ...], span_s: float) -> list[Fault]:
    """Nodes that come back to a network that went on: with an old table, an empty disk, or another time of day."""
    found = []
    for _ in range(random.choice((0, 0, 1, 2, 4))):
        name, at = random.choice(nodes), random.uniform(0.0, span_s * 0.9)
        seconds = random.choice((0.05, 1.0, 6.0)) * random.uniform(0.5, 1.5)
        kind = random.choice(("crash", "power", "stop"))
        if random.random() < 0.3:
            step = random.choice((-86_400.0, -5.0, 5.0, 86_400.0))
            found.append(Fault(kind="clock-step", at=round(max(0.0, at - 0.5), 6), node=name, amount=step))
        found.append(Fault(kind=kind, at=round(at, 6), node=name, seconds=round(seconds, 6)))
    if random.random() < 0.2:
        name, at = random.choice(nodes), random.uniform(0.0, span_s * 0.9)
        seconds = random.uniform(0.05, 4.0)
        found.append(Fault(kind="replace-disk", at=round(at, 6), node=name, seconds=round(seconds, 6)))
    return found
