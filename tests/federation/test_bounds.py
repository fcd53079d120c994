"""What one node holds for others and asks of them is bounded, and an honest neighbour keeps to it."""

import gc
import tracemalloc
from typing import Any

import pytest

from holdfast.amqp.wire.types import Ulong
from holdfast.federation import confirming, following, serving, taking
from holdfast.federation.federation import Federation
from holdfast.federation.idle import LOOKED_MIN
from holdfast.federation.keeping import Sets
from holdfast.federation.messages import EDGES_MAX, LIST_MAX, TOPICS_MAX, PartsOf
from holdfast.federation.rows import EVERYTHING, Row, Stamp, row_hash
from holdfast.federation.serving import PARTS_KEPT, PartsCache
from holdfast.federation.sets import (
    BRANCHING,
    STEPS_MAX,
    STEPS_ROWS,
    Key,
    changed,
    difference,
    held_bytes,
    make,
)
from holdfast.federation.settings import Bounds
from holdfast.federation.validation import validate
from support.exchange import Fields, T, Together, compare_parts, rows


@pytest.mark.parametrize("count", [50, 51])
def test_rows_of_one_set_are_bounded(count: int) -> None:
    """At the bound the rows are held; one past it `#` stands for them, also further on. They are asked for again ever
    more rarely, and are held once they fit."""
    three = Together("abc", Bounds(keys_max=5_000))
    three.nodes["b"].bounds = Bounds(rows_max=50)
    for neighbour in three.nodes["b"].neighbours.values():
        neighbour.taking.rows_max = 50
    three.nodes["c"].bind(T, rows(count), three.now)
    three.settle()
    expected = set(rows(count)) if count == 50 else {EVERYTHING}
    assert three.rows("b", "c") == three.rows("a", "c") == expected
    assert three.nodes["a"].choose(T, "k.7").branches == ("c",)
    three.wait(1.0)  # names are told
    three.seen.clear()
    three.wait(65.0)
    assert ("follow" in three.kinds()) is (count == 51) and three.rows("a", "c") == expected
    three.wait(300.0)
    three.seen.clear()
    three.wait(65.0)  # two refreshes, of which none is its time
    assert set(three.kinds()) == {"federate", "compare"} and three.rows("a", "c") == expected
    three.seen.clear()
    three.nodes["c"].bind(T, [*rows(count), Row("more")], three.now)
    three.settle()
    assert "follow" not in three.kinds() and three.rows("a", "c") == {EVERYTHING}
    three.nodes["c"].bind(T, rows(3), three.now)
    three.settle()
    assert three.nodes["a"].choose(T, "k.1").branches == ("c",)
    three.wait(taking.ANEW_MAX * 30.0)
    assert three.rows("b", "c") == three.rows("a", "c") == set(rows(3))


def test_bytes_of_all_sets_are_bounded() -> None:
    two = Together("ab", Bounds(keys_max=5_000))
    most = 10 * Row("k.1").held_bytes
    two.nodes["a"].bounds = Bounds(bytes_max=most)
    two.nodes["b"].bind(T, rows(100), two.now)
    two.settle()
    assert two.rows("a", "b") == {EVERYTHING}
    assert two.nodes["a"].sets.bytes <= most


def test_binds_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.federation.federation.WAITING_MAX", 2)
    monkeypatch.setattr(confirming, "WAITING_MAX", 2)
    node = Together("ab").nodes["a"]
    node.bind(T, [Row("x")], 0.0)
    tokens = [node.confirm(T, Row("x"), 0.0, 60.0) for _ in range(3)]
    (answer,) = node.answers()
    assert answer.token == tokens[-1]
    assert not answer.complete


def test_sets_that_a_neighbour_follows_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "FOLLOWED_MAX", 20)
    node = Together("ab").nodes["a"]

    def followed(first: int, count: int) -> str | None:
        asked = [[f"n{number}", T, 0, 0, 0] for number in range(first, first + count)]
        return node.receive("b", {"kind": "follow", "rows": asked, "stop": [], "whole": True}, 0.0)

    assert followed(0, 20) is None
    assert followed(0, 21) is not None


def test_names_and_parts_of_a_neighbour_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "NAMES_MAX", 3)
    monkeypatch.setattr(serving, "REPLIES_MAX", 40)
    two = Together("ab")
    two.nodes["a"].bind(T, rows(400), two.now)
    two.settle()
    node = two.nodes["a"]
    held = node.sets.committed(Key("a", T))
    assert held is not None
    has = [*held.stamp, held.digest]

    def stored(count: int) -> str | None:
        names = [[f"n{number}", 1, 1] for number in range(count)]
        fields = {"kind": "stored", "origin": "a", "topic": T, "has": has, "whole": False, "names": names}
        return node.receive("b", fields, two.now)

    assert stored(3) is None
    assert stored(4) is not None
    monkeypatch.setattr(serving, "NAMES_MAX", 10)
    monkeypatch.setattr(serving, "NAMES_ALL_MAX", 3)
    assert stored(3) is None
    assert stored(4) is not None
    asked = {"kind": "parts", "origin": "a", "topic": T, "to": has, "prefix": "0", "digests": [1] * 16}
    assert node.receive("b", asked, two.now) is None
    assert not node.neighbours["b"].serving.replies, "it was not sent these parts"
    compare_parts(node, "b", two.now)
    assert node.receive("b", {**asked, "to": [*held.stamp, held.digest + 1]}, two.now) is None
    assert not node.neighbours["b"].serving.replies, "of another edition"
    for _ in range(3):
        assert node.receive("b", asked, two.now) is None
    assert len(node.neighbours["b"].serving.replies) == 40


@pytest.mark.parametrize("kind", ["follow", "stored", "compare"])
def test_a_comparison_of_parts_that_the_neighbour_has_given_up_holds_up_nothing(kind: str) -> None:
    """It asks anew, its own stamp is void, or it has the same to compare at a refresh: it is sent what it lacks."""
    two = Together("ab", Bounds(keys_max=5_000))
    node = two.nodes["b"]
    node.bind(T, rows(400), two.now)
    two.settle()
    compare_parts(node, "a", two.now)
    assert node.take("a", 200, two.now) == []
    count, digest = node.neighbours["a"].serving.digest
    said: dict[str, dict[str, Any]] = {
        "follow": {"rows": [["b", T, Ulong(0), Ulong(0), Ulong(0)]], "stop": [], "whole": False},
        "stored": {"origin": "b", "topic": T, "has": [0, 0, 1], "whole": False, "names": []},
        "compare": {"count": Ulong(count), "digest": Ulong(digest), "again": False},
    }
    assert node.receive("a", {"kind": kind, **said[kind]}, two.now) is None
    assert {"change", "parts"} & {message["kind"] for message in node.take("a", 200, two.now)}


def test_topics_that_a_neighbour_names_one_after_another_take_no_place_from_others() -> None:
    node = Federation("a", 1, 0.0)
    for name in ("hostile", "b"):
        node.up(name, 0.0)
    for turn in range(40):
        topics = [f"no.{turn}.{number}" for number in range(TOPICS_MAX)]
        rows_of = [["a", topic, Ulong(0), Ulong(0), Ulong(0)] for topic in topics[:LIST_MAX]]
        federate = {"kind": "federate", "rows": [[topic, "dynamic"] for topic in topics]}
        follow: dict[str, Any] = {"kind": "follow", "rows": rows_of, "stop": [], "whole": False}
        assert node.receive("hostile", federate, 0.0) is None
        assert node.receive("hostile", follow, 0.0) is None
        while node.records(0.0):
            node.committed(0.0)
        validate(node)
        assert len(node.own) < LOOKED_MIN + TOPICS_MAX
    assert node.receive("b", {"kind": "federate", "rows": [[T, "dynamic"]]}, 0.0) is None
    assert T in node.spread()
    node.bind(T, [Row("x")], 0.0)
    held = node.sets.current(Key("a", T))
    assert held is not None and held.rows == {Row("x")}
    node.down("hostile", 0.0)
    while node.next_deadline(60.0) <= 60.0:
        node.tick(60.0)
        if node.records(60.0):
            node.committed(60.0)
    assert node.own.keys() == {T}, "what nobody needs goes"


def test_a_large_set_is_taken_by_a_bounded_number_of_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that joins asks for no more at once than the other keeps answers for, and is answered all the same."""
    monkeypatch.setattr(serving, "PART_ROWS", 1)
    monkeypatch.setattr(taking, "OPEN_MAX", 5)
    two = Together("ab", Bounds(keys_max=50_000))
    for one, other in ("ab", "ba"):
        two.nodes[one].down(other, two.now)
    two.nodes["b"].bind(T, rows(500), two.now)
    two.settle()
    most = 0

    def watched(start: str, end: str, fields: Fields) -> Fields:
        nonlocal most
        most = max(most, len(two.nodes["b"].neighbours["a"].serving.replies))
        return fields

    two.change = watched
    for one, other in ("ab", "ba"):
        two.nodes[one].up(other, two.now)
    two.settle()
    assert two.rows("a", "b") == set(rows(500))
    assert 5 < most <= 2 * 5 * BRANCHING
    assert not two.nodes["a"].neighbours["b"].taking.open


def test_who_asks_faster_than_it_is_answered_has_all_after_refreshes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an earlier version does, which knows no bound: what finds no place is left to the next refresh."""
    monkeypatch.setattr(serving, "PART_ROWS", 1)
    monkeypatch.setattr(serving, "REPLIES_MAX", 30)
    two = Together("ab", Bounds(keys_max=50_000))
    for one, other in ("ab", "ba"):
        two.nodes[one].down(other, two.now)
    two.nodes["b"].bind(T, rows(120), two.now)
    two.settle()
    for one, other in ("ab", "ba"):
        two.nodes[one].up(other, two.now)
    two.settle()
    assert two.rows("a", "b") != set(rows(120))
    two.wait(8 * 30.0, step_s=15.0)
    assert two.rows("a", "b") == set(rows(120))


def test_parts_that_were_not_asked_for_are_passed_over() -> None:
    two = Together("ab", Bounds(keys_max=5_000))
    node, asked = two.nodes["a"], two.nodes["a"].neighbours["b"].taking
    head = {"origin": "b", "topic": T, "to": [5_000, 7, 1]}
    start = {"kind": "parts", "prefix": "", "digests": [1] * BRANCHING, "edges": ["a"]}
    assert node.receive("b", {**head, **start}, two.now) is None
    assert len(asked.repairs[Key("b", T)].asked) == BRANCHING
    for number in range(100):
        assert node.receive("b", {**head, "kind": "rows", "prefix": f"{number:08x}", "rows": []}, two.now) is None
        parts = {"kind": "parts", "prefix": f"{number:06x}", "digests": [1] * BRANCHING}
        assert node.receive("b", {**head, **parts}, two.now) is None
    assert len(asked.repairs[Key("b", T)].received) == 0
    assert asked.questions == BRANCHING
    validate(node)


def test_what_a_repair_holds_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a set that never comes out right count before it does; past the bound `#` stands for them."""
    two = Together("ab", Bounds(keys_max=5_000))
    node, taken = two.nodes["a"], two.nodes["a"].neighbours["b"].taking
    row = Row("a." + "x" * 100)
    taken.bytes_max = row.held_bytes - 1
    head = {"origin": "b", "topic": T, "to": [5_000, 7, 1]}
    start = {"kind": "parts", "prefix": "", "digests": [1] * BRANCHING, "edges": ["a"]}
    assert node.receive("b", {**head, **start}, two.now) is None
    prefix = f"{row_hash(row):016x}"[:2]
    assert node.receive("b", {**head, "kind": "rows", "prefix": prefix, "rows": [row.pattern]}, two.now) is None
    held = node.sets.current(Key("b", T))
    assert held is not None and held.rows == {EVERYTHING}
    assert not taken.repairs and taken.repair_bytes == 0
    validate(node)


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_question_costs_little_while_its_parts_are_at_hand(goes_on: bool) -> None:
    """Those that are compared, also where the set has changed since."""
    node = Together("ab", Bounds(keys_max=5_000)).nodes["b"]
    node.bind(T, rows(400), 0.0)
    node.records(0.0)
    node.committed(0.0)
    held = node.sets.committed(Key("b", T))
    assert held is not None
    question = PartsOf(Key("b", T), held.edition, "0", (0,) * BRANCHING)
    compare_parts(node, "a", 0.0)
    if goes_on:
        node.rebind(T, [Row("new")], [], 0.0)
        assert node.records(0.0)
        node.committed(0.0)
    node.cache = PartsCache()
    assert node.effort("a", question) == 5
    node.apply("a", question)
    assert node.effort("a", question) == 1


def test_parts_are_kept_of_the_sets_that_were_asked_for_last() -> None:
    cache = PartsCache()
    held = [make(Stamp(1, number), rows(1, number), ()) for number in range(PARTS_KEPT + 1)]
    for one in (*held[:-1], held[0], held[-1]):
        cache.of(Key("b", T), one)
    assert [cache.has(one) for one in held] == [True, False, *[True] * (PARTS_KEPT - 1)]


def test_a_node_takes_no_more_sets_of_a_neighbour_than_that_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each keeps to the bound that it would end a session for; what is left out is counted."""
    monkeypatch.setattr(following, "FOLLOWED_MAX", 2)
    monkeypatch.setattr(serving, "FOLLOWED_MAX", 2)
    line = Together("abcde")
    for name, node in line.nodes.items():
        node.bind(T, [Row(name)], line.now)
    line.settle()
    line.wait(65.0)
    node = line.nodes["a"]
    assert len(node.sets.origins(T)) == 3 and node.following.left_out == 1
    assert node.choose(T, "b").branches == ("b",) and node.choose(T, "e").branches == ()
    line.nodes["c"].configure([], line.now)
    line.settle()
    assert node.following.left_out == 0


def test_of_more_nodes_than_are_taken_those_stay_that_were_there_first() -> None:
    line = Together("abcd", Bounds(origins_max=2))
    for name, node in line.nodes.items():
        node.bind(T, [Row(name)], line.now)
    line.settle()
    node = line.nodes["a"]
    first = set(node.parents)
    assert len(first) == 2 and node.following.left_out == 1
    line.wait(65.0)
    assert set(node.parents) == first and node.following.left_out == 1
    line.nodes["c"].configure([], line.now)
    line.settle()
    assert node.following.left_out == 0


def test_a_node_tells_no_more_names_than_its_neighbour_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is behind it and not named counts all the same: all of them are waited for."""
    monkeypatch.setattr(serving, "NAMES_MAX", 2)
    for module in (serving, taking):
        monkeypatch.setattr(module, "TOLD_MAX", 2)
    line = Together("abcde")
    line.refusing = {"e"}
    node = line.nodes["a"]
    node.bind(T, [Row("x")], line.now)
    node.confirm(T, Row("x"), line.now, 60.0)
    line.settle()
    line.wait(1.0)
    assert not node.answers()
    line.refusing = set()
    line.wait(2.0)
    (answer,) = node.answers()
    assert answer.complete and len(answer.confirmed) == 3
    monkeypatch.setattr(serving, "NAMES_ALL_MAX", 3)
    for module in (serving, taking):
        monkeypatch.setattr(module, "TOLD_ALL_MAX", 3)
    for name, each in line.nodes.items():
        each.bind(T, [Row(name)], line.now)
        for neighbour in each.neighbours.values():
            neighbour.say_again()
    line.settle()
    line.wait(35.0)
    assert max(one.taking.named for each in line.nodes.values() for one in each.neighbours.values()) == 3


def test_questions_that_nobody_answers_hold_up_others_until_the_next_refresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taking, "OPEN_MAX", 2)
    two = Together("ab")
    node, asking, key = two.nodes["a"], two.nodes["a"].neighbours["b"].taking, Key("b", T)
    start = {"kind": "parts", "origin": "b", "topic": T, "prefix": "", "digests": [1] * BRANCHING, "edges": ["a"]}
    assert node.receive("b", {**start, "to": [5_000, 7, 1]}, two.now) is None
    assert [asking.question() is not None for _ in range(3)] == [True, True, False]
    asking.refresh(node.sets.stored)
    assert [asking.question() is not None for _ in range(3)] == [True, True, False]
    assert node.receive("b", {**start, "to": [5_000, 8, 1]}, two.now) is None
    validate(node)
    assert not asking.open and asking.question() is not None
    asking.ask_again(key)
    validate(node)
    assert not asking.open and asking.question() is None


def test_what_sets_are_counted_with_is_what_they_take() -> None:
    """With the index that is asked where a message goes: about so much, and rather more than less."""
    gc.collect()
    tracemalloc.start()
    sets = Sets()
    for origin in range(4):
        edges = frozenset(f"node-{origin}-{number}" for number in range(EDGES_MAX))
        some = [Row(f"a{origin}.b{number}") for number in range(5_000)]
        sets.put(Key(f"n{origin}", T), make(Stamp(1, 1), some, edges))
    list(sets.index(T, "me").wanting("a1.b5", lambda selector: None))
    del some, edges
    gc.collect()
    takes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.8 * takes < sets.bytes < 1.4 * takes, (sets.bytes, takes)


def test_the_changes_that_led_to_a_set_have_no_more_rows_than_it() -> None:
    """However often all of its rows are replaced."""
    held = make(Stamp(1, 1), rows(500), ())
    for number in range(2 * STEPS_MAX):
        one = Row(f"one.{number}")
        held = changed(held, Stamp(1, 2 + number), add=[one, Row(f"x.{number}")], remove=[], edges=frozenset("a"))
    assert len(held.steps) == STEPS_MAX and held.bytes == held_bytes(held.rows, held.edges)
    for number in range(5):
        more = [Row(f"m{number}.{each}") for each in range(400)]
        old, held = held, changed(held, Stamp(2, number), add=more, remove=held.rows, edges=frozenset())
        assert sum(len(step.add) + len(step.remove) for step in held.steps) <= max(STEPS_ROWS, len(held.rows))
        assert difference(old, held) == (frozenset(more), old.rows)
    assert held.bytes == held_bytes(held.rows, ())
