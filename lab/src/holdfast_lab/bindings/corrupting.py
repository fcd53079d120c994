"""Corrupts all of what a node holds of federation at once: sets, stamps, digests, what it was told and what it told.

Rules of this file: only values are corrupted that memory could hold; what the node's own clients want, its entries and
its routing stay right, since all else is made of them.
"""

from random import Random
from typing import Final

from holdfast.federation.federation import Federation
from holdfast.federation.index import Index
from holdfast.federation.rows import DIGEST_END, LIFE_HIGH, STAMP_END, VOID, Row, Stamp
from holdfast.federation.serving import Base
from holdfast.federation.sets import Edition, Held, Key, make

GHOSTS: Final = ("ghost1", "ghost2")


def _stamp(rng: Random, stamp: Stamp) -> Stamp:
    kind = rng.randrange(6)
    if kind == 0:
        return Stamp(STAMP_END - 1, STAMP_END - 1)
    if kind == 1:
        return Stamp(LIFE_HIGH + rng.randrange(100), 1 + rng.randrange(9))
    if kind == 2:
        return Stamp(max(1, stamp.life - rng.randrange(1, 10_000)), 1 + rng.randrange(99))
    if kind == 3:
        return Stamp(stamp.life, stamp.version + rng.randrange(1, 9))
    if kind == 4:
        return VOID
    return stamp


def _held(rng: Random, held: Held, names: list[str]) -> Held:
    in_order = sorted(held.rows, key=lambda row: (row.pattern, row.predicate or "", row.bits))  # as each process draws
    rows = {row for row in in_order if rng.random() < 0.6}
    rows |= {Row(rng.choice(("x.y", "a.*", "#", "q.#"))) for _ in range(rng.randrange(3))}
    edges = {name for name in sorted(held.edges) if rng.random() < 0.7}
    if rng.random() < 0.4:
        edges.add(rng.choice([*names, *GHOSTS]))
    new = make(_stamp(rng, held.stamp), rows, edges)
    if rng.random() < 0.5:  # with a digest that does not fit
        wrong = rng.randrange(DIGEST_END)
        return Held(
            new.stamp, new.rows, new.edges, wrong, wrong if rng.random() < 0.5 else new.taken, new.bytes, new.marked
        )
    return new


def corrupt(core: Federation, rng: Random, names: list[str]) -> None:
    """`names`: the nodes that there are."""
    sets = core.sets
    for key, held in list(sets.stored.items()):
        if rng.random() < 0.15 and key.origin != core.name:
            del sets.stored[key]
        else:
            sets.stored[key] = _held(rng, held, names)
    for topic in sorted({key.topic for key in sets.stored}):
        for ghost in GHOSTS:
            if rng.random() < 0.5:
                edges = rng.sample([*names, *GHOSTS], 2)
                sets.stored[Key(ghost, topic)] = make(Stamp(rng.randrange(1, STAMP_END), 1), [Row("#")], edges)
        sets._indexes[topic] = Index([(rng.choice(names), [Row("z.z")])])
    sets.bytes = rng.randrange(10_000)
    for key in list(core.parents):
        if rng.random() < 0.5:
            core.parents[key] = rng.choice(names)
    core.nonces = {key: rng.randrange(DIGEST_END) for key in sets.stored}
    core.claims.clear()
    for own in core.own.values():
        own.since = {row: Stamp(rng.randrange(1, STAMP_END), 1) for row in own.since}
    for neighbour in core.neighbours.values():
        serving, taking = neighbour.serving, neighbour.taking
        for follower in serving.followers.values():
            follower.has = Edition(_stamp(rng, follower.has.stamp), rng.randrange(DIGEST_END))
            follower.sent = rng.choice((follower.sent, follower.has))
            held = rng.choice(list(core.sets.stored.values()))
            follower.compared = rng.choice((None, held))
            follower.base = rng.choice((None, Base(held.form, follower.sent, held.rows)))
            follower.whole = rng.random() < 0.5
            follower.names = {name: Stamp(rng.randrange(1, STAMP_END), 1) for name in rng.sample(names, 2)}
        for key in list(serving.followers):
            if rng.random() < 0.2:
                del serving.followers[key]
        for key in list(taking.told):
            if rng.random() < 0.2:
                del taking.told[key]
            else:
                taking.told[key].has = Edition(_stamp(rng, taking.told[key].has.stamp), rng.randrange(DIGEST_END))
                taking.told[key].names = {name: Stamp(1, 1) for name in rng.sample(names, 2)}
        taking.wanted = {key: None for key in taking.wanted if rng.random() < 0.8}
        serving.pending.clear()
        neighbour.tellings.clear()
        neighbour.later.clear()
