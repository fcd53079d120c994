"""Histories of a few nodes that must end well, each by its name; the tests run all (docs/adr/0079, "Histories").

Rules of this file: a history says what it needs of the network, what happens, and what must have come of it. At the end
of each nothing that is owed is missing, nothing came twice, no bind waits and tables are right.
"""

from collections.abc import Callable, Iterable
from itertools import pairwise
from random import Random
from typing import Final

from holdfast.broker.subjects import Pattern
from holdfast.engine.invariants import must
from holdfast.federation.modes import STATIC
from holdfast.federation.rows import LIFE_HIGH, Row, Stamp, covers
from holdfast.federation.sets import Held, Key, stamped
from holdfast.federation.settings import Bounds, Entry
from holdfast.federation.summaries import summary
from holdfast_lab.bindings import checks
from holdfast_lab.bindings.corrupting import GHOSTS, corrupt
from holdfast_lab.bindings.site import Bind
from holdfast_lab.bindings.world import Published, World

T: Final = "t"
HISTORIES: Final[dict[str, Callable[[], None]]] = {}


def history(act: Callable[[], None]) -> Callable[[], None]:
    HISTORIES[act.__name__.strip("_").replace("_", "-")] = act
    return act


def world(
    pairs: Iterable[str],
    *,
    delay_s: float = 0.05,
    slow: str = "",
    static: Iterable[tuple[str, str, str]] = (),
    without: Iterable[str] = (),
    closed: Iterable[str] = (),
    bounds: Bounds = Bounds(),
) -> World:
    """`pairs`: links as two letters, the nodes' names; entries both ways, but for `without` (from, to). `slow`: one
    link that takes 8 s. `static`: (from, to, pattern)."""
    made = World(1, bounds=bounds)
    entries: dict[str, list[Entry]] = {}
    fixed = {(start, end): pattern for start, end, pattern in static}
    links = [(pair[0], pair[1], 8.0 if pair == slow else delay_s) for pair in pairs]
    for a, b, _ in links:
        for start, end in ((a, b), (b, a)):
            if (start, end) in fixed:
                entries.setdefault(start, []).append(Entry(T, end, STATIC, (fixed[start, end],)))
            elif start + end not in without:
                entries.setdefault(start, []).append(Entry(T, end))
    made.build(links, entries, one_way=[(pair[0], pair[1]) for pair in closed])
    made.run(80.0 if slow else 20.0)
    return made


def line(names: str) -> list[str]:
    return [a + b for a, b in pairwise(names)]


def ring(names: str) -> list[str]:
    return [*line(names), names[-1] + names[0]]


def bound(made: World, name: str, pattern: str = "x", *, durable: bool = True) -> Bind:
    """A bind that is confirmed by all."""
    bind = made.bind(name, T, pattern, durable=durable)
    assert bind is not None
    made.run(10.0)
    must(bind.complete, f"the bind at {name} is not complete", bind.waiting)
    return bind


def sent(made: World, name: str, subject: str = "x") -> Published:
    found = made.publish(name, T, subject)
    assert found is not None
    return found


def held(made: World, name: str, origin: str) -> Held:
    found = made.sites[name].core.sets.committed(Key(origin, T))
    assert found is not None, (name, origin)
    return found


def ends_well(made: World, for_s: float = 75.0) -> None:
    made.run(for_s)
    verdict = checks.verdict(made)
    must(not verdict, verdict)


def life(made: World, name: str) -> int:
    return held(made, name, name).stamp.life


# ------------------------------------------------------------------------------------------------ clients and brokers


@history
def unbind_crosses_a_message() -> None:
    made = world(line("abc"))
    bind = bound(made, "c")
    one = sent(made, "a")
    made.unbind(bind)
    ends_well(made)
    must(not one.got and made.sites["c"].unwanted == 1, "a message that nobody wants is not counted")


@history
def client_gone() -> None:
    made = world(line("abc"))
    bound(made, "c", "x", durable=False)
    bound(made, "c", "y")
    made.crash("c")
    made.run(5.0)
    made.start("c")
    ends_well(made)
    must(held(made, "a", "c").rows == {Row("y")}, "rows of a client that is gone stay", held(made, "a", "c").rows)


@history
def broker_gone_in_mid_withdrawal() -> None:
    made = world(line("abc"))
    bind = bound(made, "c")
    made.unbind(bind)
    made.crash("c")
    one = sent(made, "a")
    made.run(20.0)
    must(bool(made.sites["b"].outbox or made.sites["a"].outbox), "the message does not wait")
    made.start("c")
    ends_well(made)
    must(not one.got and not held(made, "a", "c").rows, "what the origin stored does not win")


@history
def unbind_at_the_transit_broker_of_the_thread() -> None:
    """Qpid's proposal, the reply with three brokers: both B1 and B2 bind, B2 unbinds, and B3 must still send to B1."""
    made = world(line("123"))
    bound(made, "1", "A")
    there = bound(made, "2", "A")
    before = held(made, "3", "1")
    made.unbind(there)
    made.run(5.0)
    must(held(made, "3", "1") == before, "another's set was touched")
    one = sent(made, "3", "A")
    ends_well(made)
    must(bool(one.due) and sum(one.got.values()) == 1, "B1 did not get the message")


@history
def transit_broker() -> None:
    made = world(line("abc"))
    bound(made, "c")
    found = held(made, "a", "b")
    must(not found.rows and found.edges == {"a", "c"}, "a transit node has edges and no rows", found.rows, found.edges)
    ends_well(made)


# ------------------------------------------------------------------------------------------------ rings and versions


@history
def ring_link_down_new_parent_older() -> None:
    made = world(ring("oabc"), slow="co")  # b hears of o by a, and by c later
    must(made.sites["b"].core.parents[Key("o", T)] == "a", "the way over a is not taken")
    before = life(made, "o")
    made.bind("o", T, "x")
    made.run(0.4)
    stamp = held(made, "b", "o").stamp
    must(held(made, "c", "o").stamp <= stamp and held(made, "b", "o").rows == {Row("x")}, "b has not the row yet")
    made.cut("o", "a")
    for _ in range(40):
        made.run(0.2)
        must(held(made, "b", "o").stamp >= stamp and held(made, "b", "o").rows == {Row("x")}, "b took an older set")
    must(made.sites["b"].core.parents[Key("o", T)] == "c", "b has not turned to c")
    must(life(made, "o") == before, "the origin did not ignore the claim")
    ends_well(made)


@history
def ring_link_up() -> None:
    made = world(ring("oabc"))
    made.cut("o", "a")
    made.run(20.0)
    must(made.sites["a"].core.parents[Key("o", T)] == "b", "a takes o from elsewhere")
    made.mend("o", "a")
    made.run(20.0)
    must(made.sites["a"].core.parents[Key("o", T)] == "o", "a does not take o from o again")
    ends_well(made)


@history
def restart_with_the_same_store() -> None:
    made = world(line("abc"))
    bound(made, "c")
    before = life(made, "c")
    added: list[object] = []
    receive = made.sites["b"].core.receive

    def watched(name: str, fields: dict[str, object], now: float) -> str | None:
        if fields["kind"] in ("change", "rows") and (fields.get("add") or fields.get("rows")):
            added.append(fields)
        return receive(name, fields, now)

    made.sites["b"].core.receive = watched  # type: ignore[method-assign]
    made.crash("c")
    made.run(5.0)
    made.start("c")
    ends_well(made)
    must(life(made, "c") > before and not added, "a restart is not a new life without rows", added)


@history
def new_store_clock_back() -> None:
    made = world(line("abc"))
    bound(made, "c")
    before = life(made, "c")
    made.crash("c")
    made.run(2.0)
    made.start("c", new_store=True, clock_ms=-500_000)
    ends_well(made)
    must(life(made, "c") > before and not held(made, "a", "c").rows, "the origin did not go past", life(made, "c"))


@history
def stale_set_announced() -> None:
    made = world(ring("oabc"))
    bound(made, "o")
    core, now = made.sites["b"].core, made.now
    right = held(made, "b", "o")
    for name, stamp in (("a", Stamp(right.stamp.life - 1, 9)), ("c", Stamp(right.stamp.life + 9, 9))):
        edition = [stamp.life, stamp.version, 7]
        fields = {"kind": "rows", "origin": "o", "topic": T, "to": edition, "prefix": "", "rows": [], "edges": []}
        must(core.receive(name, fields, now) is None, "an old set ends the session")
    must(core.sets.current(Key("o", T)) == right, "a lower set, or one that is not the parent's, was taken")
    ends_well(made)


@history
def stamp_at_its_maximum() -> None:
    made = world(line("abcd"))
    bound(made, "a")
    core = made.sites["c"].core
    key = Key("a", T)
    core.sets.stored[key] = stamped(core.sets.stored[key], Stamp(LIFE_HIGH + 5, 5))
    ends_well(made)
    must(made.kinds["void"] > 0, "the origin did not begin anew")
    must(held(made, "c", "a").stamp.life < LIFE_HIGH, "a stamp at its end stays")


@history
def answer_of_an_old_life() -> None:
    made = world(line("ab"))
    bound(made, "a")
    made.crash("a")
    made.run(5.0)
    made.start("a")
    core, key = made.sites["a"].core, Key("a", T)
    made.run(0.5)
    old = core.sets.current(key)
    assert old is not None
    core.down("b", made.now)
    core.up("b", made.now)
    edition = [old.stamp.life - 1, 50, old.digest]
    core.receive("b", {"kind": "federate", "rows": [[T, "dynamic"]]}, made.now)
    core.receive("b", {"kind": "follow", "rows": [["a", T, *edition]], "stop": [], "whole": True}, made.now)
    told = {"kind": "stored", "origin": "a", "topic": T, "has": edition, "whole": True, "names": []}
    core.receive("b", told, made.now)
    token = core.confirm(T, Row("x"), made.now, 0.0)
    answer = next(answer for answer in core.answers() if answer.token == token)
    must(answer.confirmed == (), "an answer of an old life counts", answer)
    must("b" in answer.waiting, "who has an old life's version is not waited for", answer)


# ------------------------------------------------------------------------------------------------ ways


@history
def two_paths() -> None:
    made = world(["pa", "pb", "ad", "bd"])
    bound(made, "d")
    one = sent(made, "p")
    ends_well(made)
    must(sum(one.got.values()) == 1 and made.singles[one.publication] == 2, "more than one branch, or not two hops")


@history
def parents_in_a_circle() -> None:
    """Nothing counts to infinity: parents come from routing, and both keep what they have."""
    made = world(["oa", "ob", "ab"])
    bound(made, "o")
    a, b = made.sites["a"].core, made.sites["b"].core
    before = held(made, "a", "o"), held(made, "b", "o")
    up = {name: dict(ends) for name, ends in a.routes.up.items()}
    del up["a"]["o"]
    a.route(type(a.routes)(up), made.now)
    up = {name: dict(ends) for name, ends in b.routes.up.items()}
    del up["b"]["o"]
    b.route(type(b.routes)(up), made.now)
    key = Key("o", T)
    must((a.parents[key], b.parents[key]) == ("b", "a"), "the parents are in no circle", a.parents[key], b.parents[key])
    for name in "ab":
        made.after(made.sites[name])
    made.run(40.0)
    must((held(made, "a", "o"), held(made, "b", "o")) == before, "a set went")
    for core in (a, b):
        core.route(made.sites["o"].core.routes, made.now)
    ends_well(made)


@history
def re_routed_in_flight() -> None:
    made = world(["pa", "ad", "pb", "bd"])
    bound(made, "d")
    one = sent(made, "p")
    made.run(0.07)  # it is at a, and its answer on the way back
    made.cut("p", "a")
    ends_well(made)
    must(sum(one.got.values()) == 1 and made.sites["d"].suppressed == 1, "one identity is not suppressed")


@history
def one_way_link() -> None:
    made = world(line("abc"), without=["ba", "cb"], closed=["ba", "cb"])
    bound(made, "c")
    one = sent(made, "a")
    must(Key("a", T) not in made.sites["c"].core.sets.stored, "a set came with the direction of an edge")
    ends_well(made)
    must(sum(one.got.values()) == 1, "the message did not come")


@history
def no_topology_file() -> None:
    made = World(1)
    links = [(a, b, 0.05) for a, b in pairwise("abcd")]
    entries: dict[str, list[Entry]] = {}
    for a, b, _ in links:
        entries.setdefault(a, []).append(Entry(T, b))
        entries.setdefault(b, []).append(Entry(T, a))
    made.knows_topology = False
    made.build(links, entries)
    made.run(20.0)
    bound(made, "d")
    one = sent(made, "a")
    ends_well(made)
    must(sum(one.got.values()) == 1, "the message did not come")


@history
def split_heals_and_both_changed() -> None:
    made = world(ring("abcdef"))
    bound(made, "a", "x")
    made.cut("a", "b")
    made.cut("d", "e")
    made.run(10.0)
    made.bind("b", T, "y")
    made.bind("a", T, "z")
    made.run(10.0)
    made.mend("a", "b")
    made.mend("d", "e")
    ends_well(made)
    must(held(made, "c", "a").rows == {Row("x"), Row("z")}, "c has not what a changed")
    must(held(made, "f", "b").rows == {Row("y")}, "f has not what b changed")


@history
def confirmed_then_the_link_dies() -> None:
    made = world(line("abc"))
    bound(made, "c")
    made.cut("b", "c")
    made.run(20.0)
    one = sent(made, "a")
    made.run(100.0)
    must(bool(one.due) and not one.got, "the message is not owed, or came over a dead link")
    made.mend("b", "c")
    ends_well(made)
    must(sum(one.got.values()) == 1, "it did not wait in custody")


# ------------------------------------------------------------------------------------------------ entries


@history
def late_joiner() -> None:
    made = world(line("abc"), without=["cb"])
    early = bound(made, "a")
    must("c" not in early.confirmed, "who forwards nothing has confirmed", early.confirmed)
    made.configure("c", [Entry(T, "b")])
    made.run(10.0)
    must(made.sites["c"].core.sets.stored.keys() >= {Key("a", T), Key("b", T)}, "c does not follow all")
    late = bound(made, "a", "y")
    must("c" in late.confirmed and "c" not in early.confirmed, "an earlier answer names c")
    ends_well(made)


@history
def entry_removed_while_a_bind_waits() -> None:
    made = world(line("abc"))
    bound(made, "a")
    made.configure("c", [])
    made.run(1.5)
    bind = made.bind("a", T, "y")
    assert bind is not None
    made.run(2.0)
    must(bind.answered_at is None, "who confirmed before is not waited for")
    made.run(8.0)
    must(bind.complete and "c" not in bind.confirmed, "it is waited for without end", bind.waiting)
    ends_well(made)


@history
def static_and_dynamic_mixed() -> None:
    made = world(ring("abcd"), static=[("a", "b", "x"), ("b", "c", "#")])
    bound(made, "c")
    bound(made, "b")
    one = sent(made, "a")
    two = sent(made, "d")
    made.run(75.0)
    must(set(one.got.values()) == set(two.got.values()) == {1}, "missed or doubled", one.got.values(), two.got.values())
    must(sum(site.suppressed for site in made.sites.values()) > 0, "no copy was suppressed by its publication")


@history
def relays_target_carried_it_before() -> None:
    made = world(line("pnx"), static=[("x", "n", "x")])
    made.run(10.0)
    one = sent(made, "p")
    made.run(0.07)  # n carries it to x, and has not delivered it
    made.bind("n", T, "x")
    made.run(60.0)
    must(list(one.got.values()) == [1], "who merely carried it has not got it", one.got.values())


@history
def capability_missing() -> None:
    made = World(1)
    made.plain = {"b"}
    entries = {"a": [Entry(T, "b", STATIC, ("x",))], "c": [Entry(T, "a")]}
    made.build([("a", "b", 0.05), ("a", "c", 0.05)], entries)
    made.run(20.0)
    bind = made.bind("b", T, "x")
    assert bind is not None
    made.run(20.0)
    one = sent(made, "c")
    made.run(60.0)
    must(one.got[bind] == 1, "a static entry does not reach a neighbour that lacks the capability")
    must(Key("b", T) not in made.sites["a"].core.sets.stored, "a set came from who has no bindings")


@history
def failed_commit() -> None:
    """Stored before said: what the disk of a node refuses it has not said, and has not."""
    made = world(line("abc"))
    before = held(made, "b", "c")
    made.sites["a"].committing = True  # its disk hangs
    bind = made.bind("c", T, "x")
    assert bind is not None
    made.run(0.03)  # it is on disk at c
    made.refusing = 1.0
    for _ in range(30):
        made.run(0.2)
        must(not bind.confirmed, "b has confirmed what its disk refused", bind.confirmed)
        must(held(made, "b", "c") == before, "b has what its disk refused")
        must(Key("c", T) not in made.sites["a"].core.sets.staged, "b has said what its disk refused")
    made.refusing = 0.0
    made.sites["a"].committing = False
    ends_well(made)
    must(set(bind.confirmed) == {"a", "b"}, "the bind is not confirmed when the disks take it", bind.waiting)


@history
def replaced_by_what_it_covers() -> None:
    """A bind that another one has confirmed gets all while its own row takes the place of the other's."""
    made = world(line("ab"))
    wide = bound(made, "b", "#")
    made.commit_s = (0.5, 0.5)
    first = made.bind("b", T, "y")
    made.run(0.1)  # while that is being stored, both change
    later = made.bind("b", T, "x")
    must(later is not None and later.complete, "what covers a bind does not confirm it")
    made.unbind(wide)
    for _ in range(40):
        made.run(0.1)
        sent(made, "a")
    must({row.pattern for row in held(made, "a", "b").rows} == {"x", "y"}, "a has not what took the place", first)
    ends_well(made)


@history
def withdrawn_while_another_is_bound() -> None:
    """What covers a bind, and is being withdrawn when that comes, does not confirm it."""
    made = world(line("ab"))
    bind = bound(made, "b", "#")
    made.commit_s = (1.0, 1.0)
    made.unbind(bind)
    made.run(0.3)
    must(held(made, "a", "b").rows != frozenset(), "`#` is withdrawn at once")
    later = made.bind("b", T, "x")
    assert later is not None
    while not later.complete:
        made.run(0.1)
        must(later.answered_at is None or later.complete, "the bind is not confirmed", later.waiting)
    made.run(1.0)
    must({row.pattern for row in held(made, "a", "b").rows} == {"x"}, "a has not what it confirmed")
    one = sent(made, "a")
    ends_well(made)
    must(one.got[later] == 1, "what was published after the confirmation did not come")


# ------------------------------------------------------------------------------------------------ what is wrong


@history
def tables_corrupted_and_ghosts() -> None:
    made = world(ring("abcdef"))
    bound(made, "a")
    bound(made, "d", "y")
    made.checked = False
    rng = Random(7)
    for site in made.sites.values():
        corrupt(site.core, rng, sorted(made.sites))
    made.run((checks.diameter(made) + 2) * made.bounds.refresh_s)
    made.checked = True
    ends_well(made)
    for site in made.sites.values():
        left = [key for key in site.core.sets.stored if key.origin in GHOSTS]
        must(not left, f"ghosts at {site.name}", left)


@history
def alias_told_for_another_origin() -> None:
    made = world(line("ab"))
    core, now = made.sites["a"].core, made.now
    core.down("b", now)
    core.up("b", now)
    core.receive("b", {"kind": "federate", "rows": [[[0, T], "dynamic"]]}, now)
    text = core.receive("b", {"kind": "void", "origin": [0, "other"], "topic": 0, "nonce": 1}, now)
    must(text is not None and "alias 0" in text, "an alias may mean two names", text)


@history
def cover_wider() -> None:
    made = world(line("ab"), bounds=Bounds(keys_max=20))
    many = [f"s.{number}" for number in range(1_500)]
    for pattern in many[:-1]:
        made.sites["b"].binds.append(Bind("b", T, Pattern(pattern), True, made.now))
    bind = made.bind("b", T, many[-1])
    assert bind is not None
    made.run(1.0)
    must(bind.complete, "a summary is not confirmed in a round trip")
    found = held(made, "a", "b").rows
    must(len(found) < 500 and any(row.pattern == "s.*" for row in found), "no summary is announced", len(found))
    sent(made, "a", "s.none")
    one = sent(made, "a", many[-1])
    ends_well(made)
    must(made.sites["b"].unwanted == 1 and one.got[bind] == 1, "what a summary brings beyond is not counted")
    must(len(held(made, "a", "b").rows) == 1_500, "the exact rows did not follow", len(held(made, "a", "b").rows))


@history
def one_more_than_a_set_holds() -> None:
    made = world(line("abc"), bounds=Bounds(keys_max=1, rows_max=5))
    binds = [bound(made, "c", f"k.{number}") for number in range(5)]
    made.commit_s = (1.0, 1.0)
    for _ in range(2):
        more = made.bind("c", T, "j.1")
        assert more is not None
        for _ in range(80):
            made.run(0.1)
            must(len(held(made, "a", "c").rows) <= 5, "a set has more rows than a node keeps", held(made, "a", "c"))
            for bind in binds:
                sent(made, "a", bind.pattern.text)
        must(more.complete and bool(sent(made, "a", "j.1").due), "what is in a summary is not confirmed", more.waiting)
        made.run(5.0)
        made.unbind(more)
        made.run(20.0)
        exact = {Row(bind.pattern.text) for bind in binds}
        must(held(made, "a", "c").rows == exact, "the exact rows did not come back", held(made, "a", "c").rows)
    ends_well(made)


@history
def cover_narrower() -> None:
    rows = [Row(f"a.{number}.b") for number in range(50)] + [Row("#")]
    wide = summary(rows)
    must(all(any(covers(one.pattern, row.pattern) for one in wide) for row in rows), "a summary is narrower", wide)
    must({row.pattern for row in wide} == {"#"}, "`#` does not stand for what is covered by nothing else", wide)
