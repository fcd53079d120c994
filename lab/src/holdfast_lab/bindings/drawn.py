"""Runs that are drawn: a network, its entries, what clients do, and what breaks.

Rules of this file: one seed, one run. Faults end before the run does; then everything must become right.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import pairwise
from random import Random
from typing import Any, Final

from holdfast.federation.modes import PUSH, STATIC
from holdfast.federation.settings import KEYS_MAX, Bounds, Entry
from holdfast_lab.bindings import checks
from holdfast_lab.bindings.world import World
from holdfast_lab.plan.knobs import KNOBS, turned

TOPIC: Final = "t"
WORDS: Final = ("a", "b", "c", "d")
PATTERNS: Final = ("a.*", "*.a", "a.b", "b.#", "#", "c.d", "*.*", "d.c", "a.#", "#.d", "b.a", "c.*")
DELAYS_S: Final = (0.002, 0.3)
COMMIT_SLOW_S: Final = (0.001, 1.0)
HEAL_S: Final = 10.0
"""After the last fault, before what is owed and waits is judged: links open again, and a refused commit is made up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How a run is drawn. Rates are a second and network. `mixed`: part of the entries that are static or push;
    `one_way`: part of the entries that go in one direction."""

    nodes: tuple[int, int] = (5, 24)
    span_s: float = 40.0
    binds: float = 0.8
    publishes: float = 3.0
    cuts: float = 0.15
    crashes: float = 0.05
    new_stores: float = 0.3
    splits: float = 0.02
    entries: float = 0.0
    refusing: float = 0.02
    mixed: float = 0.0
    one_way: float = 0.1
    long: float = 0.0
    """Part of the runs that are lines and rings, which have long ways."""
    small: bool = False
    """Whether messages, parts, sets and what is announced exactly have a few rows, and commits take up to a second, so
    that many versions are stored together: what takes tens of thousands of bindings in life."""
    bursts: float = 0.0
    """Clients that bind several patterns at once."""


CHURN: Final = Shape()
CHANGED: Final = Shape(entries=0.1, crashes=0.02, nodes=(5, 20))
MIXED: Final = Shape(mixed=0.3, cuts=0.0, crashes=0.0, splits=0.0, refusing=0.0, nodes=(5, 20), one_way=0.0)
MIXED_CUT: Final = Shape(mixed=0.3, cuts=0.1, crashes=0.0, splits=0.0, nodes=(5, 20), one_way=0.0)
SMALL: Final = Shape(small=True, bursts=0.4, cuts=0.05, crashes=0.03, nodes=(3, 12))
QUIET: Final = Shape(cuts=0.0, crashes=0.0, splits=0.0, refusing=0.0, nodes=(10, 40), one_way=0.0)


@dataclass(slots=True)
class Outcome:
    """Of one run."""

    seed: int
    nodes: int
    links: int
    diameter: int
    failure: str
    binds: int = 0
    complete: int = 0
    due: int = 0
    missed: int = 0
    doubled: int = 0
    suppressed: int = 0
    unwanted: int = 0
    lost: int = 0
    bytes: int = 0
    events: int = 0
    answers_s: tuple[float, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def network(rng: Random, count: int, *, long: bool = False) -> list[tuple[str, str, float]]:
    """A tree with some more links, or a line or a ring."""
    names = [f"n{number:02}" for number in range(count)]
    rng.shuffle(names)
    pairs: dict[tuple[str, str], None] = {}
    if long:
        pairs.update(dict.fromkeys(pairwise(names)))
        if rng.random() < 0.5:
            pairs[names[-1], names[0]] = None
    else:
        for at in range(1, count):
            pairs[names[at], names[rng.randrange(at)]] = None
        for _ in range(rng.randint(0, count // 2 + 1)):
            first, second = rng.sample(names, 2)
            if (second, first) not in pairs:
                pairs[first, second] = None
    low, high = DELAYS_S
    return [(a, b, low * (high / low) ** rng.random()) for a, b in pairs]


def entries_of(
    rng: Random, links: Iterable[tuple[str, str, float]], shape: Shape
) -> tuple[dict[str, list[Entry]], list[tuple[str, str]]]:
    """Entries by node, and the directions in which no messages go."""
    entries: dict[str, list[Entry]] = {}
    closed = []
    for a, b, _ in links:
        one_way = rng.random() < shape.one_way
        for start, end in ((a, b), (b, a)):
            if one_way and (start, end) == (b, a):
                closed.append((start, end))
                continue
            entries.setdefault(start, []).append(_entry(rng, end, shape.mixed))
    return entries, closed


def _entry(rng: Random, end: str, mixed: float) -> Entry:
    if rng.random() >= mixed:
        return Entry(TOPIC, end)
    if rng.random() < 0.5:
        return Entry(TOPIC, end, PUSH)
    return Entry(TOPIC, end, STATIC, tuple(sorted(rng.sample(PATTERNS, 3))))


def world_of(seed: int, shape: Shape) -> World:
    """The network of a seed, as it begins."""
    rng = Random(f"network {seed}")
    count = rng.randint(*shape.nodes)
    links = network(rng, count, long=rng.random() < shape.long)
    entries, closed = entries_of(rng, links, shape)
    world = World(seed, bounds=_bounds(seed) if shape.small else Bounds())
    world.refusing = shape.refusing
    world.commit_s = COMMIT_SLOW_S if shape.small else world.commit_s
    world.build(links, entries, one_way=closed)
    return world


def _bounds(seed: int) -> Bounds:
    rng = Random(f"bounds {seed}")
    keys_max, summary_bytes_s = rng.choice((1, 3, KEYS_MAX)), rng.choice((20.0, 200.0))
    return Bounds(keys_max=keys_max, summary_bytes_s=summary_bytes_s, rows_max=rng.choice((1, 2, 4, Bounds().rows_max)))


def _knobs(seed: int) -> dict[str, int]:
    rng = Random(f"knobs {seed}")
    return {name: rng.choice(values) for name, values in KNOBS.items() if name.startswith("federation.")}


class Drawn:
    """One run. What a seed draws at one moment does not depend on what the nodes did."""

    def __init__(self, seed: int, shape: Shape) -> None:
        self.seed, self.shape = seed, shape
        self.world = world_of(seed, shape)
        self.rng = Random(f"acts {seed}")
        self.names = sorted(self.world.sites)
        self.ends = sorted(self.world.links)

    def run(self) -> Outcome:
        with turned(_knobs(self.seed) if self.shape.small else {}):
            return self._run()

    def _run(self) -> Outcome:
        world, shape = self.world, self.shape
        failure = ""
        try:
            world.run(5.0)
            acts = {
                self._bind: shape.binds,
                self._publish: shape.publishes,
                self._cut: shape.cuts,
                self._crash: shape.crashes,
                self._split: shape.splits,
                self._change: shape.entries,
                self._burst: shape.bursts,
            }
            total = sum(acts.values())
            until = world.now + shape.span_s
            while world.now < until:
                world.run(self.rng.expovariate(total))
                self.rng.choices(list(acts), list(acts.values()))[0]()
            self._heal()
            # An entry that is removed takes back what its node has confirmed.
            failure = checks.verdict(world, owing=not shape.entries)
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
        return self.outcome(failure)

    def outcome(self, failure: str) -> Outcome:
        world = self.world
        found = Outcome(self.seed, len(world.sites), len(world.links), checks.diameter(world), failure)
        found.binds = len(world.binds)
        found.complete = sum(bind.complete for bind in world.binds)
        found.due = sum(len(one.due) for one in world.published.values())
        found.missed = 0 if self.shape.entries else len(list(checks.owed(world)))
        found.doubled = len(list(checks.doubled(world)))
        found.suppressed = sum(site.suppressed for site in world.sites.values())
        found.unwanted = sum(site.unwanted for site in world.sites.values())
        found.lost = sum(one.lost for one in world.published.values())
        found.bytes = sum(world.control.values())
        found.events = world.events
        found.answers_s = tuple(
            round(bind.answered_at - bind.asked_at, 4) for bind in world.binds if bind.answered_at is not None
        )
        return found

    # ------------------------------------------------------------------------------------------------ acts

    def _bind(self) -> None:
        name, pattern, durable = self.rng.choice(self.names), self.rng.choice(PATTERNS), self.rng.random() < 0.7
        ends = self.rng.random() < 0.4
        place = self.rng.random()
        if ends:
            binds = [bind for bind in self.world.binds if bind.ended_at is None]
            if binds:
                self.world.unbind(binds[int(place * len(binds))])
        else:
            self.world.bind(name, TOPIC, pattern, durable=durable)

    def _burst(self) -> None:
        name, count = self.rng.choice(self.names), self.rng.randint(2, 8)
        for pattern in self.rng.sample(PATTERNS, count):
            self.world.bind(name, TOPIC, pattern)

    def _publish(self) -> None:
        self.world.publish(self.rng.choice(self.names), TOPIC, f"{self.rng.choice(WORDS)}.{self.rng.choice(WORDS)}")

    def _cut(self) -> None:
        a, b = self.rng.choice(self.ends)
        self._cut_for(a, b, self.rng.expovariate(1 / 8))

    def _cut_for(self, a: str, b: str, for_s: float) -> None:
        self.world.cut(a, b)
        self.world.at(for_s, lambda: self.world.mend(a, b))

    def _crash(self) -> None:
        name, for_s = self.rng.choice(self.names), self.rng.expovariate(1 / 6)
        new_store = self.rng.random() < self.shape.new_stores
        clock_ms = -self.rng.randrange(100_000) if self.rng.random() < 0.5 else 0
        self.world.crash(name)
        self.world.at(for_s, lambda: self.world.start(name, new_store=new_store, clock_ms=clock_ms))

    def _split(self) -> None:
        """The network in two for a while."""
        side = set(self.rng.sample(self.names, len(self.names) // 2))
        for_s = self.rng.expovariate(1 / 8)
        for a, b in self.ends:
            if (a in side) != (b in side):
                self._cut_for(a, b, for_s)

    def _change(self) -> None:
        """An entry is removed, or comes back."""
        a, b = self.rng.choice(self.ends)
        site = self.world.sites[a]
        without = [entry for entry in site.entries if entry.neighbour != b]
        if len(without) < len(site.entries):
            self.world.configure(a, without)
        elif b in site.links:
            self.world.configure(a, (*without, Entry(TOPIC, b)))

    def _heal(self) -> None:
        world = self.world
        world.refusing = 0.0
        for a, b in self.ends:
            world.mend(a, b)
        for name in self.names:
            world.start(name)
        world.run(HEAL_S + 2 * world.bounds.refresh_s)


def run(seed: int, shape: Shape = CHURN) -> Outcome:
    return Drawn(seed, shape).run()
